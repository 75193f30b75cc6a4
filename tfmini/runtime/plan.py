"""The plan for one (feeds, fetches, targets): pruned, placed, cut, and laid out per task.

What servers run differs from what the partitioner drew in two respects, which save messages:
a value that the client feeds goes with RunGraph straight to the task that uses it, and a
fetched value comes back with the task's answer, instead of passing through the master's device
as a tensor of its own; and a constant is given to the task that uses it once, when the part is
registered, instead of in every step.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tfmini.graph.node import Endpoint, Node, Nodes
from tfmini.graph.prune import in_topological_order, step_graph
from tfmini.placement.partition import Pair, Partitions, partition
from tfmini.runtime.worker import task_of_device


@dataclass
class Part:
    """What one task does in a plan.

    Attributes:
      feeds, fetches: tensor names, in the order in which values go and come.
      feed_indices, fetch_indices: their positions among the plan's feeds and fetches.
      graph: the local worker's RegisteredGraph, when this is the master's own task.
      peer, graph_handle, incarnation: where and what to run otherwise.
    """

    task: str
    nodes: list[Node]
    feeds: list[str] = field(default_factory=list)
    fetches: list[str] = field(default_factory=list)
    feed_indices: list[int] = field(default_factory=list)
    fetch_indices: list[int] = field(default_factory=list)
    graph: Any = None
    peer: Any = None
    graph_handle: int = 0
    incarnation: int = 0


@dataclass
class Plan:
    """A signature's partitions and the parts that run them; ``local`` is the only part of a local plan."""

    feeds: tuple[str, ...]
    fetches: tuple[str, ...]
    partitions: Partitions
    parts: list[Part]
    local: Part | None = None


def endpoint_of(tensor_name: str) -> Endpoint:
    """``("x", 0)`` for ``"x:0"``."""
    name, _, index = tensor_name.partition(":")
    return name, int(index or 0)


def build_plan(
    nodes: Nodes,
    placement: Mapping[str, str],
    feeds: Sequence[str],
    fetches: Sequence[str],
    targets: Sequence[str],
    *,
    client_device: str,
    incarnations: Mapping[str, int],
    name_counter: Iterator[int],
) -> Plan:
    """Prunes and cuts a placed graph for one signature.

    Raises:
      NotFoundError, InvalidArgumentError: as `prune` and `partition` do.
    """
    fed, wanted = [endpoint_of(f) for f in feeds], [endpoint_of(f) for f in fetches]
    graph = step_graph(nodes, wanted, list(targets), fed, client_device, incarnations.get(client_device, 0))
    partitions = partition(graph, placement, incarnations=incarnations, name_counter=name_counter)
    layout = _Layout(partitions)
    parts = []
    for task, task_nodes in layout.by_task().items():
        part = Part(task, list(task_nodes.values()))
        names = [(n.op, n.attrs["tensor_name"].decode()) for n in part.nodes if n.attrs.get("client_terminated")]
        part.feeds = list(dict.fromkeys(name for op, name in names if op == "_Recv"))
        part.fetches = list(dict.fromkeys(name for op, name in names if op == "_Send"))
        part.feed_indices = [feeds.index(name) for name in part.feeds]
        part.fetch_indices = [fetches.index(name) for name in part.fetches]
        parts.append(part)
    return Plan(tuple(feeds), tuple(fetches), partitions, parts)


class _Layout:
    """Partitions rearranged for running: groups numbered plan-wide, client values short-cut."""

    def __init__(self, partitions: Partitions) -> None:
        self.partitions = partitions
        self.parts: dict[str, Nodes] = {device: dict(nodes) for device, nodes in partitions.parts.items()}
        self.group_ids: dict[tuple[str, str, int], int] = {}

    def by_task(self) -> dict[str, Nodes]:
        for pair in self.partitions.pairs:
            if task_of_device(pair.src) == task_of_device(pair.dst):
                continue
            if not (self._feeds_directly(pair) or self._fetches_directly(pair) or self._copies_constant(pair)):
                self._number(pair)
        tasks: dict[str, Nodes] = {}
        for device, nodes in self.parts.items():
            tasks.setdefault(task_of_device(device), {}).update(nodes)
        return {task: self._ordered(task, nodes) for task, nodes in tasks.items() if nodes}

    def _feeds_directly(self, pair: Pair) -> bool:
        """A fed value that only passes through the client's device: the receiver is fed instead."""
        source = self.partitions.parts[pair.src].get(pair.source[0])
        if pair.is_control or source is None or source.op != "_Recv":
            return False
        attrs = {"client_terminated": True, "tensor_name": source.attrs["tensor_name"]}
        self._change(pair.dst, pair.recv, attrs)
        del self.parts[pair.src][pair.send]
        self._drop_if_unused(pair.src, source.name)
        return True

    def _fetches_directly(self, pair: Pair) -> bool:
        """A remote value that the client's device only hands to the client: the sender answers it."""
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
        """A constant: the receiver gets it as a node of its own."""
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
        node = self.parts[device][name]
        self.parts[device][name] = node.replace(attrs={**node.attrs, **attrs})

    def _consumers(self, device: str, name: str) -> list[Node]:
        if not hasattr(self, "_uses"):
            self._uses: dict[tuple[str, str], list[Node]] = {}
            for where, nodes in self.partitions.parts.items():
                for node in nodes.values():
                    for source in {s for s, _ in node.inputs} | set(node.controls):
                        self._uses.setdefault((where, source), []).append(node)
        return self._uses.get((device, name), [])

    def _drop_if_unused(self, device: str, name: str) -> None:
        if not any(c.name in self.parts[device] for c in self._consumers(device, name)):
            self.parts[device].pop(name, None)

    def _ordered(self, task: str, nodes: Nodes) -> Nodes:
        """A topological order of all devices of a task; pairs between them count as edges."""
        inner = [p for p in self.partitions.pairs if task_of_device(p.src) == task == task_of_device(p.dst)]
        if not inner:
            return nodes
        for pair in inner:
            recv = nodes[pair.recv]
            nodes[pair.recv] = recv.replace(controls=(*recv.controls, pair.send))
        return in_topological_order(nodes)
