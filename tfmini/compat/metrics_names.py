"""Names of TensorFlow's private module ``metrics_impl``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tfmini.graph.conversion import convert_to_tensor
from tfmini.graph.operation import Tensor
from tfmini.graph.scoping import add_to_collections
from tfmini.layers.metrics import at_k, binary, state
from tfmini.layers.rank_matching import matched
from tfmini.ops.array.filling import zeros_like
from tfmini.ops.array.masking import where
from tfmini.ops.math.comparison import equal
from tfmini.ops.math.elementwise import div

__all__ = ["metric_variable"]

metric_variable = state.metric_variable
_remove_squeezable_dimensions = matched
_streaming_sparse_average_precision_at_top_k = at_k.average_precision_at_top_k


def _aggregate_variable(v: Any, collections: Any) -> Tensor:
    """The value of a metric's variable, added to collections."""
    value = convert_to_tensor(v)
    if collections:
        add_to_collections(collections, value)
    return value


def _confusion_matrix_at_thresholds(
    labels: Any, predictions: Any, thresholds: Sequence[float], weights: Any = None, includes: Any = None
) -> tuple[Any, Any]:
    """Variables and update ops ``[thresholds]`` for the counts "tp", "fn", "tn" and "fp", or those of ``includes``.

    Raises:
      ValueError: for another name in ``includes``.
    """
    known = ("tp", "fn", "tn", "fp")
    for kind in includes or ():
        if kind not in known:
            raise ValueError(f"Invalid key: {kind}.")
    return binary._counts_at(labels, predictions, thresholds, weights, tuple(includes or known))


def _safe_scalar_div(numerator: Tensor, denominator: Tensor, name: str | None) -> Tensor:
    """The quotient of scalars; 0 where the denominator is 0."""
    none = zeros_like(denominator)
    return where(equal(denominator, none), none, div(numerator, denominator), name=name)
