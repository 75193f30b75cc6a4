"""Confusion matrices (``tf.confusion_matrix``)."""

from __future__ import annotations

from typing import Any

from tfmini import dtypes
from tfmini.export import export
from tfmini.graph.conversion import convert_to_tensor
from tfmini.graph.operation import Tensor
from tfmini.graph.scoping import name_scope
from tfmini.layers.rank_matching import remove_squeezable_dimensions
from tfmini.ops import control
from tfmini.ops.array import casting
from tfmini.ops.array.filling import ones_like
from tfmini.ops.array.joining import stack
from tfmini.ops.array.scatter import scatter_nd
from tfmini.ops.debugging.value_checks import assert_less, assert_non_negative
from tfmini.ops.math.elementwise import maximum
from tfmini.ops.math.reduce_functions import reduce_max


def _class_count(labels: Tensor, predictions: Tensor) -> Tensor:
    return maximum(reduce_max(predictions), reduce_max(labels)) + 1


@export("tf.confusion_matrix", "tf.math.confusion_matrix")
def confusion_matrix(
    labels: Any, predictions: Any, num_classes: Any = None, dtype: Any = dtypes.int32, name: str | None = None,
    weights: Any = None,
) -> Tensor:  # fmt: skip
    """Counts the pairs of label (row) and prediction (column) (``tf.confusion_matrix``).

    Args:
      labels, predictions: vectors of class indices.
      num_classes: number of classes; default: the largest index plus one.
      dtype: type of the result.
      name: name of the scope.
      weights: weight of each pair; default 1.

    Raises:
      ValueError: when the shapes differ.
    """
    with name_scope(name, "confusion_matrix", [predictions, labels, num_classes, weights]) as scope:
        labels, predictions = remove_squeezable_dimensions(
            convert_to_tensor(labels, name="labels"), convert_to_tensor(predictions, name="predictions")
        )
        predictions, labels = (casting.cast(t, dtypes.int64) for t in (predictions, labels))
        labels = _checked(labels, "labels")
        predictions = _checked(predictions, "predictions")
        if num_classes is None:
            count = _class_count(labels, predictions)
        else:
            count = casting.cast(num_classes, dtypes.int64)
            labels = _below(labels, count, "labels")
            predictions = _below(predictions, count, "predictions")
        if weights is not None:
            weights = convert_to_tensor(weights, name="weights")
            predictions.shape.assert_is_compatible_with(weights.shape)
            weights = casting.cast(weights, dtype)
        amounts = ones_like(predictions, dtype) if weights is None else weights
        indices = stack([labels, predictions], axis=1)
        sizes = stack([count, count])
        return scatter_nd(indices, amounts, casting.cast(sizes, dtypes.int64), name=scope)


def _checked(values: Tensor, what: str) -> Tensor:
    message = f"`{what}` contains negative values"
    return control.with_dependencies([assert_non_negative(values, message=message)], values)


def _below(values: Tensor, count: Tensor, what: str) -> Tensor:
    return control.with_dependencies([assert_less(values, count, message=f"`{what}` out of bound")], values)
