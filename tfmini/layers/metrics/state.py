"""State of metrics: local variables, the update op that adds to them, and the value computed from them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tfmini.graph.keys import GraphKeys
from tfmini.graph.operation import Tensor
from tfmini.graph.scoping import add_to_collections, control_dependencies
from tfmini.ops.array.filling import zeros
from tfmini.ops.variables.assignment import assign_add
from tfmini.ops.variables.base import Variable

Metric = tuple[Tensor, Tensor]


def metric_variable(shape: Any, dtype: Any, validate_shape: bool = True, name: str | None = None) -> Variable:
    """An untrainable variable of zeros in LOCAL_VARIABLES and METRIC_VARIABLES."""
    return Variable(
        lambda: zeros(shape, dtype),
        trainable=False,
        collections=[GraphKeys.LOCAL_VARIABLES, GraphKeys.METRIC_VARIABLES],
        validate_shape=validate_shape,
        name=name,
    )


def accumulated(variable: Variable, amount: Any) -> Any:
    """Adds ``amount`` to the variable; the result is its new value."""
    return assign_add(variable, amount)


def published(
    value: Callable[[], Tensor], update: Tensor, metrics_collections: Any, updates_collections: Any
) -> Metric:
    """(value, update op), added to their collections; the value ignores surrounding control dependencies."""
    with control_dependencies(None):
        result = value()
    if metrics_collections:
        add_to_collections(metrics_collections, result)
    if updates_collections:
        add_to_collections(updates_collections, update)
    return result, update
