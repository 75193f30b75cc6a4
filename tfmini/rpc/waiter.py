"""`Waiter`, for which a thread runs the event loop, and `Clock`, the interface of event loops."""

from __future__ import annotations

from _thread import get_ident
from collections.abc import Callable
from typing import Any, Protocol

from tfmini.rpc.timers import Timer


class Waiter:
    """A condition that one thread waits for in `Reactor.drive`, until another calls `set`."""

    __slots__ = ("_sleep_lock", "_owner", "_reactor", "done")

    def __init__(self) -> None:
        self.done = False
        self._owner = 0
        self._sleep_lock: Any = None
        self._reactor: Any = None

    def set(self) -> None:
        """Marks the waiter as done and wakes the waiting thread. From any thread."""
        self.done = True
        if self._owner and self._owner != get_ident():
            sleep_lock = self._sleep_lock
            if sleep_lock is not None:
                unlock(sleep_lock)
            else:
                self._reactor.wake()


def unlock(sleep_lock: Any) -> None:
    """Wakes the thread that sleeps, or is about to sleep, on this lock."""
    try:
        sleep_lock.release()
    except RuntimeError:  # another thread has released it already
        return


class Clock(Protocol):
    """The interface of an event loop for code without I/O; the real and the simulated reactor implement it."""

    def now(self) -> float: ...
    def call_soon(self, call: Callable[..., Any], *args: Any) -> None: ...
    def call_later(self, delay: float, call: Callable[..., Any], *args: Any) -> Timer: ...
    def drive(self, waiter: Waiter, deadline: float | None = None) -> bool: ...
