"""Confusion matrices (``tf.confusion_matrix``) and what metrics share with them."""

from __future__ import annotations

from typing import Any

from tfmini import dtypes
from tfmini.graph.conversion import convert_to_tensor
from tfmini.graph.operation import Tensor
from tfmini.ops import array_shape, casting, control
from tfmini.ops.array_filling import ones_like
from tfmini.ops.array_joining import stack
from tfmini.ops.array_scatter import scatter_nd
from tfmini.ops.checks import assert_less, assert_non_negative
from tfmini.ops.math_elementwise import maximum
from tfmini.ops.reduce_functions import reduce_max
from tfmini.ops.scoping import name_scope


def remove_squeezable_dimensions(
    labels: Any, predictions: Any, expected_rank_diff: int = 0, name: str | None = None
) -> tuple[Tensor, Tensor]:
    """Both tensors, with a last axis of size one dropped from the one whose rank exceeds the other's.

    Args:
      labels, predictions: tensors.
      expected_rank_diff: the rank of ``predictions`` minus that of ``labels`` that is meant.
      name: of the scope.
    """
    with name_scope(name, "remove_squeezable_dimensions", [labels, predictions]):
        labels, predictions = convert_to_tensor(labels), convert_to_tensor(predictions)
        ranks = labels.shape.ndims, predictions.shape.ndims
        if ranks[0] is None or ranks[1] is None:
            return labels, predictions
        difference = ranks[1] - ranks[0]
        if difference == expected_rank_diff + 1 and predictions.shape.dims[-1].is_compatible_with(1):
            predictions = array_shape.squeeze(predictions, [-1])
        elif difference == expected_rank_diff - 1 and labels.shape.dims[-1].is_compatible_with(1):
            labels = array_shape.squeeze(labels, [-1])
        return labels, predictions


def _class_count(labels: Tensor, predictions: Tensor) -> Tensor:
    return maximum(reduce_max(predictions), reduce_max(labels)) + 1  # type: ignore[no-any-return]


def confusion_matrix(
    labels: Any, predictions: Any, num_classes: Any = None, dtype: Any = dtypes.int32, name: str | None = None,
    weights: Any = None,
) -> Tensor:  # fmt: skip
    """Counts [label, prediction] (``tf.confusion_matrix``).

    Args:
      labels, predictions: vectors of class numbers.
      num_classes: default: as many as occur.
      dtype: of the result.
      name: of the scope.
      weights: what each pair counts, default 1.

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
    return control.with_dependencies([assert_non_negative(values, message=message)], values)  # type: ignore[no-any-return]


def _below(values: Tensor, count: Tensor, what: str) -> Tensor:
    return control.with_dependencies([assert_less(values, count, message=f"`{what}` out of bound")], values)  # type: ignore[no-any-return]
