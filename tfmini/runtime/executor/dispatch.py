"""Which thread runs segments that have become ready.

* In the thread of a running segment (a node answers another step's wait, a loop begins): the same thread, when that
  segment has ended, so that neither the stack nor the set of held locks grows with the length of the chain.
* For a local step whose client's thread waits: that thread. So a call of `Session.run` does not run the functions of
  other clients, does not wait for their locks, and does not interrupt them on Ctrl-C.
* Else the thread in which they have become ready.

Segments that are long, or may never end, go to the threads of their task (`TaskThreads`).
"""

from __future__ import annotations

import collections
import threading
import time
from collections.abc import Callable
from typing import Any

from numpy import errstate

from tfmini import errors
from tfmini.locks import lock
from tfmini.rpc.waiter import unlock
from tfmini.runtime.process import Process, submitted

Work = collections.deque[tuple[Any, list[int]]]
"""Activations, each with those of its segments that are ready."""


class Terminated(BaseException):
    """Raised in `Server.join` by the handler of a signal that ends the server; nothing between may swallow it."""


class WaitingThread:
    """A thread of a client, with the work that has come while it waits for a local step."""

    def __init__(self) -> None:
        self._lock = lock("thread")
        self._gate: Any = None  # the lock in which the thread sleeps; None while it does not
        self._work: Work = collections.deque()

    @property
    def sleeps(self) -> bool:
        """Whether it waits."""
        return self._gate is not None

    def take(self, activation: Any, ready: list[int]) -> bool:
        """Hands work to the thread, from another one; returns False if it does not sleep."""
        with self._lock:
            if self._gate is None:
                return False
            self._work.append((activation, ready))
            unlock(self._gate)
        return True

    def sleep(self, gate: Any, is_done: Callable[[], bool], seconds: float | None) -> bool:
        """Waits until ``is_done``, and runs work meanwhile.

        Args:
          gate: a held lock, which is released when ``is_done`` has become true.

        Returns:
          False after this number of seconds.
        """
        end = None if seconds is None else time.monotonic() + seconds
        while True:
            try:
                self._gate = gate  # no work can have come before
                released = gate.acquire(True, -1 if end is None else max(0.0, end - time.monotonic()))
            except BaseException:  # Ctrl-C: the work may belong to a step outside the one that waits here
                _drive_elsewhere(self._wake())
                raise
            work = self._wake()
            if work:
                _drive_all(work)
            if is_done():
                return True
            if not released and not work:
                return False

    def _wake(self) -> Work:
        with self._lock:
            self._gate = None
            work, self._work = self._work, collections.deque()
        return work


class _Thread(threading.local):
    """Per thread: the work that waits for the running segment to end (None when none runs), and itself."""

    work: Work | None = None

    def __init__(self) -> None:
        self.waiting = WaitingThread()


_thread = _Thread()


def this_thread() -> WaitingThread:
    """The calling thread."""
    return _thread.waiting


def dispatch(activation: Any, ready: list[int]) -> None:
    """Runs these segments and those that become ready, now or later; see the module."""
    home = activation.run.home
    if home is not None and home.sleeps and home.take(activation, ready):
        return
    if _thread.work is not None:
        _thread.work.append((activation, ready))
    else:
        drive(activation, ready)


def drive(activation: Any, ready: list[int], scheduled: bool = False) -> None:
    """Runs segments now; ``scheduled``: the first one has been given to this thread already."""
    _drive_all(collections.deque([(activation, ready)]), scheduled)


def _drive_all(work: Work, scheduled: bool = False) -> None:
    outer, _thread.work = _thread.work, work
    activation = None
    try:
        with errstate(all="ignore"):  # for the kernels; here, since it takes as long as a short segment
            while work:
                activation, ready = work.popleft()
                while ready:
                    segment = ready.pop()
                    if scheduled or not activation.run.owner.threads.schedule(activation, segment):
                        scheduled = False
                        ready.extend(activation.run_segment(segment))
    except BaseException as error:  # Ctrl-C, say: it ends the step that it hits, and the other steps go on
        if activation is not None:
            activation.run.abort(_interruption(activation.run, error))
        _drive_elsewhere(work)
        raise
    finally:
        _thread.work = outer


class TaskThreads:
    """The threads of a task for segments that are long, or may be, and for other work that takes long.

    Args:
      process: makes them.
      reactor: of the process; None for a worker without a network, whose steps stay in their clients' threads.
      pool_size: how many calls that end may run at once.
    """

    def __init__(self, process: Process, reactor: Any, pool_size: int) -> None:
        self._reactor, self._has_threads = reactor, process.has_threads
        self._schedules = reactor is not None and process.has_threads
        self._pool = process.pool(pool_size, "tfmini-kernels")  # it starts threads when they are needed
        self.spare = process.spare_threads("tfmini-segment")
        self._is_closed = False

    def schedule(self, level_run: Any, segment: int) -> bool:
        """Hands a segment to another thread if it is long or may be; False: the caller must run it.

        Args:
          level_run: has a ``level`` and a method ``run_later(segment)``.
        """
        work = level_run.level.segments[segment]
        if work.is_open_ended or not work.seconds:
            # Nobody knows how long it takes. Until a handler returns, nothing more is handled of its connection, nor
            # the message that ends this step. The pool is for work that ends: this would keep it from all others.
            return self.run_beside(level_run.run_later, segment, also=work.is_long)
        # A step without a network stays in its client's thread, but for what another device can do.
        is_due = work.is_long and (self._schedules or work.is_apart and self._has_threads)
        return is_due and self.run_in_pool(level_run.run_later, segment)

    def run_beside(self, function: Callable[..., None], *args: Any, also: bool = False) -> bool:
        """Calls a function that may never return in a thread of its own, if the calling thread is in a handler.

        Args:
          also: whether to do so in other threads, too.

        Returns:
          False if the caller must call it: in a step without a network, when the task has ended, and when the
          process can start no thread.
        """
        if not self._schedules or self._is_closed or not (also or self._reactor.runs_here()):
            return False
        try:
            self.spare.submit(function, *args)
        except RuntimeError:  # the step need not fail: it holds up this thread, as it would without spare ones
            return False
        return True

    def run_in_pool(self, function: Callable[..., None], *args: Any) -> bool:
        """Calls a function that takes long in a thread of the pool; False if the task has ended or Python exits."""
        return not self._is_closed and submitted(self._pool, function, *args)

    def close(self) -> None:
        """Takes no more calls, and drops those that have not begun."""
        self._is_closed = True
        self._pool.shutdown(wait=False, cancel_futures=True)  # it refuses what comes at the same time


def _interruption(run: Any, error: BaseException) -> errors.OpError:
    """The error of a step that an exception beside the step has hit."""
    if isinstance(error, Terminated):
        return errors.shutting_down(run.owner.task)
    return errors.CancelledError.of(f"Step {run.step_id} was interrupted by {type(error).__name__}.")


def _drive_elsewhere(work: Work) -> None:
    if work:
        rest = collections.deque(work)
        threading.Thread(target=_drive_all, args=(rest,), name="tfmini-continuation", daemon=True).start()
