"""Ports for a local cluster, held by listening sockets until the tasks own them (see `tfmini.listen_fd`).

Where tasks are to be killed and started again, a second socket per port, which does not listen, keeps it from being
given to anybody else meanwhile. Whoever listens there must ask for SO_REUSEADDR, as ZeroMQ does.
"""

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
    """A cluster on this machine and, per task, the socket that holds its port; `holders` hold them to the end."""

    spec: ClusterSpec
    listeners: dict[TaskId, socket.socket]
    holders: list[socket.socket]

    def close(self) -> None:
        """Give up the ports that no task has inherited."""
        for reserved in (*self.listeners.values(), *self.holders):
            reserved.close()


def reserve_cluster(
    tasks: Iterable[TaskId], port_base: int | None = None, to_the_end: bool = False
) -> ReservedCluster:
    """A loopback address for every task: free ports, or `port_base`, `port_base + 1`, … in the order of `tasks`.

    Args:
      to_the_end: keep others from the ports until `close`, also while no task has them.

    Raises:
      OSError: a port of the wanted range is in use; the text names the task and the port.
    """
    jobs: dict[str, dict[int, str]] = {}
    listeners: dict[TaskId, socket.socket] = {}
    holders: list[socket.socket] = []
    reserved = ReservedCluster(ClusterSpec({}), listeners, holders)
    try:
        for number, task in enumerate(tasks):
            port = 0 if port_base is None else port_base + number
            if to_the_end:  # first: what listens already lets nobody else have the port
                holders.append(_bind(task, port))
                port = holders[-1].getsockname()[1]
            listeners[task] = _bind(task, port, listens=True)
            jobs.setdefault(task.job, {})[task.task] = f"{_HOST}:{listeners[task].getsockname()[1]}"
    except OSError:
        reserved.close()
        raise
    return ReservedCluster(ClusterSpec(jobs), listeners, holders)


def _bind(task: TaskId, port: int, listens: bool = False) -> socket.socket:
    bound = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    # As ZeroMQ's own listeners: a port is free again as soon as its last owner is gone.
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    # An adopted listener must not block ZeroMQ's I/O thread when a connection vanishes before it is accepted.
    bound.setblocking(False)
    try:
        bound.bind((_HOST, port))
        if listens:
            bound.listen(_BACKLOG)
    except OSError as error:
        bound.close()
        raise OSError(error.errno, f"cannot reserve {_HOST}:{port} for {task}: {error.strerror}") from None
    return bound
