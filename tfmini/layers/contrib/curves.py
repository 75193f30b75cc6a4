"""Areas under curves, and counts at many thresholds (``tf.contrib.metrics``).

The arguments ``metrics_collections``, ``updates_collections`` and ``name`` are those of ``tf.metrics``.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import NormalDist
from typing import Any, NamedTuple

from tfmini import dtypes
from tfmini.core_types import TensorLike
from tfmini.export import export
from tfmini.graph import raw_ops
from tfmini.graph.conversion import convert_to_tensor
from tfmini.graph.names import GraphKeys
from tfmini.graph.operation import Operation, Tensor
from tfmini.graph.scoping import add_to_collections, control_dependencies
from tfmini.layers.binary_metrics import Counts, counts_at, even_thresholds, of_counts
from tfmini.layers.contrib.metrics import streaming_concat
from tfmini.layers.core import sharing
from tfmini.layers.metrics import Metric, Published, metric_variable
from tfmini.ops import control
from tfmini.ops.array.filling import linspace, ones_like, zeros
from tfmini.ops.array.gather import gather
from tfmini.ops.array.identity import cast
from tfmini.ops.array.joining import concat
from tfmini.ops.array.partition import boolean_mask
from tfmini.ops.array.shape import expand_dims, reshape, shape, size
from tfmini.ops.checks import assert_equal, assert_greater_equal, assert_less_equal
from tfmini.ops.flow.cond import cond
from tfmini.ops.math.elementwise import div_no_nan
from tfmini.ops.math.reductions import argmax, argmin, cumsum, reduce_sum
from tfmini.ops.math.search import histogram_fixed_width, top_k
from tfmini.ops.variables.assignment import assign_add
from tfmini.ops.variables.base import Variable
from tfmini.ops.variables.scope import variable_scope

_SMALL = 1e-7

# ---- counts at thresholds ------------------------------------------------------------------------------------------


@export("tf.contrib.metrics.recall_at_precision")
@sharing(Published)
def recall_at_precision(
    given: Published, labels: TensorLike, predictions: TensorLike, precision: float,
    weights: TensorLike | None = None, num_thresholds: int = 200, *, strict_mode: bool = False,
) -> Metric:  # fmt: skip
    """The recall at the threshold whose precision is nearest (``tf.contrib.metrics.recall_at_precision``).

    Args:
      precision: the precision, in [0, 1].
      strict_mode: the nearest one that is not below; 0 if there is none.
      The others are those of `tf.metrics.auc`.

    Raises:
      ValueError: when ``precision`` is outside.
    """
    if not 0 <= precision <= 1:
        raise ValueError("`precision` must be in the range [0, 1].")

    def at(counts: Counts, name: str) -> Tensor:
        tp, fn, fp = (convert_to_tensor(counts[kind]) for kind in ("tp", "fn", "fp"))
        found = raw_ops.RealDiv(tp, tp + fp + _SMALL)
        if not strict_mode:
            nearest = argmin(raw_ops.Abs(found - precision), 0)
            return raw_ops.RealDiv(tp[nearest], tp[nearest] + fn[nearest] + _SMALL, name=name)
        # Of reciprocals, the small positive differences are the largest.
        nearest = argmax(raw_ops.Reciprocal(found - (precision - _SMALL)), 0)
        recall = raw_ops.RealDiv(tp[nearest], tp[nearest] + fn[nearest] + _SMALL)
        return raw_ops.SelectV2(raw_ops.GreaterEqual(found[nearest], precision), recall, 0.0, name=name)

    with variable_scope(given.name, "recall_at_precision", (labels, predictions, weights)):
        return of_counts(given, at, counts_at(labels, predictions, even_thresholds(num_thresholds), weights))


class PrecisionRecallData(NamedTuple):
    """Numbers for each threshold, tensors ``[num_thresholds]``."""

    tp: Tensor
    fp: Tensor
    tn: Tensor
    fn: Tensor
    precision: Tensor
    recall: Tensor
    thresholds: Tensor


@export("tf.contrib.metrics.precision_recall_at_equal_thresholds")
def precision_recall_at_equal_thresholds(
    labels: Any, predictions: Any, weights: TensorLike | None = None, num_thresholds: int | None = None,
    use_locking: bool | None = None, name: str | None = None,
) -> tuple[PrecisionRecallData, Any]:  # fmt: skip
    """Counts, precision and recall at evenly spaced thresholds.

    ``tf.contrib.metrics.precision_recall_at_equal_thresholds``. It takes time for each prediction and each threshold,
    not for each pair of them.

    Args:
      labels: bools.
      predictions: floats in [0, 1], of the same shape.
      weights: floats that broadcast to ``predictions``, or None.
      num_thresholds: how many thresholds from 0 to 1, 2 at least; default: 201.
      use_locking: whether a lock protects the updates; default: True.
      name: of the variable scope.

    Returns:
      (the numbers, the update op). They are of the predictions' type.

    Raises:
      ValueError: for fewer thresholds or other shapes.
    """
    count = 201 if num_thresholds is None else num_thresholds
    if count < 2:
        raise ValueError(f"num_thresholds must be at least 2, but got {count}.")
    with variable_scope(name, "precision_recall_at_equal_thresholds", (labels, predictions, weights)):
        predictions = convert_to_tensor(predictions)
        predictions.shape.assert_is_compatible_with(convert_to_tensor(labels).shape)
        kind = predictions.dtype
        text = "predictions must be in [0, 1]"
        checks = [
            assert_greater_equal(predictions, cast(0.0, kind), message=text),
            assert_less_equal(predictions, cast(1.0, kind), message=text),
        ]
        with control_dependencies(checks):
            each = cast(labels, kind) * 1.0
        weighed = ones_like(predictions) if weights is None else cast(weights, kind) * ones_like(predictions)
        right, wrong = weighed * each, weighed * (1.0 - each)
        places = reshape(cast(raw_ops.Floor(predictions * (count - 1)), dtypes.int32), [-1])
        with variable_scope("variables"):
            kept = [metric_variable([count], dtypes.float64, name=f"{what}_buckets") for what in ("tp", "fp")]
        lock = use_locking is not False
        updates = [
            assign_add(bucket, _in_buckets(values, places, count), use_locking=lock)
            for bucket, values in zip(kept, (right, wrong))
        ]
        with control_dependencies(None):
            data = _at_thresholds([convert_to_tensor(bucket) for bucket in kept], count, kind)
        return data, control.group(*updates)


def _in_buckets(values: Tensor, places: Tensor, count: int) -> Tensor:
    return raw_ops.UnsortedSegmentSum(cast(reshape(values, [-1]), dtypes.float64), places, count)


def _at_thresholds(buckets: Sequence[Tensor], count: int, kind: Any) -> PrecisionRecallData:
    tp, fp = (cumsum(bucket, reverse=True) for bucket in buckets)
    tn, fn = fp[0] - fp, tp[0] - tp
    least = convert_to_tensor(_SMALL, tp.dtype)
    precision, recall = tp / raw_ops.Maximum(least, tp + fp), tp / raw_ops.Maximum(least, tp + fn)
    thresholds = linspace(0.0, 1.0, count)
    return PrecisionRecallData(*(cast(one, kind) for one in (tp, fp, tn, fn, precision, recall, thresholds)))


# ---- areas under curves --------------------------------------------------------------------------------------------


@export("tf.contrib.metrics.auc_using_histogram")
def auc_using_histogram(
    boolean_labels: Any, scores: Any, score_range: TensorLike, nbins: int = 100,
    collections: Sequence[str] | None = None, check_shape: bool = True, name: str | None = None,
) -> tuple[Tensor, Operation]:  # fmt: skip
    """The area under the ROC curve by histograms of scores (``tf.contrib.metrics.auc_using_histogram``).

    Args:
      boolean_labels: ``[batch]`` bools.
      scores: ``[batch]`` numbers.
      score_range: the least and the greatest score; others count as one of them.
      nbins: the number of bins.
      collections: those of the histograms' variables; default: the local variables.
      check_shape: whether each step compares the shapes.
      name: of the scope.

    Returns:
      (the area, a float32 scalar, NaN without labels of one kind; the update op).
    """
    kept_in = [GraphKeys.LOCAL_VARIABLES] if collections is None else list(collections)
    with variable_scope(name, "auc_using_histogram", [boolean_labels, scores, score_range]):
        labels, scores = convert_to_tensor(boolean_labels), convert_to_tensor(scores)
        checks = [assert_equal(shape(labels), shape(scores))] if check_shape else []
        with control_dependencies(checks):
            parts = [boolean_mask(scores, labels), boolean_mask(scores, raw_ops.LogicalNot(labels))]
        with variable_scope("hist_accumulate"):
            kept = [
                Variable(zeros([nbins]), trainable=False, collections=kept_in, name=f"hist_{what}_acc")
                for what in ("true", "false")
            ]
            counted = [cast(histogram_fixed_width(part, score_range, nbins), dtypes.float32) for part in parts]
            update = control.group(*(assign_add(*pair) for pair in zip(kept, counted)), name="update_op")
        with control_dependencies(None):
            right, wrong = (convert_to_tensor(histogram) for histogram in kept)
            above = cumsum(right, reverse=True, exclusive=True) + 0.5 * right
            area = raw_ops.RealDiv(reduce_sum(wrong * above), reduce_sum(right) * reduce_sum(wrong), name="auc")
        return area, update


def _all_of(labels: Any, predictions: Any, weights: Any) -> tuple[list[Tensor], Any]:
    """(all labels, predictions and weights, in float64, highest predictions first; the update op)."""
    predictions = convert_to_tensor(predictions)
    labels = convert_to_tensor(labels)
    predictions.shape.assert_is_compatible_with(labels.shape)
    flat_labels = reshape(cast(labels, dtypes.int64), [-1])
    text = "labels must be 0 or 1"
    checks = [
        assert_greater_equal(flat_labels, convert_to_tensor(0, dtypes.int64), message=f"{text}, at least one is < 0"),
        assert_less_equal(flat_labels, convert_to_tensor(1, dtypes.int64), message=f"{text}, at least one is > 1"),
    ]
    flat = [cast(flat_labels, dtypes.float64), reshape(cast(predictions, dtypes.float64), [-1])]
    flat.append(ones_like(flat[1]) if weights is None else _flat_weights(weights, predictions))
    names = ("concat_labels", "concat_preds", "concat_weights")
    with control_dependencies(checks):
        pairs = [streaming_concat(raw_ops.Identity(values), name=name) for values, name in zip(flat, names)]
    kept = [pair[0] for pair in pairs]
    order = top_k(kept[1], size(kept[1])).indices
    return [gather(values, order) for values in kept], control.group(*(pair[1] for pair in pairs))


def _flat_weights(weights: TensorLike, predictions: Tensor) -> Tensor:
    weighed = cast(weights, dtypes.float64) * ones_like(cast(predictions, dtypes.float64))
    return reshape(weighed, [-1])


def _has_both(labels: Tensor) -> Any:
    total = reduce_sum(labels)
    return raw_ops.LogicalAnd(raw_ops.Greater(total, 0), raw_ops.Less(total, cast(size(labels), labels.dtype)))


@export("tf.contrib.metrics.streaming_dynamic_auc")
def streaming_dynamic_auc(
    labels: TensorLike, predictions: TensorLike, curve: str = "ROC", metrics_collections: Any = (),
    updates_collections: Any = (), name: str | None = None, weights: TensorLike | None = None,
) -> tuple[Tensor, Any]:  # fmt: skip
    """The area under a curve whose thresholds are the predictions themselves.

    ``tf.contrib.metrics.streaming_dynamic_auc``. It keeps all predictions.

    Args:
      labels: 0 or 1.
      predictions: numbers of the same shape.
      curve: "ROC" or "PR".
      metrics_collections, updates_collections, name: those of ``tf.metrics``.
      weights: numbers that broadcast to the predictions, or None.

    Returns:
      (the area, a float64 scalar, 0 without labels of one kind; the update op).

    Raises:
      ValueError: for another curve or other shapes.
    """
    if curve not in ("ROC", "PR"):
        raise ValueError(f"curve must be either ROC or PR, {curve} unknown")
    with variable_scope(name, "dynamic_auc", [labels, predictions]):
        (right, ordered, weighed), update = _all_of(labels, predictions, weights)
        nothing = convert_to_tensor(0.0, dtypes.float64)
        area = cond(_has_both(right), lambda: _area(curve, right, ordered, weighed), lambda: nothing)
        add_to_collections(metrics_collections, area)
        add_to_collections(updates_collections, update)
        return area, update


def _area(curve: str, labels: Tensor, ordered: Tensor, weights: Tensor) -> Tensor:
    """The area by trapezoids between the thresholds; equal predictions are one threshold."""
    last = concat([raw_ops.NotEqual(ordered[1:], ordered[:-1]), [True]], 0)
    tp = boolean_mask(cumsum(labels * weights), last)
    fp = boolean_mask(cumsum((1.0 - labels) * weights), last)
    recall = tp / tp[-1]
    x, y = (fp / fp[-1], recall) if curve == "ROC" else (recall, tp / (tp + fp))
    start = convert_to_tensor([0.0], dtypes.float64)
    x, y = concat([start, x], 0), concat([start if curve == "ROC" else start + 1.0, y], 0)
    return reduce_sum((x[1:] - x[:-1]) * (y[1:] + y[:-1])) / 2.0


class AucData(NamedTuple):
    """An area and the interval in which it is, float32 scalars."""

    auc: Tensor
    lower: Tensor
    upper: Tensor


@export("tf.contrib.metrics.auc_with_confidence_intervals")
def auc_with_confidence_intervals(
    labels: TensorLike, predictions: TensorLike, weights: TensorLike | None = None, alpha: float = 0.95,
    logit_transformation: bool = True, metrics_collections: Any = (), updates_collections: Any = (),
    name: str | None = None,
) -> tuple[AucData, Any]:  # fmt: skip
    """The area under the ROC curve with a confidence interval, by placement values (DeLong et al., 1988).

    ``tf.contrib.metrics.auc_with_confidence_intervals``. It keeps all predictions.

    Args:
      labels: 0 or 1.
      predictions: numbers of the same shape.
      weights: numbers that broadcast to the predictions, or None.
      alpha: the probability of the interval, between 0 and 1.
      logit_transformation: whether the logarithm of the odds is taken as normally distributed, and not the area.
      metrics_collections, updates_collections, name: those of ``tf.metrics``.

    Returns:
      (the area and its interval, all 0 without labels of one kind; the update op).

    Raises:
      ValueError: for another ``alpha`` or other shapes.
    """
    if not 0 < alpha < 1:
        raise ValueError(f"alpha must be between 0 and 1; currently {alpha:.02f}")
    with variable_scope(name, "auc_with_confidence_intervals", [labels, predictions]):
        (right, ordered, weighed), update = _all_of(labels, predictions, weights)
        nothing = [convert_to_tensor(0.0, dtypes.float64)] * 3
        found = cond(
            _has_both(right), lambda: _interval(right, ordered, weighed, alpha, logit_transformation), lambda: nothing
        )
        data = AucData(*(cast(one, dtypes.float32) for one in found))
        add_to_collections(metrics_collections, data)
        add_to_collections(updates_collections, update)
        return data, update


def _interval(labels: Tensor, ordered: Tensor, weights: Tensor, alpha: float, logit: bool) -> list[Tensor]:
    """[the area, its lower and its upper bound], float64 scalars."""
    positive = raw_ops.Equal(labels, 1.0)
    negative = raw_ops.LogicalNot(positive)
    one, other = boolean_mask(ordered, positive), boolean_mask(ordered, negative)
    of_one, of_other = boolean_mask(weights, positive), boolean_mask(weights, negative)
    one, other = expand_dims(one, 1), expand_dims(other, 0)
    wins = cast(raw_ops.Greater(one, other), dtypes.float64) + 0.5 * cast(raw_ops.Equal(one, other), dtypes.float64)
    one_total, other_total = reduce_sum(of_one), reduce_sum(of_other)
    placed = reduce_sum(wins * of_other, axis=1) / other_total
    others_placed = reduce_sum(wins * expand_dims(of_one, 1), axis=0) / one_total
    area = reduce_sum(placed * of_one) / one_total
    variance = _spread(placed, area, of_one, one_total) + _spread(others_placed, area, of_other, other_total)
    half = raw_ops.Sqrt(variance) * NormalDist().inv_cdf(0.5 + alpha / 2)
    if not logit:
        return [area, area - half, area + half]
    odds = raw_ops.Log(area / (1.0 - area))
    half = div_no_nan(half, area * (1.0 - area))
    return [area, raw_ops.Sigmoid(odds - half), raw_ops.Sigmoid(odds + half)]


def _spread(placed: Tensor, area: Tensor, weights: Tensor, total: Tensor) -> Any:
    return reduce_sum(weights * raw_ops.SquaredDifference(placed, area)) / total / (total - 1.0)
