"""The port of a task, which its agent reserves before the task exists."""

from __future__ import annotations

import socket

from tfmini.rpc.interfaces import allowed_ports, bind_to_port

_BACKLOG = 512  # connections that may arrive before the task has started; the kernel may have a lower limit


def listen_at(host: str) -> socket.socket:
    """A listening socket at an address of this host ("": all of IPv4), at a port that ``TFMINI_PORTS`` allows.

    Raises:
      OSError: no such port is free.
      errors.InvalidArgumentError: ``TFMINI_PORTS`` is no range of ports.
    """
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    # As for ZeroMQ's own listeners: a port is free as soon as its last owner has ended.
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.setblocking(False)

    def listen(port: int) -> None:
        listener.bind((host, port))
        listener.listen(_BACKLOG)

    try:
        bind_to_port(listen, allowed_ports())
    except BaseException:  # even Ctrl-C: the caller has no reference to close it
        listener.close()
        raise
    return listener
