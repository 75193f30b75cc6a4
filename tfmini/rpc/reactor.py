"""The one loop of a process: it owns every socket, and a thread that waits drives it itself.

Waking a thread costs more than a message, so a step must not hand over between threads. A
thread that waits for a reply calls `Reactor.drive`: it becomes the *leader*, sits in
``epoll_wait`` and dispatches whatever arrives, its own reply included. Further waiting threads
are *followers*: each sleeps on its own lock until its waiter is done or the lead is free.

When nobody drives, a daemon thread, the *steward*, does. It stays in ``epoll_wait`` while a
leader is there too, because Linux wakes the latest waiter of an epoll first: a leader that came
later gets the events and the steward sleeps on. Only when an event slips through before the
leader has arrived does the steward handle it; it then wakes the leader if that was what it
waited for, and stays out of ``epoll_wait`` (*parks*) until no leader is using it, since entering
after the leader would make it steal every event. A leader that is busy in a long handler is not
using it either, so one slow handler does not stop the process from answering.

Sources are edge-triggered: with level triggering the kernel passes every event on to the next
waiter, which would wake the steward each time. So a callback reads until nothing is left, or
asks to be called again with `Source.again`. One source is never dispatched by two threads at
once, so what arrives on one connection is handled in order.
"""

from __future__ import annotations

import collections
import logging
import os
import select
import threading
import time
from _thread import allocate_lock, get_ident
from collections.abc import Callable
from typing import Any

from tfmini.rpc.source import Source
from tfmini.rpc.timers import Timer, TimerHeap
from tfmini.rpc.waiter import Waiter, open_gate

_log = logging.getLogger("tfmini.rpc")

_HANGUP = select.EPOLLRDHUP | select.EPOLLHUP | select.EPOLLERR
_FOREVER = float("inf")
_BATCH = 32  # events taken per epoll_wait
_TICK = 0.005  # seconds between two looks of a parked steward
_LONG_PARK = 1.0  # seconds; ends at once when the idle leader gets something to do


class Reactor:
    """See the module. All methods may be called from any thread.

    Args:
      spin_s: seconds a leader polls before it sleeps. Sleeping at once is best when cores are
        scarce; on idle cores 50 µs of spinning can save the wake-up.
    """

    def __init__(self, spin_s: float = 0.0) -> None:
        self._spin_s = spin_s
        self._epoll = select.epoll()
        self._bell = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        # Edge-triggered, so that a ring wakes one thread and needs no reading.
        self._epoll.register(self._bell, select.EPOLLIN | select.EPOLLET)
        self._sources: dict[int, Source] = {}
        self._ready: collections.deque[tuple[int, int]] = collections.deque()  # events that nobody has handled yet
        self._soon: collections.deque[tuple[Callable[..., Any], tuple[Any, ...]]] = collections.deque()
        self._soon_owner = 0  # the thread that is making these calls
        self._soon_lock = allocate_lock()
        self._timers = TimerHeap()
        self._inside: set[int] = set()  # threads that run the loop: they look at `_soon` before they sleep
        self._lead = allocate_lock()
        self._leader = 0
        self._leader_waiter: Waiter | None = None
        self._followers: collections.deque[Any] = collections.deque()
        self._polling = False  # whether the leader is in epoll_wait
        self._turns = 0
        self._steward: threading.Thread | None = None
        self._steward_until = self._leader_until = _FOREVER
        self._park = allocate_lock()
        self._park.acquire()
        self._parked_long = False
        self._closed = False
        self.pid = os.getpid()

    # -- clock ---------------------------------------------------------------------------

    now = staticmethod(time.monotonic)

    def call_soon(self, call: Callable[..., Any], *args: Any) -> None:
        """Makes the call from the loop, after what is being dispatched. Calls stay in order."""
        self._soon.append((call, args))
        if get_ident() not in self._inside:
            self._employ_steward()
            self.kick()

    def call_later(self, delay: float, call: Callable[..., Any], *args: Any) -> Timer:
        """Makes the call after ``delay`` seconds."""
        timer = self._timers.add(time.monotonic() + delay, call, args)
        self._employ_steward()
        if get_ident() not in self._inside and self._timers.due == timer.when:
            self.kick()
        return timer

    def runs_here(self) -> bool:
        """Whether the calling code runs inside the loop, in a handler."""
        return get_ident() in self._inside

    def kick(self) -> None:
        """Wakes whoever is in epoll_wait."""
        try:
            os.eventfd_write(self._bell, 1)
        except OSError:  # closed, or rung 2**64 times: nobody left to wake, or awake
            return

    # -- sources -------------------------------------------------------------------------

    def source(self, fd: int, callback: Callable[[], None]) -> Source:
        """A source for `watch`. Store it first: the callback may run before `watch` returns."""
        return Source(fd, callback, self)

    def watch(self, source: Source, writable: bool = False) -> None:
        """Runs the source's callback on every edge of readability (and writability)."""
        self._sources[source.fd] = source
        self._epoll.register(source.fd, self._mask(writable))
        self._employ_steward()

    def watch_writable(self, source: Source, writable: bool) -> None:
        """Adds or drops interest in writability; also repeats the edges that are due now."""
        self._epoll.modify(source.fd, self._mask(writable))

    def unwatch(self, source: Source) -> None:
        """Forgets a source; call it before closing the descriptor."""
        if self._sources.get(source.fd) is source:
            del self._sources[source.fd]
            try:
                self._epoll.unregister(source.fd)
            except (OSError, ValueError):  # the descriptor or the reactor has been closed
                return

    @staticmethod
    def _mask(writable: bool) -> int:
        return select.EPOLLIN | select.EPOLLRDHUP | select.EPOLLET | (select.EPOLLOUT if writable else 0)

    # -- driving -------------------------------------------------------------------------

    def drive(self, waiter: Waiter, deadline: float | None = None) -> bool:
        """Runs the loop in this thread until the waiter is done.

        Args:
          waiter: what to wait for.
          deadline: on this reactor's clock, in seconds; None: no limit.

        Returns:
          Whether it is done (False: the deadline passed).
        """
        if waiter.done:
            return True
        me = get_ident()
        waiter._reactor = self
        waiter._owner = me
        if self._leader == me:  # a handler waits inside the loop
            return self._run_until(waiter, deadline)
        while not waiter.done:
            if not self._lead.acquire(False):
                if not self._follow(waiter, deadline):
                    return waiter.done
                continue
            self._leader, outer = me, self._leader_waiter
            try:
                return self._run_until(waiter, deadline)
            finally:
                self._leader, self._leader_waiter = 0, outer
                self._lead.release()
                self._hand_over()
        return True

    def _run_until(self, waiter: Waiter, deadline: float | None) -> bool:
        outer, self._leader_waiter = self._leader_waiter, waiter
        me = get_ident()
        nested = me in self._inside
        self._inside.add(me)
        limit = _FOREVER if deadline is None else deadline
        try:
            while not waiter.done:
                if self._soon and self._soon_owner in (0, me):
                    self._run_soon()
                    continue
                self._polling = True
                # Checked after announcing: whoever sets or leaves something from now on rings the bell.
                if waiter.done:
                    break
                if self._ready:
                    self._polling = False
                    self._dispatch([])
                    continue
                self._leader_until = self._timers.due
                events = self._wait(limit)
                self._polling = False
                self._turns += 1
                if self._parked_long:
                    self._parked_long = False
                    open_gate(self._park)
                self._dispatch(events)
                if deadline is not None and not waiter.done and time.monotonic() >= deadline:
                    return False
            return True
        finally:
            self._polling = False
            self._leader_waiter = outer
            if not nested:
                self._inside.discard(me)

    def _follow(self, waiter: Waiter, deadline: float | None) -> bool:
        """Sleeps until the waiter is done or the lead may be free; False when the time is up."""
        gate = allocate_lock()
        gate.acquire()
        waiter._gate = gate
        self._followers.append(gate)
        in_time = False
        try:
            if waiter.done or not self._lead.locked():
                in_time = True
            else:
                left = -1.0 if deadline is None else max(0.0, deadline - time.monotonic())
                in_time = gate.acquire(True, left)
            return in_time
        finally:
            waiter._gate = None
            try:
                self._followers.remove(gate)
            except ValueError:  # chosen to lead
                if waiter.done or not in_time:
                    self._hand_over()  # but no longer needs to: pass it on

    def _hand_over(self) -> None:
        try:
            open_gate(self._followers.popleft())
        except IndexError:
            if self._timers.due < self._steward_until or self._soon:
                self.kick()

    def _wait(self, limit: float) -> list[tuple[int, int]]:
        """The next events; none when a timer is due or the limit is reached."""
        if self._spin_s:
            until = time.monotonic() + self._spin_s
            while time.monotonic() < until:
                events = self._epoll.poll(0, _BATCH)
                if events:
                    return events
        due = self._timers.due
        due = min(due, limit)
        if due == _FOREVER:
            return self._epoll.poll(-1, _BATCH)
        left = due - time.monotonic()
        return self._epoll.poll(max(0.0, left), _BATCH)

    def _dispatch(self, events: list[tuple[int, int]]) -> None:
        """Handles what came. The caller's thread is in `_inside`.

        Edges come once, and a handler may take long or wait inside the loop: what came with the event that it
        handles is there for whoever goes on.
        """
        ready = self._ready
        ready.extend(events)
        if len(ready) > 1 and (self._polling or self._steward_until):
            self.kick()  # somebody else sleeps, and could take one of them
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
            except BaseException:  # Ctrl-C in the driving thread: nothing of its event may be lost
                self._soon.append((source.ready, ()))
                self.kick()
                raise
        if self._timers.due <= time.monotonic():
            self._queue_timers()
        if self._soon:
            self._run_soon()

    def _queue_timers(self) -> None:
        """Queues the calls of the timers that are due, so that they are made one after the other."""
        with self._timers.lock:
            while (timer := self._timers.pop_due(time.monotonic())) is not None:
                self._soon.append((timer.fire, ()))

    def _run_soon(self) -> None:
        me = get_ident()
        if self._soon_owner == me:  # a queued call waits inside the loop for another one
            self._make_calls()
            return
        while self._soon and self._soon_lock.acquire(False):
            self._soon_owner = me
            try:
                self._make_calls()
            finally:
                self._soon_owner = 0
                self._soon_lock.release()

    def _make_calls(self) -> None:
        # A bounded round, so that calls that queue calls cannot starve the sockets.
        for _ in range(len(self._soon)):
            if self._soon:
                self._guarded(*self._soon.popleft())

    @staticmethod
    def _guarded(call: Callable[..., Any], args: tuple[Any, ...]) -> None:
        try:
            call(*args)
        except Exception:  # noqa: BLE001 - see below
            # As in Source.ready: the loop outlives a bug in one of its users.
            _log.exception("a call from the reactor failed: %r", call)

    # -- steward -------------------------------------------------------------------------

    def is_steward(self) -> bool:
        """Whether this is the steward's thread, behind which nobody looks after the sockets."""
        return self._steward is threading.current_thread()

    def _employ_steward(self) -> None:
        if self._steward is None and not self._closed:
            with self._timers.lock:
                if self._steward is None:
                    self._steward = threading.Thread(target=self._stew, name="tfmini-reactor", daemon=True)
                    self._steward.start()

    def _stew(self) -> None:
        self._inside.add(get_ident())
        while not self._closed:
            if self._polling:
                self._wait_out_leader()
                continue
            self._steward_until = self._timers.due
            try:
                # As above: looked at after announcing.
                events = [] if self._ready else self._wait(_FOREVER)
            except (OSError, ValueError):  # closed under us
                return
            self._steward_until = 0.0
            self._dispatch(events)
            leader = self._leader_waiter
            if leader is not None and leader.done and any(fd == self._bell for fd, _ in events):
                self.kick()  # the ring was meant for the leader

    def _wait_out_leader(self) -> None:
        """Parks until the leader has neither polled nor moved for a tick."""
        self._steward_until = 0.0
        if self._timers.due < self._leader_until:
            self.kick()  # what the steward has just handled set an earlier timer
        while not self._closed:
            turns = self._turns
            if self._park.acquire(True, _LONG_PARK if self._parked_long else _TICK):
                continue  # the leader got work after a long idle time: look closely again
            if self._polling:
                self._parked_long = turns == self._turns
            elif turns == self._turns:
                self._parked_long = False
                return

    def close(self) -> None:
        """Stops the steward and releases the epoll. For tests; the process's own never closes."""
        self._closed = True
        self.kick()
        open_gate(self._park)
        if self._steward is not None and self._steward is not threading.current_thread():
            self._steward.join(5)
        self._epoll.close()
        os.close(self._bell)


_reactor: Reactor | None = None
_reactor_lock = threading.Lock()


def get_reactor() -> Reactor:
    """The reactor of this process; a forked child gets its own."""
    global _reactor
    reactor = _reactor
    if reactor is None or reactor.pid != os.getpid():
        with _reactor_lock:
            if _reactor is None or _reactor.pid != os.getpid():
                _reactor = Reactor()
            reactor = _reactor
    return reactor


def _after_fork() -> None:
    global _reactor_lock
    _reactor_lock = threading.Lock()


os.register_at_fork(after_in_child=_after_fork)
