"""Which ops make a step a training step."""

from __future__ import annotations

from collections.abc import Set

from tfmini.graph.traits import ops_with

_OPTIMIZES, _ACCUMULATES = ops_with("writes", "optimize"), ops_with("accumulator", "apply")


def training_ops(types: Set[str]) -> Set[str]:
    """Of the op types of a graph those that a training step runs; none if the graph has no ops that train.

    With gradient accumulators (synchronous training) they are the ops that give them gradients: the chief's queue
    thread applies the gradients in steps of its own. Otherwise they are the ops by which optimizers update variables.
    """
    return types & _ACCUMULATES or types & _OPTIMIZES
