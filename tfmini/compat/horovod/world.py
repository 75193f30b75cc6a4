"""This process's place among Horovod's workers: rank and size, and the process sets."""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from tfmini import errors
from tfmini.cluster import TfConfig, cluster_from_tf_config
from tfmini.graph.families import same_shape
from tfmini.graph.operation import Tensor
from tfmini.graph.registry import op
from tfmini.runtime import process
from tfmini.runtime.server import Server
from tfmini.train.replicas.elastic import Ranks

_GROUP_KEY = 0x6876  # differs from the group keys that scripts use
GLOBAL = 0  # the id of the process set of all ranks


class World:
    """The workers of the cluster, in the order of their ranks, and the process sets among them.

    Args:
      hosts: the host of each worker.
      rank: the rank of this worker.
      server: the server of this worker; None if it is the only one.
      tasks: the full task name of each worker, with a server.

    Attributes:
      sets: by id: the ranks of each process set, in ascending order.
    """

    def __init__(self, hosts: list[str], rank: int, server: Server | None, tasks: Sequence[str] = ()) -> None:
        self.hosts, self.server, self._tasks = hosts, server, tasks
        self.ranks = Ranks(len(hosts), rank, _GROUP_KEY)
        self.sets: dict[int, tuple[int, ...]] = {GLOBAL: tuple(range(len(hosts)))}
        self._tell_members(self.ranks.group_key, self.sets[GLOBAL])

    def _tell_members(self, group_key: int, members: Sequence[int]) -> None:
        """Tells the collectives who the members of a group are, so that they know whose end makes it impossible."""
        if self.server is not None:
            known = self.server.worker.collectives.ended_tasks.groups
            known[group_key] = tuple(self._tasks[rank] for rank in members)

    def add_set(self, members: Sequence[int]) -> int:
        """Registers a process set under the lowest free id.

        Raises:
          ValueError: there is such a set already, or a member is no rank.
        """
        wanted = tuple(sorted(members))
        beyond = [rank for rank in wanted if not 0 <= rank < len(self.hosts)]
        if beyond or not wanted or len(set(wanted)) < len(wanted):
            text = f"a process set holds one or more different ranks from 0 to {len(self.hosts) - 1}"
            raise ValueError(f"{list(wanted)} is no process set: {text}.")
        if wanted in self.sets.values():
            raise ValueError(f"There is a process set of the ranks {list(wanted)} already; use that object.")
        free = next(number for number in itertools.count() if number not in self.sets)
        self.sets[free] = wanted
        self._tell_members(_group_key(wanted), wanted)
        return free

    def members(self, set_id: int | None) -> tuple[int, ...]:
        """The ranks of a process set.

        Raises:
          ValueError: there is no such set.
        """
        if set_id not in self.sets:
            what = "The process set has not been registered" if set_id is None else f"There is no process set {set_id}"
            raise ValueError(f"{what}; give it to hvd.init(process_sets=[…]) or hvd.add_process_set.")
        return self.sets[set_id]

    def group(self, set_id: int | None) -> Ranks | None:
        """The collectives of a process set; None if this worker is not in it.

        Raises:
          ValueError: there is no such set.
        """
        members = self.members(set_id)
        if set_id == GLOBAL:
            return self.ranks
        if self.ranks.rank not in members:
            return None
        return Ranks(len(members), members.index(self.ranks.rank), _group_key(members))

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
            (host, rank) for rank, host in enumerate(self.hosts) if self.hosts[:rank].count(host) == self.local_rank
        ]


def _group_key(members: tuple[int, ...]) -> int:
    """The group key of a process set. It follows from the ranks, so workers may number their sets differently."""
    return _GROUP_KEY << 32 | zlib.crc32(",".join(map(str, members)).encode())


worlds: list[World] = []  # empty before `init`, then one


def start(comm: Sequence[Any] | None = None) -> None:
    """Reads this worker's rank from TF_CONFIG and starts its server. A second call does nothing.

    In a parameter server of the cluster it serves until the server is stopped, so a Horovod script can be launched
    with parameter servers.

    Raises:
      ValueError: ``comm`` is given (communicators are not supported), TF_CONFIG is wrong, or the task is no worker.
    """
    if comm:
        raise ValueError(
            "hvd.init(comm=...) is not supported: the workers are those of TF_CONFIG. Use hvd.init(process_sets=[…])."
        )
    if not worlds:
        worlds.append(_world_of(cluster_from_tf_config()))


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
    process.set_default_target(server.target)
    names = [f"/job:{t.job}/replica:0/task:{t.task}" for t in workers]
    return World([t.address.rpartition(":")[0] for t in workers], places.index((job, index)), server, names)


def world() -> World:
    """Returns this process's `World`.

    Raises:
      ValueError: before `init`.
    """
    if not worlds:
        raise ValueError("Horovod has not been initialized; use hvd.init().")
    return worlds[0]


def stop() -> None:
    """Stops this worker's server."""
    if worlds:
        server = worlds.pop().server
        if server is not None:
            process.set_default_target("")
            server.stop()


def is_initialized() -> bool:
    """Whether `init` has been called."""
    return bool(worlds)


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


# ---- Process sets: groups of ranks that run collectives among themselves (``hvd.ProcessSet``), and `init` ----------


class ProcessSet:
    """A set of ranks; usable once `init` or `add_process_set` has registered it.

    Every rank must register the same sets. A set has a group of its own, whose collectives do not wait for the others.

    Args:
      ranks: global ranks.

    Attributes:
      process_set_id: None until the set is registered.
      ranks: in ascending order.
      mpi_comm: None: there are no MPI communicators.

    Raises:
      ValueError: ``ranks`` is no list of integers.
    """

    process_set_id: int | None = None
    mpi_comm = None

    def __init__(self, ranks: Iterable[int]) -> None:
        given = list(ranks) if isinstance(ranks, Iterable) else [None]
        if any(not isinstance(rank, int) for rank in given):
            raise ValueError(f"hvd.ProcessSet takes a list of ranks, got {ranks!r}; there are no MPI communicators.")
        self.ranks = sorted(given)

    def size(self) -> int | None:
        """The number of its ranks; None before it is registered."""
        return None if self.process_set_id is None else len(world().members(self.process_set_id))

    def rank(self) -> int | None:
        """The position of this worker in it; None before it is registered.

        `broadcast` and others take global ranks nevertheless.

        Raises:
          ValueError: this worker is not in it.
        """
        if self.process_set_id is None:
            return None
        members = world().members(self.process_set_id)
        if world().ranks.rank not in members:
            raise ValueError(f"Rank {world().ranks.rank} is not in the process set of the ranks {list(members)}.")
        return members.index(world().ranks.rank)

    def included(self) -> bool | None:
        """Whether this worker is in it."""
        return world().ranks.rank in self.ranks

    def __str__(self) -> str:
        return f"ProcessSet(process_set_id={self.process_set_id}, ranks={self.ranks}, mpi_comm={self.mpi_comm})"


global_process_set = ProcessSet([])
global_process_set.process_set_id = GLOBAL


def init(comm: Sequence[Any] | None = None, process_sets: Sequence[Any] | None = None) -> None:
    """Reads this worker's rank from TF_CONFIG and starts its server. A second call only adds process sets.

    In a parameter server of the cluster it serves until the server is stopped, so a Horovod script can be launched
    with parameter servers.

    Args:
      comm: not supported.
      process_sets: a list of `ProcessSet`, the same on every rank; or ``"dynamic"``, which changes nothing:
        `add_process_set` always works.

    Raises:
      ValueError: ``comm`` is given, TF_CONFIG is wrong, the task is no worker, or a process set is a duplicate.
    """
    start(comm)
    global_process_set.ranks = list(world().members(GLOBAL))
    if process_sets is not None and not isinstance(process_sets, str):
        for process_set in process_sets:
            if process_set.process_set_id is None or process_set.process_set_id not in world().sets:
                add_process_set(process_set)


def shutdown() -> None:
    """Stops this worker's server."""
    stop()


def add_process_set(process_set: ProcessSet | Iterable[int]) -> ProcessSet:
    """Registers a process set after `init`; every rank must do so.

    Raises:
      ValueError: there is a set of these ranks already, or one of them is no rank.
    """
    added = process_set if isinstance(process_set, ProcessSet) else ProcessSet(process_set)
    added.process_set_id = world().add_set(added.ranks)
    return added


def remove_process_set(process_set: ProcessSet) -> bool:
    """Forgets a process set; returns whether it was registered. The set of all ranks stays."""
    number = process_set.process_set_id
    if number is None or number == GLOBAL:
        return False
    process_set.process_set_id = None
    return world().sets.pop(number, None) is not None


# ---- place ops ----------------------------------------
# Ops whose values are this worker's place, as the step finds it (``hvd.rank_op``), and the refusal of outsiders.

_NOT_INITIALIZED, _UNKNOWN_SET = -1, -3  # Horovod's values of `process_set_included_op`

_rank = op("HorovodRank() -> rank: int32", stateful=True, shape=[()])
_local_rank = op("HorovodLocalRank() -> local_rank: int32", stateful=True, shape=[()])
_local_size = op("HorovodLocalSize() -> local_size: int32", stateful=True, shape=[()])
_size = op("HorovodSize() -> size: int32; process_set_id: int = 0", stateful=True, shape=[()])
_included = op("HorovodProcessSetIncluded() -> included: int32; process_set_id: int = 0", stateful=True, shape=[()])
_refuse = op("HorovodRefuse(input: T) -> output: T; T: type; message: string", stateful=True, shape=same_shape)

for _handle in (_rank, _local_rank, _local_size, _size, _included, _refuse):
    _handle.not_differentiable()


@_rank.kernel("CPU")
def _rank_kernel() -> Any:
    return np.int32(world().ranks.rank)


@_local_rank.kernel("CPU")
def _local_rank_kernel() -> Any:
    return np.int32(world().local_rank)


@_local_size.kernel("CPU")
def _local_size_kernel() -> Any:
    return np.int32(world().local_size)


@_size.kernel("CPU")
def _size_kernel(*, process_set_id: int) -> Any:
    return np.int32(len(world().members(process_set_id)))


@_included.kernel("CPU")
def _included_kernel(*, process_set_id: int) -> Any:
    try:
        here = world()
    except ValueError:
        return np.int32(_NOT_INITIALIZED)
    if process_set_id not in here.sets:
        return np.int32(_UNKNOWN_SET)
    return np.int32(here.ranks.rank in here.sets[process_set_id])


@_refuse.kernel("CPU")
def _refuse_kernel(value: np.ndarray, *, message: Any) -> Any:
    raise errors.InvalidArgumentError.of(message.decode())


def rank_op(name: str | None = None) -> Tensor:
    """An int32 scalar: the rank of the worker that runs the op, also where another process built the graph."""
    return _rank(name=name)


def local_rank_op(name: str | None = None) -> Tensor:
    """An int32 scalar: the number of the worker on its host."""
    return _local_rank(name=name)


def local_size_op(name: str | None = None) -> Tensor:
    """An int32 scalar: the number of workers on the host."""
    return _local_size(name=name)


def size_op(process_set_id: int = GLOBAL, name: str | None = None) -> Tensor:
    """An int32 scalar: the number of workers, or of those in a process set."""
    return _size(process_set_id=process_set_id, name=name)


def process_set_included_op(process_set_id: int = GLOBAL, name: str | None = None) -> Tensor:
    """An int32 scalar: 1 if the worker is in a process set, else 0; -1 before ``hvd.init``, -3 for an unknown set."""
    return _included(process_set_id=process_set_id, name=name)


def refused(value: Tensor, message: str) -> Tensor:
    """A tensor like ``value`` whose computation fails with an `InvalidArgumentError`."""
    return _refuse(value, message=message)
