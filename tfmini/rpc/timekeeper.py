"""Keeps a reactor's timers on time while all threads that run the loop are busy."""

from __future__ import annotations

import logging
import threading
import time
from _thread import allocate_lock

from tfmini.rpc.relief import Relief
from tfmini.rpc.timers import TimerHeap
from tfmini.rpc.waiter import unlock

_log = logging.getLogger("tfmini.rpc")

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
