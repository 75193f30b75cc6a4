"""Running ops on variables in tests of op families: `evaluate` with a real resource manager."""

from __future__ import annotations

from typing import Any

import tfmini as tf
from tests.ops import evaluate as evaluation
from tfmini.runtime.resources import ResourceManager


def run(tensors: Any, feeds: dict[Any, Any] | None = None) -> Any:
    """The values of tensors and ops of one graph, whose variables live as long as the graph."""
    first = tensors[0] if isinstance(tensors, (list, tuple)) else tensors
    evaluation.KEPT.setdefault(first.graph, {}).setdefault(None, ResourceManager("localhost"))
    elements = [_element(t) for t in tensors] if isinstance(tensors, (list, tuple)) else _element(tensors)
    return evaluation.evaluate(elements, feeds)


def initialize() -> None:
    """Runs the initializers of the default graph's variables."""
    run(tf.global_variables_initializer())


def read(variable: Any) -> Any:
    """The value of a variable."""
    return run(variable.read_value())


def _element(item: Any) -> Any:
    return item.graph.as_graph_element(item)
