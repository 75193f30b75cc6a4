"""`TaskGraph`: what one task runs in a step. The partitioner makes it, RegisterGraph carries it, the compiler reads it.

`task_graphs` makes the graphs of all tasks from the partitioner's parts and pairs. Two changes to these save messages.
First, a fed value goes inside RunGraph directly to the task that uses it, and a fetched value returns inside the task's
answer; neither passes through the master's device as a tensor of its own. Second, a task gets a copy of a constant
once, in its registered graph, and not in every step. The inspector shows these graphs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import cached_property
from typing import Any

from tfmini.devices import Place
from tfmini.dtypes import DType
from tfmini.errors import InvalidArgumentError
from tfmini.graph.node import FEED, FETCH, MADE_BY_PASSES, RECEIVE, SEND, Endpoint, Node, Nodes, by_name, check_edges
from tfmini.graph.prune import ClientValue, StepGraph, in_topological_order

INNER = -1
"""The group of a value that goes from one device of a task to another, without a message."""


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
class Pair:
    """A tensor or control edge that crosses from one device to another.

    Attributes:
      source: the endpoint; its index is `partition.CONTROL_SLOT` for a control edge.
      src, dst: the devices.
      send, recv: names of the two nodes.
      dtype: the dtype of the tensor (float32 for a control edge).
      tensor: its name on the wire, as TensorFlow's partitioner gives it.
      may_be_dead: whether the value may lie in a branch that a step does not take.
      is_late: whether it waits for more than time.
      carriers: for a control edge, the Const that is sent and the Identity that replaces the edge.
      group: the number of its message on the link from ``src`` to ``dst``.
      route: how it travels.
    """

    source: Endpoint
    src: Place
    dst: Place
    send: str
    recv: str
    dtype: DType
    tensor: str
    may_be_dead: bool = False
    is_late: bool = False
    carriers: tuple[str, str] | None = None
    group: int = 0
    route: Route = Route.SENT

    @property
    def is_control(self) -> bool:
        return self.carriers is not None

    @property
    def key(self) -> str:
        """The rendezvous key, as TensorFlow formats it."""
        return f"{self.src.device};{self.src.incarnation:016x};{self.dst.device};{self.tensor};0:0"


@dataclass(frozen=True)
class End:
    """One end of a transfer: what a `SEND` node does with its input, or where the value of a `RECEIVE` node comes from.

    Attributes:
      tensor: the name on the wire. It orders the values of a message, and joins the two ends of an inner transfer.
      peer: the device at the other end.
      group: the number of the message, unique in the step; `INNER` for another device of the same task.
      may_be_dead, is_late: as in `Pair`.
    """

    tensor: str
    peer: Place
    group: int
    may_be_dead: bool = False
    is_late: bool = False


@dataclass(frozen=True)
class TaskGraph:
    """What one task runs in a step.

    A copied constant is a node like any other. Which nodes run together (their waves) follows from the nodes, the
    receives and the kernels, so the compiler of the task finds it out (`waves`).

    Attributes:
      nodes: in topological order.
      sends, receives: by the names of the `SEND` and `RECEIVE` nodes.
      feeds: the `FEED` nodes, in the order of the values in RunGraph; several may take one value.
      fetches: the `FETCH` nodes, in the order of the values in the answer.
    """

    nodes: Nodes
    sends: Mapping[str, End] = field(default_factory=dict)
    receives: Mapping[str, End] = field(default_factory=dict)
    feeds: tuple[ClientValue, ...] = ()
    fetches: tuple[ClientValue, ...] = ()

    @classmethod
    def of_step(cls, step: StepGraph) -> TaskGraph:
        """The graph of a step that one device runs alone."""
        return cls(step.nodes, feeds=step.feeds, fetches=step.fetches)

    @property
    def fed(self) -> tuple[Endpoint, ...]:
        """The fed tensors, in the order of the values in RunGraph."""
        return tuple(dict.fromkeys(tensor for _, tensor in self.feeds))

    def to_wire(self) -> dict[str, Any]:
        """Converts the graph to a plain value for an rpc `Structure` field."""
        numbers: dict[Place, int] = {}

        def rows(ends: Mapping[str, End]) -> list[list[Any]]:
            return [
                [name, e.tensor, numbers.setdefault(e.peer, len(numbers)), e.group, e.may_be_dead, e.is_late]
                for name, e in ends.items()
            ]

        return {
            "nodes": [node.to_wire() for node in self.nodes.values()],
            "sends": rows(self.sends),
            "receives": rows(self.receives),
            "places": [list(place) for place in numbers],
            "feeds": [[node, *tensor] for node, tensor in self.feeds],
            "fetches": [[node, *tensor] for node, tensor in self.fetches],
        }

    @classmethod
    def from_wire(cls, fields: Any) -> TaskGraph:
        """The inverse of `to_wire`.

        Raises:
          InvalidArgumentError: the graph is malformed; the error names the node, or the row of a table.
        """
        if type(fields) is not dict or type(fields.get("nodes")) is not list:
            raise InvalidArgumentError.of(f"The graph of a task is malformed: {fields!r:.80}")
        nodes = [Node.from_wire(node) for node in fields["nodes"]]
        named = by_name(nodes)
        places = [Place(*row) for row in _rows(fields, "places", str, str, int)]
        sends, receives = (
            {name: End(tensor, _place(places, number), *rest)
             for name, tensor, number, *rest in _rows(fields, table, str, str, int, int, bool, bool)}
            for table in ("sends", "receives")
        )  # fmt: skip
        feeds, fetches = (
            tuple((name, (source, index)) for name, source, index in _rows(fields, table, str, str, int))
            for table in ("feeds", "fetches")
        )
        graph = cls(named, sends, receives, feeds, fetches)
        _check_ends(graph)
        check_edges(nodes, named)
        return graph


# ---------------------------------------------------------------- checks of a graph of another process


def _rows(fields: dict[Any, Any], table: str, *kinds: type) -> list[list[Any]]:
    rows = fields.get(table)
    for row in rows if type(rows) is list else [rows]:
        if type(row) is not list or [type(value) for value in row] != list(kinds):
            raise InvalidArgumentError.of(f"The {table} of the graph have a malformed row: {row!r:.80}")
    return rows  # type: ignore[return-value]


def _place(places: list[Place], number: int) -> Place:
    if not 0 <= number < len(places):
        raise InvalidArgumentError.of(f"The graph has no place {number}, only {len(places)}")
    return places[number]


def _check_ends(graph: TaskGraph) -> None:
    """Refuses a table that names a node of another kind, and a node that is missing: the compiler looks them up."""
    tables: dict[str, Iterable[str]] = {
        SEND: graph.sends, RECEIVE: graph.receives,
        FEED: [name for name, _ in graph.feeds], FETCH: [name for name, _ in graph.fetches],
    }  # fmt: skip
    known: set[str] = set()
    for op, names in tables.items():
        for name in names:
            node = graph.nodes.get(name)
            if node is None or node.op != op:
                raise InvalidArgumentError.of(f"The graph has no node {name!r} of the op {op}")
        known.update(names)
    for node in graph.nodes.values():
        for source in (*(source for source, _ in node.inputs), *node.controls):
            if source not in graph.nodes:
                raise InvalidArgumentError.of(f"Node {node.name!r} needs {source!r}, which is not in the graph")
        if node.op not in MADE_BY_PASSES:
            continue
        if node.name not in known:
            raise InvalidArgumentError.of(f"The graph does not say what node {node.name!r} ({node.op}) is for")
        if len(node.inputs) != (node.op in (SEND, FETCH)):
            raise InvalidArgumentError.of(f"Node {node.name!r} ({node.op}) has {len(node.inputs)} inputs")
        for attr in MADE_BY_PASSES[node.op]:
            if attr not in node.attrs:
                raise InvalidArgumentError.of(f"Node {node.name!r} ({node.op}) has no attr {attr!r}")
    sent = {send.tensor for send in graph.sends.values() if send.group == INNER}
    for name, end in (*graph.sends.items(), *graph.receives.items()):
        if end.group < INNER:
            raise InvalidArgumentError.of(f"Node {name!r} has the group {end.group}; groups count from 0")
        if end.group == INNER and end.tensor not in sent:
            raise InvalidArgumentError.of(f"No device of the task sends {end.tensor!r} to node {name!r}")


# ---------------------------------------------------------------- the graphs of all tasks


def task_graphs(
    step: StepGraph, parts: Mapping[str, Nodes], pairs: Sequence[Pair], places: Mapping[str, Place]
) -> tuple[dict[str, TaskGraph], list[Pair]]:
    """Returns the graph of each task, and the pairs with their routes.

    Args:
      parts: the nodes of each device, in topological order. They are not changed.
      places: device -> its place.
    """
    arranging = _Arranging(step, parts, pairs, places)
    routes = [(pair, arranging.route(pair)) for pair in pairs]
    routed = [pair if pair.route is route else replace(pair, route=route) for pair, route in routes]
    return arranging.graphs(), routed


class _Arranging:
    """Gives each pair its route, and numbers the messages of the whole step."""

    def __init__(
        self, step: StepGraph, parts: Mapping[str, Nodes], pairs: Sequence[Pair], places: Mapping[str, Place]
    ) -> None:
        self.step, self.original, self.pairs, self.places = step, parts, pairs, places
        self.parts: dict[str, Nodes] = {device: dict(nodes) for device, nodes in parts.items()}
        self.ends: dict[str, End] = {}
        self.client = dict((*step.feeds, *step.fetches))  # the value of each FEED and FETCH node
        self.groups: dict[tuple[Place, Place, int], int] = {}

    def route(self, pair: Pair) -> Route:
        """Chooses the route of a pair and changes the parts accordingly."""
        if pair.src.task == pair.dst.task:
            self._join(pair, INNER)
            return Route.INNER
        if not pair.is_control:
            source = self.original[pair.src.device].get(pair.source[0])
            if source is not None and source.op == FEED:
                self._feed(pair, source)
                return Route.FED
            takers = self.users[pair.recv]
            if takers and all(taker.op == FETCH for taker in takers):
                self._fetch(pair, takers)
                return Route.FETCHED
            if source is not None and source.op == "Const" and not source.controls:
                self._copy(pair, source)
                return Route.COPIED
        self._join(pair, self.groups.setdefault((pair.src, pair.dst, pair.group), len(self.groups)))
        return Route.SENT

    def _join(self, pair: Pair, group: int) -> None:
        self.ends[pair.send] = End(pair.tensor, pair.dst, group, pair.may_be_dead, pair.is_late)
        self.ends[pair.recv] = End(pair.tensor, pair.src, group, pair.may_be_dead, pair.is_late)

    def _feed(self, pair: Pair, source: Node) -> None:
        """Lets the master feed the receiver instead of its own device."""
        receive = self.parts[pair.dst.device][pair.recv]
        self._put(Node(pair.recv, FEED, receive.device, (), receive.controls, {"T": pair.dtype}))
        self.client[pair.recv] = self.client[source.name]
        self._drop_send(pair, source)

    def _fetch(self, pair: Pair, takers: list[Node]) -> None:
        """Lets the sender answer with the value."""
        self._put(self.parts[pair.src.device][pair.send].replace(op=FETCH))
        self.client[pair.send] = self.client[takers[0].name]
        for name in [pair.recv, *(taker.name for taker in takers)]:
            del self.parts[pair.dst.device][name]

    def _copy(self, pair: Pair, source: Node) -> None:
        """Gives the receiver a copy of a constant."""
        receive = self.parts[pair.dst.device][pair.recv]
        self._put(source.replace(name=pair.recv, device=receive.device, controls=receive.controls))
        self._drop_send(pair, source)

    def _put(self, node: Node) -> None:
        self.parts[node.device][node.name] = node

    def _drop_send(self, pair: Pair, source: Node) -> None:
        """Drops a send, and what was only sent."""
        part = self.parts[pair.src.device]
        del part[pair.send]
        if not any(user.name in part for user in self.users[source.name]):
            part.pop(source.name, None)

    @cached_property
    def users(self) -> dict[str, list[Node]]:
        """The nodes that use what is sent or received, by its name."""
        found: dict[str, list[Node]] = {name: [] for pair in self.pairs for name in (pair.recv, pair.source[0])}
        for nodes in self.original.values():
            for node in nodes.values():
                for source in (*(source for source, _ in node.inputs), *node.controls):
                    users = found.get(source)
                    if users is not None and (not users or users[-1] is not node):
                        users.append(node)
        return found

    def graphs(self) -> dict[str, TaskGraph]:
        """Returns for each task the parts of all its devices as one graph."""
        tasks: dict[str, Nodes] = {}
        for device, nodes in self.parts.items():
            tasks.setdefault(self.places[device].task, {}).update(nodes)
        inner: dict[str, list[Pair]] = {}
        for pair in self.pairs:
            if pair.src.task == pair.dst.task:
                inner.setdefault(pair.src.task, []).append(pair)
        ordered = {task: _ordered(nodes, inner.get(task, ())) for task, nodes in tasks.items() if nodes}
        return {task: self._graph(nodes) for task, nodes in ordered.items()}

    def _graph(self, nodes: Nodes) -> TaskGraph:
        ends: dict[str, dict[str, End]] = {SEND: {}, RECEIVE: {}}
        client: dict[str, dict[Endpoint, list[str]]] = {FEED: {}, FETCH: {}}
        for name, node in nodes.items():
            if node.op in client:
                client[node.op].setdefault(self.client[name], []).append(name)
            elif name in self.ends:  # a graph that the inspector reads may have such nodes, too: they are no ends
                ends[node.op][name] = self.ends[name]
        feeds, fetches = (
            tuple((name, tensor) for _, tensor in values for name in client[op].get(tensor, ()))
            for op, values in ((FEED, self.step.feeds), (FETCH, self.step.fetches))
        )
        return TaskGraph(nodes, ends[SEND], ends[RECEIVE], feeds, fetches)


def _ordered(nodes: Nodes, inner: Sequence[Pair]) -> Nodes:
    """Sorts the nodes of all devices of a task topologically; pairs between the devices count as edges."""
    for pair in inner:
        recv = nodes[pair.recv]
        nodes[pair.recv] = recv.replace(controls=(*recv.controls, pair.send))
    return in_topological_order(nodes) if inner else nodes
