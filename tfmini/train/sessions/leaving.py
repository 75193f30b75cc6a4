"""A worker that is told to end leaves its run: it finishes its step, hands in what it has, and the others go on.

A preempted machine, a time limit or a cluster engine sends SIGTERM some time before the end. While a monitored session
is open, SIGTERM therefore means: make this step the last one, call the hooks' ``end`` (a chief saves a checkpoint, a
synchronous worker returns its token), close the session, and exit with code 143. The code after the session does
not run, because training has not come to its end. A second SIGTERM, or a step that takes longer than
`LAST_STEP_S`, ends the process without the hooks. Signals within a quarter of that time are one request: Slurm signals
a task's process and also its agent, which forwards the signal.

A script that handles SIGTERM itself is left alone.
"""

from __future__ import annotations

import logging
import os
import signal
import threading
import traceback
from typing import Any

from tfmini.runtime.process import current_process

_log = logging.getLogger("tensorflow")
EXIT_CODE = 128 + signal.SIGTERM
"""The exit code of a process that has left, as a shell has it for one that SIGTERM has ended."""
LAST_STEP_S = 4.0
_open = 0  # monitored sessions of the main thread
_timer: threading.Timer | None = None
_told_at = 0.0


class Left(SystemExit):
    """Ends the process after its last step; the ``with`` block of the session closes it in good order."""

    def __init__(self) -> None:
        super().__init__(EXIT_CODE)


def begin() -> bool:
    """A session has been opened; returns whether SIGTERM is handled, so that `end` must be called."""
    global _open
    if threading.current_thread() is not threading.main_thread():
        return False
    handler = signal.getsignal(signal.SIGTERM)
    if handler is not _told and handler is not signal.SIG_DFL:
        return False
    signal.signal(signal.SIGTERM, _told)
    _open += 1
    return True


def end() -> None:
    """A session has been closed for which `begin` returned true."""
    global _open
    _open -= 1
    last_step_is_over()
    if not _open and signal.getsignal(signal.SIGTERM) is _told:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def is_wanted() -> bool:
    """Whether this process has been told to end while a session was open."""
    return current_process().is_leaving


def note_own_handler(error: BaseException | None) -> None:
    """Notes that a script's own handler of SIGTERM ends this process: others do not count it as having ended."""
    handler = getattr(signal.getsignal(signal.SIGTERM), "__code__", None)
    frames = traceback.walk_tb(error.__traceback__) if isinstance(error, SystemExit) else ()
    if any(frame.f_code is handler for frame, _ in frames):
        current_process().is_leaving = True


def last_step_is_over() -> None:
    """From now on the end may take as long as whoever wants it waits."""
    global _timer
    timer, _timer = _timer, None
    if timer is not None:
        timer.cancel()


def _told(signum: int, frame: Any) -> None:
    global _timer, _told_at
    process = current_process()
    if process.is_leaving:
        if process.now() - _told_at < LAST_STEP_S / 4:
            return
        raise SystemExit(EXIT_CODE)
    process.is_leaving, _told_at = True, process.now()
    _log.warning("SIGTERM: this task leaves the run after its step (exit code %d)", EXIT_CODE)
    _timer = threading.Timer(LAST_STEP_S, os.kill, (os.getpid(), signal.SIGTERM))
    _timer.daemon = True
    _timer.start()
