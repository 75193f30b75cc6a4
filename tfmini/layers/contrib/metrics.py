"""``tf.contrib.metrics``: the metrics of ``tf.metrics`` under older names, with the predictions first."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tfmini import dtypes
from tfmini.export import export, export_names
from tfmini.graph.scoping import name_scope
from tfmini.layers.metrics import at_k, binary, means
from tfmini.ops.array.casting import cast
from tfmini.ops.math.comparison import equal
from tfmini.ops.math.reduce_functions import reduce_mean, reduce_sum

Metric = tuple[Any, Any]


def _predictions_first(metric: Callable[..., Metric]) -> Callable[..., Metric]:
    def streaming(predictions: Any, labels: Any, *args: Any, **kwargs: Any) -> Metric:
        return metric(labels, predictions, *args, **kwargs)

    streaming.__name__ = streaming.__qualname__ = f"streaming_{metric.__name__}"
    streaming.__doc__ = f"`tf.metrics.{metric.__name__}` with the predictions before the labels."
    return streaming


streaming_accuracy = _predictions_first(means.accuracy)
streaming_auc = _predictions_first(binary.auc)
streaming_false_negatives = _predictions_first(binary.false_negatives)
streaming_false_positives = _predictions_first(binary.false_positives)
streaming_mean = means.mean
streaming_mean_absolute_error = _predictions_first(means.mean_absolute_error)
streaming_mean_cosine_distance = _predictions_first(means.mean_cosine_distance)
streaming_mean_iou = _predictions_first(means.mean_iou)
streaming_mean_relative_error = _predictions_first(means.mean_relative_error)
streaming_mean_squared_error = _predictions_first(means.mean_squared_error)
streaming_mean_tensor = means.mean_tensor
streaming_percentage_less = means.percentage_below
streaming_precision = _predictions_first(binary.precision)
streaming_precision_at_thresholds = _predictions_first(binary.precision_at_thresholds)
streaming_recall = _predictions_first(binary.recall)
streaming_recall_at_thresholds = _predictions_first(binary.recall_at_thresholds)
streaming_root_mean_squared_error = _predictions_first(means.root_mean_squared_error)
streaming_sensitivity_at_specificity = _predictions_first(binary.sensitivity_at_specificity)
streaming_sparse_average_precision_at_k = _predictions_first(at_k.sparse_average_precision_at_k)
streaming_sparse_precision_at_k = _predictions_first(at_k.precision_at_k)
streaming_sparse_recall_at_k = _predictions_first(at_k.recall_at_k)
streaming_specificity_at_sensitivity = _predictions_first(binary.specificity_at_sensitivity)
streaming_true_negatives = _predictions_first(binary.true_negatives)
streaming_true_positives = _predictions_first(binary.true_positives)


@export("tf.contrib.metrics.accuracy")
def accuracy(predictions: Any, labels: Any, weights: Any = None, name: str | None = None) -> Any:
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
