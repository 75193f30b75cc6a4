"""Finds the training step of a graph, to inspect or to trace."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from tfmini.errors import InvalidArgumentError
from tfmini.graph.keys import GraphKeys
from tfmini.graph.node import Nodes
from tfmini.graph.prune import in_topological_order
from tfmini.graph.training import training_ops
from tfmini.graph.traits import ops_with

_OPTIMIZES, _ACCUMULATES = ops_with("writes", "optimize"), ops_with("accumulator", "apply")


def find_train_op(nodes: Nodes, collected: Sequence[str] = ()) -> str | None:
    """Returns the name of the training op.

    With gradient accumulators (synchronous training), it is the op that gives them the worker's gradients; else the
    latest op of the collection ``train_op``; else the op without consumers that needs most updates of variables.

    Args:
      collected: names in the graph's collection ``train_op``.
    """
    contributing = [name for name, node in nodes.items() if node.op in _ACCUMULATES]
    if contributing:
        return _best_sink(nodes, contributing)
    known = [name.removesuffix(":0") for name in collected if name.removesuffix(":0") in nodes]
    if known:
        return known[-1]
    updates = [name for name, node in nodes.items() if node.op in _OPTIMIZES]
    return _best_sink(nodes, updates) if updates else None


def trains(graph: Any, names: Iterable[str]) -> bool | None:
    """Whether a step is a training step; None if the graph has no ops that train.

    A training step runs one of the `training_ops` of the graph; if it has none, an op of the collection ``train_op``.

    Args:
      graph: a `tf.Graph`.
      names: of the tensors to fetch and the ops to run.
    """
    ops = graph.get_operations()
    types = training_ops({op.type for op in ops})
    wanted = {op for op in ops if op.type in types}
    if not wanted:
        wanted = {getattr(item, "op", item) for item in graph.get_collection(GraphKeys.TRAIN_OP)}
    if not wanted:
        return None
    stack = [getattr(found, "op", found) for found in map(graph.as_graph_element, names)]
    seen = set(stack)
    while stack:
        op = stack.pop()
        if op in wanted:
            return True
        sources = {*(tensor.op for tensor in op.inputs), *op.control_inputs} - seen
        seen |= sources
        stack.extend(sources)
    return False


def sinks(nodes: Nodes) -> list[str]:
    """The ops without consumers."""
    used = {source for node in nodes.values() for source, _ in node.inputs}
    used |= {source for node in nodes.values() for source in node.controls}
    return [name for name in nodes if name not in used]


def results(nodes: Nodes) -> list[str]:
    """`sinks` without ops that only assign variables, such as initializers and restores; all if no others exist."""
    found = sinks(nodes)
    return [name for name in found if not _only_sets(nodes, name)] or found


def _only_sets(nodes: Nodes, name: str) -> bool:
    node = nodes.get(name)
    if node is None:
        return False
    if node.op == "NoOp":
        return bool(node.controls) and all(_only_sets(nodes, source) for source in node.controls)
    return node.op in ops_with("writes", "assign")


def _best_sink(nodes: Nodes, updates: Sequence[str]) -> str | None:
    needs = {name: 1 << i for i, name in enumerate(updates)}
    try:
        ordered = in_topological_order(nodes)
    except InvalidArgumentError:  # a cycle, which the placer reports
        return None
    for name, node in ordered.items():
        mask = needs.get(name, 0)
        for source in (*(s for s, _ in node.inputs), *node.controls):
            mask |= needs.get(source, 0)
        if mask:
            needs[name] = mask
    best = max(sinks(nodes), key=lambda name: needs.get(name, 0).bit_count(), default=None)
    return best if best is not None and needs.get(best) else None
