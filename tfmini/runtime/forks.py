"""Refuses the sessions and servers that a forked child inherits: sockets and threads stay with the parent.

`rpc.forks` makes the child give up its copies of the sockets.

A child makes sessions and servers of its own. A session without a target has neither sockets nor threads, so a
child may use its copy of the parent's session.
"""

from __future__ import annotations

import os

from tfmini import errors


def check_own(pid: int, what: str) -> None:
    """Refuses an object that another process has made.

    Raises:
      FailedPreconditionError: this process is not ``pid``.
    """
    if pid != os.getpid():
        text = (
            f"{what} was made by process {pid}, and this is process {os.getpid()}, forked from it: its connections and"
            " threads stayed there. Make it after the fork, in the process that uses it."
        )
        raise errors.FailedPreconditionError.of(text)
