"""Finds the step to inspect: the training op of a graph, else all ops without consumers."""

from __future__ import annotations

from collections.abc import Sequence

from tfmini.errors import InvalidArgumentError
from tfmini.graph.node import Nodes
from tfmini.graph.prune import in_topological_order
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
