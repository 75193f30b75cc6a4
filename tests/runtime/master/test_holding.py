"""The holds on the steps of a master's sessions."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from tfmini.runtime.master.holding import StepHolds

TASK, SOURCE = "/job:worker/replica:0/task:0", "/job:ps/replica:0/task:0"
REACTOR = SimpleNamespace(call_later=lambda seconds, function, *args: SimpleNamespace(cancel=lambda: None))


class LateSession:
    """A session that learns of a hold when the hold has just ended."""

    def __init__(self) -> None:
        self.is_held = False
        self.ends: Any = lambda: None

    def groups_on(self, task: str) -> list[Any]:
        return []

    def hold(self, uses: Any, source: str) -> None:
        self.ends()
        self.is_held = True

    def release(self, changed: bool) -> None:
        self.is_held = False

    def halted_steps(self) -> list[Any]:
        return []


def test_a_hold_that_ends_while_sessions_are_told_holds_none_of_them() -> None:
    first, made_meanwhile = LateSession(), LateSession()
    sessions: list[Any] = [first]
    holds = StepHolds(TASK, lambda: sessions, REACTOR)
    answers: list[Any] = []
    holds.hold(7, SOURCE, [], False, 30.0, 0.5, answers.append)
    assert answers == [[]] and first.is_held
    made_meanwhile.ends = lambda: holds.release(7, True)
    sessions.append(made_meanwhile)
    holds.admit(made_meanwhile)  # type: ignore[arg-type]
    assert not first.is_held and not made_meanwhile.is_held
    first.ends = lambda: holds.task_lost(SOURCE)
    holds.hold(9, SOURCE, [], False, 30.0, 0.5, answers.append)
    assert not first.is_held and not made_meanwhile.is_held
