"""The exit codes of the commands and of the processes of a run. `docs/reference/exit-codes.md` shows them."""

from __future__ import annotations

import signal
from enum import IntEnum


class ExitCode(IntEnum):
    """An exit code. Others are those of the user's script, or 128 plus the number of the signal that ended a task."""

    DONE = 0
    FAILED = 1
    """An error, which is printed; an exception of a script; findings of `inspect`, `migrate` and ``launch --check``."""
    REFUSED = 2
    """A command line that is wrong, or a graph that cannot be inspected or that a session refuses."""
    TIMED_OUT = 124
    """A run that its time limit ended, as for `timeout(1)`."""
    NOT_STARTED = 127
    """A task that could not be started."""
    INTERRUPTED = 128 + signal.SIGINT
    """A process that Ctrl-C ended, as in a shell."""
    GONE = 128 + signal.SIGKILL
    """A process that SIGKILL ended, for example for want of memory; a pod that was deleted before it said a code."""
    LEFT = 128 + signal.SIGTERM
    """A task that was told to end and has left its run in good order, as a shell has it for SIGTERM."""
