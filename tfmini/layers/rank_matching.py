"""Rank matching of labels, predictions and weights, whose ranks may differ by a last axis of length 1."""

from __future__ import annotations

from typing import Any

from tfmini.graph.conversion import convert_to_tensor
from tfmini.graph.operation import Tensor
from tfmini.graph.scoping import name_scope
from tfmini.ops.array.shape import expand_dims, squeeze
from tfmini.ops.array.shape import rank as rank_of
from tfmini.ops.flow.cond import cond
from tfmini.ops.math.comparison import equal
from tfmini.ops.math.elementwise import subtract


def remove_squeezable_dimensions(
    labels: Any, predictions: Any, expected_rank_diff: int = 0, name: str | None = None
) -> tuple[Tensor, Tensor]:
    """Removes a last axis of length 1 from the tensor that has one axis too many.

    Args:
      expected_rank_diff: the rank of the predictions less that of the labels. If a rank is not known,
        both tensors stay as they are.
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
    """(predictions, labels, weights) with equal ranks, if they differ only by a last axis of length 1."""
    predictions = convert_to_tensor(predictions)
    if labels is not None:
        labels, predictions = remove_squeezable_dimensions(labels, predictions)
        predictions.shape.assert_is_compatible_with(labels.shape)
    if weights is None:
        return predictions, labels, None
    weights = convert_to_tensor(weights)
    return predictions, labels, weights_of_rank(weights, predictions)


def weights_of_rank(weights: Tensor, values: Tensor) -> Tensor:
    """``weights`` with a last axis of length 1 added or removed, if that gives them the rank of ``values``."""
    rank, wanted = weights.shape.ndims, values.shape.ndims
    if rank == 0 or (rank is not None and rank == wanted):
        return weights
    if rank is None or wanted is None:
        return _of_rank_in_the_step(weights, values)
    if rank == wanted + 1:
        return squeeze(weights, [-1])
    return expand_dims(weights, [-1]) if rank == wanted - 1 else weights


def _of_rank_in_the_step(weights: Tensor, values: Tensor) -> Tensor:
    excess = subtract(rank_of(weights), rank_of(values))

    def squeezed() -> Tensor:
        return cond(equal(excess, 1), lambda: _last_axis_off(weights), lambda: weights)  # type: ignore[no-any-return]

    def adjusted() -> Tensor:
        return cond(equal(excess, -1), lambda: expand_dims(weights, [-1]), squeezed)  # type: ignore[no-any-return]

    return cond(equal(rank_of(weights), 0), lambda: weights, adjusted)  # type: ignore[no-any-return]


def _last_axis_off(tensor: Tensor) -> Tensor:
    return squeeze(tensor, [-1]) if tensor.shape.ndims is None or _may_be_one(tensor) else tensor
