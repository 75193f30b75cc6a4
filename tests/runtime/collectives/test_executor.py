"""Calls of collectives by steps that end early."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

import numpy as np

import tfmini as tf
from tfmini import errors
from tfmini.runtime.collectives.calls import BEGINS
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


# ---- the steps that the members of a group have finished ------------------------------------


def step(executor: CollectiveExecutor, index: int, step_id: int, begins: bool = False) -> Answer:
    """A call of one of two devices in a step."""
    attrs = {"merge_op": b"Add", "final_op": b"Id", "T": tf.float32, "group_key": 1, "group_size": 2,
             "instance_key": 1} | ({BEGINS: True} if begins else {})  # fmt: skip
    answer = Answer(True)
    answer.step.step_id = step_id
    node: Any = types.SimpleNamespace(op="CollectiveReduce", device=f"{TASK}/device:CPU:{index}", attrs=attrs)
    executor.begin(answer, node, np.ones(2, np.float32))
    return answer


def both(executor: CollectiveExecutor, first: int, second: int, begins: bool = False) -> list[Answer]:
    return [step(executor, 0, first, begins), step(executor, 1, second, begins)]


def end_life(executor: CollectiveExecutor, finished_by_one: bool) -> None:
    """A failure ends the group; where ``finished_by_one``, only the first device has got the latest result."""
    members = list(executor._members.values())
    for member in members:
        if finished_by_one and member.rank == 1:  # as if the result had not arrived
            member._ordinal -= 1
        executor.fail(member, errors.UnavailableError.of("a connection broke"))


def test_members_that_have_finished_different_steps_are_told() -> None:
    executor = CollectiveExecutor(TASK, current_process())
    both(executor, 1, 11)
    both(executor, 2, 12)
    end_life(executor, finished_by_one=True)
    for answer in both(executor, 3, 13):
        assert isinstance(answer.error, errors.FailedPreconditionError)
        text = f"at the same step: {TASK}/device:CPU:0 has finished 2, {TASK}/device:CPU:1 has finished 1."
        assert text in answer.error.message
    # Again and again, until they get the same variables.
    assert all(answer.error is not None for answer in both(executor, 4, 14))
    for answers in (both(executor, 5, 15, begins=True), both(executor, 6, 16)):
        assert [answer.value.tolist() for answer in answers] == [[2.0, 2.0]] * 2
    executor.close()


def test_members_at_the_same_step_go_on_after_a_failure() -> None:
    executor = CollectiveExecutor(TASK, current_process())
    both(executor, 1, 11)
    end_life(executor, finished_by_one=False)
    waiting = step(executor, 0, 2)
    assert waiting.error is None and waiting.value is None
    assert step(executor, 1, 12).value.tolist() == waiting.value.tolist() == [2.0, 2.0]
    # One is interrupted before the other calls: nobody has finished the step.
    begun = step(executor, 0, 3)
    end_life(executor, finished_by_one=False)
    assert begun.error is not None
    assert [answer.value.tolist() for answer in both(executor, 4, 14)] == [[2.0, 2.0]] * 2
    executor.close()


def test_a_restarted_member_joins_at_the_step_of_the_others() -> None:
    executor = CollectiveExecutor(TASK, current_process())
    both(executor, 1, 11)
    end_life(executor, finished_by_one=False)
    del executor._progress[1, f"{TASK}/device:CPU:1"]  # as in a new process
    assert [answer.value.tolist() for answer in both(executor, 2, 12)] == [[2.0, 2.0]] * 2
    end_life(executor, finished_by_one=False)
    assert {progress.finished for progress in executor._progress.values()} == {2}
    executor.close()
