"""`Waiter`, for which a thread runs the event loop, and `Clock`, the interface of event loops."""

from __future__ import annotations

from _thread import LockType, get_ident
from collections.abc import Callable
from typing import Any, Protocol

from tfmini.rpc.timers import Timer


class Loop(Protocol):
    """An event loop that a thread may sleep in."""

    def wake(self) -> None: ...


class Waiter:
    """A condition that one thread waits for in `Reactor.drive`, until another calls `set`.

    Attributes:
      sleep_lock: on which the thread sleeps while it does not run the loop itself.
    """

    __slots__ = ("_loop", "_owner", "done", "sleep_lock")

    def __init__(self) -> None:
        self.done = False
        self.sleep_lock: LockType | None = None
        self._owner = 0
        self._loop: Loop | None = None

    def attach(self, owner: int, loop: Loop) -> None:
        """A thread begins to wait in a loop. It looks at `done` afterwards: `set` wakes it from now on."""
        self._loop, self._owner = loop, owner

    def set(self) -> None:
        """Marks the waiter as done and wakes the waiting thread. From any thread."""
        self.done = True
        if self._owner and self._owner != get_ident():
            sleep_lock, loop = self.sleep_lock, self._loop
            if sleep_lock is not None:
                unlock(sleep_lock)
            elif loop is not None:
                loop.wake()


def unlock(sleep_lock: LockType) -> None:
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
