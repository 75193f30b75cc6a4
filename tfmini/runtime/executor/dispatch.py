"""Which thread runs segments that have become ready.

* In the thread of a running segment (a node answers another step's wait, a loop begins): the same thread, when that
  segment has ended, so that neither the stack nor the set of held locks grows with the length of the chain.
* For a local step whose client's thread waits: that thread. So a call of `Session.run` does not run the functions of
  other clients, does not wait for their locks, and does not interrupt them on Ctrl-C.
* Else the thread in which they have become ready.
"""

from __future__ import annotations

import collections
import threading
import time
from collections.abc import Callable
from typing import Any

from numpy import errstate

from tfmini import errors
from tfmini.rpc.waiter import unlock

Work = collections.deque[tuple[Any, list[int]]]
"""Activations, each with those of its segments that are ready."""


class Terminated(BaseException):
    """Raised in `Server.join` by the handler of a signal that ends the server; nothing between may swallow it."""


class WaitingThread:
    """A thread of a client, with the work that has come while it waits for a local step."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
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
                with self._lock:
                    self._gate = gate
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
                    if scheduled or not activation.run.owner.schedule(activation, segment):
                        scheduled = False
                        ready.extend(activation.run_segment(segment))
    except BaseException as error:  # Ctrl-C, say: it ends the step that it hits, and the other steps go on
        if activation is not None:
            activation.run.abort(_interruption(activation.run, error))
        _drive_elsewhere(work)
        raise
    finally:
        _thread.work = outer


def _interruption(run: Any, error: BaseException) -> errors.OpError:
    """The error of a step that an exception beside the step has hit."""
    if isinstance(error, Terminated):
        return errors.shutting_down(run.owner.task)
    return errors.CancelledError.of(f"Step {run.step_id} was interrupted by {type(error).__name__}.")


def _drive_elsewhere(work: Work) -> None:
    if work:
        rest = collections.deque(work)
        threading.Thread(target=_drive_all, args=(rest,), name="tfmini-continuation", daemon=True).start()
