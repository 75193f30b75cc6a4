"""``tf.losses``: losses of predictions; each is weighted, reduced and added to a collection."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tfmini import dtypes
from tfmini.core_types import TensorLike
from tfmini.export import export
from tfmini.graph.conversion import convert_to_tensor
from tfmini.graph.default_graph import get_default_graph
from tfmini.graph.names import GraphKeys
from tfmini.graph.operation import Tensor
from tfmini.graph.scoping import add_to_collection, control_dependencies, count_ops, get_collection, name_scope
from tfmini.layers.core import sharing
from tfmini.ops.array.constant import constant
from tfmini.ops.array.filling import ones_like, zeros_like
from tfmini.ops.array.filling import range as range_of
from tfmini.ops.array.identity import cast, stop_gradient
from tfmini.ops.array.partition import where
from tfmini.ops.array.shape import expand_dims, size, squeeze
from tfmini.ops.array.shape import rank as rank_of
from tfmini.ops.array.shape import shape as shape_of
from tfmini.ops.control import no_op
from tfmini.ops.debugging import Assert
from tfmini.ops.flow.cond import cond
from tfmini.ops.math.comparison import equal, greater, logical_or
from tfmini.ops.math.elementwise import div_no_nan, maximum, minimum, multiply, squared_difference, subtract
from tfmini.ops.math.reductions import reduce_all, reduce_sum
from tfmini.ops.math.sums import add_n
from tfmini.ops.math.unary import abs as absolute
from tfmini.ops.math.unary import log, square
from tfmini.ops.nn.activation import relu
from tfmini.ops.nn.cross_entropy import (
    sigmoid_cross_entropy_with_logits,
    softmax_cross_entropy_with_logits_v2,
    sparse_softmax_cross_entropy_with_logits,
)

# ---- weight broadcasting ----------------------------------------
# Weights of losses and metrics: a scalar, or a tensor of the values' rank with axes of length 1 or the values'.

__all__ = ["assert_broadcastable", "broadcast_weights"]

_PREFIX = "weights can not be broadcast to values."


def assert_broadcastable(weights: TensorLike, values: TensorLike) -> Any:
    """Checks that ``weights`` can be broadcast to ``values``, now if possible; returns an op for the rest.

    Raises:
      ValueError: when the static shapes are incompatible.
    """
    with name_scope(None, "assert_broadcastable", [weights, values]):
        (weights, sizes), (values, wanted) = _with_sizes(weights, "weights"), _with_sizes(values, "values")
        weights_shape, values_shape = weights.shape, values.shape
        if weights_shape.ndims == 0:
            return no_op(name="static_scalar_check_success")
        if weights_shape.ndims is None or values_shape.ndims is None:
            return _checked_in_the_step(weights, sizes, wanted)
        where = f" values.rank={values_shape.ndims}. weights.rank={weights_shape.ndims}."
        shapes = f" values.shape={values_shape}. weights.shape={weights_shape}."
        if weights_shape.ndims != values_shape.ndims:
            raise ValueError(f"{_PREFIX}{where}{shapes}")
        pairs = list(zip(weights_shape.as_list(), values_shape.as_list()))
        if any(w not in (1, v) for w, v in pairs if w is not None and v is not None):
            raise ValueError(f"{_PREFIX} Mismatch at dim {_first_mismatch(pairs)}.{shapes}")
        if all(w == 1 or (w is not None and w == v) for w, v in pairs):
            return no_op(name="static_dims_check_success")
        count_ops(49)  # TensorFlow finds the dimensions that differ, and knows what to say about them
        fits = reduce_all(logical_or(equal(sizes, 1), equal(sizes, wanted)), name="is_valid_shape")
        return Assert(fits, [_PREFIX, "weights.shape=", sizes, "values.shape=", wanted], name="AssertGuard")


def _with_sizes(value: TensorLike, role: str) -> tuple[Tensor, Tensor]:
    """The tensor and its shape."""
    with name_scope(None, role, [value]) as scope:
        tensor = convert_to_tensor(value, name=scope)
        sizes = shape_of(tensor, name="shape")
        count_ops(1)  # the rank
    return tensor, sizes


def _checked_in_the_step(weights: TensorLike, sizes: Tensor, wanted: Tensor) -> Any:
    """Checks shapes whose ranks are known only when the step runs."""
    scalar = equal(rank_of(weights), 0)
    same = equal(size(sizes), size(wanted))

    def fits() -> Any:
        return reduce_all(logical_or(equal(sizes, 1), equal(sizes, wanted)))

    def of_one_rank() -> Any:
        return cond(same, fits, lambda: same)

    valid = cond(scalar, lambda: scalar, of_one_rank, name="is_valid_shape")
    return Assert(valid, [_PREFIX, "weights.shape=", sizes, "values.shape=", wanted], name="AssertGuard")


def _first_mismatch(pairs: list[tuple[int | None, int | None]]) -> int:
    return next(i for i, (w, v) in enumerate(pairs) if w is not None and v is not None and w not in (1, v))


def broadcast_weights(weights: TensorLike, values: TensorLike) -> Any:
    """``weights``, broadcast to the shape of ``values``."""
    with name_scope(None, "broadcast_weights", [weights, values]) as scope:
        values = convert_to_tensor(values, name="values")
        weights = convert_to_tensor(weights, dtype=values.dtype.base_dtype, name="weights")
        if (
            weights.shape.is_fully_defined()
            and weights.shape.is_compatible_with(values.shape)
            and (values.shape.is_fully_defined())
        ):
            return weights
        with control_dependencies([assert_broadcastable(weights, values)]):
            return multiply(weights, ones_like(values), name=scope)


# ---- loss reduction ----------------------------------------
# Reduction of element losses to one loss (``tf.losses.compute_weighted_loss``), and the collection of losses.


LAST_REDUCTION = "last_loss_reduction"  # that of the latest loss: an attachment of its graph


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


@export("tf.losses.compute_weighted_loss")
def compute_weighted_loss(
    losses: TensorLike,
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
    get_default_graph().attachments[LAST_REDUCTION] = reduction
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
    count_ops(2)  # the sum of one number
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
        axes = range_of(1, rank_of(diffs))
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


# ---- Rank matching of labels, predictions and weights, whose ranks may differ by a last axis of length 1 -----------


def remove_squeezable_dimensions(
    labels: TensorLike, predictions: TensorLike, expected_rank_diff: int = 0, name: str | None = None
) -> tuple[Tensor, Tensor]:
    """Removes a last axis of length 1 from the tensor that has one axis too many.

    Args:
      expected_rank_diff: the rank of the predictions less that of the labels. Ranks that are not known are compared in
        each step.

    Raises:
      ValueError: the last axis has another length.
    """
    with name_scope(name, "remove_squeezable_dimensions", [labels, predictions]):
        labels, predictions = convert_to_tensor(labels), convert_to_tensor(predictions)
        if labels.shape.ndims is not None and predictions.shape.ndims is not None:
            more = predictions.shape.ndims - labels.shape.ndims - expected_rank_diff
            return _squeezed(labels, more == -1), _squeezed(predictions, more == 1)
        excess = subtract(subtract(rank_of(predictions), rank_of(labels)), expected_rank_diff)
        return _squeezed_in_the_step(labels, excess, -1), _squeezed_in_the_step(predictions, excess, 1)


def _squeezed(tensor: Tensor, has_one_more: bool) -> Tensor:
    return squeeze(tensor, [-1]) if has_one_more else tensor


def _squeezed_in_the_step(tensor: Tensor, excess: Tensor, wanted: int) -> Tensor:
    if not _may_end_in_one(tensor):
        return tensor
    return cond(equal(excess, wanted), lambda: squeeze(tensor, [-1]), lambda: tensor)  # type: ignore[no-any-return]


def _may_end_in_one(tensor: Tensor) -> bool:
    """Whether the last axis may have length 1."""
    sizes = tensor.shape.as_list() if tensor.shape.ndims is not None else [None]
    return bool(sizes) and sizes[-1] in (1, None)


def matched(
    predictions: TensorLike, labels: TensorLike | None = None, weights: TensorLike | None = None
) -> tuple[Tensor, Any, Any]:
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
    return squeeze(tensor, [-1]) if _may_end_in_one(tensor) else tensor


# ---- The losses of ``tf.losses`` -----------------------------------------------------------------------------------

_LOSSES = GraphKeys.LOSSES
_MEAN = Reduction.SUM_BY_NONZERO_WEIGHTS


def _given(**arguments: Any) -> None:
    for name, value in arguments.items():
        if value is None:
            raise ValueError(f"{name} must not be None.")


def float_pair(labels: Any, predictions: Any) -> tuple[Tensor, Tensor]:
    """Both as float32, after a check that their shapes are compatible."""
    predictions, labels = cast(predictions, dtypes.float32), cast(labels, dtypes.float32)
    predictions.shape.assert_is_compatible_with(labels.shape)
    return labels, predictions


@dataclass
class _Weighted:
    """The last arguments of the losses.

    Attributes:
      scope: the name scope of the ops.
      loss_collection: the graph collection for the loss; None: none.
      reduction: a value of ``tf.losses.Reduction``: how the losses of the elements become one.
    """

    scope: str | None = None
    loss_collection: str | None = _LOSSES
    reduction: str = _MEAN


def _loss(scope_name: str) -> Callable[[Callable[..., Any]], Callable[..., Tensor]]:
    """A decorator that makes a loss of a function of labels, predictions (or logits) and weights.

    The function returns the loss of each element, or the losses and the weights that fit them.
    """

    def decorate(losses_of: Callable[..., Any]) -> Callable[..., Tensor]:
        labels, predictions = list(inspect.signature(losses_of).parameters)[:2]

        def loss(given: _Weighted, **own: Any) -> Tensor:
            _given(**{name: own[name] for name in (labels, predictions)})
            with name_scope(given.scope, scope_name, (own[predictions], own[labels], own["weights"])) as scope:
                found = losses_of(**own)
                losses, weights = found if isinstance(found, tuple) else (found, own["weights"])
                return compute_weighted_loss(losses, weights, scope, given.loss_collection, given.reduction)

        return sharing(_Weighted, of=losses_of)(loss)

    return decorate


@export("tf.losses.absolute_difference")
@_loss("absolute_difference")
def absolute_difference(labels: TensorLike, predictions: TensorLike, weights: TensorLike = 1.0) -> Tensor:
    """The loss ``|predictions - labels|`` (``tf.losses.absolute_difference``).

    Args:
      labels, predictions: tensors of the same shape.
      weights: a scalar, or a tensor of the losses' rank whose axes have length 1 or the losses' length.
      scope: the name scope of the ops.
      loss_collection: the collection for the loss, or None.
      reduction: a kind of `Reduction`.

    Raises:
      ValueError: when shapes are incompatible, or labels, predictions or weights are None.
    """
    labels, predictions = float_pair(labels, predictions)
    return absolute(subtract(predictions, labels))


@export("tf.losses.cosine_distance")
@_loss("cosine_distance_loss")
def cosine_distance(
    labels: TensorLike,
    predictions: TensorLike,
    axis: int | None = None,
    weights: TensorLike = 1.0,
    *,
    dim: int | None = None,
) -> Tensor:
    """The loss ``1 - sum(predictions * labels)`` of unit vectors along ``axis`` (``tf.losses.cosine_distance``)."""
    if axis is not None and dim is not None:
        raise ValueError("Cannot specify both 'dim' and 'axis'.")
    axis = dim if axis is None else axis
    if axis is None:
        raise ValueError("You must specify 'axis'.")
    labels, predictions = float_pair(labels, predictions)
    return 1 - reduce_sum(multiply(predictions, labels), axis=(axis,), keepdims=True)


@export("tf.losses.hinge_loss")
@_loss("hinge_loss")
def hinge_loss(labels: TensorLike, logits: TensorLike, weights: TensorLike = 1.0) -> Tensor:
    """The loss ``max(0, 1 - y * logits)`` with y = -1 or 1 for the labels 0 and 1 (``tf.losses.hinge_loss``)."""
    labels, logits = float_pair(labels, logits)
    ones = ones_like(labels)
    return relu(subtract(ones, multiply(subtract(2 * labels, ones), logits)))


@export("tf.losses.huber_loss")
@_loss("huber_loss")
def huber_loss(labels: TensorLike, predictions: TensorLike, weights: TensorLike = 1.0, delta: float = 1.0) -> Tensor:
    """The Huber loss: quadratic for errors up to ``delta``, linear beyond (``tf.losses.huber_loss``)."""
    labels, predictions = float_pair(labels, predictions)
    size = absolute(subtract(predictions, labels))
    quadratic = minimum(size, delta)
    linear = subtract(size, quadratic)
    return 0.5 * multiply(quadratic, quadratic) + delta * linear


@export("tf.losses.log_loss")
@_loss("log_loss")
def log_loss(labels: TensorLike, predictions: TensorLike, weights: TensorLike = 1.0, epsilon: float = 1e-7) -> Tensor:
    """The cross entropy of predicted probabilities and labels 0 or 1 (``tf.losses.log_loss``)."""
    labels, predictions = float_pair(labels, predictions)
    hit = multiply(labels, log(predictions + epsilon))
    return -hit - multiply(1 - labels, log(1 - predictions + epsilon))


@export("tf.losses.mean_squared_error")
@_loss("mean_squared_error")
def mean_squared_error(labels: TensorLike, predictions: TensorLike, weights: TensorLike = 1.0) -> Tensor:
    """The loss ``(predictions - labels)**2`` (``tf.losses.mean_squared_error``)."""
    labels, predictions = float_pair(labels, predictions)
    return squared_difference(predictions, labels)


def _like_logits(labels: Any, logits: Any) -> tuple[Tensor, Tensor]:
    """Labels of the logits' type, after a check that the shapes are compatible; and the logits."""
    logits = convert_to_tensor(logits)
    labels = cast(labels, logits.dtype)
    logits.shape.assert_is_compatible_with(labels.shape)
    return labels, logits


@export("tf.losses.sigmoid_cross_entropy")
@_loss("sigmoid_cross_entropy_loss")
def sigmoid_cross_entropy(
    multi_class_labels: TensorLike, logits: TensorLike, weights: TensorLike = 1.0, label_smoothing: float = 0
) -> Tensor:
    """The cross entropy of independent classes (``tf.losses.sigmoid_cross_entropy``).

    Args:
      label_smoothing: fraction by which the labels are moved towards 1/2.
    """
    labels, logits = _like_logits(multi_class_labels, logits)
    if label_smoothing > 0:
        labels = labels * (1 - label_smoothing) + 0.5 * label_smoothing
    return sigmoid_cross_entropy_with_logits(labels=labels, logits=logits, name="xentropy")


@export("tf.losses.softmax_cross_entropy")
@_loss("softmax_cross_entropy_loss")
def softmax_cross_entropy(
    onehot_labels: TensorLike, logits: TensorLike, weights: TensorLike = 1.0, label_smoothing: float = 0
) -> Tensor:
    """The cross entropy of exclusive classes with one-hot labels (``tf.losses.softmax_cross_entropy``).

    Args:
      onehot_labels: the probability of each class, [batch, ..., classes].
      logits: unscaled log probabilities, floats, of that shape.
      weights: factors that broadcast to [batch, ...]; 0 leaves an example out.
      label_smoothing: fraction by which the labels are moved towards the uniform distribution.
    """
    labels, logits = _like_logits(onehot_labels, logits)
    if label_smoothing > 0:
        classes = cast(shape_of(labels)[1], logits.dtype)
        labels = labels * (1.0 - label_smoothing) + label_smoothing / classes
    labels = stop_gradient(labels, name="labels_stop_gradient")
    return softmax_cross_entropy_with_logits_v2(labels=labels, logits=logits, name="xentropy")


@export("tf.losses.sparse_softmax_cross_entropy")
@_loss("sparse_softmax_cross_entropy_loss")
def sparse_softmax_cross_entropy(
    labels: TensorLike, logits: TensorLike, weights: TensorLike = 1.0
) -> tuple[Tensor, Any]:
    """The cross entropy of exclusive classes with class indices (``tf.losses.sparse_softmax_cross_entropy``).

    Args:
      labels: int classes, [batch, ...].
      logits: unscaled log probabilities, floats, [batch, ..., classes].
      weights: factors that broadcast to ``labels``; 0 leaves an example out.
      scope: the name scope of the ops.
      loss_collection: the graph collection for the loss; None: none.
      reduction: a value of ``tf.losses.Reduction``.

    Returns:
      The loss, a float: a scalar unless ``reduction`` is ``NONE``.
    """
    # Labels [n, 1] are squeezed to [n], and weights likewise.
    labels, logits = remove_squeezable_dimensions(labels, logits, expected_rank_diff=1)
    weights = weights_of_rank(convert_to_tensor(weights), labels)
    return sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits, name="xentropy"), weights


@export("tf.losses.mean_pairwise_squared_error")
def mean_pairwise_squared_error(
    labels: TensorLike,
    predictions: TensorLike,
    weights: TensorLike = 1.0,
    scope: str | None = None,
    loss_collection: str | None = _LOSSES,
) -> Tensor:
    """The squared error of the pairwise differences in each example (``tf.losses.mean_pairwise_squared_error``).

    The error of a pair of elements is the difference of their predictions less that of their labels.
    """
    _given(labels=labels, predictions=predictions)
    with name_scope(scope, "mean_pairwise_squared_error", (predictions, labels, weights)):
        labels, predictions = float_pair(labels, predictions)
        return pairwise_loss(labels, predictions, cast(weights, dtypes.float32), loss_collection)
