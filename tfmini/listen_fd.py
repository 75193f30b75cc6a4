"""Inherits a listening socket from the process that started this one.

`tfmini launch` chooses the ports of a cluster before any task runs. If a task bound its free port later, another
process could take the port first. So the launcher binds each port *and listens*, and the task inherits the socket.
Connections made before the task is ready wait in the socket's backlog instead of being refused.

The contract: the environment variable `TFMINI_LISTEN_FD` holds the number of an inherited descriptor, a tcp
socket that is bound to the task's own address and listens. A server calls `claim(port)` once before it binds and,
when it gets a descriptor, adopts it (ZeroMQ: `socket.setsockopt(zmq.USE_FD, fd)`, then `bind` to the same address;
ZeroMQ closes it with the socket).
"""

from __future__ import annotations

import os
import socket
from collections.abc import MutableMapping

LISTEN_FD_ENV = "TFMINI_LISTEN_FD"


def claim(port: int, env: MutableMapping[str, str] | None = None) -> int | None:
    """Returns the inherited listening descriptor for `port`, which the caller then owns; or None.

    A claim succeeds once: it removes the variable from `env` (default: this process's environment), so that
    neither a second server nor a child process takes the same socket. It ignores a descriptor that is not a
    listening tcp socket on `port` (a stale variable, say).
    """
    env = os.environ if env is None else env
    text = env.get(LISTEN_FD_ENV, "")
    if not text.isdecimal() or not _listens_on(int(text), port):
        return None
    del env[LISTEN_FD_ENV]
    os.set_inheritable(int(text), False)
    return int(text)


def _listens_on(fd: int, port: int) -> bool:
    try:
        probe = socket.socket(fileno=os.dup(fd))
    except OSError:  # not open, or not a socket
        return False
    with probe:
        is_tcp = probe.family in (socket.AF_INET, socket.AF_INET6) and probe.type == socket.SOCK_STREAM
        listens = is_tcp and probe.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN) == 1
        return listens and probe.getsockname()[1] == port
