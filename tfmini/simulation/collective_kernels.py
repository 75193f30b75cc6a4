"""Collectives of a simulation: the runtime's schedules decide what is sent; nothing is added up.

Between machines, the executor joins the group and sends the messages. On one machine the members of an all-reduce share
memory in the runtime: there they meet, and each spends the CPU time that the profile has for reading the others' data.

The messages of a ring are the square of its members, a million for 512 of them. So in a ring of more than `MOST_RANKS`
the members meet as well, and what each sends to the next one passes the NICs as one piece (`collectives.costs.flows`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from tfmini.collectives.costs import flows, serial_steps, shared_all_reduce_cost
from tfmini.collectives.schedules import RingReduce, Schedule, all_reduce
from tfmini.graph.node import Node
from tfmini.graph.traits import trait_of
from tfmini.inspection.clusters import task_order
from tfmini.runtime.collectives.calls import CollectiveCall
from tfmini.simulation.phantoms import Phantom, as_phantom

if TYPE_CHECKING:
    from tfmini.simulation.timed_host import TimedHost
    from tfmini.simulation.timed_network import TimedNetwork

MOST_RANKS = 16  # of a ring whose messages are sent one by one


_Member = tuple["TimedHost", Any, Any]
"""The process of a rank, its wait, and its value."""


class CollectiveKernels:
    """The kernels of collective ops.

    Args:
      network: the tasks.
    """

    def __init__(self, network: TimedNetwork) -> None:
        self._network = network
        self._shares_memory = len(set(network.cluster.hosts.values())) == 1
        self._meetings: dict[tuple[int, int], list[_Member]] = {}

    def kernel(self, node: Node) -> Callable[..., None]:
        """The kernel of an op."""
        meets = trait_of(node.op, "collective") == "all-reduce" and (
            self._shares_memory or node.attrs["group_size"] > MOST_RANKS
        )

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
            answer = self._answer if self._shares_memory else self._exchange
            host.recording.then(lambda cause: answer(present))

    def _answer(self, members: list[_Member]) -> None:
        link = self._network.cluster.local
        nbytes = members[0][2].nbytes
        cpu_s = link.receive_s + shared_all_reduce_cost(nbytes, len(members)).nbytes * link.reduce_s_per_byte
        for host, wait, value in members:
            host.call_later(link.latency_s, _finish, host, wait, value, cpu_s)

    def _exchange(self, members: list[_Member]) -> None:
        """Sends the bytes of a ring; its slowest link, the latencies of all steps and the CPU time make its time."""
        network = self._network
        nbytes = members[0][2].nbytes
        tasks = sorted((host.name for host, _, _ in members), key=task_order)
        ways = list(flows("all-reduce", nbytes, len(tasks)))
        left = len(ways)
        cpu_s, latency_s = dict.fromkeys(tasks, 0.0), 0.0
        network.under_way += 1  # so that nobody takes the steps for stuck

        def arrived() -> None:
            nonlocal left
            left -= 1
            if left:
                return
            network.under_way -= 1
            network.work += 1
            delay_s = (serial_steps("all-reduce", nbytes, len(tasks)) - 1) * latency_s
            for host, wait, value in members:
                host.call_later(delay_s, _finish, host, wait, value, cpu_s[host.name])

        for flow in ways:
            source, target, size = tasks[flow.source], tasks[flow.target], flow.nbytes or 0
            link = network.cluster.between(source, target)
            cpu_s[source] += flow.messages * link.send_s + size * link.copy_s_per_byte
            cpu_s[target] += flow.messages * link.receive_s + size * link.copy_s_per_byte
            latency_s = max(latency_s, link.latency_s)
            network.nics.send(source, target, size, arrived, flow.messages)


def _finish(host: TimedHost, wait: Any, value: Any, cpu_s: float) -> None:
    host.charge(cpu_s, "collective")
    wait.done(value)


class _PhantomCall(CollectiveCall):
    """A call whose schedule adds nothing up."""

    __slots__ = ()

    def schedule(self, rank: int, members: list[str]) -> Any:
        kind = trait_of(self.node.op, "collective")
        if kind == "all-reduce" and isinstance(self.value, Phantom):
            return _phantom_reduce(self, rank, len(members))
        return super().schedule(rank, members)


def _phantom_reduce(call: CollectiveCall, rank: int, size: int) -> Schedule:
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
