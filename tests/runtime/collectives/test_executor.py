"""Calls of collectives by steps that end early."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

import numpy as np

import tfmini as tf
from tfmini import errors
from tfmini.runtime.collectives.executor import CollectiveExecutor
from tfmini.runtime.process import current_process

TASK = "/job:worker/replica:0/task:0"


class Answer:
    """A wait, of a step that has ended or not."""

    def __init__(self, is_open: bool) -> None:
        self.step = types.SimpleNamespace(step_id=1)
        self.is_open = is_open
        self.value: Any = None
        self.error: errors.OpError | None = None

    def done(self, result: Any = None) -> None:
        self.value = result

    def fail(self, error: errors.OpError) -> None:
        self.error = error

    def on_cancel(self, cause: str, cancel: Callable[[], None]) -> bool:
        return self.is_open


def call(executor: CollectiveExecutor, index: int, size: int, is_open: bool = True) -> Answer:
    attrs = {"merge_op": b"Add", "final_op": b"Id", "T": tf.float32, "group_key": 1, "group_size": size,
             "instance_key": 1}  # fmt: skip
    answer = Answer(is_open)
    node: Any = types.SimpleNamespace(op="CollectiveReduce", device=f"{TASK}/device:CPU:{index}", attrs=attrs)
    executor.begin(answer, node, np.ones(2, np.float32))
    return answer


def test_a_first_call_whose_step_has_ended_leaves_the_group_to_the_next() -> None:
    executor = CollectiveExecutor(TASK, current_process())
    call(executor, 0, 2, is_open=False)
    answers = [call(executor, index, 2) for index in range(2)]
    assert [answer.value.tolist() for answer in answers] == [[2.0, 2.0], [2.0, 2.0]]
    executor.close()


def test_a_call_whose_step_has_ended_does_not_fix_the_size_of_the_group() -> None:
    executor = CollectiveExecutor(TASK, current_process())
    call(executor, 0, 3, is_open=False)
    answers = [call(executor, index, 2) for index in range(2)]
    assert [answer.value.tolist() for answer in answers] == [[2.0, 2.0], [2.0, 2.0]]
    executor.close()
