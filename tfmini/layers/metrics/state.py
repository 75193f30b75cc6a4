"""What all of ``tf.metrics`` share: local variables that an update op adds to, and a value made of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tfmini.graph.keys import GraphKeys
from tfmini.graph.operation import Tensor
from tfmini.ops.array_filling import zeros
from tfmini.ops.scoping import add_to_collections, control_dependencies
from tfmini.ops.state_functions import assign_add
from tfmini.ops.variable_base import Variable

Metric = tuple[Tensor, Tensor]


def metric_variable(shape: Any, dtype: Any, validate_shape: bool = True, name: str | None = None) -> Variable:
    """A variable of zeros in LOCAL_VARIABLES and METRIC_VARIABLES, not trainable."""
    return Variable(
        lambda: zeros(shape, dtype),
        trainable=False,
        collections=[GraphKeys.LOCAL_VARIABLES, GraphKeys.METRIC_VARIABLES],
        validate_shape=validate_shape,
        name=name,
    )


def accumulated(variable: Variable, amount: Any) -> Any:
    """The variable after ``amount`` has been added."""
    return assign_add(variable, amount)


def published(
    value: Callable[[], Tensor], update: Tensor, metrics_collections: Any, updates_collections: Any
) -> Metric:
    """(value, update op), put into their collections; the value waits for nothing that surrounds it."""
    with control_dependencies(None):
        result = value()
    if metrics_collections:
        add_to_collections(metrics_collections, result)
    if updates_collections:
        add_to_collections(updates_collections, update)
    return result, update
