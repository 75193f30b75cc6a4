"""This process among Horovod's workers: `init` and what can be asked after it."""

from __future__ import annotations

from typing import Any

from tfmini.cluster import TfConfig, cluster_from_tf_config
from tfmini.runtime import servers
from tfmini.runtime.server import Server
from tfmini.train.all_reduce import Ranks

_GROUP_KEY = 0x6876  # apart from the groups that a script makes itself


class World:
    """The workers of the cluster, in the order of their ranks.

    Args:
      hosts: of each worker.
      rank: of this one.
      server: of this one; None where it is alone.
    """

    def __init__(self, hosts: list[str], rank: int, server: Server | None) -> None:
        self.hosts, self.server = hosts, server
        self.ranks = Ranks(len(hosts), rank, _GROUP_KEY)

    @property
    def local_rank(self) -> int:
        """The number of this worker among those on its host."""
        return self.hosts[: self.ranks.rank].count(self.hosts[self.ranks.rank])

    @property
    def local_size(self) -> int:
        """How many workers are on this host."""
        return self.hosts.count(self.hosts[self.ranks.rank])

    @property
    def cross_rank(self) -> int:
        """The number of this host, among those that have a worker of this local rank."""
        return [rank for _, rank in self._peers()].index(self.ranks.rank)

    @property
    def cross_size(self) -> int:
        """How many hosts have a worker of this local rank."""
        return len(self._peers())

    def _peers(self) -> list[tuple[str, int]]:
        """(host, rank) of the workers with this local rank."""
        return [
            (host, rank)
            for rank, host in enumerate(self.hosts)
            if self.hosts[:rank].count(host) == self.local_rank
        ]


_worlds: list[World] = []  # one when initialised


def init(comm: Any = None) -> None:
    """Finds out who this worker is and starts its server. A second call does nothing.

    A parameter server of the cluster serves until it is stopped, so a script of Horovod's can be launched with one.

    Raises:
      ValueError: for ``comm`` (communicators of MPI are not supported), a TF_CONFIG that is wrong, or a task that is
        no worker.
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
        raise ValueError(f"/job:{job}/task:{index} takes no part in Horovod: its ranks are the workers of TF_CONFIG.")
    server = Server(cluster, job_name=job, task_index=index)
    if job == "ps":
        server.join()  # ends with the cluster
        raise SystemExit(0)
    servers.set_default_target(server.target)
    return World([t.address.rpartition(":")[0] for t in workers], places.index((job, index)), server)


def world() -> World:
    """This process's world.

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
            servers.set_default_target("")
            server.stop()


def is_initialized() -> bool:
    """Whether `init` has been called."""
    return bool(_worlds)


def rank() -> int:
    """The number of this worker."""
    return world().ranks.rank


def size() -> int:
    """How many workers there are."""
    return world().ranks.size


def local_rank() -> int:
    """The number of this worker among those on its host."""
    return world().local_rank


def local_size() -> int:
    """How many workers are on this host."""
    return world().local_size


def cross_rank() -> int:
    """The number of this worker's host."""
    return world().cross_rank


def cross_size() -> int:
    """How many hosts there are."""
    return world().cross_size


def is_homogeneous() -> bool:
    """Whether every host has equally many workers."""
    hosts = world().hosts
    return len({hosts.count(host) for host in hosts}) == 1
