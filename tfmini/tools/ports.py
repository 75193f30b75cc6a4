"""Ports for a local cluster, held by listening sockets until the tasks own them (see `tfmini.listen_fd`)."""

from __future__ import annotations

import socket
from collections.abc import Iterable
from dataclasses import dataclass

from tfmini.cluster import ClusterSpec
from tfmini.tools.supervision import TaskId

_HOST = "127.0.0.1"
_BACKLOG = 512  # connections that may arrive while the task still imports; the kernel may cap it


@dataclass(frozen=True)
class ReservedCluster:
    """A cluster on this machine and, per task, the socket that holds its port."""

    spec: ClusterSpec
    listeners: dict[TaskId, socket.socket]

    def close(self) -> None:
        """Give up the ports that no task has inherited."""
        for listener in self.listeners.values():
            listener.close()


def reserve_cluster(tasks: Iterable[TaskId], port_base: int | None = None) -> ReservedCluster:
    """A loopback address for every task: free ports, or `port_base`, `port_base + 1`, … in the order of `tasks`.

    Raises:
      OSError: a port of the wanted range is in use; the text names the task and the port.
    """
    jobs: dict[str, dict[int, str]] = {}
    listeners: dict[TaskId, socket.socket] = {}
    reserved = ReservedCluster(ClusterSpec({}), listeners)
    try:
        for number, task in enumerate(tasks):
            port = 0 if port_base is None else port_base + number
            listeners[task] = _listen(task, port)
            jobs.setdefault(task.job, {})[task.task] = f"{_HOST}:{listeners[task].getsockname()[1]}"
    except OSError:
        reserved.close()
        raise
    return ReservedCluster(ClusterSpec(jobs), listeners)


def _listen(task: TaskId, port: int) -> socket.socket:
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    # As ZeroMQ's own listeners: a port is free again as soon as its last owner is gone.
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    # An adopted listener must not block ZeroMQ's I/O thread when a connection vanishes before it is accepted.
    listener.setblocking(False)
    try:
        listener.bind((_HOST, port))
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        raise OSError(error.errno, f"cannot reserve {_HOST}:{port} for {task}: {error.strerror}") from None
    return listener
