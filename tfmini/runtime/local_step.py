"""A step that is one function call: the whole of a run that neither leaves its task nor waits."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from tfmini import errors
from tfmini.runtime.dead import DEAD
from tfmini.runtime.ownership import make_private
from tfmini.runtime.program import Program
from tfmini.runtime.step_errors import dead_fetch, kernel_error


class LocalStep:
    """The step context of kernels in a step that is one function call."""

    __slots__ = ("step_id", "state", "owner", "stopped", "_why")

    def __init__(self, step_id: int, owner: Any) -> None:
        self.step_id = step_id
        self.owner = owner
        self.state: dict[str, Any] = {}
        self.stopped = False
        self._why = ""

    @property
    def run(self) -> LocalStep:
        """Itself, as `StepRun.run`."""
        return self

    def stop(self, why: str) -> None:
        """Ends the loop that is under way."""
        self._why = why
        self.stopped = True

    def raise_stopped(self) -> None:
        """As in `StepRun`."""
        raise errors.CancelledError(None, None, self._why)


class TimedStep(LocalStep):
    """A `LocalStep` whose loops end when its time is up.

    Args:
      timeout_s: seconds from now.
    """

    __slots__ = ("timeout_s", "deadline", "_stopped")

    def __init__(self, step_id: int, owner: Any, timeout_s: float) -> None:
        super().__init__(step_id, owner)
        self.timeout_s = timeout_s
        self.deadline = time.monotonic() + timeout_s

    @property
    def stopped(self) -> bool:
        return self._stopped or time.monotonic() > self.deadline

    @stopped.setter
    def stopped(self, value: bool) -> None:
        self._stopped = value

    def raise_stopped(self) -> None:
        """Ends a loop that takes too long."""
        if self._stopped:
            super().raise_stopped()
        text = f"Timed out waiting for notification: no result in {self.timeout_s:g} s; a while loop is under way."
        raise errors.DeadlineExceededError(None, None, text)


def run_simple(program: Program, feeds: Sequence[Any], step: Any, task: str) -> list[Any]:
    """Runs a program of one segment as a function call: the whole of a local step.

    Raises:
      OpError: what the failing kernel gave.
    """
    slots = program.template.copy()
    for slot, value in zip(program.feeds, feeds):
        slots[slot] = value
    try:
        with np.errstate(all="ignore"):
            for segment in program.segments:
                segment.run(step, slots)
    except Exception as error:  # noqa: BLE001 - translated at the boundary of the step
        raise kernel_error(error, task) from (None if isinstance(error, errors.OpError) else error)
    values = [slots[s] for s in program.fetches]
    if program.uncertain and any(value is DEAD for value in values):
        raise dead_fetch([value is DEAD for value in values].index(True))
    del slots
    return make_private(values)
