"""A `Wait` for tests: it remembers the answer, and its step can be ended."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from tfmini import errors

PENDING = object()


class FakeWait:
    """Attributes: ``answers`` (must never be more than one), ``cause``, ``ended``."""

    def __init__(self) -> None:
        self.step = SimpleNamespace(id=0, step_id=0)
        self.answers: list[Any] = []
        self.cause = ""
        self.ended = False
        self._cancel: Callable[[], None] | None = None

    def done(self, result: Any = None) -> bool:
        if self.ended:
            return False
        self.answers.append(result)
        return True

    def fail(self, error: errors.OpError) -> bool:
        return self.done(error)

    def on_cancel(self, cause: str, cancel: Callable[[], None]) -> bool:
        self.cause, self._cancel = cause, cancel
        return not self.ended

    def end_step(self) -> None:
        """What a closed session, a timeout or a failed partition does."""
        self.ended = True
        if self._cancel is not None and not self.answers:
            self._cancel()

    @property
    def value(self) -> Any:
        """The answer, PENDING while there is none; an error is raised."""
        assert len(self.answers) <= 1, "answered twice"
        if not self.answers:
            return PENDING
        if isinstance(self.answers[0], errors.OpError):
            raise self.answers[0]
        return self.answers[0]

    @property
    def is_pending(self) -> bool:
        return not self.answers
