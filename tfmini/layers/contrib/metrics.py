"""``tf.contrib.metrics``: those of ``tf.metrics`` under older names, with the predictions first, and more.

A metric is a pair (value, update op) over all batches. Values are float32 where nothing else is said; weights are None,
or broadcast to the predictions. The arguments ``metrics_collections``, ``updates_collections`` and ``name`` are those
of ``tf.metrics``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tfmini import dtypes
from tfmini.core_types import TensorLike
from tfmini.export import export, export_names
from tfmini.graph.conversion import convert_to_tensor
from tfmini.graph.names import GraphKeys
from tfmini.graph.operation import Tensor
from tfmini.graph.scoping import control_dependencies, name_scope
from tfmini.layers import binary_metrics, metrics
from tfmini.layers.binary_metrics import Counts, counter, counts_at, even_thresholds, of_counts
from tfmini.layers.core import sharing
from tfmini.layers.losses import broadcast_weights, matched
from tfmini.layers.metrics import Metric, Published, accumulated, confusion_matrix, mean, metric_variable
from tfmini.ops import control
from tfmini.ops.array.diagonals import diag_part
from tfmini.ops.array.filling import zeros
from tfmini.ops.array.identity import cast, identity
from tfmini.ops.array.joining import concat, stack
from tfmini.ops.array.partition import where
from tfmini.ops.array.shape import shape as shape_of
from tfmini.ops.array.shape import size
from tfmini.ops.math.comparison import equal, greater_equal, less_equal
from tfmini.ops.math.elementwise import div_no_nan, minimum
from tfmini.ops.math.reductions import reduce_max, reduce_mean, reduce_sum
from tfmini.ops.math.search import in_top_k
from tfmini.ops.math.unary import sqrt
from tfmini.ops.variables.assignment import assign
from tfmini.ops.variables.base import Variable
from tfmini.ops.variables.scope import variable_scope

_FLOAT = dtypes.float32

# ---- the metrics of ``tf.metrics`` under older names -----------------------------------------------------------------


def _predictions_first(metric: Callable[..., Metric]) -> Callable[..., Metric]:
    def streaming(predictions: TensorLike, labels: TensorLike, *args: Any, **kwargs: Any) -> Metric:
        return metric(labels, predictions, *args, **kwargs)

    streaming.__name__ = streaming.__qualname__ = f"streaming_{metric.__name__}"
    streaming.__doc__ = f"`tf.metrics.{metric.__name__}` with the predictions before the labels."
    return streaming


streaming_accuracy = _predictions_first(metrics.accuracy)
streaming_auc = _predictions_first(binary_metrics.auc)
streaming_false_negatives = _predictions_first(binary_metrics.false_negatives)
streaming_false_positives = _predictions_first(binary_metrics.false_positives)
streaming_mean = metrics.mean
streaming_mean_absolute_error = _predictions_first(metrics.mean_absolute_error)
streaming_mean_cosine_distance = _predictions_first(metrics.mean_cosine_distance)
streaming_mean_iou = _predictions_first(metrics.mean_iou)
streaming_mean_relative_error = _predictions_first(metrics.mean_relative_error)
streaming_mean_squared_error = _predictions_first(metrics.mean_squared_error)
streaming_mean_tensor = metrics.mean_tensor
streaming_percentage_less = metrics.percentage_below
streaming_precision = _predictions_first(binary_metrics.precision)
streaming_precision_at_thresholds = _predictions_first(binary_metrics.precision_at_thresholds)
streaming_recall = _predictions_first(binary_metrics.recall)
streaming_recall_at_thresholds = _predictions_first(binary_metrics.recall_at_thresholds)
streaming_root_mean_squared_error = _predictions_first(metrics.root_mean_squared_error)
streaming_sensitivity_at_specificity = _predictions_first(binary_metrics.sensitivity_at_specificity)
streaming_sparse_average_precision_at_k = _predictions_first(binary_metrics.sparse_average_precision_at_k)
streaming_sparse_precision_at_k = _predictions_first(binary_metrics.precision_at_k)
streaming_sparse_recall_at_k = _predictions_first(binary_metrics.recall_at_k)
streaming_specificity_at_sensitivity = _predictions_first(binary_metrics.specificity_at_sensitivity)
streaming_true_negatives = _predictions_first(binary_metrics.true_negatives)
streaming_true_positives = _predictions_first(binary_metrics.true_positives)


@export("tf.contrib.metrics.accuracy")
def accuracy(predictions: Any, labels: Any, weights: TensorLike | None = None, name: str | None = None) -> Any:
    """The fraction of correct predictions in one batch (``tf.contrib.metrics.accuracy``).

    Raises:
      ValueError: when labels or predictions are no integers, strings or booleans, or their types differ.
    """
    for what, value in (("Labels", labels), ("Predictions", predictions)):
        if not (value.dtype.is_integer or value.dtype in (dtypes.bool, dtypes.string)):
            raise ValueError(f"{what} should have bool, string or integer dtype, not {value.dtype!r}")
    if labels.dtype != predictions.dtype:
        raise ValueError(
            f"Dtypes of predictions and labels should match. Given: predictions ({predictions.dtype!r}) and labels"
            f" ({labels.dtype!r})"
        )
    with name_scope(name, "accuracy", [predictions, labels]):
        right = cast(equal(predictions, labels), dtypes.float32)
        if weights is None:
            return reduce_mean(right)
        return reduce_sum(right * weights) / reduce_sum(right * 0 + weights)


@export("tf.contrib.metrics.aggregate_metrics")
def aggregate_metrics(*value_update_tuples: Metric) -> tuple[list[Any], list[Any]]:
    """(list of values, list of updates) of several metrics (``tf.contrib.metrics.aggregate_metrics``)."""
    if not value_update_tuples:
        raise ValueError("Expected at least one value_tensor/update_op pair")
    return [value for value, _ in value_update_tuples], [update for _, update in value_update_tuples]


@export("tf.contrib.metrics.aggregate_metric_map")
def aggregate_metric_map(names_to_tuples: Mapping[str, Metric]) -> tuple[dict[str, Any], dict[str, Any]]:
    """(name -> value, name -> update) of several metrics (``tf.contrib.metrics.aggregate_metric_map``)."""
    values = {name: value for name, (value, _) in names_to_tuples.items()}
    return values, {name: update for name, (_, update) in names_to_tuples.items()}


export_names(
    "tf.contrib.metrics",
    "streaming_accuracy streaming_auc streaming_false_negatives streaming_false_positives streaming_mean "
    "streaming_mean_absolute_error streaming_mean_cosine_distance streaming_mean_iou streaming_mean_relative_error "
    "streaming_mean_squared_error streaming_mean_tensor streaming_percentage_less streaming_precision "
    "streaming_precision_at_thresholds streaming_recall streaming_recall_at_thresholds "
    "streaming_root_mean_squared_error streaming_sensitivity_at_specificity streaming_sparse_average_precision_at_k "
    "streaming_sparse_precision_at_k streaming_sparse_recall_at_k streaming_specificity_at_sensitivity "
    "streaming_true_negatives streaming_true_positives",
)


# ---- counts, covariance and agreement --------------------------------------------------------------------------------


@export("tf.contrib.metrics.count")
@sharing(Published)
def count(given: Published, values: TensorLike, weights: TensorLike | None = None) -> Metric:
    """The number of all values, or the sum of their weights (``tf.contrib.metrics.count``)."""
    with variable_scope(given.name, "count", (values, weights)):
        number = metric_variable([], _FLOAT, name="count")
        values = convert_to_tensor(values)
        if weights is None:
            more = cast(size(values), _FLOAT)
        else:
            values, _, weights = matched(values, None, weights)
            more = reduce_sum(broadcast_weights(cast(weights, _FLOAT), values))
        return given.metric(lambda: identity(number), accumulated(number, more))


@export("tf.contrib.metrics.streaming_covariance")
@sharing(Published)
def streaming_covariance(
    given: Published, predictions: TensorLike, labels: TensorLike, weights: TensorLike | None = None
) -> Metric:
    """The unbiased covariance of predictions and labels (``tf.contrib.metrics.streaming_covariance``).

    It is nan for a sum of weights of at most 1.

    Args:
      predictions, labels: tensors of one shape.
      weights: how often each pair counts; a scalar, or of their rank with lengths of 1 or theirs.
    """
    with variable_scope(given.name, "covariance", (predictions, labels, weights)):
        x, y, weights = matched(convert_to_tensor(predictions), convert_to_tensor(labels), weights)
        x.shape.assert_is_compatible_with(y.shape)
        names = ("count", "mean_prediction", "mean_label", "comoment")
        number, x_mean, y_mean, moment = (metric_variable([], _FLOAT, name=name) for name in names)
        x, y = cast(x, _FLOAT), cast(y, _FLOAT)
        each = x * 0 + 1.0 if weights is None else broadcast_weights(cast(weights, _FLOAT), y)
        batch = reduce_sum(each)
        batch_x, batch_y = div_no_nan(reduce_sum(x * each), batch), div_no_nan(reduce_sum(y * each), batch)
        both = number + batch
        to_x, to_y = (batch_x - x_mean) * div_no_nan(batch, both), (batch_y - y_mean) * div_no_nan(batch, both)
        own = reduce_sum((x - batch_x) * (y - batch_y) * each)
        between = (x_mean - batch_x) * (y_mean - batch_y) * div_no_nan(number * batch, both)
        with control_dependencies([to_x, to_y, own, between, both]):  # all read what was there before the batch
            steps = [accumulated(x_mean, to_x), accumulated(y_mean, to_y)]
            changed = accumulated(number, batch), accumulated(moment, own + between)
        with control_dependencies(steps):
            update = _covariance(*changed)
        return given.metric(lambda: _covariance(number, moment), update)


def _covariance(number: Tensor | Variable, moment: Tensor | Variable) -> Any:
    return where(less_equal(number, 1.0), float("nan") + 0.0 * moment, div_no_nan(moment, number - 1.0))


@export("tf.contrib.metrics.streaming_pearson_correlation")
@sharing(Published)
def streaming_pearson_correlation(
    given: Published, predictions: TensorLike, labels: TensorLike, weights: TensorLike | None = None
) -> Metric:
    """Pearson's correlation of predictions and labels (``tf.contrib.metrics.streaming_pearson_correlation``).

    The arguments are those of `streaming_covariance`.
    """
    with variable_scope(given.name, "pearson_r", (predictions, labels, weights)):
        x, y = convert_to_tensor(predictions), convert_to_tensor(labels)
        pairs = ((x, y, "covariance"), (x, x, "variance_predictions"), (y, y, "variance_labels"))
        found = [streaming_covariance(a, b, weights, name=name) for a, b, name in pairs]
        values, updates = zip(*found)
        update = _correlation(*updates)
        return given.metric(lambda: _correlation(*values), update)


def _correlation(both: Tensor, one: Tensor, other: Tensor) -> Any:
    return both / (sqrt(one) * sqrt(other))


@export("tf.contrib.metrics.cohen_kappa")
@sharing(Published)
def cohen_kappa(
    given: Published, labels: TensorLike, predictions_idx: TensorLike, num_classes: int,
    weights: TensorLike | None = None,
) -> Metric:  # fmt: skip
    """Cohen's kappa: how much two classifications agree beyond chance (``tf.contrib.metrics.cohen_kappa``).

    Args:
      labels, predictions_idx: ints, [batch].
      num_classes: how many classes, 2 or more.
      weights: [batch].

    Returns:
      (kappa, update op), float64; 0 where chance alone explains all.

    Raises:
      ValueError: when there are less than two classes.
    """
    if num_classes < 2:
        raise ValueError(f"`num_classes` must be >= 2.Found: {num_classes}")
    with variable_scope(given.name, "cohen_kappa", (labels, predictions_idx, weights)):
        labels, predictions_idx = convert_to_tensor(labels), convert_to_tensor(predictions_idx)
        predictions_idx.shape.assert_is_compatible_with(labels.shape)
        kind = dtypes.int64 if weights is None else _FLOAT
        matrix = confusion_matrix(labels, predictions_idx, num_classes, kind, weights=weights)
        parts = (diag_part(matrix), reduce_sum(matrix, 0), reduce_sum(matrix, 1))
        kept = [metric_variable([num_classes], kind, name=name) for name in ("po", "pe_row", "pe_col")]
        update = _kappa(*(accumulated(variable, part) for variable, part in zip(kept, parts)))
        return given.metric(lambda: _kappa(*kept), update)


def _kappa(agreed: Any, rows: Any, columns: Any) -> Any:
    total = cast(reduce_sum(rows), dtypes.float64)
    chance = div_no_nan(reduce_sum(cast(rows * columns, dtypes.float64)), total)
    return div_no_nan(cast(reduce_sum(agreed), dtypes.float64) - chance, total - chance)


# ---- rates, and the points of curves ---------------------------------------------------------------------------------


def _rate(wrong: str, right: str, what: str) -> tuple[Callable[..., Metric], Callable[..., Metric]]:
    """(the share of the count ``wrong`` in ``wrong + right``, the same for each threshold)."""

    @sharing(Published)
    def rate(
        given: Published, predictions: TensorLike, labels: TensorLike, weights: TensorLike | None = None
    ) -> Metric:
        with variable_scope(given.name, what, (predictions, labels, weights)):
            values, updates = zip(*(counter(kind)(labels, predictions, weights) for kind in (wrong, right)))
            update = _share_of(*updates)
            return given.metric(lambda: _share_of(*values), update)

    @sharing(Published)
    def rate_at(
        given: Published, predictions: TensorLike, labels: TensorLike, thresholds: Sequence[float],
        weights: TensorLike | None = None,
    ) -> Metric:  # fmt: skip
        def part(counts: Counts, _: str) -> Any:
            return counts[wrong] / (1e-7 + counts[wrong] + counts[right])

        with variable_scope(given.name, f"{what}_at_thresholds", (predictions, labels, weights)):
            return of_counts(given, part, counts_at(labels, predictions, thresholds, weights, (wrong, right)))

    rate.__name__, rate_at.__name__ = f"streaming_{what}", f"streaming_{what}_at_thresholds"
    rate.__doc__ = f"The {what.replace('_', ' ')} of binary predictions (``tf.contrib.metrics.{rate.__name__}``)."
    rate_at.__doc__ = f"`{rate.__name__}` for each threshold (``tf.contrib.metrics.{rate_at.__name__}``)."
    return rate, rate_at


def _share_of(part: Tensor, rest: Tensor) -> Any:
    return div_no_nan(part, part + rest)


streaming_false_positive_rate, streaming_false_positive_rate_at_thresholds = _rate("fp", "tn", "false_positive_rate")
streaming_false_negative_rate, streaming_false_negative_rate_at_thresholds = _rate("fn", "tp", "false_negative_rate")


def _counts_above(kind: str, what: str) -> Callable[..., Metric]:
    def counted(
        predictions: TensorLike, labels: TensorLike, thresholds: Sequence[float], weights: TensorLike | None = None
    ) -> Metric:
        values, updates = counts_at(labels, predictions, thresholds, weights, (kind,))
        return convert_to_tensor(values[kind]), updates[kind]

    counted.__name__ = f"streaming_{what}_at_thresholds"
    counted.__doc__ = f"`tf.metrics.{what}` for each threshold (``tf.contrib.metrics.{counted.__name__}``)."
    return counted


streaming_true_positives_at_thresholds = _counts_above("tp", "true_positives")
streaming_false_negatives_at_thresholds = _counts_above("fn", "false_negatives")
streaming_true_negatives_at_thresholds = _counts_above("tn", "true_negatives")
streaming_false_positives_at_thresholds = _counts_above("fp", "false_positives")
export_names(
    "tf.contrib.metrics",
    "streaming_false_negative_rate streaming_false_negative_rate_at_thresholds streaming_false_negatives_at_thresholds "
    "streaming_false_positive_rate streaming_false_positive_rate_at_thresholds streaming_false_positives_at_thresholds "
    "streaming_true_negatives_at_thresholds streaming_true_positives_at_thresholds",
)


@export("tf.contrib.metrics.streaming_curve_points")
@sharing(Published, before={"curve": "name"})
def streaming_curve_points(
    given: Published, labels: Any = None, predictions: Any = None, weights: TensorLike | None = None,
    num_thresholds: int = 200, *, curve: str = "ROC",
) -> Metric:  # fmt: skip
    """The points of a curve, [thresholds, 2] (``tf.contrib.metrics.streaming_curve_points``).

    Args:
      curve: "ROC" (false positive rate, recall) or "PR" (recall, precision).
      The others are those of `tf.metrics.auc`.
    """
    if curve not in ("ROC", "PR"):
        raise ValueError(f"curve must be either ROC or PR, {curve} unknown")

    def points(counts: Counts) -> Any:
        tp, fn, tn, fp = (convert_to_tensor(counts[kind]) for kind in ("tp", "fn", "tn", "fp"))
        recall = (tp + 1e-7) / (tp + fn + 1e-7)
        if curve == "ROC":
            return stack([fp / (fp + tn + 1e-7), recall], 1)
        return stack([recall, (tp + 1e-7) / (tp + fp + 1e-7)], 1)

    with variable_scope(given.name, "curve_points", (labels, predictions, weights)):
        values, updates = counts_at(labels, predictions, even_thresholds(num_thresholds), weights)
        return given.metric(lambda: points(values), control.group(*updates.values()))  # type: ignore[arg-type]


@export("tf.contrib.metrics.f1_score")
@sharing(Published)
def f1_score(
    given: Published, labels: TensorLike, predictions: TensorLike, weights: TensorLike | None = None,
    num_thresholds: int = 200,
) -> Metric:  # fmt: skip
    """The best F1 score of all thresholds (``tf.contrib.metrics.f1_score``).

    The arguments are those of `tf.metrics.auc`.
    """

    def best(counts: Counts, name: str) -> Tensor:
        precision = counts["tp"] / (1e-8 + counts["tp"] + counts["fp"])
        recall = counts["tp"] / (1e-8 + counts["tp"] + counts["fn"])
        return reduce_max(2.0 * precision * recall / (precision + recall + 1e-8), name=name)

    with variable_scope(given.name, "f1", (labels, predictions, weights)):
        return of_counts(given, best, counts_at(
            labels, predictions, even_thresholds(num_thresholds), weights, ("tp", "fp", "fn")
        ))  # fmt: skip


@export("tf.contrib.metrics.precision_at_recall")
@sharing(Published)
def precision_at_recall(
    given: Published, labels: TensorLike, predictions: TensorLike, target_recall: float,
    weights: TensorLike | None = None, num_thresholds: int = 200,
) -> Metric:  # fmt: skip
    """The precision at the highest threshold whose recall is enough (``tf.contrib.metrics.precision_at_recall``).

    Args:
      target_recall: in [0, 1].
      The others are those of `tf.metrics.auc`.

    Raises:
      ValueError: when ``target_recall`` is outside.
    """
    if not 0 <= target_recall <= 1:
        raise ValueError("`target_recall` must be in the range [0, 1].")

    def at(counts: Counts, _: str) -> Any:
        tp, fn, fp = (convert_to_tensor(counts[kind]) for kind in ("tp", "fn", "fp"))
        tp += 1e-7  # without any, recall and precision are 1
        # Recalls fall along the thresholds, from 1.
        last = reduce_sum(cast(greater_equal(tp / (tp + fn), target_recall), dtypes.int32)) - 1
        return tp[last] / (tp[last] + fp[last])

    with variable_scope(given.name, "precision_at_recall", (labels, predictions, weights)):
        return of_counts(given, at, counts_at(labels, predictions, even_thresholds(num_thresholds), weights))


@export("tf.contrib.metrics.streaming_recall_at_k")
@sharing(Published)
def streaming_recall_at_k(
    given: Published, predictions: TensorLike, labels: TensorLike, k: int, weights: TensorLike | None = None
) -> Metric:
    """The share of labels among the ``k`` largest predictions (``tf.contrib.metrics.streaming_recall_at_k``).

    Args:
      predictions: [batch, classes].
      labels: [batch] ints.
    """
    hits = cast(in_top_k(predictions, labels, k), _FLOAT)
    return mean(hits, weights, **given.as_dict(f"recall_at_{k}"))


@export("tf.contrib.metrics.sparse_recall_at_top_k")
@sharing(Published)
def sparse_recall_at_top_k(
    given: Published, labels: TensorLike, top_k_predictions: TensorLike, class_id: int | None = None,
    weights: TensorLike | None = None,
) -> Metric:  # fmt: skip
    """`tf.metrics.recall_at_top_k` without ``k`` (``tf.contrib.metrics.sparse_recall_at_top_k``)."""
    return binary_metrics.recall_at_top_k(labels, top_k_predictions, class_id=class_id, weights=weights, **vars(given))


@export("tf.contrib.metrics.streaming_sparse_precision_at_top_k")
@sharing(Published)
def streaming_sparse_precision_at_top_k(
    given: Published, top_k_predictions: TensorLike, labels: TensorLike, class_id: int | None = None,
    weights: TensorLike | None = None,
) -> Metric:  # fmt: skip
    """`tf.metrics.precision_at_top_k` with the predictions first.

    ``tf.contrib.metrics.streaming_sparse_precision_at_top_k``.
    """
    return binary_metrics.precision_at_top_k(
        labels, top_k_predictions, class_id=class_id, weights=weights, **vars(given)
    )


@export("tf.contrib.metrics.streaming_sparse_average_precision_at_top_k")
@sharing(Published)
def streaming_sparse_average_precision_at_top_k(
    given: Published, top_k_predictions: TensorLike, labels: TensorLike, weights: TensorLike | None = None
) -> Metric:
    """The mean average precision of classes, best first, as `tf.metrics.average_precision_at_k`.

    ``tf.contrib.metrics.streaming_sparse_average_precision_at_top_k``.

    Raises:
      ValueError: when the number of the predictions' classes is not known.
    """
    return binary_metrics.average_precision_at_top_k(labels, top_k_predictions, weights, **vars(given))


@export("tf.contrib.metrics.streaming_concat")
@sharing(Published)
def streaming_concat(given: Published, values: TensorLike, axis: int = 0, max_size: int | None = None) -> Metric:
    """All values, one after the other along an axis (``tf.contrib.metrics.streaming_concat``).

    Args:
      values: a tensor whose lengths are known along the other axes.
      max_size: how many are kept; None: all.

    Raises:
      ValueError: when a length is not known, or there is no such axis.
    """
    with variable_scope(given.name, "streaming_concat", (values,)):
        values = convert_to_tensor(values)
        rank = values.shape.ndims
        if rank is None:
            raise ValueError("`values` must have known statically known rank")
        if not -rank <= axis < rank:
            raise ValueError(f"axis = {axis} not in [0, {rank})")
        axis %= rank
        sizes = values.shape.as_list()
        if any(length is None for i, length in enumerate(sizes) if i != axis):
            raise ValueError("all dimensions of `values` other than the dimension to concatenate along must have"
                             " statically known size")  # fmt: skip
        first = [0 if i == axis else length for i, length in enumerate(sizes)]
        kept = Variable(
            lambda: zeros(first, values.dtype), trainable=False, validate_shape=False, name="array",
            collections=[GraphKeys.LOCAL_VARIABLES, GraphKeys.METRIC_VARIABLES],
        )  # fmt: skip
        before = identity(kept)
        before.set_shape([None if i == axis else length for i, length in enumerate(sizes)])
        room = shape_of(values)[axis] if max_size is None else minimum(
            shape_of(values)[axis], max_size - shape_of(before)[axis]
        )  # fmt: skip
        part = values[tuple(slice(0, room) if i == axis else slice(None) for i in range(rank))]
        update = assign(kept, concat([before, part], axis), validate_shape=False)

        def value() -> Tensor:
            found = identity(kept)
            found.set_shape([None if i == axis else length for i, length in enumerate(sizes)])
            return found

        with control_dependencies([update]):
            size = shape_of(update)[axis]
        return given.metric(value, size)
