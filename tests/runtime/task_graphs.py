"""Graphs of one task, row by row: a node, or a node with what comes or goes there."""

from __future__ import annotations

from collections.abc import Iterable

from tfmini import dtypes
from tfmini.devices import Place
from tfmini.graph.node import FEED, FETCH, RECEIVE, SEND, Endpoint, Node
from tfmini.placement.task_graph import End, TaskGraph

Row = Node | tuple[Node, End | Endpoint]
F = dtypes.float32


def task_graph(rows: Iterable[Row]) -> TaskGraph:
    """The graph of these rows; fed and fetched values in their order."""
    pairs = [row if isinstance(row, tuple) else (row, None) for row in rows]
    ends = [(node, end) for node, end in pairs if end is not None]
    return TaskGraph(
        {node.name: node for node, _ in pairs},
        {node.name: end for node, end in ends if node.op == SEND and isinstance(end, End)},
        {node.name: end for node, end in ends if node.op == RECEIVE and isinstance(end, End)},
        tuple((node.name, end) for node, end in ends if node.op == FEED and isinstance(end, tuple)),
        tuple((node.name, end) for node, end in ends if node.op == FETCH and isinstance(end, tuple)),
    )


def feed(name: str, device: str, node: str = "") -> Row:
    """The value of a fed tensor."""
    return Node(node or name, FEED, device, attrs={"T": F}), (name, 0)


def fetch(source: Endpoint, device: str, name: str = "") -> Row:
    """A fetched value."""
    return Node(name or f"_send_{source[0]}_{source[1]}", FETCH, device, [source]), source


def send(
    name: str, source: str, group: int, device: str, peer: str, controls: Iterable[str] = (), tensor: str = ""
) -> Row:
    """A value that goes to another device."""
    return Node(name, SEND, device, [(source, 0)], controls), End(tensor or name, Place.of(peer), group)


def receive(
    name: str, group: int, device: str, peer: str, controls: Iterable[str] = (), tensor: str = "", incarnation: int = 0
) -> tuple[Node, End]:
    """A value that comes from another device."""
    node = Node(name, RECEIVE, device, (), controls, {"tensor_type": F})
    return node, End(tensor or name, Place.of(peer, incarnation), group)
