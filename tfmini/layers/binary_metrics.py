"""Metrics of binary predictions: true and false positives, precision, recall, AUC (``tf.metrics``)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tfmini import dtypes
from tfmini.core_types import TensorLike
from tfmini.export import export, export_names
from tfmini.graph.conversion import convert_to_tensor
from tfmini.graph.operation import Tensor
from tfmini.graph.scoping import control_dependencies, name_scope
from tfmini.layers.core import sharing
from tfmini.layers.losses import assert_broadcastable, broadcast_weights, matched
from tfmini.layers.metrics import Metric, Published, accumulated, metric_variable
from tfmini.ops.array.constant import constant
from tfmini.ops.array.filling import fill, ones_like
from tfmini.ops.array.identity import cast, identity
from tfmini.ops.array.joining import concat
from tfmini.ops.array.partition import where
from tfmini.ops.array.shape import expand_dims, reshape
from tfmini.ops.array.shape import shape as shape_of
from tfmini.ops.checks import assert_greater_equal, assert_less_equal
from tfmini.ops.composites import SparseTensor, SparseTensorValue
from tfmini.ops.math.comparison import equal, greater, greater_equal, logical_and, logical_not
from tfmini.ops.math.elementwise import div, div_no_nan, maximum, minimum, multiply
from tfmini.ops.math.reductions import argmax, argmin, cumsum, reduce_any, reduce_max, reduce_sum
from tfmini.ops.math.search import top_k
from tfmini.ops.math.unary import abs as absolute
from tfmini.ops.math.unary import log
from tfmini.ops.sparse.functions import sparse_reshape, sparse_retain, sparse_tensor_to_dense
from tfmini.ops.sparse.sets import set_difference, set_intersection, set_size
from tfmini.ops.variables.scope import variable_scope

# Kind of count: (label, prediction, name of its variable if there are thresholds).
_KINDS = {
    "tp": (True, True, "true_positives"),
    "fn": (True, False, "false_negatives"),
    "tn": (False, False, "true_negatives"),
    "fp": (False, True, "false_positives"),
}
_EDGE = 1e-7

Counts = dict[str, Any]  # kind -> variable or update op, ``[thresholds]``


def _is(tensor: Tensor, wanted: bool) -> Tensor:
    return tensor if wanted else logical_not(tensor)


def _named(name: str, what: str) -> Callable[[Callable[..., Metric]], Callable[..., Metric]]:
    """A decorator for one of several metrics that are alike: it sets name and docstring."""

    def rename(metric: Callable[..., Metric]) -> Callable[..., Metric]:
        metric.__name__ = metric.__qualname__ = name
        metric.__doc__ = f"{what} (``tf.metrics.{name}``)."
        return metric

    return rename


def counter(kind: str) -> Callable[..., Metric]:
    """The metric that counts "tp", "fn", "tn" or "fp"."""
    label, prediction, default_name = _KINDS[kind]

    @_named(default_name, f"The weighted number of {default_name.replace('_', ' ')}")
    @sharing(Published)
    def counted(given: Published, labels: Any, predictions: TensorLike, weights: TensorLike | None = None) -> Metric:
        with variable_scope(given.name, default_name, (predictions, labels, weights)):
            predictions, labels, weights = matched(cast(predictions, dtypes.bool), cast(labels, dtypes.bool), weights)
            hits = cast(logical_and(_is(labels, label), _is(predictions, prediction)), dtypes.float32)
            if weights is not None:
                hits = multiply(hits, broadcast_weights(cast(weights, dtypes.float32), hits))
            count = metric_variable([], dtypes.float32, name="count")
            update = accumulated(count, reduce_sum(hits))
            return given.metric(lambda: identity(count), update)

    return counted


true_positives, false_negatives = counter("tp"), counter("fn")
true_negatives, false_positives = counter("tn"), counter("fp")


def counts_at(
    labels: TensorLike,
    predictions: TensorLike,
    thresholds: Sequence[float],
    weights: TensorLike | None,
    kinds: Sequence[str] = tuple(_KINDS),
) -> tuple[Counts, Counts]:
    """Variables and update ops ``[thresholds]`` by kind; a prediction above the threshold is positive."""
    predictions = convert_to_tensor(predictions)
    checks = [
        assert_greater_equal(predictions, cast(0.0, predictions.dtype), message="predictions must be in [0, 1]"),
        assert_less_equal(predictions, cast(1.0, predictions.dtype), message="predictions must be in [0, 1]"),
    ]
    with control_dependencies(checks):
        predictions, labels, weights = matched(cast(predictions, dtypes.float32), cast(labels, dtypes.bool), weights)
    if weights is not None:
        weights = reshape(broadcast_weights(cast(weights, dtypes.float32), predictions), [1, -1])
    limits = reshape(constant(list(thresholds), dtypes.float32), [-1, 1])
    positive = greater(reshape(predictions, [1, -1]), limits)
    actual = reshape(labels, [1, -1])
    values, updates = {}, {}
    for kind in kinds:
        label, prediction, name = _KINDS[kind]
        values[kind] = metric_variable([len(thresholds)], dtypes.float32, name=name)
        hits = cast(logical_and(_is(actual, label), _is(positive, prediction)), dtypes.float32)
        updates[kind] = accumulated(values[kind], reduce_sum(hits if weights is None else hits * weights, 1))
    return values, updates


def of_counts(given: Published, result: Callable[[Counts, str], Tensor], found: tuple[Counts, Counts]) -> Metric:
    """The metric whose value is ``result(variables, name)`` and whose update is ``result(updates, name)``."""
    values, updates = found
    return given.metric(lambda: result(values, "value"), result(updates, "update_op"))


def _tensors(counts: Counts) -> list[Tensor]:
    """True positives, false negatives, true negatives and false positives."""
    return [convert_to_tensor(counts[kind]) for kind in _KINDS]


def _counter_at(kind: str) -> Callable[..., Metric]:
    default_name = _KINDS[kind][2]

    @_named(f"{default_name}_at_thresholds", f"`{default_name}` for each threshold")
    @sharing(Published)
    def counted(
        given: Published,
        labels: TensorLike,
        predictions: TensorLike,
        thresholds: Sequence[float],
        weights: TensorLike | None = None,
    ) -> Metric:
        with variable_scope(given.name, default_name, (predictions, labels, weights)):
            values, updates = counts_at(labels, predictions, thresholds, weights, (kind,))
            return given.metric(lambda: identity(values[kind]), updates[kind])

    return counted


true_positives_at_thresholds, false_negatives_at_thresholds = _counter_at("tp"), _counter_at("fn")
true_negatives_at_thresholds, false_positives_at_thresholds = _counter_at("tn"), _counter_at("fp")


def _share(kind: str, default_name: str) -> Callable[..., Metric]:
    """Precision (``kind`` "fp") or recall ("fn"): true positives / (true positives + count of ``kind``)."""

    @_named(default_name, f"The {default_name} of binary predictions")
    @sharing(Published)
    def share(
        given: Published, labels: TensorLike, predictions: TensorLike, weights: TensorLike | None = None
    ) -> Metric:
        with variable_scope(given.name, default_name, (predictions, labels, weights)):
            predictions, labels, weights = matched(cast(predictions, dtypes.bool), cast(labels, dtypes.bool), weights)
            right, update_right = true_positives(labels, predictions, weights)
            wrong, update_wrong = counter(kind)(labels, predictions, weights)
            update = _part(update_right, update_wrong, "update_op")
            return given.metric(lambda: _part(right, wrong, "value"), update)

    return share


def _part(right: Tensor, wrong: Tensor, name: str) -> Tensor:
    return where(greater(right + wrong, 0), div(right, right + wrong), 0 * right, name=name)


precision, recall = _share("fp", "precision"), _share("fn", "recall")


def _share_at(kind: str, default_name: str) -> Callable[..., Metric]:
    def part(counts: Counts, result: str) -> Tensor:
        return div(counts["tp"], _EDGE + counts["tp"] + counts[kind], name=result)

    @_named(default_name, f"`{default_name.partition('_')[0]}` for each threshold")
    @sharing(Published)
    def share(
        given: Published,
        labels: TensorLike,
        predictions: TensorLike,
        thresholds: Sequence[float],
        weights: TensorLike | None = None,
    ) -> Metric:
        with variable_scope(given.name, default_name, (predictions, labels, weights)):
            return of_counts(given, part, counts_at(labels, predictions, thresholds, weights, ("tp", kind)))

    return share


precision_at_thresholds = _share_at("fp", "precision_at_thresholds")
recall_at_thresholds = _share_at("fn", "recall_at_thresholds")


def even_thresholds(count: int) -> list[float]:
    """``count`` thresholds from just below 0 to just above 1."""
    return [-_EDGE, *((i + 1) / (count - 1) for i in range(count - 2)), 1.0 + _EDGE]


@export("tf.metrics.auc")
def auc(
    labels: TensorLike,
    predictions: TensorLike,
    weights: TensorLike | None = None,
    num_thresholds: int = 200,
    metrics_collections: str | Sequence[str] | None = None,
    updates_collections: str | Sequence[str] | None = None,
    curve: str = "ROC",
    name: str | None = None,
    summation_method: str = "trapezoidal",
    thresholds: Sequence[float] | None = None,
) -> Metric:
    """The area under the ROC or precision-recall curve, as a sum over thresholds (``tf.metrics.auc``).

    Args:
      labels: bool, or castable to bool.
      predictions: values in [0, 1].
      num_thresholds: number of equidistant thresholds.
      curve: "ROC" or "PR".
      summation_method: "trapezoidal", "careful_interpolation" (for PR), "minoring" or "majoring".
      thresholds: used in place of equidistant ones.

    Raises:
      ValueError: when the curve or method is unknown.
    """
    if curve not in ("ROC", "PR"):
        raise ValueError(f"curve must be either ROC or PR, {curve} unknown")
    if summation_method not in ("trapezoidal", "careful_interpolation", "minoring", "majoring"):
        raise ValueError(f"Invalid summation_method: {summation_method}")
    limits = even_thresholds(num_thresholds)
    if thresholds is not None:
        limits = [-_EDGE, *sorted(thresholds), 1.0 + _EDGE]

    def area(counts: Counts, result: str) -> Tensor:
        if curve == "PR" and summation_method == "careful_interpolation":
            return _interpolated(counts)
        return area_of(counts, curve, summation_method, result)

    with variable_scope(name, "auc", (labels, predictions, weights)):
        found = counts_at(labels, predictions, limits, weights)
        return of_counts(Published(metrics_collections, updates_collections), area, found)


def area_of(counts: Counts, curve: str, method: str, name: str) -> Tensor:
    """The area under the curve of counts at falling shares, a sum over its thresholds; see `auc`."""
    tiny = 1e-6
    tp, fn, tn, fp = _tensors(counts)
    x = y = div(tp + tiny, tp + fn + tiny)
    if curve == "ROC":
        x = div(fp, fp + tn + tiny)
    else:
        y = div(tp + tiny, tp + fp + tiny)
    high, low = y[:-1], y[1:]
    heights = {"minoring": minimum, "majoring": maximum}.get(method, lambda a, b: (a + b) / 2.0)(high, low)
    return reduce_sum(multiply(x[:-1] - x[1:], heights), name=name)


def _interpolated(counts: Counts) -> Tensor:
    """The area under the precision-recall curve, with linear interpolation of the true positives."""
    tp, fp, fn = (convert_to_tensor(counts[kind]) for kind in ("tp", "fp", "fn"))
    step, positives = tp[:-1] - tp[1:], tp + fp
    slope = div_no_nan(step, maximum(positives[:-1] - positives[1:], 0), name="prec_slope")
    intercept = tp[1:] - multiply(slope, positives[1:])
    both = logical_and(greater(positives[:-1], 0), greater(positives[1:], 0))
    ratio = where(both, div_no_nan(positives[:-1], positives[1:]), ones_like(positives[1:]))
    parts = div_no_nan(slope * (step + intercept * log(ratio)), maximum(tp[1:] + fn[1:], 0))
    return reduce_sum(parts, name="interpolate_pr_auc")


@export("tf.metrics.sensitivity_at_specificity")
@sharing(Published)
def sensitivity_at_specificity(
    given: Published,
    labels: TensorLike,
    predictions: TensorLike,
    specificity: float,
    weights: TensorLike | None = None,
    num_thresholds: int = 200,
) -> Metric:
    """The sensitivity at the threshold whose specificity is nearest to the given one.

    ``tf.metrics.sensitivity_at_specificity``; raises ValueError for a specificity outside [0, 1].
    """

    def at_best(counts: Counts, result: str) -> Tensor:
        tp, fn, tn, fp = _tensors(counts)
        specificities = div(tn, tn + fp + _EDGE)  # TensorFlow's tiny number decides which of two equally near ones
        best = cast(argmin(absolute(specificities - specificity), 0), dtypes.int32)
        return div(tp[best], tp[best] + fn[best] + _EDGE, name=result)

    _check_share("specificity", specificity)
    with variable_scope(given.name, "sensitivity_at_specificity", (predictions, labels, weights)):
        found = counts_at(labels, predictions, even_thresholds(num_thresholds), weights)
        return of_counts(given, at_best, found)


@export("tf.metrics.specificity_at_sensitivity")
@sharing(Published)
def specificity_at_sensitivity(
    given: Published,
    labels: TensorLike,
    predictions: TensorLike,
    sensitivity: float,
    weights: TensorLike | None = None,
    num_thresholds: int = 200,
) -> Metric:
    """The specificity at the highest threshold whose sensitivity is nearest to the given one.

    ``tf.metrics.specificity_at_sensitivity``; raises ValueError for a sensitivity outside [0, 1].
    """

    def at_best(counts: Counts, result: str) -> Tensor:
        tp, fn, tn, fp = _tensors(counts)
        sensitivities = div(tp, tp + fn + _EDGE)
        # The smallest difference; among equal ones the last threshold.
        distance = absolute(sensitivities - sensitivity)
        nearest = equal(-distance, reduce_max(-distance))
        place = multiply(cast(nearest, dtypes.int64), constant(list(range(1, num_thresholds + 1)), dtypes.int64))
        best = cast(argmax(place, 0), dtypes.int32)
        return div(tn[best], tn[best] + fp[best] + _EDGE, name=result)

    _check_share("sensitivity", sensitivity)
    with variable_scope(given.name, "specificity_at_sensitivity", (predictions, labels, weights)):
        found = counts_at(labels, predictions, even_thresholds(num_thresholds), weights)
        return of_counts(given, at_best, found)


def _check_share(name: str, value: float) -> None:
    if not 0 <= value <= 1:
        raise ValueError(f"`{name}` must be in the range [0, 1].")


export_names(
    "tf.metrics",
    "false_negatives false_negatives_at_thresholds false_positives false_positives_at_thresholds precision "
    "precision_at_thresholds recall recall_at_thresholds true_negatives true_negatives_at_thresholds "
    "true_positives true_positives_at_thresholds",
)


# ---- at k ----------------------------------------
# Metrics of the ``k`` highest-ranked classes: precision, recall and average precision at k (``tf.metrics``).

_INT64, _FLOAT64 = dtypes.int64, dtypes.float64


def _ranked(predictions: TensorLike, k: int) -> Tensor:
    """The classes of the ``k`` largest predictions, ``[..., k]``."""
    if k < 1:
        raise ValueError(f"Invalid k={k}.")
    return cast(top_k(predictions, k)[1], _INT64)  # type: ignore[no-any-return]


def _as_labels(labels: TensorLike, classes: Tensor) -> Any:
    """Labels as ``[..., number]``; one label per prediction, ``[...]``, gets a last axis of length 1."""
    if isinstance(labels, SparseTensorValue):
        labels = SparseTensor.from_value(labels)
    if not isinstance(labels, SparseTensor):
        labels = cast(convert_to_tensor(labels), _INT64)
    rank, wanted = labels.get_shape().ndims, classes.shape.ndims
    if rank is None or wanted is None or rank != wanted - 1:
        return labels
    if isinstance(labels, SparseTensor):
        return sparse_reshape(labels, concat([labels.dense_shape, constant([1], _INT64)], 0))
    return expand_dims(labels, -1)


def _only(ids: TensorLike, class_id: int) -> SparseTensor:
    """The ids that equal ``class_id``, at most one per set."""
    if isinstance(ids, SparseTensor):
        return sparse_retain(ids, equal(ids.values, class_id))
    sizes = shape_of(ids, out_type=_INT64)
    one = fill(concat([sizes[:-1], constant([1], _INT64)], 0), constant(class_id, _INT64))
    found = set_intersection(one, ids)
    return SparseTensor(found.indices, found.values, sizes)


def _hits(classes: TensorLike, labels: TensorLike) -> SparseTensor:
    return set_intersection(classes, labels)


def _wrong(classes: TensorLike, labels: TensorLike) -> SparseTensor:
    return set_difference(classes, labels)


def _missed(classes: TensorLike, labels: TensorLike) -> SparseTensor:
    return set_difference(classes, labels, aminusb=False)


def _weighted(amounts: Tensor, weights: TensorLike) -> Tensor:
    if weights is None:
        return amounts
    weights = cast(convert_to_tensor(weights), _FLOAT64)
    with control_dependencies([assert_broadcastable(weights, amounts)]):
        return multiply(amounts, weights)


def _at_k_counter(
    compare: Callable[[Any, Any], SparseTensor], classes: TensorLike, labels: TensorLike, weights: TensorLike, name: str
) -> tuple[Any, Any]:
    """(variable, update) of the weighted number of classes that ``compare`` returns."""
    number = _weighted(cast(set_size(compare(classes, labels)), _FLOAT64), weights)
    variable = metric_variable([], _FLOAT64, name=name)
    return variable, accumulated(variable, reduce_sum(number))


def _at_k_share(
    given: Published,
    kind: str,
    labels: TensorLike,
    classes: TensorLike,
    k: int | None,
    class_id: int | None,
    weights: Any,
) -> Metric:
    suffix = f"_at_{'k' if k is None else k}" + ("" if class_id is None else f"_class{class_id}")
    with name_scope(given.name, kind + suffix, (classes, labels, weights)) as scope:
        classes = cast(convert_to_tensor(classes), _INT64)
        labels = _as_labels(labels, classes)
        if class_id is not None:
            labels, classes = _only(labels, class_id), _only(classes, class_id)
        other, called = (_wrong, "false_positive") if kind == "precision" else (_missed, "false_negative")
        right, more_right = _at_k_counter(_hits, classes, labels, weights, "true_positive" + suffix)
        wrong, more_wrong = _at_k_counter(other, classes, labels, weights, called + suffix)
        update = div(more_right, more_right + more_wrong, name="update")
        return given.metric(lambda: div(right, right + wrong, name=scope), update)


@export("tf.metrics.precision_at_top_k")
@sharing(Published)
def precision_at_top_k(
    given: Published, labels: TensorLike, predictions_idx: TensorLike, k: int | None = None,
    class_id: int | None = None, weights: TensorLike | None = None,
) -> Metric:  # fmt: skip
    """The fraction of predicted classes that are labels (``tf.metrics.precision_at_top_k``).

    Args:
      labels: int64 ``[..., number]``, dense or sparse, or ``[...]`` for one label per prediction.
      predictions_idx: the predicted classes, ``[..., k]``.
      k: used for names only.
      class_id: count only this class.
      weights: a scalar or ``[...]``.
    """
    return _at_k_share(given, "precision", labels, predictions_idx, k, class_id, weights)


@export("tf.metrics.recall_at_top_k")
@sharing(Published)
def recall_at_top_k(
    given: Published, labels: TensorLike, predictions_idx: TensorLike, k: int | None = None,
    class_id: int | None = None, weights: TensorLike | None = None,
) -> Metric:  # fmt: skip
    """The fraction of labels that are among the predicted classes (``tf.metrics.recall_at_top_k``)."""
    return _at_k_share(given, "recall", labels, predictions_idx, k, class_id, weights)


@export("tf.metrics.precision_at_k")
@sharing(Published)
def precision_at_k(
    given: Published, labels: TensorLike, predictions: TensorLike, k: int, class_id: int | None = None,
    weights: TensorLike | None = None,
) -> Metric:  # fmt: skip
    """`precision_at_top_k` of the ``k`` largest predictions ``[..., classes]`` (``tf.metrics.precision_at_k``)."""
    return _at_k_share(given, "precision", labels, _ranked(predictions, k), k, class_id, weights)


@export("tf.metrics.recall_at_k")
@sharing(Published)
def recall_at_k(
    given: Published, labels: TensorLike, predictions: TensorLike, k: int, class_id: int | None = None,
    weights: TensorLike | None = None,
) -> Metric:  # fmt: skip
    """`recall_at_top_k` of the ``k`` largest predictions ``[..., classes]`` (``tf.metrics.recall_at_k``)."""
    return _at_k_share(given, "recall", labels, _ranked(predictions, k), k, class_id, weights)


@export("tf.metrics.average_precision_at_k")
@sharing(Published)
def average_precision_at_k(
    given: Published, labels: TensorLike, predictions: TensorLike, k: int, weights: TensorLike | None = None
) -> Metric:
    """The mean of the average precision of the ``k`` best classes (``tf.metrics.average_precision_at_k``)."""
    with variable_scope(given.name, f"average_precision_at_{k}", (predictions, labels, weights)):
        return _mean_precision(given, labels, _ranked(predictions, k), weights)


@sharing(Published)
def average_precision_at_top_k(
    given: Published, labels: TensorLike, predictions_idx: TensorLike, weights: TensorLike | None = None
) -> Metric:
    """`average_precision_at_k` of classes that are given, best first: ``predictions_idx`` is ``[..., k]``.

    Raises:
      ValueError: when ``k`` is not known.
    """
    classes = cast(convert_to_tensor(predictions_idx), _INT64)
    if classes.shape.ndims is None:
        raise ValueError("The rank of predictions_idx must be known.")
    if classes.shape.as_list()[-1] is None:
        raise ValueError("The last dimension of predictions_idx must be known.")
    with variable_scope(given.name, f"average_precision_at_{classes.shape.as_list()[-1]}", (classes, labels, weights)):
        return _mean_precision(given, labels, classes, weights)


def _mean_precision(given: Published, labels: TensorLike, classes: Tensor, weights: TensorLike | None) -> Metric:
    k = classes.shape.as_list()[-1]
    assert k is not None  # both callers know it
    precision = _average_precision(_as_labels(labels, classes), classes, k)
    if weights is None:
        number = cast(reduce_sum(fill(shape_of(precision), constant(1.0, _FLOAT64))), _FLOAT64)
    else:
        number = reduce_sum(_weighted(fill(shape_of(precision), constant(1.0, _FLOAT64)), weights))
        precision = _weighted(precision, weights)
    most = metric_variable([], _FLOAT64, name="max")
    total = metric_variable([], _FLOAT64, name="total")
    update = div_no_nan(accumulated(total, reduce_sum(precision)), accumulated(most, number), name="update")
    return given.metric(lambda: div_no_nan(total, most, name="mean"), update)


def _average_precision(labels: TensorLike, classes: Tensor, k: int) -> Tensor:
    """The average precision of each row of classes, ``[...]``."""
    if isinstance(labels, SparseTensor):
        numbers: Any = set_size(labels)
        labels = sparse_tensor_to_dense(labels, -1, validate_indices=False)
    else:
        numbers = reduce_sum(cast(greater_equal(labels, 0), dtypes.int32), axis=-1)  # rows are padded with -1
    relevant = cast(reduce_any(equal(expand_dims(classes, -1), expand_dims(labels, -2)), axis=-1), _FLOAT64)
    precision = div(cumsum(relevant, axis=-1), constant([float(i + 1) for i in range(k)], _FLOAT64))
    return div(reduce_sum(multiply(precision, relevant), axis=-1), cast(minimum(numbers, k), _FLOAT64))


sparse_average_precision_at_k, sparse_precision_at_k = average_precision_at_k, precision_at_k


export_names("tf.metrics", "sparse_average_precision_at_k sparse_precision_at_k")
