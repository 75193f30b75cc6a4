"""The waits of a running step, told by its tasks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from tfmini import errors
from tfmini.rpc.calls import Outcome
from tfmini.rpc.fan_out import fan_out
from tfmini.rpc.messages import DescribeStep
from tfmini.runtime.executor.partition_run import PartitionRun
from tfmini.runtime.master.plan import Part

ASK_S = 2.0  # how long a task may take to answer

Told = Callable[[str], None]
"""Takes a text for people; "" when nothing is waited for."""


def describe_parts(step_id: int, parts: Sequence[Part], runs: Mapping[int, PartitionRun], told: Told) -> None:
    """Calls back with the waits of a step on some tasks.

    Args:
      parts: those that have not answered.
      runs: step id -> run, of this task.
    """

    def own(answered: Told) -> None:
        run = runs.get(step_id)
        answered("" if run is None else run.describe_wait())

    calls = {i: own if part.graph is not None else partial(_ask_task, step_id, part) for i, part in enumerate(parts)}

    def gathered(texts: Mapping[int, Outcome[str]]) -> None:
        told("; ".join(str(texts[i]) for i in sorted(texts) if texts[i]))

    fan_out(calls, gathered)


def pending_parts(step_id: int, parts: Sequence[Part], runs: Mapping[int, PartitionRun]) -> str:
    """Sentences about parts that have not answered, from what this task knows; it asks no other one.

    Args:
      runs: step id -> run, of this task.
    """
    others = [part.task for part in parts if part.graph is None]
    sentences = [f"There is no answer from {', '.join(others)}."] if others else []
    for part in parts:
        if part.graph is not None:
            run = runs.get(step_id)
            awaited = "" if run is None else run.awaited()
            sentences.append(f"{part.task} {f'waits for {awaited}' if awaited else 'computes'}.")
    return " ".join(sentences)


def _ask_task(step_id: int, part: Part, told: Told) -> None:
    def answered(answer: Any) -> None:
        if isinstance(answer, errors.OpError):
            told(f"{part.task} does not say what it waits for: {answer.message}")
        else:
            told(answer.text)

    part.peer.call(DescribeStep(step_id), answered, timeout_s=ASK_S)
