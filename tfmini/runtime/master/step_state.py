"""The state of a step at its master: the parts that have not answered, the fetched values and the error.

Pure: events in (`part_done`, `part_failed`, `cancel`), instructions out. An error that is marked as derived never
replaces another one, so the step fails with the root cause in whatever order the errors arrive.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tfmini import errors
from tfmini.runtime.master.plan import Plan


@dataclass(frozen=True)
class Abort:
    """Tell the parts (by index) that have not answered that the step has failed."""

    parts: tuple[int, ...]
    why: str


@dataclass(frozen=True)
class Finish:
    """The step is over: with an error, or with the fetched values."""

    error: errors.OpError | None
    values: list[Any]


Instruction = Abort | Finish


class StepState:
    """The state of one run of a plan."""

    __slots__ = ("plan", "values", "waiting", "error", "over")

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.values: list[Any] = [None] * len(plan.fetches)
        self.waiting = set(range(len(plan.parts)))
        self.error: errors.OpError | None = None
        self.over = False

    def part_done(self, part: int, values: Sequence[Any]) -> list[Instruction]:
        """A part has run to its end."""
        if part not in self.waiting:
            return []
        self.waiting.discard(part)
        for index, value in zip(self.plan.parts[part].fetch_indices, values):
            self.values[index] = value
        return self._finish_if_last()

    def part_failed(self, part: int, error: errors.OpError) -> list[Instruction]:
        """A part, or the way to it, has failed: the others are told at the first failure."""
        if part not in self.waiting:
            return []
        self.waiting.discard(part)
        return self._fail(error)

    def cancel(self, error: errors.OpError) -> list[Instruction]:
        """The client gave up, the session was closed, or the time is up: the step ends at once.

        Parts that have not answered are told (again); their answers are ignored.
        """
        if self.over:
            return []
        self.error = error if self.error is None or self.error.derived else self.error
        told: list[Instruction] = [self._abort(error)] if self.waiting else []
        self.waiting.clear()
        return told + self._finish_if_last()

    def _fail(self, error: errors.OpError) -> list[Instruction]:
        told: list[Instruction] = [self._abort(error)] if self.error is None and self.waiting else []
        if self.error is None or self.error.derived and not error.derived:
            self.error = error
        return told + self._finish_if_last()

    def _abort(self, error: errors.OpError) -> Abort:
        return Abort(tuple(sorted(self.waiting)), f"The step failed elsewhere: {error.message}")

    def _finish_if_last(self) -> list[Instruction]:
        if self.waiting or self.over:
            return []
        self.over = True
        return [Finish(self.error, [] if self.error is not None else self.values)]
