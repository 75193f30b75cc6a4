"""``tf.losses``: losses of predictions; each is weighted, reduced and added to a collection."""

from __future__ import annotations

from typing import Any

from tfmini import dtypes
from tfmini.export import export
from tfmini.graph.conversion import convert_to_tensor
from tfmini.graph.keys import GraphKeys
from tfmini.graph.operation import Tensor
from tfmini.graph.scoping import name_scope
from tfmini.layers.loss_reduction import Reduction, compute_weighted_loss, pairwise_loss
from tfmini.layers.rank_matching import remove_squeezable_dimensions, weights_of_rank
from tfmini.ops.array.casting import cast
from tfmini.ops.array.filling import ones_like
from tfmini.ops.array.identity import stop_gradient
from tfmini.ops.array.shape import shape as shape_of
from tfmini.ops.math.complex import abs as absolute
from tfmini.ops.math.elementwise import minimum, multiply, squared_difference, subtract
from tfmini.ops.math.reduce_functions import reduce_sum
from tfmini.ops.math.unary import log
from tfmini.ops.nn.activation import relu
from tfmini.ops.nn.cross_entropy import (
    sigmoid_cross_entropy_with_logits,
    softmax_cross_entropy_with_logits_v2,
    sparse_softmax_cross_entropy_with_logits,
)

_LOSSES = GraphKeys.LOSSES
_MEAN = Reduction.SUM_BY_NONZERO_WEIGHTS


def _given(**arguments: Any) -> None:
    for name, value in arguments.items():
        if value is None:
            raise ValueError(f"{name} must not be None.")


def _float_pair(labels: Any, predictions: Any) -> tuple[Tensor, Tensor]:
    """Both as float32, after a check that their shapes are compatible."""
    predictions, labels = cast(predictions, dtypes.float32), cast(labels, dtypes.float32)
    predictions.shape.assert_is_compatible_with(labels.shape)
    return labels, predictions


@export("tf.losses.absolute_difference", "tf.contrib.losses.absolute_difference")
def absolute_difference(
    labels: Any,
    predictions: Any,
    weights: Any = 1.0,
    scope: str | None = None,
    loss_collection: str | None = _LOSSES,
    reduction: str = _MEAN,
) -> Tensor:
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
    _given(labels=labels, predictions=predictions)
    with name_scope(scope, "absolute_difference", (predictions, labels, weights)) as scope:
        labels, predictions = _float_pair(labels, predictions)
        losses = absolute(subtract(predictions, labels))
        return compute_weighted_loss(losses, weights, scope, loss_collection, reduction)


@export("tf.losses.cosine_distance", "tf.contrib.losses.cosine_distance")
def cosine_distance(
    labels: Any,
    predictions: Any,
    axis: int | None = None,
    weights: Any = 1.0,
    scope: str | None = None,
    loss_collection: str | None = _LOSSES,
    reduction: str = _MEAN,
    dim: int | None = None,
) -> Tensor:
    """The loss ``1 - sum(predictions * labels)`` of unit vectors along ``axis`` (``tf.losses.cosine_distance``)."""
    axis = dim if axis is None else axis
    if axis is None:
        raise ValueError("You must specify 'axis'.")
    _given(labels=labels, predictions=predictions)
    with name_scope(scope, "cosine_distance_loss", (predictions, labels, weights)) as scope:
        labels, predictions = _float_pair(labels, predictions)
        losses = 1 - reduce_sum(multiply(predictions, labels), axis=(axis,), keepdims=True)
        return compute_weighted_loss(losses, weights, scope, loss_collection, reduction)


@export("tf.losses.hinge_loss", "tf.contrib.losses.hinge_loss")
def hinge_loss(
    labels: Any,
    logits: Any,
    weights: Any = 1.0,
    scope: str | None = None,
    loss_collection: str | None = _LOSSES,
    reduction: str = _MEAN,
) -> Tensor:
    """The loss ``max(0, 1 - y * logits)`` with y = -1 or 1 for the labels 0 and 1 (``tf.losses.hinge_loss``)."""
    _given(labels=labels, logits=logits)
    with name_scope(scope, "hinge_loss", (logits, labels, weights)) as scope:
        labels, logits = _float_pair(labels, logits)
        ones = ones_like(labels)
        losses = relu(subtract(ones, multiply(subtract(2 * labels, ones), logits)))
        return compute_weighted_loss(losses, weights, scope, loss_collection, reduction)


@export("tf.losses.huber_loss")
def huber_loss(
    labels: Any,
    predictions: Any,
    weights: Any = 1.0,
    delta: float = 1.0,
    scope: str | None = None,
    loss_collection: str | None = _LOSSES,
    reduction: str = _MEAN,
) -> Tensor:
    """The Huber loss: quadratic for errors up to ``delta``, linear beyond (``tf.losses.huber_loss``)."""
    _given(labels=labels, predictions=predictions)
    with name_scope(scope, "huber_loss", (predictions, labels, weights)) as scope:
        labels, predictions = _float_pair(labels, predictions)
        size = absolute(subtract(predictions, labels))
        quadratic = minimum(size, delta)
        linear = subtract(size, quadratic)
        losses = 0.5 * multiply(quadratic, quadratic) + delta * linear
        return compute_weighted_loss(losses, weights, scope, loss_collection, reduction)


@export("tf.losses.log_loss", "tf.contrib.losses.log_loss")
def log_loss(
    labels: Any,
    predictions: Any,
    weights: Any = 1.0,
    epsilon: float = 1e-7,
    scope: str | None = None,
    loss_collection: str | None = _LOSSES,
    reduction: str = _MEAN,
) -> Tensor:
    """The cross entropy of predicted probabilities and labels 0 or 1 (``tf.losses.log_loss``)."""
    _given(labels=labels, predictions=predictions)
    with name_scope(scope, "log_loss", (predictions, labels, weights)) as scope:
        labels, predictions = _float_pair(labels, predictions)
        hit = multiply(labels, log(predictions + epsilon))
        losses = -hit - multiply(1 - labels, log(1 - predictions + epsilon))
        return compute_weighted_loss(losses, weights, scope, loss_collection, reduction)


@export("tf.losses.mean_squared_error", "tf.contrib.losses.mean_squared_error")
def mean_squared_error(
    labels: Any,
    predictions: Any,
    weights: Any = 1.0,
    scope: str | None = None,
    loss_collection: str | None = _LOSSES,
    reduction: str = _MEAN,
) -> Tensor:
    """The loss ``(predictions - labels)**2`` (``tf.losses.mean_squared_error``)."""
    _given(labels=labels, predictions=predictions)
    with name_scope(scope, "mean_squared_error", (predictions, labels, weights)) as scope:
        labels, predictions = _float_pair(labels, predictions)
        return compute_weighted_loss(
            squared_difference(predictions, labels), weights, scope, loss_collection, reduction
        )


@export("tf.losses.sigmoid_cross_entropy", "tf.contrib.losses.sigmoid_cross_entropy")
def sigmoid_cross_entropy(
    multi_class_labels: Any,
    logits: Any,
    weights: Any = 1.0,
    label_smoothing: float = 0,
    scope: str | None = None,
    loss_collection: str | None = _LOSSES,
    reduction: str = _MEAN,
) -> Tensor:
    """The cross entropy of independent classes (``tf.losses.sigmoid_cross_entropy``).

    Args:
      label_smoothing: fraction by which the labels are moved towards 1/2.
    """
    _given(multi_class_labels=multi_class_labels, logits=logits)
    with name_scope(scope, "sigmoid_cross_entropy_loss", (logits, multi_class_labels, weights)) as scope:
        logits = convert_to_tensor(logits)
        labels = cast(multi_class_labels, logits.dtype)
        logits.shape.assert_is_compatible_with(labels.shape)
        if label_smoothing > 0:
            labels = labels * (1 - label_smoothing) + 0.5 * label_smoothing
        losses = sigmoid_cross_entropy_with_logits(labels=labels, logits=logits, name="xentropy")
        return compute_weighted_loss(losses, weights, scope, loss_collection, reduction)


@export("tf.losses.softmax_cross_entropy", "tf.contrib.losses.softmax_cross_entropy")
def softmax_cross_entropy(
    onehot_labels: Any,
    logits: Any,
    weights: Any = 1.0,
    label_smoothing: float = 0,
    scope: str | None = None,
    loss_collection: str | None = _LOSSES,
    reduction: str = _MEAN,
) -> Tensor:
    """The cross entropy of exclusive classes with one-hot labels (``tf.losses.softmax_cross_entropy``).

    Args:
      label_smoothing: fraction by which the labels are moved towards the uniform distribution.
    """
    _given(onehot_labels=onehot_labels, logits=logits)
    with name_scope(scope, "softmax_cross_entropy_loss", (logits, onehot_labels, weights)) as scope:
        logits = convert_to_tensor(logits)
        labels = cast(onehot_labels, logits.dtype)
        logits.shape.assert_is_compatible_with(labels.shape)
        if label_smoothing > 0:
            classes = cast(shape_of(labels)[1], logits.dtype)
            labels = labels * (1.0 - label_smoothing) + label_smoothing / classes
        labels = stop_gradient(labels, name="labels_stop_gradient")
        losses = softmax_cross_entropy_with_logits_v2(labels=labels, logits=logits, name="xentropy")
        return compute_weighted_loss(losses, weights, scope, loss_collection, reduction)


@export("tf.losses.sparse_softmax_cross_entropy", "tf.contrib.losses.sparse_softmax_cross_entropy")
def sparse_softmax_cross_entropy(
    labels: Any,
    logits: Any,
    weights: Any = 1.0,
    scope: str | None = None,
    loss_collection: str | None = _LOSSES,
    reduction: str = _MEAN,
) -> Tensor:
    """The cross entropy of exclusive classes with class indices (``tf.losses.sparse_softmax_cross_entropy``)."""
    _given(labels=labels, logits=logits)
    with name_scope(scope, "sparse_softmax_cross_entropy_loss", (logits, labels, weights)) as scope:
        labels, logits, weights = _without_last_axis(labels, logits, weights)
        losses = sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits, name="xentropy")
        return compute_weighted_loss(losses, weights, scope, loss_collection, reduction)


def _without_last_axis(labels: Any, logits: Any, weights: Any) -> tuple[Any, Any, Any]:
    """Squeezes labels ``[n, 1]`` to ``[n]``, and weights likewise."""
    labels, logits = remove_squeezable_dimensions(labels, logits, expected_rank_diff=1)
    if isinstance(weights, (int, float)):
        return labels, logits, weights
    return labels, logits, weights_of_rank(convert_to_tensor(weights), labels)


@export("tf.losses.mean_pairwise_squared_error", "tf.contrib.losses.mean_pairwise_squared_error")
def mean_pairwise_squared_error(
    labels: Any, predictions: Any, weights: Any = 1.0, scope: str | None = None, loss_collection: str | None = _LOSSES
) -> Tensor:
    """The squared error of the pairwise differences in each example (``tf.losses.mean_pairwise_squared_error``).

    The error of a pair of elements is the difference of their predictions less that of their labels.
    """
    _given(labels=labels, predictions=predictions)
    with name_scope(scope, "mean_pairwise_squared_error", (predictions, labels, weights)):
        labels, predictions = _float_pair(labels, predictions)
        return pairwise_loss(labels, predictions, cast(weights, dtypes.float32), loss_collection)
