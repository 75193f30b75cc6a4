"""Metrics that are means over all batches: accuracy, errors, IoU (``tf.metrics``).

The state is in local variables: run ``tf.local_variables_initializer()`` first, the update op for every
batch, and the value whenever it is wanted.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tfmini import dtypes
from tfmini.core_types import DTypeLike, ShapeLike, TensorLike
from tfmini.export import export
from tfmini.graph.conversion import convert_to_tensor
from tfmini.graph.names import GraphKeys
from tfmini.graph.operation import Tensor
from tfmini.graph.scoping import add_to_collections, control_dependencies, name_scope
from tfmini.layers.core import sharing
from tfmini.layers.losses import broadcast_weights, matched, remove_squeezable_dimensions
from tfmini.ops import control
from tfmini.ops.array import identity
from tfmini.ops.array.diagonals import diag_part
from tfmini.ops.array.filling import ones, ones_like, zeros, zeros_like
from tfmini.ops.array.gather import scatter_nd
from tfmini.ops.array.identity import cast
from tfmini.ops.array.joining import stack
from tfmini.ops.array.partition import where
from tfmini.ops.array.shape import reshape, size
from tfmini.ops.checks import assert_less, assert_non_negative
from tfmini.ops.math.comparison import equal, greater, less, not_equal
from tfmini.ops.math.elementwise import div, div_no_nan, maximum, multiply, squared_difference, subtract
from tfmini.ops.math.reductions import reduce_max, reduce_mean, reduce_sum
from tfmini.ops.math.unary import abs as absolute
from tfmini.ops.math.unary import sqrt
from tfmini.ops.variables.assignment import assign_add, scatter_add
from tfmini.ops.variables.base import Variable, VariableAggregation, VariableSynchronization
from tfmini.ops.variables.scope import variable_scope

# ---- State of metrics: local variables, the update op that adds to them, and the value computed from them ----------

Metric = tuple[Tensor, Tensor]


def metric_variable(
    shape: ShapeLike, dtype: DTypeLike, validate_shape: bool = True, name: str | None = None
) -> Variable:
    """An untrainable variable of zeros in LOCAL_VARIABLES and METRIC_VARIABLES."""
    return Variable(
        lambda: zeros(shape, dtype),
        trainable=False,
        collections=[GraphKeys.LOCAL_VARIABLES, GraphKeys.METRIC_VARIABLES],
        validate_shape=validate_shape,
        name=name,
        synchronization=VariableSynchronization.ON_READ,
        aggregation=VariableAggregation.SUM,
    )


def accumulated(variable: Variable, amount: TensorLike) -> Any:
    """Adds ``amount`` to the variable; the result is its new value."""
    return assign_add(variable, amount)


@dataclass
class Published:
    """The last arguments of the metrics, see `tfmini.layers.core.sharing`.

    Attributes:
      metrics_collections, updates_collections: the collections for the value and for the update op.
      name: name of the variable scope.
    """

    metrics_collections: Any = None
    updates_collections: Any = None
    name: str | None = None

    def metric(self, value: Callable[[], Tensor], update: Tensor) -> Metric:
        """(value, update op), added to their collections; the value ignores surrounding control dependencies."""
        with control_dependencies(None):
            result = value()
        add_to_collections(self.metrics_collections or (), result)
        add_to_collections(self.updates_collections or (), update)
        return result, update

    def as_dict(self, default_name: str) -> dict[str, Any]:
        """The arguments for another metric, under this one's name or the default."""
        return {**vars(self), "name": self.name or default_name}


# ---- means ------------------------------------------------------------


def _ratio(total: TensorLike, count: TensorLike, name: str) -> Tensor:
    return div_no_nan(total, maximum(count, 0), name=name)


@export("tf.metrics.mean")
@sharing(Published)
def mean(given: Published, values: Any, weights: TensorLike | None = None) -> Metric:
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


def _mean_of(
    given: Published, total: Variable, count: Variable, amount: TensorLike, number: TensorLike, values: TensorLike
) -> Metric:
    update_total = accumulated(total, amount)
    with control_dependencies([values]):
        update_count = accumulated(count, number)
    update = _ratio(update_total, update_count, "update_op")
    return given.metric(lambda: _ratio(total, count, "value"), update)


@export("tf.metrics.mean_tensor")
@sharing(Published)
def mean_tensor(given: Published, values: Any, weights: TensorLike | None = None) -> Metric:
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
    def metric(given: Published, labels: Any, predictions: TensorLike, weights: TensorLike | None = None) -> Metric:
        predictions, labels, weights = matched(predictions, labels, weights)
        return mean(error(labels, predictions), weights, **given.as_dict(error.__name__))

    metric.__name__, metric.__qualname__, metric.__doc__ = error.__name__, error.__name__, error.__doc__
    return metric


@export("tf.metrics.accuracy")
@_mean_of_errors
def accuracy(labels: Tensor, predictions: Tensor) -> Tensor:
    """The fraction of predictions that equal their labels (``tf.metrics.accuracy``).

    Args:
      labels, predictions: tensors of one shape, compared element by element.
      weights: factors that broadcast to ``labels``.
      metrics_collections, updates_collections: graph collections for the value and for the update op.
      name: the variable scope of the two local variables.

    Returns:
      (the accuracy so far, the op that takes the present batch in).
    """
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
def root_mean_squared_error(
    given: Published, labels: TensorLike, predictions: TensorLike, weights: TensorLike | None = None
) -> Metric:
    """The square root of `mean_squared_error` (``tf.metrics.root_mean_squared_error``)."""
    value, update = mean_squared_error(labels, predictions, weights, name=given.name or "root_mean_squared_error")
    return given.metric(lambda: sqrt(value), sqrt(update))


@export("tf.metrics.mean_cosine_distance")
@sharing(Published)
def mean_cosine_distance(
    given: Published, labels: TensorLike, predictions: TensorLike, dim: int, weights: TensorLike | None = None
) -> Metric:
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
    given: Published,
    labels: TensorLike,
    predictions: TensorLike,
    normalizer: TensorLike,
    weights: TensorLike | None = None,
) -> Metric:
    """The mean of ``|labels - predictions| / normalizer``; zero normalizers count 0 (``tf.metrics``)."""
    predictions, labels, weights = matched(predictions, labels, weights)
    predictions, normalizer = remove_squeezable_dimensions(predictions, normalizer)
    predictions.shape.assert_is_compatible_with(normalizer.shape)
    errors = where(equal(normalizer, 0.0), zeros_like(labels), div(absolute(subtract(labels, predictions)), normalizer))
    return mean(errors, weights, **given.as_dict("mean_relative_error"))


@export("tf.metrics.percentage_below")
@sharing(Published)
def percentage_below(
    given: Published, values: TensorLike, threshold: float, weights: TensorLike | None = None
) -> Metric:
    """The fraction of values below a threshold (``tf.metrics.percentage_below``)."""
    below = cast(less(values, threshold), dtypes.float32)
    return mean(below, weights, **given.as_dict("percentage_below_threshold"))


@export("tf.metrics.mean_per_class_accuracy")
@sharing(Published)
def mean_per_class_accuracy(
    given: Published, labels: TensorLike, predictions: TensorLike, num_classes: int, weights: TensorLike | None = None
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
def mean_iou(
    given: Published, labels: TensorLike, predictions: TensorLike, num_classes: int, weights: TensorLike | None = None
) -> Metric:
    """The mean over classes of intersection over union (``tf.metrics.mean_iou``).

    The update op returns the confusion matrix, with a row per label.
    """
    with variable_scope(given.name, "mean_iou", (predictions, labels, weights)):
        predictions, labels = convert_to_tensor(predictions), convert_to_tensor(labels)
        predictions.shape.assert_is_compatible_with(labels.shape)
        total, update = streaming_confusion_matrix(labels, predictions, num_classes, weights)
        return given.metric(lambda: _iou_of(total), update)


def streaming_confusion_matrix(
    labels: TensorLike, predictions: TensorLike, num_classes: int, weights: TensorLike | None = None
) -> tuple[Variable, Tensor]:
    """The sum of confusion matrices, a float64 variable with a row per label, and the op that adds one to it."""
    total = metric_variable([num_classes, num_classes], dtypes.float64, name="total_confusion_matrix")
    cells = stack([reshape(cast(t, dtypes.int64), [-1]) for t in (labels, predictions)], axis=1)
    if weights is None:
        amounts = ones([size(labels)], dtypes.float64)
    else:
        amounts = reshape(cast(weights, dtypes.float64), [-1])
    return total, accumulated(total, scatter_nd(cells, amounts, [num_classes, num_classes]))


def _iou_of(matrix: TensorLike) -> Tensor:
    predicted, actual = (cast(reduce_sum(matrix, axis), dtypes.float32) for axis in (0, 1))
    both = cast(diag_part(matrix), dtypes.float32)
    union = predicted + actual - both
    classes = reduce_sum(cast(not_equal(union, 0.0), dtypes.float32))
    overlap = div(both, where(greater(union, 0.0), union, ones_like(union)))
    average = reduce_sum(overlap, name="mean_iou") / classes
    return where(greater(classes, 0.0), average, zeros_like(average))


# ---- Confusion matrices (``tf.confusion_matrix``) ------------------------------------------------------------------


def _class_count(labels: Tensor, predictions: Tensor) -> Tensor:
    return maximum(reduce_max(predictions), reduce_max(labels)) + 1


@export("tf.confusion_matrix", "tf.math.confusion_matrix", "tf.contrib.metrics.confusion_matrix")
def confusion_matrix(
    labels: TensorLike, predictions: TensorLike, num_classes: TensorLike | None = None, dtype: DTypeLike = dtypes.int32,
    name: str | None = None, weights: TensorLike | None = None,
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
        predictions, labels = (identity.cast(t, dtypes.int64) for t in (predictions, labels))
        labels = _checked(labels, "labels")
        predictions = _checked(predictions, "predictions")
        if num_classes is None:
            count = _class_count(labels, predictions)
        else:
            count = identity.cast(num_classes, dtypes.int64)
            labels = _below(labels, count, "labels")
            predictions = _below(predictions, count, "predictions")
        if weights is not None:
            weights = convert_to_tensor(weights, name="weights")
            predictions.shape.assert_is_compatible_with(weights.shape)
            weights = identity.cast(weights, dtype)
        amounts = ones_like(predictions, dtype) if weights is None else weights
        indices = stack([labels, predictions], axis=1)
        sizes = stack([count, count])
        return scatter_nd(indices, amounts, identity.cast(sizes, dtypes.int64), name=scope)


def _checked(values: Tensor, what: str) -> Tensor:
    message = f"`{what}` contains negative values"
    return control.with_dependencies([assert_non_negative(values, message=message)], values)


def _below(values: Tensor, count: Tensor, what: str) -> Tensor:
    return control.with_dependencies([assert_less(values, count, message=f"`{what}` out of bound")], values)
