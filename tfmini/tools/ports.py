"""Reserves ports for a local cluster: listening sockets hold them until the tasks own them (see `tfmini.listen_fd`).

If tasks may be restarted, a second socket per port, which does not listen, reserves it in the meantime. The task's
listener must set SO_REUSEADDR, as ZeroMQ does.
"""

from __future__ import annotations

import socket
from collections.abc import Iterable
from dataclasses import dataclass

from tfmini.cluster import ClusterSpec
from tfmini.tools.supervision import TaskId

_HOST = "127.0.0.1"
_BACKLOG = 512  # connections that may arrive before the task has started; the kernel may have a lower limit


@dataclass(frozen=True)
class ReservedCluster:
    """A cluster on this machine, the listening socket of each task, and sockets that reserve ports until `close`."""

    spec: ClusterSpec
    listeners: dict[TaskId, socket.socket]
    holders: list[socket.socket]

    def listen_again(self, task: TaskId) -> socket.socket:
        """A listening socket at the port of a task that has ended; the port must have been reserved until `close`.

        It replaces the one before, which a task that could not be started has left.

        Raises:
          OSError: that is impossible.
        """
        port = int(self.spec.task_address(*task).rpartition(":")[2])
        self.listeners[task].close()
        self.listeners[task] = _bind(task, port, listens=True)
        return self.listeners[task]

    def close(self) -> None:
        """Release the ports that no task has inherited."""
        for reserved in (*self.listeners.values(), *self.holders):
            reserved.close()


def reserve_cluster(
    tasks: Iterable[TaskId], port_base: int | None = None, until_close: bool = False
) -> ReservedCluster:
    """Reserve a loopback address for every task: free ports, or `port_base`, `port_base + 1`, … in order.

    Args:
      until_close: reserve the ports until `close`, also while no task uses them.

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
            if until_close:  # before the listener, since no other socket can bind a port with a listener
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
    # As for ZeroMQ's own listeners: a port is free as soon as its last owner has ended.
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    # ZeroMQ adopts the listener; its I/O thread must not block if a connection ends before it is accepted.
    bound.setblocking(False)
    try:
        bound.bind((_HOST, port))
        if listens:
            bound.listen(_BACKLOG)
    except OSError as error:
        bound.close()
        raise OSError(error.errno, f"cannot reserve {_HOST}:{port} for {task}: {error.strerror}") from None
    return bound
