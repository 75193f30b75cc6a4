"""``tf.losses``: losses of predictions; each is weighted, reduced and added to a collection."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tfmini import dtypes
from tfmini.export import export
from tfmini.graph.conversion import convert_to_tensor
from tfmini.graph.keys import GraphKeys
from tfmini.graph.operation import Tensor
from tfmini.graph.scoping import name_scope
from tfmini.layers.functional import sharing
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


@dataclass
class _Weighted:
    """The last arguments of the losses."""

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


@export("tf.losses.absolute_difference", "tf.contrib.losses.absolute_difference")
@_loss("absolute_difference")
def absolute_difference(labels: Any, predictions: Any, weights: Any = 1.0) -> Tensor:
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
    labels, predictions = _float_pair(labels, predictions)
    return absolute(subtract(predictions, labels))


@export("tf.losses.cosine_distance", "tf.contrib.losses.cosine_distance")
@_loss("cosine_distance_loss")
def cosine_distance(
    labels: Any, predictions: Any, axis: int | None = None, weights: Any = 1.0, *, dim: int | None = None
) -> Tensor:
    """The loss ``1 - sum(predictions * labels)`` of unit vectors along ``axis`` (``tf.losses.cosine_distance``)."""
    axis = dim if axis is None else axis
    if axis is None:
        raise ValueError("You must specify 'axis'.")
    labels, predictions = _float_pair(labels, predictions)
    return 1 - reduce_sum(multiply(predictions, labels), axis=(axis,), keepdims=True)


@export("tf.losses.hinge_loss", "tf.contrib.losses.hinge_loss")
@_loss("hinge_loss")
def hinge_loss(labels: Any, logits: Any, weights: Any = 1.0) -> Tensor:
    """The loss ``max(0, 1 - y * logits)`` with y = -1 or 1 for the labels 0 and 1 (``tf.losses.hinge_loss``)."""
    labels, logits = _float_pair(labels, logits)
    ones = ones_like(labels)
    return relu(subtract(ones, multiply(subtract(2 * labels, ones), logits)))


@export("tf.losses.huber_loss")
@_loss("huber_loss")
def huber_loss(labels: Any, predictions: Any, weights: Any = 1.0, delta: float = 1.0) -> Tensor:
    """The Huber loss: quadratic for errors up to ``delta``, linear beyond (``tf.losses.huber_loss``)."""
    labels, predictions = _float_pair(labels, predictions)
    size = absolute(subtract(predictions, labels))
    quadratic = minimum(size, delta)
    linear = subtract(size, quadratic)
    return 0.5 * multiply(quadratic, quadratic) + delta * linear


@export("tf.losses.log_loss", "tf.contrib.losses.log_loss")
@_loss("log_loss")
def log_loss(labels: Any, predictions: Any, weights: Any = 1.0, epsilon: float = 1e-7) -> Tensor:
    """The cross entropy of predicted probabilities and labels 0 or 1 (``tf.losses.log_loss``)."""
    labels, predictions = _float_pair(labels, predictions)
    hit = multiply(labels, log(predictions + epsilon))
    return -hit - multiply(1 - labels, log(1 - predictions + epsilon))


@export("tf.losses.mean_squared_error", "tf.contrib.losses.mean_squared_error")
@_loss("mean_squared_error")
def mean_squared_error(labels: Any, predictions: Any, weights: Any = 1.0) -> Tensor:
    """The loss ``(predictions - labels)**2`` (``tf.losses.mean_squared_error``)."""
    labels, predictions = _float_pair(labels, predictions)
    return squared_difference(predictions, labels)


def _like_logits(labels: Any, logits: Any) -> tuple[Tensor, Tensor]:
    """Labels of the logits' type, after a check that the shapes are compatible; and the logits."""
    logits = convert_to_tensor(logits)
    labels = cast(labels, logits.dtype)
    logits.shape.assert_is_compatible_with(labels.shape)
    return labels, logits


@export("tf.losses.sigmoid_cross_entropy", "tf.contrib.losses.sigmoid_cross_entropy")
@_loss("sigmoid_cross_entropy_loss")
def sigmoid_cross_entropy(
    multi_class_labels: Any, logits: Any, weights: Any = 1.0, label_smoothing: float = 0
) -> Tensor:
    """The cross entropy of independent classes (``tf.losses.sigmoid_cross_entropy``).

    Args:
      label_smoothing: fraction by which the labels are moved towards 1/2.
    """
    labels, logits = _like_logits(multi_class_labels, logits)
    if label_smoothing > 0:
        labels = labels * (1 - label_smoothing) + 0.5 * label_smoothing
    return sigmoid_cross_entropy_with_logits(labels=labels, logits=logits, name="xentropy")


@export("tf.losses.softmax_cross_entropy", "tf.contrib.losses.softmax_cross_entropy")
@_loss("softmax_cross_entropy_loss")
def softmax_cross_entropy(onehot_labels: Any, logits: Any, weights: Any = 1.0, label_smoothing: float = 0) -> Tensor:
    """The cross entropy of exclusive classes with one-hot labels (``tf.losses.softmax_cross_entropy``).

    Args:
      label_smoothing: fraction by which the labels are moved towards the uniform distribution.
    """
    labels, logits = _like_logits(onehot_labels, logits)
    if label_smoothing > 0:
        classes = cast(shape_of(labels)[1], logits.dtype)
        labels = labels * (1.0 - label_smoothing) + label_smoothing / classes
    labels = stop_gradient(labels, name="labels_stop_gradient")
    return softmax_cross_entropy_with_logits_v2(labels=labels, logits=logits, name="xentropy")


@export("tf.losses.sparse_softmax_cross_entropy", "tf.contrib.losses.sparse_softmax_cross_entropy")
@_loss("sparse_softmax_cross_entropy_loss")
def sparse_softmax_cross_entropy(labels: Any, logits: Any, weights: Any = 1.0) -> tuple[Tensor, Any]:
    """The cross entropy of exclusive classes with class indices (``tf.losses.sparse_softmax_cross_entropy``)."""
    # Labels [n, 1] are squeezed to [n], and weights likewise.
    labels, logits = remove_squeezable_dimensions(labels, logits, expected_rank_diff=1)
    if not isinstance(weights, (int, float)):
        weights = weights_of_rank(convert_to_tensor(weights), labels)
    return sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits, name="xentropy"), weights


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
