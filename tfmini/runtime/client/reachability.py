"""The tasks that a session's master can reach, for reports of what a session waits for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from tfmini.rpc.peer import State
from tfmini.runtime import targets

if TYPE_CHECKING:
    from tfmini.rpc.peer import Peer

# The job whose first task initialises the model, by convention; the first that the cluster has.
_CHIEF_JOBS = ("chief", "master", "worker")


class Reachability(NamedTuple):
    """The reachability of a task.

    Attributes:
      task: its full name.
      address: ``host:port``.
      connected: there is a connection.
      was_connected: there has been one.
      why: the reason why it cannot be reached, in words; "" when connected.
    """

    task: str
    address: str
    connected: bool
    was_connected: bool
    why: str

    def __str__(self) -> str:
        return f"{self.task} at {self.address}"


def task_of(target: str) -> str:
    """The full name of a target's task; "" for a target in another process."""
    master = _master_of(target)
    return "" if master is None else str(master.task)


def chief_of(target: str) -> str | None:
    """The full name of the chief of a target's cluster; None without a cluster, or when the target is the chief."""
    master = _master_of(target)
    if master is None:
        return None
    for job in _CHIEF_JOBS:
        task = f"/job:{job}/replica:0/task:0"
        if task in master.addresses() or task == master.task:
            return None if task == master.task else task
    return None


def reach(target: str, task: str) -> Reachability | None:
    """Starts connecting to a task where that is needed, and says how things stand; None without a cluster."""
    master = _master_of(target)
    if master is None or task not in master.addresses():
        return None
    peer = master.peer(task)
    peer.connect()
    return _describe(peer, task)


def unreachable(target: str) -> list[Reachability]:
    """The tasks that somebody wants to reach and cannot, as far as the target's server is in this process."""
    master = _master_of(target)
    if master is None:
        return []
    found = [_describe(master.peer(task), task) for task in master.addresses() if task != master.task]
    return [each for each in found if not each.connected and each.why != State.IDLE.value]


def _master_of(target: str) -> Any:
    server = targets.server_at(targets.address_of_target(target)) if target else None
    return None if server is None else server.master


def _describe(peer: Peer, task: str) -> Reachability:
    connected = peer.state is State.READY
    why = "" if connected else peer.why or peer.state.value
    return Reachability(task, peer.address, connected, peer.incarnation != 0, why)
