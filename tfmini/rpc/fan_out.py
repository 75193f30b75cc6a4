"""Calls to several peers whose answers are awaited together."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar

from tfmini import errors
from tfmini.locks import lock
from tfmini.rpc.calls import Outcome
from tfmini.rpc.waiter import Clock

K = TypeVar("K")
T = TypeVar("T")

Begin = Callable[[Callable[[Outcome[T]], None]], Any]
"""Begins a call; its argument is to be called with the outcome once, now or later, from any thread."""
Late = Callable[[K, Outcome[T]], None]


class FanOut(Generic[K, T]):
    """The wait for the outcomes of several calls.

    It ends once: when all calls have an outcome, at the deadline, or when it is cancelled; with ``until_error`` also at
    the first error. A call that has no outcome then gets the error that ends the wait.

    Args:
      calls: what to begin, in this order, by the name of what is waited for.
      done: gets the outcomes in the order in which they have come.
      late: gets the outcome of a call that comes after the end.

    Attributes:
      is_over: whether the wait has ended.
    """

    def __init__(
        self, calls: Mapping[K, Begin[T]], done: Callable[[dict[K, Outcome[T]]], None], until_error: bool = False,
        late: Late[K, T] = lambda key, outcome: None,
    ) -> None:  # fmt: skip
        self._calls, self._done, self._until_error, self._late = dict(calls), done, until_error, late
        self._outcomes: dict[K, Outcome[T]] = {}
        self._lock = lock("fan-out")
        self._timer: Any = None
        self.is_over = False

    @property
    def waiting(self) -> list[K]:
        """The names of the calls without an outcome, in their order."""
        return [] if self.is_over else [key for key in self._calls if key not in self._outcomes]

    def begin(self) -> None:
        """Begins the calls, as long as the wait is not over. An `OpError` that one raises is its outcome.

        Any other exception ends the wait, since nobody else would, and is raised.
        """
        if not self._calls:
            self._note(None, None, True)
        for key, call in self._calls.items():
            if self.is_over:
                return
            try:
                call(lambda outcome, key=key: self._answered(key, outcome))  # type: ignore[misc]
            except errors.OpError as error:
                self._answered(key, error)
            except BaseException as error:  # even Ctrl-C
                self.cancel(errors.InternalError.of(f"{type(error).__name__}: {error}"))
                raise

    def limit(self, clock: Clock, seconds: float, error: Callable[[], errors.OpError]) -> None:
        """Sets a deadline; ``error`` is called there."""
        self._timer = clock.call_later(seconds, lambda: self.cancel(error()))
        if self.is_over:  # perhaps since before there was a timer to cancel
            self._timer.cancel()

    def cancel(self, error: errors.OpError) -> None:
        """Ends the wait with an error."""
        self._note(None, error, True)

    def _answered(self, key: K, outcome: Outcome[T]) -> None:
        if not self._note(key, outcome, self._until_error and isinstance(outcome, errors.OpError)):
            self._late(key, outcome)

    def _note(self, key: K | None, outcome: Any, ends: bool) -> bool:
        """Notes the outcome of a call, or of all that have none if it ends the wait; False: that had ended before."""
        with self._lock:
            if self.is_over:
                return False
            if key is not None:
                self._outcomes.setdefault(key, outcome)
            if ends:
                self._outcomes |= dict.fromkeys(self.waiting, outcome)
            is_last = self.is_over = len(self._outcomes) == len(self._calls)
        if is_last:
            if self._timer is not None:
                self._timer.cancel()
            self._done(self._outcomes)
        return True


def fan_out(calls: Mapping[K, Begin[T]], done: Callable[[dict[K, Outcome[T]]], None]) -> FanOut[K, T]:
    """Begins calls, and calls back with the outcomes of all, in the order in which they have come."""
    found = FanOut(calls, done)
    found.begin()
    return found


def first_error(outcomes: Mapping[Any, Outcome[Any]]) -> errors.OpError | None:
    """The error that came first; None if there is none."""
    return next((outcome for outcome in outcomes.values() if isinstance(outcome, errors.OpError)), None)
