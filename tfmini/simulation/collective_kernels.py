"""Collectives of a simulation: the runtime's schedules decide what is sent; nothing is added up.

Between machines, the executor joins the group and sends the messages. On one machine the members of an all-reduce share
memory in the runtime: there they meet, and each spends the CPU time that the profile has for reading the others' data.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from tfmini.collectives.costs import shared_all_reduce_cost
from tfmini.collectives.schedules import RingReduce, Schedule, all_reduce
from tfmini.graph.node import Node
from tfmini.graph.traits import trait_of
from tfmini.runtime.collectives.calls import Call
from tfmini.simulation.phantoms import Phantom, as_phantom

if TYPE_CHECKING:
    from tfmini.simulation.timed_host import TimedHost
    from tfmini.simulation.timed_network import TimedNetwork

_Answer = Callable[[], None]


class CollectiveKernels:
    """The kernels of collective ops.

    Args:
      network: the tasks.
    """

    def __init__(self, network: TimedNetwork) -> None:
        self._network = network
        self._shares_memory = len(set(network.cluster.hosts.values())) == 1
        self._meetings: dict[tuple[int, int], list[tuple[TimedHost, Any, Any]]] = {}

    def kernel(self, node: Node) -> Callable[..., None]:
        """The kernel of an op."""
        meets = self._shares_memory and trait_of(node.op, "collective") == "all-reduce"

        def begin(wait: Any, value: Any = None, splits: Any = None) -> None:
            if meets:
                self._meet(node, wait, value)
                return
            executor = wait.step.owner.collectives
            call = executor.calls.make(wait, node, as_phantom(value), splits)
            executor.call(_PhantomCall(wait, call.about, node, call.value, splits))

        return begin

    def _meet(self, node: Node, wait: Any, value: Any) -> None:
        host = self._network.running
        assert host is not None
        if not wait.on_cancel(f"collective of {node.attrs['group_size']} ranks", lambda: None):
            return
        members = self._meetings.setdefault((node.attrs["group_key"], node.attrs["instance_key"]), [])
        members.append((host, wait, value))
        if len(members) == node.attrs["group_size"]:
            present, members[:] = list(members), []
            assert host.recording is not None
            host.recording.then(lambda cause: self._answer(present, node))

    def _answer(self, members: list[tuple[TimedHost, Any, Any]], node: Node) -> None:
        link = self._network.cluster.local
        nbytes = members[0][2].nbytes
        cpu_s = link.receive_s + shared_all_reduce_cost(nbytes, len(members)).nbytes * link.reduce_s_per_byte
        for host, wait, value in members:
            host.call_later(link.latency_s, _finish, host, wait, value, cpu_s)


def _finish(host: TimedHost, wait: Any, value: Any, cpu_s: float) -> None:
    host.charge(cpu_s, "collective")
    wait.done(value)


class _PhantomCall(Call):
    """A call whose schedule adds nothing up."""

    __slots__ = ()

    def schedule(self, rank: int, members: list[str]) -> Any:
        kind = trait_of(self.node.op, "collective")
        if kind == "all-reduce" and isinstance(self.value, Phantom):
            return _phantom_reduce(self, rank, len(members))
        return super().schedule(rank, members)


def _phantom_reduce(call: Call, rank: int, size: int) -> Schedule:
    about, value = call.about, call.value
    assert about.reduction is not None
    merge, final = about.reduction
    view = np.asarray(value).reshape(-1)
    found = all_reduce(rank, size, value, merge, final, about.pieces, lambda: (_Nowhere(), view))
    if isinstance(found, RingReduce):
        found._merge, found._final = _nothing, "Id"
    return found


def _nothing(*values: Any, out: Any) -> None:
    """Adds nothing up."""


class _Nowhere:
    """Memory for a result that nobody reads."""

    def __getitem__(self, span: Any) -> _Nowhere:
        return self

    def __setitem__(self, span: Any, values: Any) -> None:
        """Stores nothing."""
