"""Metrics that are means over all batches: accuracy, errors, IoU (``tf.metrics``).

The state is in local variables: run ``tf.local_variables_initializer()`` first, the update op for every
batch, and the value whenever it is wanted.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tfmini import dtypes
from tfmini.export import export
from tfmini.graph.conversion import convert_to_tensor
from tfmini.graph.operation import Tensor
from tfmini.graph.scoping import add_to_collections, control_dependencies
from tfmini.layers.functional import sharing
from tfmini.layers.metrics.state import Metric, Published, accumulated, metric_variable
from tfmini.layers.rank_matching import matched, remove_squeezable_dimensions
from tfmini.layers.weight_broadcasting import broadcast_weights
from tfmini.ops.array.casting import cast
from tfmini.ops.array.diagonals import diag_part
from tfmini.ops.array.filling import ones, ones_like, zeros_like
from tfmini.ops.array.joining import stack
from tfmini.ops.array.masking import where
from tfmini.ops.array.scatter import scatter_nd
from tfmini.ops.array.shape import reshape, size
from tfmini.ops.math.comparison import equal, greater, less, not_equal
from tfmini.ops.math.complex import abs as absolute
from tfmini.ops.math.elementwise import div, div_no_nan, maximum, multiply, squared_difference, subtract
from tfmini.ops.math.reduce_functions import reduce_mean, reduce_sum
from tfmini.ops.math.unary import sqrt
from tfmini.ops.variables.assignment import scatter_add
from tfmini.ops.variables.scope import variable_scope


def _ratio(total: Any, count: Any, name: str) -> Tensor:
    return div_no_nan(total, maximum(count, 0), name=name)


@export("tf.metrics.mean")
@sharing(Published)
def mean(given: Published, values: Any, weights: Any = None) -> Metric:
    """The weighted mean of all values (``tf.metrics.mean``).

    Args:
      values: a tensor of any shape.
      weights: a scalar, or a tensor of the values' rank whose axes have length 1 or the values' length.
      The others are those of `Published`.
    """
    with variable_scope(given.name, "mean", (values, weights)):
        values = cast(values, dtypes.float32)
        total = metric_variable([], dtypes.float32, name="total")
        count = metric_variable([], dtypes.float32, name="count")
        if weights is None:
            number = cast(size(values), dtypes.float32)
        else:
            values, weights = _weighted(values, weights)
            number = reduce_sum(weights)
        return _mean_of(given, total, count, reduce_sum(values), number, values)


def _weighted(values: Tensor, weights: Any) -> tuple[Tensor, Tensor]:
    values, _, weights = matched(values, None, weights)
    weights = broadcast_weights(cast(weights, dtypes.float32), values)
    return multiply(values, weights), weights


def _mean_of(given: Published, total: Any, count: Any, amount: Any, number: Any, values: Any) -> Metric:
    update_total = accumulated(total, amount)
    with control_dependencies([values]):
        update_count = accumulated(count, number)
    update = _ratio(update_total, update_count, "update_op")
    return given.metric(lambda: _ratio(total, count, "value"), update)


@export("tf.metrics.mean_tensor")
@sharing(Published)
def mean_tensor(given: Published, values: Any, weights: Any = None) -> Metric:
    """The weighted mean of each element (``tf.metrics.mean_tensor``)."""
    with variable_scope(given.name, "mean", (values, weights)):
        values = cast(values, dtypes.float32)
        total = metric_variable(values.shape, dtypes.float32, name="total_tensor")
        count = metric_variable(values.shape, dtypes.float32, name="count_tensor")
        number = ones_like(values)
        if weights is not None:
            values, weights = _weighted(values, weights)
            number = multiply(number, weights)
        return _mean_of(given, total, count, values, number, values)


def _mean_of_errors(error: Callable[[Tensor, Tensor], Tensor]) -> Callable[..., Metric]:
    """A decorator that turns an element-wise ``error(labels, predictions)`` into the metric of its mean."""

    @sharing(Published)
    def metric(given: Published, labels: Any, predictions: Any, weights: Any = None) -> Metric:
        predictions, labels, weights = matched(predictions, labels, weights)
        return mean(error(labels, predictions), weights, **given.as_dict(error.__name__))

    metric.__name__, metric.__qualname__, metric.__doc__ = error.__name__, error.__name__, error.__doc__
    return metric


@export("tf.metrics.accuracy")
@_mean_of_errors
def accuracy(labels: Tensor, predictions: Tensor) -> Tensor:
    """The fraction of predictions that equal their labels (``tf.metrics.accuracy``)."""
    if labels.dtype != predictions.dtype:
        predictions = cast(predictions, labels.dtype)
    return cast(equal(predictions, labels), dtypes.float32)


@export("tf.metrics.mean_absolute_error")
@_mean_of_errors
def mean_absolute_error(labels: Tensor, predictions: Tensor) -> Tensor:
    """The mean of ``|predictions - labels|`` (``tf.metrics.mean_absolute_error``)."""
    return absolute(subtract(predictions, labels))


@export("tf.metrics.mean_squared_error")
@_mean_of_errors
def mean_squared_error(labels: Tensor, predictions: Tensor) -> Tensor:
    """The mean of ``(labels - predictions)**2`` (``tf.metrics.mean_squared_error``)."""
    return squared_difference(labels, predictions)


@export("tf.metrics.root_mean_squared_error")
@sharing(Published)
def root_mean_squared_error(given: Published, labels: Any, predictions: Any, weights: Any = None) -> Metric:
    """The square root of `mean_squared_error` (``tf.metrics.root_mean_squared_error``)."""
    value, update = mean_squared_error(labels, predictions, weights, name=given.name or "root_mean_squared_error")
    return given.metric(lambda: sqrt(value), sqrt(update))


@export("tf.metrics.mean_cosine_distance")
@sharing(Published)
def mean_cosine_distance(given: Published, labels: Any, predictions: Any, dim: int, weights: Any = None) -> Metric:
    """The mean of ``1 - sum(predictions * labels)`` over axis ``dim`` (``tf.metrics.mean_cosine_distance``)."""
    predictions, labels, weights = matched(predictions, labels, weights)
    products = reduce_sum(multiply(predictions, labels), axis=[dim], keepdims=True)
    value, update = mean(products, weights, name=given.name or "mean_cosine_distance")
    value, update = subtract(1.0, value), subtract(1.0, update)
    add_to_collections(given.metrics_collections or (), value)
    add_to_collections(given.updates_collections or (), update)
    return value, update


@export("tf.metrics.mean_relative_error")
@sharing(Published)
def mean_relative_error(
    given: Published, labels: Any, predictions: Any, normalizer: Any, weights: Any = None
) -> Metric:
    """The mean of ``|labels - predictions| / normalizer``; zero normalizers count 0 (``tf.metrics``)."""
    predictions, labels, weights = matched(predictions, labels, weights)
    predictions, normalizer = remove_squeezable_dimensions(predictions, normalizer)
    predictions.shape.assert_is_compatible_with(normalizer.shape)
    errors = where(equal(normalizer, 0.0), zeros_like(labels), div(absolute(subtract(labels, predictions)), normalizer))
    return mean(errors, weights, **given.as_dict("mean_relative_error"))


@export("tf.metrics.percentage_below")
@sharing(Published)
def percentage_below(given: Published, values: Any, threshold: float, weights: Any = None) -> Metric:
    """The fraction of values below a threshold (``tf.metrics.percentage_below``)."""
    below = cast(less(values, threshold), dtypes.float32)
    return mean(below, weights, **given.as_dict("percentage_below_threshold"))


@export("tf.metrics.mean_per_class_accuracy")
@sharing(Published)
def mean_per_class_accuracy(
    given: Published, labels: Any, predictions: Any, num_classes: int, weights: Any = None
) -> Metric:
    """The mean of the classes' accuracies (``tf.metrics.mean_per_class_accuracy``).

    The update op returns the accuracy of each class.
    """
    with variable_scope(given.name, "mean_accuracy", (predictions, labels, weights)):
        labels, predictions = (reshape(cast(t, dtypes.int64), [-1]) for t in (labels, predictions))
        total = metric_variable([num_classes], dtypes.float32, name="total")
        count = metric_variable([num_classes], dtypes.float32, name="count")
        number = ones([size(labels)], dtypes.float32)
        correct = cast(equal(predictions, labels), dtypes.float32)
        if weights is not None:
            weights = reshape(cast(weights, dtypes.float32), [-1])
            correct, number = correct * weights, number * weights
        update_total = scatter_add(total, labels, number)
        update_count = scatter_add(count, labels, correct)
        update = _ratio(update_count, update_total, "update_op")

        def value() -> Tensor:
            return reduce_mean(div_no_nan(count, maximum(total, 0)), name="mean_accuracy")

        return given.metric(value, update)


@export("tf.metrics.mean_iou")
@sharing(Published)
def mean_iou(given: Published, labels: Any, predictions: Any, num_classes: int, weights: Any = None) -> Metric:
    """The mean over classes of intersection over union (``tf.metrics.mean_iou``).

    The update op returns the confusion matrix, with a row per label.
    """
    with variable_scope(given.name, "mean_iou", (predictions, labels, weights)):
        predictions, labels = convert_to_tensor(predictions), convert_to_tensor(labels)
        predictions.shape.assert_is_compatible_with(labels.shape)
        total = metric_variable([num_classes, num_classes], dtypes.float64, name="total_confusion_matrix")
        cells = stack([reshape(cast(t, dtypes.int64), [-1]) for t in (labels, predictions)], axis=1)
        if weights is None:
            amounts = ones([size(labels)], dtypes.float64)
        else:
            amounts = reshape(cast(weights, dtypes.float64), [-1])
        update = accumulated(total, scatter_nd(cells, amounts, [num_classes, num_classes]))
        return given.metric(lambda: _iou_of(total), update)


def _iou_of(matrix: Any) -> Tensor:
    predicted, actual = (cast(reduce_sum(matrix, axis), dtypes.float32) for axis in (0, 1))
    both = cast(diag_part(matrix), dtypes.float32)
    union = predicted + actual - both
    classes = reduce_sum(cast(not_equal(union, 0.0), dtypes.float32))
    overlap = div(both, where(greater(union, 0.0), union, ones_like(union)))
    average = reduce_sum(overlap, name="mean_iou") / classes
    return where(greater(classes, 0.0), average, zeros_like(average))
