"""Process sets: groups of ranks that run collectives among themselves (``hvd.ProcessSet``), and `init`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tfmini.compat.horovod import world as worlds
from tfmini.compat.horovod.world import GLOBAL, world


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


def init(comm: Any = None, process_sets: Any = None) -> None:
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
    worlds.start(comm)
    global_process_set.ranks = list(world().members(GLOBAL))
    if process_sets is not None and not isinstance(process_sets, str):
        for process_set in process_sets:
            if process_set.process_set_id is None or process_set.process_set_id not in world().sets:
                add_process_set(process_set)


def shutdown() -> None:
    """Stops this worker's server."""
    worlds.stop()


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
