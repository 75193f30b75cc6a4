"""Which thread runs segments that have become ready; the run of a partition that waits for all-reduces alone.

* In the thread of a running segment (a node answers another step's wait, a loop begins): the same thread, when that
  segment has ended, so that neither the stack nor the set of held locks grows with the length of the chain.
* For a local step whose client's thread waits: that thread. So a call of `Session.run` does not run the functions of
  other clients, does not wait for their locks, and does not interrupt them on Ctrl-C.
* Else the thread in which they have become ready.

Segments that are long, or may never end, go to the threads of their task (`TaskThreads`).
"""

from __future__ import annotations

import collections
import os
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy import errstate

from tfmini import errors
from tfmini.graph.op_types import ops_with
from tfmini.locks import lock
from tfmini.rpc.waiter import Waiter, unlock
from tfmini.runtime.compiler.kernels import kernel_error
from tfmini.runtime.compiler.levels import Program
from tfmini.runtime.executor.registered_graph import Aborted, Deadline, RunOwner
from tfmini.runtime.executor.waiting_run import RunContext, WaitingRun
from tfmini.runtime.process import Process, submitted

if TYPE_CHECKING:
    from tfmini.runtime.executor.registered_graph import RegisteredGraph


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

    def take(self, activation: Callable[..., Any], ready: list[int]) -> bool:
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
        self._process, self._pool_size = process, pool_size
        self._reactor, self._has_threads = reactor, process.has_threads
        self._schedules = reactor is not None and process.has_threads
        self._is_closed = False
        self.make()
        _of_tasks.add(self)

    def make(self) -> None:
        """Makes the pool and the spare threads, which start threads when they are needed."""
        self._pool = self._process.pool(self._pool_size, "tfmini-kernels")
        self.spare = self._process.spare_threads("tfmini-segment")

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

    def run_beside(self, function: Callable[..., None], *args: object, also: bool = False) -> bool:
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

    def run_in_pool(self, function: Callable[..., None], *args: object) -> bool:
        """Calls a function that takes long in a thread of the pool; False if the task has ended or Python exits."""
        return not self._is_closed and submitted(self._pool, function, *args)

    def close(self) -> None:
        """Takes no more calls, and drops those that have not begun."""
        self._is_closed = True
        self._pool.shutdown(wait=False, cancel_futures=True)  # it refuses what comes at the same time


_of_tasks: weakref.WeakSet[TaskThreads] = weakref.WeakSet()


def _make_anew() -> None:
    # A forked child has none of its parent's threads, but a copied pool would wait for them to take its calls.
    for threads in _of_tasks:
        threads.make()


os.register_at_fork(after_in_child=_make_anew)


def _interruption(run: Any, error: BaseException) -> errors.OpError:
    """The error of a step that an exception beside the step has hit."""
    if isinstance(error, Terminated):
        return errors.shutting_down(run.owner.task)
    return errors.CancelledError.of(f"Step {run.step_id} was interrupted by {type(error).__name__}.")


def _drive_elsewhere(work: Work) -> None:
    if work:
        rest = collections.deque(work)
        threading.Thread(target=_drive_all, args=(rest,), name="tfmini-continuation", daemon=True).start()


# ---- The driver of a partition that waits for all-reduces and nothing else: its caller's thread runs and waits -----
# Handing a step from thread to thread would take longer than a small all-reduce. Here the client's thread runs the
# segments that are ready. Without any it drives the reactor, or sleeps where the other ranks' data arrives.

_NAP_S = 0.05  # the longest sleep outside the reactor: after it, the thread looks whether the run must end
_ALL_REDUCES = ops_with("collective", "all-reduce")


def can_block(program: Program) -> bool:
    """Whether a program waits for all-reduces only."""
    return (
        bool(program.waits)
        and not (program.sends or program.loops or program.loop_groups or program.uncertain)
        and all(key in program.waits for key in program.arrivals)
        and all(node.op in _ALL_REDUCES for node in program.waits.values())
    )


class BlockingRun(WaitingRun, RunContext):
    """A run in its caller's thread, which waits inside `execute`."""

    __slots__ = ("level", "path", "_pending", "_left", "_pooled", "_events", "_waiter")

    def __init__(
        self,
        owner: RunOwner,
        graph: RegisteredGraph,
        step_id: int,
        feeds: Sequence[Any],
        timeout_s: float | None = None,
    ) -> None:
        super().__init__(owner, graph, step_id, feeds, timeout_s)
        self.level, self.path = self.program, ()
        self._pending = self.program.pending.copy()
        self._left = len(self.program.segments)
        self._pooled = 0  # segments that the worker's pool runs
        # For the caller's thread: the key (below 0) and the values of an answer, or a segment that the pool has run.
        self._events: collections.deque[tuple[int, Any]] = collections.deque()
        self._waiter: Waiter | None = None

    @property
    def run(self) -> BlockingRun:
        return self

    @property
    def is_patient(self) -> bool:
        return len(self.program.waits) == 1

    # ---- in the caller's thread -------------------------------------------------------------

    def run_segments(self) -> None:
        ready = [i for i, count in enumerate(self._pending) if count == 0]
        while self._left:
            while ready:
                index = ready.pop()
                if self.program.segments[index].is_long and self.owner.threads.schedule(self, index):
                    self._pooled += 1
                else:
                    self._run_segment(index)
                    self._segment_over(index, ready)
            if self._left:
                if not self._events:
                    self._wait()
                key, values = self._events.popleft()
                if key < 0:
                    self._store(key, values, ready)
                else:
                    self._pooled -= 1
                    self._segment_over(key, ready)

    def _run_segment(self, index: int) -> None:
        segment = self.program.segments[index]
        begin = time.thread_time()  # waking another rank can include a wait for it, which is not the segment's time
        segment.run(self, self.slots)
        segment.note(time.thread_time() - begin)

    def _segment_over(self, index: int, ready: list[int]) -> None:
        self._left -= 1
        for successor in self.program.segments[index].successors:
            self._pending[successor] -= 1
            if self._pending[successor] == 0:
                ready.append(successor)

    def _store(self, key: int, values: Sequence[Any] | None, ready: list[int]) -> None:
        slots, segment = self.program.arrivals[key]
        for slot, value in zip(slots, values or ()):
            self.slots[slot] = value
        self._pending[segment] -= 1
        if self._pending[segment] == 0:
            ready.append(segment)

    def _wait(self) -> None:
        """Waits for an event."""
        end = self.stopped.end if isinstance(self.stopped, Deadline) else None
        reactor = self.owner.reactor
        while not self._events:
            waiter = self._waiter = Waiter()
            if self.stopped:
                self.raise_stopped()
            if self._events:
                break
            # A segment that ends in the pool wakes the reactor only.
            sleep = None if self._pooled else next((wait.sleep for wait in list(self.waits)), None)
            if sleep is None or not sleep(_NAP_S if end is None else min(_NAP_S, max(0.0, end - reactor.now()))):
                reactor.drive(waiter, end)
        self._waiter = None

    def is_computing(self) -> bool:
        return self._waiter is None or bool(self._pooled or self._events)

    # ---- from any thread --------------------------------------------------------------------

    def complete(self, key: int, values: Sequence[Any] | None) -> bool:
        if isinstance(self.stopped, Aborted):
            return False
        if self.trace is not None:
            self.trace.completed(key, self.path, values)
        self._events.append((key, values))
        self.wake()
        return True

    def run_later(self, segment: int) -> None:
        """Runs a segment in the worker's pool."""
        try:
            with np.errstate(all="ignore"):
                self._run_segment(segment)
        except Exception as error:  # noqa: BLE001 - whatever a kernel raises ends this run
            self.abort(kernel_error(error, self.owner.task))
            return
        self._events.append((segment, None))
        self.wake()

    def abort(self, error: errors.OpError) -> None:
        super().abort(error)
        self.wake()

    def wake(self) -> None:
        waiter = self._waiter
        if waiter is not None:
            waiter.set()
