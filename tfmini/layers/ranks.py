"""Labels, predictions and weights whose ranks differ by a last axis of length 1."""

from __future__ import annotations

from typing import Any

from tfmini.graph.conversion import convert_to_tensor
from tfmini.graph.operation import Tensor
from tfmini.ops.array_shape import expand_dims, squeeze
from tfmini.ops.scoping import name_scope


def remove_squeezable_dimensions(
    labels: Any, predictions: Any, expected_rank_diff: int = 0, name: str | None = None
) -> tuple[Tensor, Tensor]:
    """Both tensors, without the last axis of the one that has one axis too many of length 1.

    Args:
      expected_rank_diff: the rank of the predictions less that of the labels. Where a rank is not
        known, both stay as they are.
    """
    with name_scope(name, "remove_squeezable_dimensions", [labels, predictions]):
        labels, predictions = convert_to_tensor(labels), convert_to_tensor(predictions)
        if labels.shape.ndims is None or predictions.shape.ndims is None:
            return labels, predictions
        difference = predictions.shape.ndims - labels.shape.ndims
        if difference == expected_rank_diff + 1 and _may_be_one(predictions):
            predictions = squeeze(predictions, [-1])
        elif difference == expected_rank_diff - 1 and _may_be_one(labels):
            labels = squeeze(labels, [-1])
        return labels, predictions


def _may_be_one(tensor: Tensor) -> bool:
    return tensor.shape.as_list()[-1] in (1, None)


def matched(predictions: Any, labels: Any = None, weights: Any = None) -> tuple[Tensor, Any, Any]:
    """(predictions, labels, weights) with ranks that agree, where one axis of length 1 is the difference."""
    predictions = convert_to_tensor(predictions)
    if labels is not None:
        labels, predictions = remove_squeezable_dimensions(labels, predictions)
        predictions.shape.assert_is_compatible_with(labels.shape)
    if weights is None:
        return predictions, labels, None
    weights = convert_to_tensor(weights)
    rank, wanted = weights.shape.ndims, predictions.shape.ndims
    if rank in (0, None) or wanted is None or rank == wanted:
        return predictions, labels, weights
    if rank == wanted + 1:
        weights = squeeze(weights, [-1])
    elif rank == wanted - 1:
        weights = expand_dims(weights, [-1])
    return predictions, labels, weights
