"""Reduction of element losses to one loss (``tf.losses.compute_weighted_loss``), and the collection of losses."""

from __future__ import annotations

from typing import Any

from tfmini import dtypes
from tfmini.export import export
from tfmini.graph.conversion import convert_to_tensor
from tfmini.graph.keys import GraphKeys
from tfmini.graph.operation import Tensor
from tfmini.graph.scoping import add_to_collection, control_dependencies, get_collection, name_scope
from tfmini.layers.weight_broadcasting import assert_broadcastable, broadcast_weights
from tfmini.ops.array.casting import cast
from tfmini.ops.array.constant import constant
from tfmini.ops.array.filling import ones_like, zeros_like
from tfmini.ops.array.filling import range as range_of
from tfmini.ops.array.masking import where
from tfmini.ops.array.shape import rank, size
from tfmini.ops.math.comparison import equal, greater
from tfmini.ops.math.elementwise import div_no_nan, maximum, multiply, subtract
from tfmini.ops.math.reduce_functions import reduce_sum
from tfmini.ops.math.sums import add_n
from tfmini.ops.math.unary import square


@export("tf.losses.Reduction")
class Reduction:
    """The kinds of reduction (``tf.losses.Reduction``)."""

    NONE = "none"
    SUM = "weighted_sum"
    SUM_OVER_BATCH_SIZE = "weighted_sum_over_batch_size"
    MEAN = "weighted_mean"
    SUM_BY_NONZERO_WEIGHTS = "weighted_sum_by_nonzero_weights"
    SUM_OVER_NONZERO_WEIGHTS = SUM_BY_NONZERO_WEIGHTS

    @classmethod
    def all(cls) -> tuple[str, ...]:
        """All kinds of reduction."""
        return (cls.NONE, cls.SUM, cls.MEAN, cls.SUM_OVER_BATCH_SIZE, cls.SUM_OVER_NONZERO_WEIGHTS,
                cls.SUM_BY_NONZERO_WEIGHTS)  # fmt: skip

    @classmethod
    def validate(cls, key: str) -> None:
        """Raises ValueError unless ``key`` is a kind of reduction."""
        if key not in cls.all():
            raise ValueError(f"Invalid Reduction Key {key}.")


@export("tf.losses.compute_weighted_loss", "tf.contrib.losses.compute_weighted_loss")
def compute_weighted_loss(
    losses: Any,
    weights: Any = 1.0,
    scope: str | None = None,
    loss_collection: str | None = GraphKeys.LOSSES,
    reduction: str = Reduction.SUM_BY_NONZERO_WEIGHTS,
) -> Tensor:
    """Reduces ``losses * weights`` to one loss (``tf.losses.compute_weighted_loss``).

    Args:
      losses: the loss of each element.
      weights: a scalar, or a tensor of the losses' rank whose axes have length 1 or the losses' length.
      scope: the name scope of the ops.
      loss_collection: the collection for the result, or None.
      reduction: a kind of `Reduction`: none, the sum, or the sum divided by the sum of the weights, by the
        number of losses, or by the number of losses whose weight is not zero.

    Raises:
      ValueError: when the reduction is unknown or the weights cannot be broadcast.
    """
    Reduction.validate(reduction)
    with name_scope(scope, "weighted_loss", (losses, weights)):
        with control_dependencies((assert_broadcastable(weights, losses),)):
            losses = convert_to_tensor(losses)
            input_dtype = losses.dtype
            losses, weights = cast(losses, dtypes.float32), cast(weights, dtypes.float32)
            loss: Tensor = multiply(losses, weights)
            if reduction != Reduction.NONE:
                loss = _reduced(reduce_sum(loss), losses, weights, reduction)
            loss = cast(loss, input_dtype)
        add_loss(loss, loss_collection)
        return loss


def _reduced(total: Tensor, losses: Tensor, weights: Tensor, reduction: str) -> Any:
    if reduction == Reduction.SUM:
        return total
    if reduction == Reduction.MEAN:
        count = reduce_sum(multiply(ones_like(losses), weights))
    elif reduction == Reduction.SUM_BY_NONZERO_WEIGHTS:
        count = _present(losses, weights)
    else:
        count = cast(size(losses, name="num_elements"), losses.dtype)
    return div_no_nan(total, count, name="value")


def _present(losses: Tensor, weights: Tensor, axes: Any = None) -> Tensor:
    """The number of losses with a nonzero weight: of all, or over ``axes``, which are kept with length 1."""
    with name_scope(None, "num_present", (losses, weights)) as scope:
        present = where(equal(weights, 0.0), zeros_like(weights), ones_like(weights))
        present = broadcast_weights(present, losses)
        if axes is None:
            return reduce_sum(present, name=scope)
        return reduce_sum(present, axis=axes, keepdims=True, name=scope)


def pairwise_loss(labels: Tensor, predictions: Tensor, weights: Tensor, loss_collection: str | None) -> Tensor:
    """The loss of `tfmini.layers.losses.mean_pairwise_squared_error` for float32 tensors."""
    with control_dependencies((assert_broadcastable(weights, labels),)):
        diffs = subtract(predictions, labels)
        axes = range_of(1, rank(diffs))
        count = _present(diffs, weights, axes)
        squares = reduce_sum(square(diffs), axis=axes, keepdims=True)
        sums = reduce_sum(diffs, axis=axes, keepdims=True)
        first = 2.0 * div_no_nan(squares, maximum(count - 1, 0), name="value")
        second = 2.0 * div_no_nan(square(sums), maximum(multiply(count, count - 1), 0), name="value")
        loss = reduce_sum(multiply(first - second, weights))
        loss = where(greater(reduce_sum(count), 0), loss, zeros_like(loss), name="value")
    add_loss(loss, loss_collection)
    return loss


@export("tf.losses.add_loss", "tf.contrib.losses.add_loss")
def add_loss(loss: Tensor, loss_collection: str | None = GraphKeys.LOSSES) -> None:
    """Adds a loss to a collection (``tf.losses.add_loss``)."""
    if loss_collection:
        add_to_collection(loss_collection, loss)


@export("tf.losses.get_losses", "tf.contrib.losses.get_losses")
def get_losses(scope: str | None = None, loss_collection: str = GraphKeys.LOSSES) -> list[Tensor]:
    """The losses of a collection whose names begin with ``scope``; all for None (``tf.losses.get_losses``)."""
    return get_collection(loss_collection, scope)


@export("tf.losses.get_regularization_losses", "tf.contrib.losses.get_regularization_losses")
def get_regularization_losses(scope: str | None = None) -> list[Tensor]:
    """The losses of regularizers (``tf.losses.get_regularization_losses``)."""
    return get_collection(GraphKeys.REGULARIZATION_LOSSES, scope)


@export("tf.losses.get_regularization_loss")
def get_regularization_loss(scope: str | None = None, name: str = "total_regularization_loss") -> Tensor:
    """The sum of the losses of regularizers; 0 if there are none (``tf.losses.get_regularization_loss``)."""
    losses = get_regularization_losses(scope)
    return add_n(losses, name=name) if losses else constant(0.0)


@export("tf.losses.get_total_loss", "tf.contrib.losses.get_total_loss")
def get_total_loss(
    add_regularization_losses: bool = True, name: str = "total_loss", scope: str | None = None
) -> Tensor:
    """The sum of all losses; raises ValueError if there are none (``tf.losses.get_total_loss``)."""
    losses = list(get_losses(scope))
    if add_regularization_losses:
        losses += get_regularization_losses(scope)
    return add_n(losses, name=name)
