"""The layout of a plan: one graph per task, and the route of each value that crosses.

Two changes to the partitioner's result save messages. First, a fed value goes inside RunGraph directly to the task that
uses it, and a fetched value returns inside the task's answer; neither passes through the master's device as a tensor of
its own. Second, a task gets a copy of a constant once, in its registered part, and not in every step. The inspector
shows this layout.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from tfmini.devices import task_of_device
from tfmini.graph.node import Node, Nodes
from tfmini.graph.prune import in_topological_order
from tfmini.placement.partition import Pair, Partitions


class Route(Enum):
    """The way in which the value of a `Pair` gets from its source to its destination."""

    SENT = "sent"
    """Sent from task to task in every step."""
    FED = "fed"
    """Inside RunGraph, from the master to the task that uses it."""
    FETCHED = "fetched"
    """Inside the answer to RunGraph, from the task to the master."""
    COPIED = "copied"
    """A constant: it is part of the receiver's graph and does not travel in a step."""
    INNER = "inner"
    """Between two devices of one task: it does not cross the network."""
    EXCHANGED = "exchanged"
    """Sent by a collective op between the members of its group. The partitioner makes no pair for it."""


@dataclass(frozen=True)
class Layout:
    """The nodes that each task registers, in topological order, and the route of each pair, in the order of pairs."""

    tasks: dict[str, Nodes]
    routes: list[tuple[Pair, Route]]


def lay_out(partitions: Partitions) -> Layout:
    """Makes the layout of partitions, without changing them."""
    arranging = _Arranging(partitions)
    routes = [(pair, arranging.route(pair)) for pair in partitions.pairs]
    return Layout(arranging.by_task(), routes)


class _Arranging:
    """Builds a layout: numbers the groups of the whole plan, and gives each pair its route."""

    def __init__(self, partitions: Partitions) -> None:
        self.partitions = partitions
        self.parts: dict[str, Nodes] = {device: dict(nodes) for device, nodes in partitions.parts.items()}
        self.group_ids: dict[tuple[str, str, int], int] = {}

    def route(self, pair: Pair) -> Route:
        """Chooses the route of a pair and changes the parts accordingly."""
        if task_of_device(pair.src) == task_of_device(pair.dst):
            return Route.INNER
        if self._feeds_directly(pair):
            return Route.FED
        if self._fetches_directly(pair):
            return Route.FETCHED
        if self._copies_constant(pair):
            return Route.COPIED
        self._number(pair)
        return Route.SENT

    def by_task(self) -> dict[str, Nodes]:
        """Returns for each task the parts of all its devices as one graph."""
        tasks: dict[str, Nodes] = {}
        for device, nodes in self.parts.items():
            tasks.setdefault(task_of_device(device), {}).update(nodes)
        inner: dict[str, list[Pair]] = {}
        for pair in self.partitions.pairs:
            if (task := task_of_device(pair.src)) == task_of_device(pair.dst):
                inner.setdefault(task, []).append(pair)
        return {task: _ordered(nodes, inner.get(task, ())) for task, nodes in tasks.items() if nodes}

    def _feeds_directly(self, pair: Pair) -> bool:
        """If the pair sends a fed value, feeds the receiver instead; returns whether it did."""
        source = self.partitions.parts[pair.src].get(pair.source[0])
        if pair.is_control or source is None or source.op != "_Recv":
            return False
        attrs = {"client_terminated": True, "tensor_name": source.attrs["tensor_name"]}
        self._change(pair.dst, pair.recv, attrs)
        del self.parts[pair.src][pair.send]
        self._drop_if_unused(pair.src, source.name)
        return True

    def _fetches_directly(self, pair: Pair) -> bool:
        """If the pair sends only fetches of the client, lets the sender answer with them; returns whether it did."""
        consumers = self._consumers(pair.dst, pair.recv)
        if pair.is_control or not consumers:
            return False
        if not all(c.op == "_Send" and c.attrs["client_terminated"] for c in consumers):
            return False
        attrs = {"client_terminated": True, "tensor_name": consumers[0].attrs["tensor_name"]}
        self._change(pair.src, pair.send, attrs)
        for name in [pair.recv, *(c.name for c in consumers)]:
            del self.parts[pair.dst][name]
        return True

    def _copies_constant(self, pair: Pair) -> bool:
        """If the pair sends a constant, gives the receiver a copy of the node; returns whether it did."""
        source = self.partitions.parts[pair.src].get(pair.source[0])
        if pair.is_control or source is None or source.op != "Const" or source.controls:
            return False
        receiver = self.parts[pair.dst][pair.recv]
        self.parts[pair.dst][pair.recv] = source.replace(name=pair.recv, device=pair.dst, controls=receiver.controls)
        del self.parts[pair.src][pair.send]
        self._drop_if_unused(pair.src, source.name)
        return True

    def _number(self, pair: Pair) -> None:
        key = (pair.src, pair.dst, self.partitions.group_of(pair))
        group = self.group_ids.setdefault(key, len(self.group_ids))
        self._change(pair.src, pair.send, {"_group": group})
        self._change(pair.dst, pair.recv, {"_group": group})

    def _change(self, device: str, name: str, attrs: dict[str, Any]) -> None:
        node = self.parts[device][name]  # `replace` takes three times as long
        self.parts[device][name] = Node(name, node.op, node.device, node.inputs, node.controls, {**node.attrs, **attrs})

    def _consumers(self, device: str, name: str) -> list[Node]:
        if not hasattr(self, "_uses"):
            ends = {(p.dst, p.recv) for p in self.partitions.pairs}
            ends.update((p.src, p.source[0]) for p in self.partitions.pairs)
            self._uses: dict[tuple[str, str], list[Node]] = {end: [] for end in ends}
            crossing: dict[str, set[str]] = {}
            for end, source in ends:
                crossing.setdefault(end, set()).add(source)
            for where, nodes in self.partitions.parts.items():
                names = crossing.get(where, set())
                for node in nodes.values():
                    sources = {s for s, _ in node.inputs if s in names}
                    sources.update(s for s in node.controls if s in names)
                    for source in sources:
                        self._uses[where, source].append(node)
        return self._uses.get((device, name), [])

    def _drop_if_unused(self, device: str, name: str) -> None:
        if not any(c.name in self.parts[device] for c in self._consumers(device, name)):
            self.parts[device].pop(name, None)


def _ordered(nodes: Nodes, inner: Sequence[Pair]) -> Nodes:
    """Sorts the nodes of all devices of a task topologically; pairs between the devices count as edges."""
    for pair in inner:
        recv = nodes[pair.recv]
        nodes[pair.recv] = recv.replace(controls=(*recv.controls, pair.send))
    return in_topological_order(nodes) if inner else nodes
