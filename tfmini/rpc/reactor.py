"""The event loop of a process: it watches every socket, and a waiting thread runs it itself.

Waking a thread costs more than a message, so a step must not switch threads. The threads follow the leader/followers
pattern. A thread that waits for a reply calls `Reactor.drive`: it becomes the *leader*, calls ``epoll_wait`` and
dispatches the events. Further waiting threads are *followers*: each sleeps on its own lock until its waiter is done or
there is no leader.

A daemon thread, the *background thread*, runs the loop when there is no leader. It stays in ``epoll_wait`` when a
leader enters, because Linux wakes the latest waiter of an epoll first: the leader gets the events, and the background
thread sleeps on. If an event arrives before the leader sleeps, the background thread handles it and, if it finishes the
leader's waiter, wakes the leader. It then *parks* outside ``epoll_wait`` until no leader polls: as the latest waiter it
would get every event. It also takes over while the leader runs a long handler.

Sources are edge-triggered: with level triggering the kernel passes every event on to the next waiter, which would wake
the background thread each time. So a callback reads until its descriptor is empty, or calls `EventSource.again`. No two
threads dispatch one source at once, so the messages of one connection are handled in order.
"""

from __future__ import annotations

import collections
import contextlib
import logging
import os
import select
import threading
import time
from _thread import allocate_lock, get_ident
from collections.abc import Callable, Sequence
from typing import Any

from tfmini.rpc.codec import decode, kind_of
from tfmini.rpc.forks import PerProcess, not_for_children
from tfmini.rpc.messages import GetTaskStatus, Hello
from tfmini.rpc.records import RemoteProtocolError
from tfmini.rpc.waiter import EventSource, Timer, TimerHeap, Waiter, guarded, unlock

_log = logging.getLogger("tfmini.rpc")

# ---- Answers a few kinds of requests while every thread that runs the loop is in a handler -------------------------
# What a task does is asked most urgently when it does nothing any more. So while the loop is stuck, a thread of its own
# reads the listeners, and handles the requests that wait for nothing: a client's Hello and `GetTaskStatus`. All other
# messages stay in their inboxes, in order, for the loop. (A kernel that holds the interpreter stops this thread, too.)

_PAUSE_S = 0.02  # between two looks at the listeners
_HELLO, _STATUS = Hello.row.kind, GetTaskStatus.row.kind

Serve = Callable[[], None]


class Relief:
    """See the module.

    Attributes:
      since: when the loop was found stuck, on the monotonic clock; None while it is not.
    """

    def __init__(self) -> None:
        self.since: float | None = None
        self._serves: list[Serve] = []
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None
        self._closed = False

    @property
    def stuck_s(self) -> float:
        """For how many seconds no thread of the loop has been free; 0: one is."""
        since = self.since
        return 0.0 if since is None else time.monotonic() - since

    def add(self, serve: Serve) -> None:
        """Calls a function again and again while the loop is stuck; it must not block."""
        self._serves.append(serve)

    def remove(self, serve: Serve) -> None:
        """Forgets a function."""
        if serve in self._serves:
            self._serves.remove(serve)

    def begin(self, since: float) -> None:
        """The loop is stuck since then. Called by the timekeeper."""
        if self.since is None and self._serves and not self._closed:
            self.since = since
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="tfmini-relief", daemon=True)
                self._thread.start()
            self._wake.set()

    def end(self) -> None:
        """A thread of the loop is free again."""
        self.since = None

    def _run(self) -> None:
        while not self._closed:
            if self.since is None:
                self._wake.clear()
                if self.since is None:
                    self._wake.wait()
                continue
            for serve in list(self._serves):
                try:
                    serve()
                except Exception:  # noqa: BLE001 - a bug in one must not stop the others
                    _log.exception("a listener could not be read while the loop is busy")
            time.sleep(_PAUSE_S)

    def close(self) -> None:
        """Ends the thread."""
        self._closed = True
        self._wake.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(5)


def is_urgent(parts: Sequence[Any]) -> bool:
    """Whether a message may be handled while the loop is stuck."""
    kind = kind_of(parts)
    if kind != _HELLO:
        return kind == _STATUS
    try:
        hello, _ = decode(parts, True)
    except RemoteProtocolError:
        return False
    return isinstance(hello, Hello) and not hello.task  # a task's Hello may end older connections, and their steps


# ---- Keeps a reactor's timers on time while all threads that run the loop are busy ---------------------------------

LATE_S = 0.25


class Timekeeper:
    """A daemon thread that fires the timers that the loop leaves more than `LATE_S` late.

    The loop itself fires timers between handlers. If every thread of the loop is in a handler that takes long (a
    kernel, a compilation, a callback), heartbeats and deadlines must not wait for it. So a timer is at most two
    `LATE_S` late, unless a kernel holds the interpreter. Like an event handler, a timer's call may therefore run
    beside other handlers.
    """

    def __init__(self, timers: TimerHeap, relief: Relief) -> None:
        self._timers = timers
        self._relief = relief
        self._end = allocate_lock()
        self._end.acquire()
        self._thread = threading.Thread(target=self._run, name="tfmini-timekeeper", daemon=True)

    def start(self) -> None:
        """Starts the thread."""
        self._thread.start()

    def _run(self) -> None:
        while not self._end.acquire(True, LATE_S):
            if (due := self._timers.due) <= time.monotonic() - LATE_S:
                self._relief.begin(due)
                self._fire()

    def runs_here(self) -> bool:
        """Whether the calling thread is this one: what it calls must not take long."""
        return get_ident() == self._thread.ident

    def _fire(self) -> None:
        while (timer := self._timers.pop_due(time.monotonic())) is not None:
            try:
                timer.fire()
            except Exception:  # noqa: BLE001 - a bug in one call must not stop the others
                _log.exception("a timer failed")

    def close(self) -> None:
        """Ends the thread."""
        unlock(self._end)
        self._relief.close()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(5)


# ---- The event loop ------------------------------------------------------------------------------------------------

_HANGUP = select.EPOLLRDHUP | select.EPOLLHUP | select.EPOLLERR
_FOREVER = float("inf")
_BATCH, _TICK = 32, 0.005  # events taken per epoll_wait; seconds between two checks of the parked background thread
_LONG_PARK = 1.0  # seconds; the leader ends it when it gets an event


class Reactor:
    """The event loop; see the module. All methods may be called from any thread.

    Args:
      has_background: whether a thread runs the loop while no other does; else only `drive` does.
    """

    def __init__(self, has_background: bool = True) -> None:
        self._has_background = has_background
        self._epoll = select.epoll()
        self._wake_fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        # Edge-triggered, so that a write wakes one thread and needs no read.
        self._epoll.register(self._wake_fd, select.EPOLLIN | select.EPOLLET)
        self._sources: dict[int, EventSource] = {}
        self._ready: collections.deque[tuple[int, int]] = collections.deque()  # events not handled yet
        self._soon: collections.deque[tuple[Callable[..., Any], tuple[Any, ...]]] = collections.deque()
        self._soon_owner = 0  # the thread that is making these calls
        self._soon_lock = allocate_lock()
        self._timers = TimerHeap()
        self.relief = Relief()
        self._timekeeper = Timekeeper(self._timers, self.relief)
        self._inside: set[int] = set()  # threads that run the loop: they check `_soon` before they sleep
        self._leader_lock = allocate_lock()
        self._leader = 0
        self._leader_waiter: Waiter | None = None
        self._followers: collections.deque[Any] = collections.deque()
        self._polling = False  # whether the leader is in epoll_wait
        self._polls = 0
        self._background: threading.Thread | None = None
        self._background_until = self._leader_until = _FOREVER
        self._park = allocate_lock()
        self._park.acquire()
        self._parked_long = self._closed = False
        self.pid = os.getpid()
        not_for_children(self)

    # -- clock ---------------------------------------------------------------------------

    now = staticmethod(time.monotonic)

    def call_soon(self, call: Callable[..., Any], *args: object) -> None:
        """Makes the call from the loop, after the events that are being dispatched. Calls stay in order."""
        self._soon.append((call, args))
        if get_ident() not in self._inside:
            self._start_background()
            self.wake()

    def call_later(self, delay: float, call: Callable[..., Any], *args: object) -> Timer:
        """Makes the call after ``delay`` seconds."""
        timer = self._timers.add(time.monotonic() + delay, call, args)
        self._start_background()
        if get_ident() not in self._inside and self._timers.due == timer.when:
            self.wake()
        return timer

    def runs_here(self) -> bool:
        """Whether the caller is a handler: its thread runs the loop, or fires timers that the loop left late."""
        return get_ident() in self._inside or self._timekeeper.runs_here()

    def wake(self) -> None:
        """Wakes the thread that is in epoll_wait."""
        try:
            os.eventfd_write(self._wake_fd, 1)
        except OSError:  # closed, or the counter is full: no thread to wake, or it is awake
            return

    # -- sources -------------------------------------------------------------------------

    def source(self, fd: int, callback: Callable[[], None], after: Callable[[], None] | None = None) -> EventSource:
        """Makes a source for `watch`. Store it first: the callback may run before `watch` returns."""
        return EventSource(fd, callback, self, after)

    def watch(self, source: EventSource, writable: bool = False) -> None:
        """Runs the source's callback whenever the descriptor becomes readable (or writable, if asked)."""
        self._sources[source.fd] = source
        self._epoll.register(source.fd, self._mask(writable))
        self._start_background()

    def watch_writable(self, source: EventSource, writable: bool) -> None:
        """Adds or removes interest in writability; events that are pending now are reported again."""
        if self._sources.get(source.fd) is source:
            with contextlib.suppress(FileNotFoundError):  # another thread has just removed the source
                self._epoll.modify(source.fd, self._mask(writable))

    def handle_again(self, fd: int) -> None:
        """Runs the callback of a source once more, after other sources. Called by a queued call."""
        self._ready.append((fd, 0))

    def unwatch(self, source: EventSource) -> None:
        """Stops watching a source; call it before closing the descriptor."""
        if self._sources.get(source.fd) is source:
            del self._sources[source.fd]
            with contextlib.suppress(OSError, ValueError):  # the descriptor or the reactor has been closed
                self._epoll.unregister(source.fd)

    @staticmethod
    def _mask(writable: bool) -> int:
        return select.EPOLLIN | select.EPOLLRDHUP | select.EPOLLET | (select.EPOLLOUT if writable else 0)

    def descriptors(self) -> list[int]:
        """Returns the descriptors that a forked child gives up."""
        return [] if self._closed else [self._epoll.fileno(), self._wake_fd, *self._sources]

    # -- driving -------------------------------------------------------------------------

    def drive(self, waiter: Waiter, deadline: float | None = None) -> bool:
        """Runs the loop in this thread until the waiter is done; returns whether it is (False: the deadline passed).

        Args:
          deadline: on this reactor's clock, in seconds; None: no limit.
        """
        if waiter.done:
            return True
        me = get_ident()
        waiter.attach(me, self)
        if self._leader == me:  # a handler waits inside the loop
            return self._run_until(waiter, deadline)
        while not waiter.done:
            if not self._leader_lock.acquire(False):
                if not self._follow(waiter, deadline):
                    return waiter.done
                continue
            self._leader, outer = me, self._leader_waiter
            try:
                return self._run_until(waiter, deadline)
            finally:
                self._leader, self._leader_waiter = 0, outer
                self._leader_lock.release()
                self._promote_follower()
        return True

    def _run_until(self, waiter: Waiter, deadline: float | None) -> bool:
        outer, self._leader_waiter = self._leader_waiter, waiter
        me = get_ident()
        nested = me in self._inside
        self._inside.add(me)
        try:
            while not waiter.done:
                self._polling = True
                # Check after setting `_polling`: a thread that adds work or sets the waiter from now on calls `wake`.
                if waiter.done:
                    break
                self._leader_until = self._timers.due
                events = self._wait(_FOREVER if deadline is None else deadline)
                self._polling = False
                self._polls += 1
                if self._parked_long:
                    self._parked_long = False
                    unlock(self._park)
                self._dispatch(events)
                if deadline is not None and not waiter.done and time.monotonic() >= deadline:
                    return False
            return True
        finally:
            self._polling = False
            self._leader_waiter = outer
            if not nested:
                self._inside.discard(me)
            elif self._ready:
                self.wake()  # the handler that has waited may go on for long

    def _follow(self, waiter: Waiter, deadline: float | None) -> bool:
        """Sleeps until the waiter is done or there may be no leader; returns False when the deadline passes."""
        sleep_lock = allocate_lock()
        sleep_lock.acquire()
        waiter.sleep_lock = sleep_lock
        self._followers.append(sleep_lock)
        in_time = False
        try:
            in_time = waiter.done or not self._leader_lock.locked()
            if not in_time:
                left = -1.0 if deadline is None else max(0.0, deadline - time.monotonic())
                in_time = sleep_lock.acquire(True, left)
            return in_time
        finally:
            waiter.sleep_lock = None
            try:
                self._followers.remove(sleep_lock)
            except ValueError:  # this thread was promoted
                if waiter.done or not in_time:
                    self._promote_follower()  # this thread no longer waits: promote another one

    def _promote_follower(self) -> None:
        try:
            unlock(self._followers.popleft())
        except IndexError:
            if self._timers.due < self._background_until or self._soon or self._ready:
                self.wake()

    def _wait(self, limit: float) -> list[tuple[int, int]]:
        """Returns the next events; none when a timer is due or the limit is reached."""
        if self._ready or self._soon and self._soon_owner in (0, get_ident()):
            return self._epoll.poll(0, _BATCH)
        due = min(self._timers.due, limit)
        if due == _FOREVER:
            return self._epoll.poll(-1, _BATCH)
        # While another thread makes the queued calls, timers that are due wait for it, or for the timekeeper.
        least = 0.0 if self._soon_owner in (0, get_ident()) else _TICK
        return self._epoll.poll(max(least, due - time.monotonic()), _BATCH)

    def _dispatch(self, events: list[tuple[int, int]]) -> None:
        """Handles events. The caller's thread is in `_inside`.

        The kernel reports an edge once, and a handler may take long or wait inside the loop. So the remaining
        events stay queued in `_ready`; the next thread that polls handles them.
        """
        ready = self._ready
        ready.extend(events)
        if len(ready) > 1 and (self._polling or self._background_until):
            self.wake()  # a sleeping thread can handle one of them
        for _ in (1, 2):  # the second time for the sources that have asked for another turn
            while ready:
                try:
                    fd, mask = ready.popleft()
                except IndexError:  # another thread took the last one
                    break
                source = self._sources.get(fd)
                if source is None:
                    continue
                if mask & _HANGUP:
                    source.hung_up = True
                try:
                    source.ready()
                except BaseException:  # KeyboardInterrupt: the event must not be lost
                    ready.append((fd, mask))
                    self.wake()
                    raise
            if self._timers.due <= time.monotonic():
                self._queue_timers()
            if self._soon:
                self._run_soon()
            if not ready:
                return

    def _queue_timers(self) -> None:
        """Queues the calls of the timers that are due, so that one thread makes them in order."""
        if self._soon_owner not in (0, get_ident()):  # a queued call may take long: the timekeeper sees the timers
            return
        self.relief.end()
        self._soon.append((self._fire_due, (time.monotonic(),)))

    def _fire_due(self, now: float) -> None:
        # One by one: if a call takes long, the timekeeper finds those behind it, such as other endpoints' heartbeats.
        while (timer := self._timers.pop_due(now)) is not None:
            guarded(timer.fire, ())

    def _run_soon(self) -> None:
        """Makes the queued calls, unless another thread is making them; that thread looks again afterwards."""
        me = get_ident()
        if self._soon_owner == me:  # a queued call runs the loop and waits for a later one
            self._make_calls()
            return
        if self._soon and self._soon_lock.acquire(False):
            self._soon_owner = me
            try:
                self._make_calls()
            finally:
                self._soon_owner = 0
                self._soon_lock.release()

    def _make_calls(self) -> None:
        # One bounded round, so that calls that queue calls cannot starve the sockets.
        for _ in range(len(self._soon)):
            if self._soon:
                guarded(*self._soon.popleft())

    # -- background thread ---------------------------------------------------------------

    def is_background_thread(self) -> bool:
        """Whether the caller runs in the background thread: no other thread then takes over the loop."""
        return self._background is threading.current_thread()

    def _start_background(self) -> None:
        if self._background is None and self._has_background and not self._closed:
            with self._timers.lock:
                if self._background is None:
                    self._background = threading.Thread(target=self._run_background, name="tfmini-reactor", daemon=True)
                    self._background.start()
                    self._timekeeper.start()

    def _run_background(self) -> None:
        self._inside.add(get_ident())
        while not self._closed:
            if self._ready or self._soon and not self._soon_owner:
                self._dispatch([] if self._polling else self._epoll.poll(0, _BATCH))
                continue
            if self._polling:
                self._wait_out_leader()
                continue
            self._background_until = self._timers.due
            try:
                # As in `_run_until`: check after setting `_background_until`.
                events = self._wait(_FOREVER)
            except (OSError, ValueError):  # closed meanwhile
                return
            self._background_until = 0.0
            self._dispatch(events)
            leader = self._leader_waiter
            if leader is not None and leader.done and any(fd == self._wake_fd for fd, _ in events):
                self.wake()  # that wake-up was meant for the leader

    def _wait_out_leader(self) -> None:
        """Parks until the leader has been outside epoll_wait for a whole tick."""
        self._background_until = 0.0
        if self._timers.due < self._leader_until:
            self.wake()  # a handler in the background thread has set an earlier timer
        while not self._closed:
            polls = self._polls
            if self._park.acquire(True, _LONG_PARK if self._parked_long else _TICK):
                continue  # the leader got an event after a long idle time: check often again
            if self._polling:
                self._parked_long = polls == self._polls
            elif polls == self._polls:
                self._parked_long = False
                return

    def close(self) -> None:
        """Stops the background thread and closes the epoll. For tests; the process's own reactor never closes."""
        self._closed = True
        self._timekeeper.close()
        self.wake()
        unlock(self._park)
        if self._background is not None and not self.is_background_thread():
            self._background.join(5)
        self._epoll.close()
        os.close(self._wake_fd)


_reactor = PerProcess(Reactor)


def get_reactor() -> Reactor:
    """Returns the reactor of this process; a forked child gets its own."""
    return _reactor.get()
