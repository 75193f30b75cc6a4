"""The limit of open files: a server raises it when it starts, and says so when it is reached.

ZeroMQ leaves a connection in the socket's backlog while there is no descriptor for it, lanes wait as well
(`lane_listener`), and both go on when descriptors are closed.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import resource

_log = logging.getLogger("tfmini.rpc")

_ENOUGH = 1 << 20  # a hard limit may be larger, and some programs walk through all numbers
_FEW = 0.9  # of the limit
AT_LIMIT = frozenset({errno.EMFILE, errno.ENFILE})


def raise_limit() -> None:
    """Raises the soft limit of open files of this process to its hard limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _ENOUGH if hard == resource.RLIM_INFINITY else min(hard, _ENOUGH)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(OSError, ValueError):  # a sandbox may forbid it
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def has_room(count: int) -> bool:
    """Whether this process can open so many descriptors more."""
    opened = []
    try:
        for _ in range(count):
            opened.append(os.eventfd(0))
    except OSError:
        return False
    finally:
        for fd in opened:
            os.close(fd)
    return True


def at_limit() -> str:
    """The limit and the remedy, as the end of a sentence."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return (
        f"this process may open {soft} files and has (nearly) as many open, of which each connection takes some;"
        f" run `ulimit -n NUMBER` with a larger number in the shell that starts it (the hard limit is {hard}), or close"
        f" connections that are not needed (`ls -l /proc/{os.getpid()}/fd` lists what is open)"
    )


class DescriptorWatch:
    """Logs when a process comes near its limit, once until it has left it."""

    def __init__(self, owner: str) -> None:
        self._owner = owner
        self._is_near = False

    def look(self) -> None:
        """Looks how many descriptors are in use; cheap."""
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        try:
            fd = os.eventfd(0)  # gets the lowest free number, so at least as many are open
            os.close(fd)
        except OSError:
            fd = limit
        was_near, self._is_near = self._is_near, limit != resource.RLIM_INFINITY and fd >= _FEW * limit
        if self._is_near and not was_near:
            _log.error("%s has little room for new connections: %s", self._owner, at_limit())
        elif was_near and not self._is_near:
            _log.warning("%s has room for new connections again", self._owner)
