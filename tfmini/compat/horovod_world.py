"""This process's place among Horovod's workers: `init`, rank and size."""

from __future__ import annotations

from typing import Any

from tfmini.cluster import TfConfig, cluster_from_tf_config
from tfmini.runtime import targets
from tfmini.runtime.server import Server
from tfmini.train.replicas.all_reduce import Ranks

_GROUP_KEY = 0x6876  # differs from the group keys that scripts use


class World:
    """The workers of the cluster, in the order of their ranks.

    Args:
      hosts: the host of each worker.
      rank: the rank of this worker.
      server: the server of this worker; None if it is the only one.
    """

    def __init__(self, hosts: list[str], rank: int, server: Server | None) -> None:
        self.hosts, self.server = hosts, server
        self.ranks = Ranks(len(hosts), rank, _GROUP_KEY)

    @property
    def local_rank(self) -> int:
        """The number of this worker on its host."""
        return self.hosts[: self.ranks.rank].count(self.hosts[self.ranks.rank])

    @property
    def local_size(self) -> int:
        """The number of workers on this host."""
        return self.hosts.count(self.hosts[self.ranks.rank])

    @property
    def cross_rank(self) -> int:
        """The number of this host among the hosts that have a worker of this local rank."""
        return [rank for _, rank in self._peers()].index(self.ranks.rank)

    @property
    def cross_size(self) -> int:
        """The number of hosts that have a worker of this local rank."""
        return len(self._peers())

    def _peers(self) -> list[tuple[str, int]]:
        """(host, rank) of the workers with this local rank."""
        return [
            (host, rank)
            for rank, host in enumerate(self.hosts)
            if self.hosts[:rank].count(host) == self.local_rank
        ]


_worlds: list[World] = []  # empty before `init`, then one


def init(comm: Any = None) -> None:
    """Reads this worker's rank from TF_CONFIG and starts its server. A second call does nothing.

    In a parameter server of the cluster it serves until the server is stopped, so a Horovod script can be launched
    with parameter servers.

    Raises:
      ValueError: ``comm`` is given (MPI communicators are not supported), TF_CONFIG is wrong, or the task is no worker.
    """
    if comm is not None:
        raise ValueError("hvd.init(comm=...) is not supported: the workers are those of TF_CONFIG.")
    if not _worlds:
        _worlds.append(_world_of(cluster_from_tf_config()))


def _world_of(config: TfConfig) -> World:
    cluster, job, index = config
    if not cluster.jobs:
        return World(["localhost"], 0, None)
    if job is None or index is None:
        raise ValueError('TF_CONFIG has a cluster, but no "task": {"type": …, "index": …} for this process.')
    workers = [t for name in ("chief", "master", "worker") for t in cluster.tasks() if t.job == name]
    places = [(t.job, t.task) for t in workers]
    if (job, index) not in places and job != "ps":
        raise ValueError(f"/job:{job}/task:{index} is no Horovod rank: the ranks are the workers of TF_CONFIG.")
    server = Server(cluster, job_name=job, task_index=index)
    if job == "ps":
        server.join()  # until the cluster stops
        raise SystemExit(0)
    targets.set_default_target(server.target)
    return World([t.address.rpartition(":")[0] for t in workers], places.index((job, index)), server)


def world() -> World:
    """Returns this process's `World`.

    Raises:
      ValueError: before `init`.
    """
    if not _worlds:
        raise ValueError("Horovod has not been initialized; use hvd.init().")
    return _worlds[0]


def shutdown() -> None:
    """Stops this worker's server."""
    if _worlds:
        server = _worlds.pop().server
        if server is not None:
            targets.set_default_target("")
            server.stop()


def is_initialized() -> bool:
    """Whether `init` has been called."""
    return bool(_worlds)


def rank() -> int:
    """The rank of this worker."""
    return world().ranks.rank


def size() -> int:
    """The number of workers."""
    return world().ranks.size


def local_rank() -> int:
    """The number of this worker on its host."""
    return world().local_rank


def local_size() -> int:
    """The number of workers on this host."""
    return world().local_size


def cross_rank() -> int:
    """The number of this worker's host."""
    return world().cross_rank


def cross_size() -> int:
    """The number of hosts."""
    return world().cross_size


def is_homogeneous() -> bool:
    """Whether all hosts have the same number of workers."""
    hosts = world().hosts
    return len({hosts.count(host) for host in hosts}) == 1
