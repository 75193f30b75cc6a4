"""A heap of timers with cheap cancellation, shared by the reactor and the simulated network."""

from __future__ import annotations

import heapq
import itertools
import logging
import threading
from collections.abc import Callable
from typing import Any

_log = logging.getLogger("tfmini.rpc")


def guarded(call: Callable[..., Any], args: tuple[Any, ...]) -> None:
    """Makes a call of the loop, and logs its exceptions: a bug in one handler must not end the loop."""
    try:
        call(*args)
    except Exception:  # noqa: BLE001 - see above
        _log.exception("a call from the reactor failed: %r", call)


class Timer:
    """A scheduled call. `cancel` prevents it if it has not been made."""

    __slots__ = ("_heap", "_serial", "args", "call", "when")

    def __init__(self, when: float, serial: int, call: Callable[..., Any], args: tuple[Any, ...], heap: TimerHeap):
        self.when = when
        self.call: Callable[..., Any] | None = call
        self.args = args
        self._serial = serial
        self._heap: TimerHeap | None = heap  # None: removed from it

    def __lt__(self, other: Timer) -> bool:
        return (self.when, self._serial) < (other.when, other._serial)

    def cancel(self) -> None:
        """Cancels the call. Does nothing if it has been made."""
        if self.call is not None:
            self.call, self.args = None, ()
            if self._heap is not None:
                self._heap.cancelled += 1

    def fire(self) -> None:
        """Makes the call unless it was cancelled. Called by the loop."""
        call, args = self.call, self.args
        self.call, self.args = None, ()
        if call is not None:
            call(*args)


class TimerHeap:
    """Timers by due time. Thread-safe; ties go in order of creation."""

    def __init__(self) -> None:
        self._heap: list[Timer] = []
        self.lock = threading.RLock()  # reentrant: a garbage collection while it is held may cancel a timer
        self._serial = itertools.count()
        self.cancelled = 0  # cancelled timers that are still in the heap
        self.due = float("inf")  # the due time of the earliest timer (it may be a cancelled one)

    def add(self, when: float, call: Callable[..., Any], args: tuple[Any, ...]) -> Timer:
        """Adds a call due at ``when`` (seconds on the owner's clock)."""
        timer = Timer(when, next(self._serial), call, args, self)
        with self.lock:
            if self.cancelled > 64 and self.cancelled * 2 > len(self._heap):
                self._heap = [t for t in self._heap if t.call is not None]
                heapq.heapify(self._heap)
                self.cancelled = 0
            heapq.heappush(self._heap, timer)
            self.due = self._heap[0].when
        return timer

    def pop_due(self, now: float) -> Timer | None:
        """Removes and returns the earliest timer that is due and not cancelled; None if there is none."""
        with self.lock:
            found = None
            while found is None and self._heap and (self._heap[0].call is None or self._heap[0].when <= now):
                timer = heapq.heappop(self._heap)
                timer._heap = None
                if timer.call is not None:
                    found = timer
                else:
                    self.cancelled -= 1
            self.due = self._heap[0].when if self._heap else float("inf")
        return found
