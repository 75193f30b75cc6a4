"""Pruning: reduces a graph to the nodes that one step needs (`StepGraph`), and adds nodes for its feeds and fetches.

The result is in topological order. Among the nodes that may come next, the oldest comes first. A client's graph usually
is in this order already: one pass over the nodes checks that.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import TypeVar

from tfmini.dtypes import DType
from tfmini.errors import InvalidArgumentError, NotFoundError
from tfmini.graph.node import FEED, FETCH, Endpoint, Node, Nodes, output_count, output_dtypes
from tfmini.graph.op_types import NEXT_OPS, PLACEHOLDER_OPS, ops_with

N = TypeVar("N", bound=Hashable)
DtypeOf = Callable[[Endpoint], DType]
ClientValue = tuple[str, Endpoint]
"""The node that gives a fed value or takes a fetched one, and the tensor that the client names."""


@dataclass(frozen=True)
class StepGraph:
    """The graph of one step, which the partitioner cuts.

    Attributes:
      nodes: in topological order, the `FEED` nodes first and the `FETCH` nodes last.
      feeds, fetches: in the order in which the client gives the values and gets them.
    """

    nodes: Nodes
    feeds: tuple[ClientValue, ...] = ()
    fetches: tuple[ClientValue, ...] = ()


def endpoint_name(endpoint: Endpoint) -> str:
    """Formats ``("x", 0)`` as ``x:0``."""
    return f"{endpoint[0]}:{endpoint[1]}"


def prune(
    nodes: Nodes,
    fetches: Sequence[Endpoint],
    targets: Sequence[str],
    feeds: Collection[Endpoint],
) -> Nodes:
    """Returns the nodes that ``fetches`` and ``targets`` need if ``feeds`` are given.

    It follows data and control edges backwards up to fed endpoints. So the producer of a fed endpoint stays only if
    another node needs it. The nodes are not changed: their inputs still name the fed endpoints, until
    `rewrite_feeds_and_fetches` replaces these.

    Raises:
      NotFoundError: a feed, fetch, target or input names no node.
      InvalidArgumentError: an index is too large, there is neither fetch nor target, an endpoint is fed and fetched
        or fed twice, or the nodes form a cycle.
    """
    _check_request(nodes, fetches, targets, feeds)
    fed = set(feeds)
    roots = [name for name, _ in fetches] + list(targets)
    return in_topological_order(reachable(nodes, roots, fed), fed)


def step_graph(
    nodes: Nodes,
    fetches: Sequence[Endpoint],
    targets: Sequence[str],
    feeds: Collection[Endpoint],
    client_device: str,
) -> StepGraph:
    """Returns the graph of one step, ready to be partitioned: `prune`, then `rewrite_feeds_and_fetches`."""
    kept = prune(nodes, fetches, targets, feeds)
    return rewrite_feeds_and_fetches(kept, feeds, fetches, client_device, dtype_reader(nodes))


def _check_request(
    nodes: Nodes, fetches: Sequence[Endpoint], targets: Sequence[str], feeds: Collection[Endpoint]
) -> None:
    if not fetches and not targets:
        raise InvalidArgumentError.of("Must specify at least one target to fetch or execute.")
    seen: set[Endpoint] = set()
    for feed in feeds:
        if feed in seen:
            raise InvalidArgumentError.of(f'Endpoint "{endpoint_name(feed)}" fed more than once.')
        seen.add(feed)
        _check_feed(nodes, feed)
    for fetch in fetches:
        if fetch in seen:
            raise InvalidArgumentError.of(f"{endpoint_name(fetch)} is both fed and fetched.")
        _check_fetch(nodes, fetch)
    missing = [name for name in targets if name not in nodes]
    if missing:
        message = f"PruneForTargets: Some target nodes not found: {' '.join(missing)}"
        raise NotFoundError.of(message)


def _check_feed(nodes: Nodes, feed: Endpoint) -> None:
    node = nodes.get(feed[0])
    if node is None:
        raise NotFoundError.of(f"FeedInputs: unable to find feed output {endpoint_name(feed)}")
    count = output_count(node)
    if feed[1] >= count:
        message = f"FeedInputs: {endpoint_name(feed)} should have output index < {count}"
        raise InvalidArgumentError.of(message)


def _check_fetch(nodes: Nodes, fetch: Endpoint) -> None:
    name = endpoint_name(fetch)
    node = nodes.get(fetch[0])
    if node is None:
        raise NotFoundError.of(f"FetchOutputs node {name}: not found")
    count = output_count(node)
    if count == 0:
        message = (
            f"Tried to fetch data for '{name}', which produces no output.  To run to a node but not "
            f"fetch any "
            f"data, pass '{name}' as an argument to the 'target_node_names' argument of the Session::Run API."
        )
        raise InvalidArgumentError.of(message)
    if fetch[1] >= count:
        message = f"FetchOutputs {name}: output index too large, must be < {count}"
        raise InvalidArgumentError.of(message)


def traverse(starts: Iterable[N], following: Callable[[N], Iterable[N]]) -> Iterator[N]:
    """Yields everything that can be reached, with the starts: each once, the nearest first.

    While graphs are built, this and not networkx walks them: networkx wants a graph of its own, and is slow to import.

    Args:
      following: what can be reached from one by a single step.
    """
    found = list(dict.fromkeys(starts))
    seen = set(found)
    for one in found:  # which grows
        yield one
        for other in following(one):
            if other not in seen:
                seen.add(other)
                found.append(other)


def reachable(nodes: Nodes, roots: Iterable[str], fed: Collection[Endpoint] = ()) -> Nodes:
    """Returns the nodes that ``roots`` need if ``fed`` are given, in the order of ``nodes``.

    Raises:
      NotFoundError: an input names no node.
    """
    fed_placeholders = {name for name, _ in fed if nodes[name].op in PLACEHOLDER_OPS}
    found = set(roots)
    stack = list(found)
    while stack:
        node = nodes[stack.pop()]
        for endpoint in node.inputs:
            source = endpoint[0]
            if source not in found and (not fed or endpoint not in fed):
                if source not in nodes:
                    raise _missing_input(node, source)
                found.add(source)
                stack.append(source)
        for source in node.controls:
            if source not in found and source not in fed_placeholders:
                if source not in nodes:
                    raise _missing_input(node, source)
                found.add(source)
                stack.append(source)
    return {name: node for name, node in nodes.items() if name in found}


def _missing_input(node: Node, source: str) -> NotFoundError:
    message = f"Node '{node.name}' has an input from '{source}', which is not in the graph."
    return NotFoundError.of(message)


# ---------------------------------------------------------------- order


def in_topological_order(nodes: Nodes, fed: Collection[Endpoint] = ()) -> Nodes:
    """Sorts ``nodes`` so that every node comes after its inputs, and otherwise keeps their order.

    Edges from fed endpoints, from nodes that are not in ``nodes`` and from ``NextIteration`` ops do not count.

    Raises:
      InvalidArgumentError: the nodes form a cycle; the message names it.
    """
    return nodes if _is_ordered(nodes, fed) else _sorted(nodes, fed)


def _is_ordered(nodes: Nodes, fed: Collection[Endpoint]) -> bool:
    seen: set[str] = set()
    for name, node in nodes.items():
        for endpoint in node.inputs:
            if endpoint[0] not in seen and _counts(nodes, endpoint, fed):
                return False
        for source in node.controls:
            if source not in seen and _counts(nodes, (source, -1), fed):
                return False
        seen.add(name)
    return True


def _counts(nodes: Nodes, endpoint: Endpoint, fed: Collection[Endpoint]) -> bool:
    source = nodes.get(endpoint[0])
    return source is not None and source.op not in NEXT_OPS and endpoint not in fed


def _sources(nodes: Nodes, node: Node, fed: Collection[Endpoint]) -> list[str]:
    endpoints = [*node.inputs, *((source, -1) for source in node.controls)]
    return [endpoint[0] for endpoint in endpoints if _counts(nodes, endpoint, fed)]


def _sorted(nodes: Nodes, fed: Collection[Endpoint]) -> Nodes:
    order = topological_order({name: _sources(nodes, node, fed) for name, node in nodes.items()})
    if len(order) != len(nodes):
        known = set(order)
        raise _cycle_error(nodes, [name for name in nodes if name not in known], fed)
    return {name: nodes[name] for name in order}


def topological_order(sources: Mapping[str, Collection[str]]) -> list[str]:
    """Returns the names such that each comes after its sources, and otherwise in their order; without those in cycles.

    (The function of networkx takes five times as long for 20,000 nodes, and is slow to import.)
    """
    names = list(sources)
    rank = {name: i for i, name in enumerate(names)}
    consumers: list[list[int]] = [[] for _ in names]
    waiting = [len(of_one) for of_one in sources.values()]
    for i, of_one in enumerate(sources.values()):
        for source in of_one:
            consumers[rank[source]].append(i)
    ready = [i for i, count in enumerate(waiting) if count == 0]
    order: list[str] = []
    while ready:
        i = heapq.heappop(ready)
        order.append(names[i])
        for j in consumers[i]:
            waiting[j] -= 1
            if waiting[j] == 0:
                heapq.heappush(ready, j)
    return order


def _cycle_error(nodes: Nodes, stuck: list[str], fed: Collection[Endpoint]) -> InvalidArgumentError:
    import networkx  # slow to import, and only this error needs it

    edges = [(source, name) for name in stuck for source in _sources(nodes, nodes[name], fed)]
    cycle = [edge[0] for edge in networkx.find_cycle(networkx.DiGraph(edges))]
    message = (
        f"Graph is invalid, contains a cycle with {len(cycle)} nodes: {' -> '.join([*cycle, cycle[0]])}. "
        "Only NextIteration may close a loop."
    )
    return InvalidArgumentError.of(message)


# ---------------------------------------------------------------- feeds and fetches


def dtype_reader(nodes: Nodes) -> DtypeOf:
    """Returns a function from an endpoint of ``nodes`` to its dtype (for a reference the dtype of its value)."""

    def dtype_of(endpoint: Endpoint) -> DType:
        return output_dtypes(nodes[endpoint[0]])[endpoint[1]].base_dtype

    return dtype_of


def rewrite_feeds_and_fetches(
    nodes: Nodes,
    feeds: Collection[Endpoint],
    fetches: Sequence[Endpoint],
    client_device: str,
    dtype_of: DtypeOf | None = None,
) -> StepGraph:
    """Replaces each feed by a `FEED` node and gives each fetch a `FETCH` node, all on the client's device.

    The node ``_recv_x_0`` replaces the feed ``x:0``, and the node ``_send_z_0`` takes the fetch ``z:0``; these are the
    names that TensorFlow gives. All consumers of a fed output read the new node; control edges from a fed Placeholder
    start there, too.

    Args:
      nodes: the pruned graph. If it lacks the producer of a feed, ``dtype_of`` must know the type.
      client_device: full name of the master's ``CPU:0``.
      dtype_of: endpoint -> dtype; default: `dtype_reader` of ``nodes``.
    """
    dtype_of = dtype_of or dtype_reader(nodes)
    result: Nodes = {}
    for feed in sorted(feeds):
        name = _feed_name(feed)
        result[name] = Node(name, FEED, client_device, attrs={"T": dtype_of(feed)})
    result.update(_with_feeds(nodes, feeds) if feeds else nodes)
    for fetch in dict.fromkeys(fetches):
        name = _fetch_name(fetch)
        result[name] = Node(name, FETCH, client_device, (fetch,))
    fed = tuple((_feed_name(feed), feed) for feed in feeds)
    return StepGraph(result, fed, tuple((_fetch_name(fetch), fetch) for fetch in fetches))


def _feed_name(feed: Endpoint) -> str:
    return f"_recv_{feed[0]}_{feed[1]}"


def _fetch_name(fetch: Endpoint) -> str:
    return f"_send_{fetch[0]}_{fetch[1]}"


def _with_feeds(nodes: Nodes, feeds: Collection[Endpoint]) -> Nodes:
    moved = {feed: (_feed_name(feed), 0) for feed in feeds}
    # The op type of a pruned node is not known, but a pruned Placeholder has no control edges to other nodes either.
    controls = {
        name: _feed_name((name, 0)) for name, _ in feeds if name not in nodes or nodes[name].op in PLACEHOLDER_OPS
    }
    result: Nodes = {}
    for name, node in nodes.items():
        touched = any(i in moved for i in node.inputs) or any(c in controls for c in node.controls)
        result[name] = _redirected(node, moved, controls) if touched else node
    return result


def _redirected(node: Node, moved: dict[Endpoint, Endpoint], controls: dict[str, str]) -> Node:
    return Node(
        node.name,
        node.op,
        node.device,
        [moved.get(endpoint, endpoint) for endpoint in node.inputs],
        [controls.get(source, source) for source in node.controls],
        node.attrs,
    )


# ---- Which ops make a step a training step -------------------------------------------------------------------------

_OPTIMIZES, _ACCUMULATES = ops_with("writes", "optimize"), ops_with("accumulator", "apply")
_ENQUEUES = ops_with("queue", "enqueue")


def training_ops(types: Set[str]) -> Set[str]:
    """Of the op types of a graph those that a training step runs; none if the graph has no ops that train.

    With gradient accumulators (synchronous training) they are the ops that give them gradients: the chief's queue
    thread applies the gradients in steps of its own. Otherwise they are the ops by which optimizers update variables.
    """
    return types & _ACCUMULATES or types & _OPTIMIZES


def is_training_step(step: Set[str], graph: Set[str], otherwise: bool) -> bool:
    """Whether a step is a training step: it runs one of the `training_ops` of its graph.

    Args:
      step: the op types that the step runs.
      graph: the op types of the whole graph.
      otherwise: the answer for a graph that has none, as one that only evaluates.
    """
    wanted = training_ops(graph)
    return not wanted.isdisjoint(step) if wanted else otherwise


def enqueues(step: Set[str]) -> bool:
    """Whether a step, by the op types that it runs, puts anything into a queue."""
    return not _ENQUEUES.isdisjoint(step)
