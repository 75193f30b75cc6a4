"""What event loops are made of: timers, `Waiter` (for which a thread runs the loop), event sources, and `Clock`."""

from __future__ import annotations

import heapq
import itertools
import logging
import threading
from _thread import LockType, allocate_lock, get_ident
from collections.abc import Callable
from typing import Any, Protocol

_log = logging.getLogger("tfmini.rpc")

# ---- A heap of timers with cheap cancellation, shared by the reactor and the simulated network ---------------------


def guarded(call: Callable[..., Any], args: tuple[Any, ...]) -> None:
    """Makes a call of the loop, and logs its exceptions: a bug in one handler must not end the loop."""
    try:
        call(*args)
    except Exception:  # noqa: BLE001 - see above
        _log.exception("a call from the reactor failed: %r", call)


class Timer:
    """A scheduled call. `cancel` prevents it if it has not been made."""

    __slots__ = ("_heap", "args", "call", "when")

    def __init__(self, when: float, call: Callable[..., Any], args: tuple[Any, ...], heap: TimerHeap):
        self.when = when
        self.call: Callable[..., Any] | None = call
        self.args = args
        self._heap: TimerHeap | None = heap  # None: removed from it

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
        self._heap: list[tuple[float, int, Timer]] = []  # tuples, which compare without a call of Python
        self.lock = threading.RLock()  # reentrant: a garbage collection while it is held may cancel a timer
        self._serial = itertools.count()
        self.cancelled = 0  # cancelled timers that are still in the heap
        self.due = float("inf")  # the due time of the earliest timer (it may be a cancelled one)

    def add(self, when: float, call: Callable[..., Any], args: tuple[Any, ...]) -> Timer:
        """Adds a call due at ``when`` (seconds on the owner's clock)."""
        timer = Timer(when, call, args, self)
        with self.lock:
            if self.cancelled > 64 and self.cancelled * 2 > len(self._heap):
                self._heap = [entry for entry in self._heap if entry[2].call is not None]
                heapq.heapify(self._heap)
                self.cancelled = 0
            heapq.heappush(self._heap, (when, next(self._serial), timer))
            self.due = self._heap[0][0]
        return timer

    def pop_due(self, now: float) -> Timer | None:
        """Removes and returns the earliest timer that is due and not cancelled; None if there is none."""
        with self.lock:
            found = None
            while found is None and self._heap and (self._heap[0][2].call is None or self._heap[0][0] <= now):
                timer = heapq.heappop(self._heap)[2]
                timer._heap = None
                if timer.call is not None:
                    found = timer
                else:
                    self.cancelled -= 1
            self.due = self._heap[0][0] if self._heap else float("inf")
        return found


# ---- The wait of a thread that may run the event loop meanwhile ----------------------------------------------------


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
    def call_soon(self, call: Callable[..., Any], *args: object) -> None: ...
    def call_later(self, delay: float, call: Callable[..., Any], *args: object) -> Timer: ...
    def drive(self, waiter: Waiter, deadline: float | None = None) -> bool: ...


# ---- Event sources: file descriptors that the reactor watches ------------------------------------------------------


class _Loop(Protocol):
    def call_soon(self, call: Callable[..., Any], *args: object) -> None: ...
    def handle_again(self, fd: int) -> None: ...


class EventSource:
    """A watched file descriptor. Its callback runs in one thread at a time.

    ``after`` is called after each callback and may take long, since another thread may run the callback
    meanwhile. ``hung_up`` turns true when the peer has closed its end; reading then ends with end of file.
    """

    __slots__ = ("_after", "_callback", "_is_queued", "_lock", "_pending", "_reactor", "_stopped", "fd", "hung_up")

    def __init__(
        self, fd: int, callback: Callable[[], None], reactor: _Loop, after: Callable[[], None] | None = None
    ) -> None:
        self.fd = fd
        self.hung_up = False
        self._after = after
        self._callback = callback
        self._pending = False
        self._is_queued = False  # whether the reactor has a call of `_go_on`
        self._stopped = False  # whether the callback left work for later
        self._lock = allocate_lock()
        self._reactor = reactor

    def ready(self) -> None:
        """Runs the callback; if another thread is running it, that thread runs it once more."""
        self._pending = True
        while self._pending:
            if not self._lock.acquire(False):
                return
            try:
                self._pending = self._stopped = False
                self._callback()
                if not self._stopped:
                    self._is_queued = False  # nothing is left; an interrupt may have lost the queued call
            except Exception:  # noqa: BLE001 - see below
                # A bug in one handler must not end the loop.
                _log.exception("a handler of descriptor %d failed", self.fd)
            except BaseException:  # KeyboardInterrupt: the kernel does not report again what is left unread
                self.again()
                raise
            finally:
                self._lock.release()
            if self._after is not None:
                if self._pending:
                    self.again()
                self._after()

    def look(self) -> None:
        """Runs the callback without ``after``, from a thread that does not run the loop; see `Relief`."""
        if self._lock.acquire(False):
            try:
                self._callback()
            finally:
                self._lock.release()
            self.again()  # for whatever the loop has found meanwhile, and for ``after``

    def again(self) -> None:
        """Schedules the callback, once, even if no new event arrives. From any thread.

        A callback that stops after a while, to let other sources and timers have their turn, calls it to go on.
        More than one scheduled call would multiply: each of them schedules the next ones.
        """
        self._stopped = True
        if not self._is_queued:
            self._is_queued = True
            self._reactor.call_soon(self._go_on)

    def _go_on(self) -> None:
        self._is_queued = False
        # Not here itself: the callback may take long, and queued calls run one at a time.
        self._reactor.handle_again(self.fd)
