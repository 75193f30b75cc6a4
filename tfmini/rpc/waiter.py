"""What a thread waits for, and what deciding code may ask of the loop that it waits in."""

from __future__ import annotations

from _thread import get_ident
from collections.abc import Callable
from typing import Any, Protocol

from tfmini.rpc.timers import Timer


class Waiter:
    """Something that one thread drives the reactor for. Whoever finishes it calls `set`."""

    __slots__ = ("_gate", "_owner", "_reactor", "done")

    def __init__(self) -> None:
        self.done = False
        self._owner = 0
        self._gate: Any = None
        self._reactor: Any = None

    def set(self) -> None:
        """Marks it as done and wakes the thread that drives for it. From any thread."""
        self.done = True
        if self._owner and self._owner != get_ident():
            gate = self._gate
            if gate is not None:
                open_gate(gate)
            else:
                self._reactor.kick()


def open_gate(gate: Any) -> None:
    """Lets the thread go on that sleeps, or is about to sleep, on this lock."""
    try:
        gate.release()
    except RuntimeError:  # two wakers: it is open already
        return


class Clock(Protocol):
    """What deciding code may ask of a loop; real and simulated reactors both have it."""

    def now(self) -> float: ...
    def call_soon(self, call: Callable[..., Any], *args: Any) -> None: ...
    def call_later(self, delay: float, call: Callable[..., Any], *args: Any) -> Timer: ...
    def drive(self, waiter: Waiter, deadline: float | None = None) -> bool: ...
