"""The plan for one (feeds, fetches, targets): pruned, placed, and cut into the graphs of tasks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tfmini.errors import InvalidArgumentError
from tfmini.graph.node import Endpoint, Nodes
from tfmini.graph.prune import step_graph
from tfmini.placement.partition import Partitions, partition
from tfmini.placement.task_graph import TaskGraph
from tfmini.runtime.executor.registered_graph import RegisteredGraph

if TYPE_CHECKING:
    from tfmini.rpc.peer import Peer


@dataclass
class Part:
    """The part of one task in a plan.

    Attributes:
      task_graph: what the task runs.
      feed_indices, fetch_indices: the positions of its values among the plan's feeds and fetches.
      graph: registered on the master's own task, else None.
      peer, graph_handle, incarnation: of another task: where to run which registered graph.
    """

    task: str
    task_graph: TaskGraph
    feed_indices: list[int] = field(default_factory=list)
    fetch_indices: list[int] = field(default_factory=list)
    graph: RegisteredGraph | None = None
    peer: Peer = None  # type: ignore[assignment] # set for every part of another task
    graph_handle: int = 0
    incarnation: int = 0


@dataclass
class Plan:
    """A signature's partitions and the parts that run it.

    Attributes:
      local: the registered graph of a plan that the client's thread runs by itself, else None.
      traced: whether its programs record a trace.
    """

    feeds: tuple[str, ...]
    fetches: tuple[str, ...]
    partitions: Partitions
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
    step = step_graph(nodes, wanted, list(targets), fed, client_device)
    partitions = partition(step, placement, incarnations=incarnations, name_counter=name_counter)
    parts = [
        Part(task, graph, [fed.index(tensor) for tensor in graph.fed],
             [wanted.index(tensor) for _, tensor in graph.fetches])
        for task, graph in partitions.tasks.items()
    ]  # fmt: skip
    return Plan(tuple(feeds), tuple(fetches), partitions, parts, targets=tuple(targets))
