"""The plan for one (feeds, fetches, targets): pruned, placed, cut, and laid out per task.

The short cuts that keep values off the wire are those of `tfmini.placement.layout`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tfmini.errors import InvalidArgumentError
from tfmini.graph.node import Endpoint, Node, Nodes
from tfmini.graph.prune import step_graph
from tfmini.placement.layout import Layout, lay_out
from tfmini.placement.partition import Partitions, partition
from tfmini.runtime.executor.registered_graph import RegisteredGraph


@dataclass
class Part:
    """The part of one task in a plan.

    Attributes:
      feeds, fetches: tensor names, in the order in which values go and come.
      feed_indices, fetch_indices: their positions among the plan's feeds and fetches.
      graph: registered on the master's own task, else None.
      peer, graph_handle, incarnation: of another task: where to run which registered graph.
    """

    task: str
    nodes: list[Node]
    feeds: list[str] = field(default_factory=list)
    fetches: list[str] = field(default_factory=list)
    feed_indices: list[int] = field(default_factory=list)
    fetch_indices: list[int] = field(default_factory=list)
    graph: RegisteredGraph | None = None
    peer: Any = None
    graph_handle: int = 0
    incarnation: int = 0


@dataclass
class Plan:
    """A signature's partitions, their layout and the parts that run it.

    Attributes:
      local: the registered graph of a plan that the client's thread runs by itself, else None.
      traced: whether its programs record a trace.
    """

    feeds: tuple[str, ...]
    fetches: tuple[str, ...]
    partitions: Partitions
    layout: Layout
    parts: list[Part]
    local: RegisteredGraph | None = None
    traced: bool = False
    targets: tuple[str, ...] = ()


def endpoint_of(tensor_name: str) -> Endpoint:
    """``("x", 0)`` for ``"x:0"``.

    Raises:
      InvalidArgumentError: what follows the colon is no number.
    """
    name, _, index = tensor_name.partition(":")
    if index and not (index.isascii() and index.isdigit() and len(index) < 10):
        raise InvalidArgumentError.of(f"{tensor_name!r:.80} is not a name of a tensor")
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
    layout = lay_out(partitions)
    parts = []
    for task, task_nodes in layout.tasks.items():
        part = Part(task, list(task_nodes.values()))
        names = [(n.op, n.attrs["tensor_name"].decode()) for n in part.nodes if n.attrs.get("client_terminated")]
        part.feeds = list(dict.fromkeys(name for op, name in names if op == "_Recv"))
        part.fetches = list(dict.fromkeys(name for op, name in names if op == "_Send"))
        part.feed_indices = [feeds.index(name) for name in part.feeds]
        part.fetch_indices = [fetches.index(name) for name in part.fetches]
        parts.append(part)
    return Plan(tuple(feeds), tuple(fetches), partitions, layout, parts, targets=tuple(targets))
