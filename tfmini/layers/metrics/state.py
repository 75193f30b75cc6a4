"""State of metrics: local variables, the update op that adds to them, and the value computed from them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
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


@dataclass
class Published:
    """The last arguments of the metrics, see `tfmini.layers.functional.sharing`.

    Attributes:
      metrics_collections, updates_collections: the collections for the value and for the update op.
      name: name of the variable scope.
    """

    metrics_collections: Any = None
    updates_collections: Any = None
    name: str | None = None

    def metric(self, value: Callable[[], Tensor], update: Tensor) -> Metric:
        """(value, update op), added to their collections; the value ignores surrounding control dependencies."""
        with control_dependencies(None):
            result = value()
        add_to_collections(self.metrics_collections or (), result)
        add_to_collections(self.updates_collections or (), update)
        return result, update

    def as_dict(self, default_name: str) -> dict[str, Any]:
        """The arguments for another metric, under this one's name or the default."""
        return {**vars(self), "name": self.name or default_name}
