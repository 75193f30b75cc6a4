"""What a forked child inherits from its parent, and may not use: sockets, threads and shared memory stay behind.

A child makes sessions and servers of its own. Sessions without a target have none of these; a child goes on
with a copy of its parent's.
"""

from __future__ import annotations

import os

from tfmini import errors


def check_own(pid: int, what: str) -> None:
    """Refuses what another process has made.

    Raises:
      FailedPreconditionError: this process is not ``pid``.
    """
    if pid != os.getpid():
        text = (
            f"{what} was made by process {pid}, and this is process {os.getpid()}, forked from it: its connections and"
            " threads stayed there. Make it after the fork, in the process that uses it."
        )
        raise errors.FailedPreconditionError(None, None, text)
