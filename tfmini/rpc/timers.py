"""A heap of timers with cheap cancellation, shared by the reactor and the simulated network."""

from __future__ import annotations

import heapq
import itertools
import threading
from collections.abc import Callable
from typing import Any


class Timer:
    """A call in the future. `cancel` before it is due prevents it."""

    __slots__ = ("_heap", "_serial", "args", "call", "when")

    def __init__(
        self, when: float, serial: int, call: Callable[..., Any], args: tuple[Any, ...], heap: TimerHeap
    ):
        self.when = when
        self.call: Callable[..., Any] | None = call
        self.args = args
        self._serial = serial
        self._heap: TimerHeap | None = heap  # None: no longer in it

    def __lt__(self, other: Timer) -> bool:
        return (self.when, self._serial) < (other.when, other._serial)

    def cancel(self) -> None:
        """Forgets the call. Does nothing when it has been made."""
        if self.call is not None:
            self.call, self.args = None, ()
            if self._heap is not None:
                self._heap.forgotten += 1

    def fire(self) -> None:
        """Makes the call, unless it was cancelled; the loop's part."""
        call, args = self.call, self.args
        self.call, self.args = None, ()
        if call is not None:
            call(*args)


class TimerHeap:
    """Timers by due time. Thread-safe; ties go in order of creation."""

    def __init__(self) -> None:
        self._heap: list[Timer] = []
        self.lock = threading.RLock()  # a garbage collection inside it may cancel a timer
        self._serial = itertools.count()
        self.forgotten = 0
        self.due = float("inf")  # when the earliest timer is due (it may be a cancelled one)

    def add(self, when: float, call: Callable[..., Any], args: tuple[Any, ...]) -> Timer:
        """Adds a call due at ``when`` (seconds on the owner's clock)."""
        timer = Timer(when, next(self._serial), call, args, self)
        with self.lock:
            if self.forgotten > 64 and self.forgotten * 2 > len(self._heap):
                self._heap = [t for t in self._heap if t.call is not None]
                heapq.heapify(self._heap)
                self.forgotten = 0
            heapq.heappush(self._heap, timer)
            self.due = self._heap[0].when
        return timer

    def pop_due(self, now: float) -> Timer | None:
        """Takes out the earliest live timer if its time has come, for `Timer.fire`."""
        with self.lock:
            found = None
            while found is None and self._heap and (self._heap[0].call is None or self._heap[0].when <= now):
                timer = heapq.heappop(self._heap)
                timer._heap = None
                if timer.call is not None:
                    found = timer
                else:
                    self.forgotten -= 1
            self.due = self._heap[0].when if self._heap else float("inf")
        return found
