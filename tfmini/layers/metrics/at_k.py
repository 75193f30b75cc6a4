"""Metrics of the ``k`` highest-ranked classes: precision, recall and average precision at k (``tf.metrics``)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tfmini import dtypes
from tfmini.export import export, export_names
from tfmini.graph.conversion import convert_to_tensor
from tfmini.graph.operation import Tensor
from tfmini.graph.scoping import control_dependencies, name_scope
from tfmini.layers.functional import sharing
from tfmini.layers.metrics.state import Metric, Published, accumulated, metric_variable
from tfmini.layers.weight_broadcasting import assert_broadcastable
from tfmini.ops.array.casting import cast
from tfmini.ops.array.constant import constant
from tfmini.ops.array.filling import fill
from tfmini.ops.array.joining import concat
from tfmini.ops.array.shape import expand_dims
from tfmini.ops.array.shape import shape as shape_of
from tfmini.ops.math.comparison import equal, greater_equal
from tfmini.ops.math.elementwise import div, minimum, multiply
from tfmini.ops.math.reduce_functions import reduce_any, reduce_sum
from tfmini.ops.math.reductions import cumsum
from tfmini.ops.math.topk import top_k
from tfmini.ops.sparse.functions import sparse_reshape, sparse_retain, sparse_tensor_to_dense
from tfmini.ops.sparse.set_operations import set_difference, set_intersection, set_size
from tfmini.ops.sparse.sparse_tensor import SparseTensor, SparseTensorValue
from tfmini.ops.variables.scope import variable_scope

_INT64, _FLOAT64 = dtypes.int64, dtypes.float64


def _ranked(predictions: Any, k: int) -> Tensor:
    """The classes of the ``k`` largest predictions, ``[..., k]``."""
    if k < 1:
        raise ValueError(f"Invalid k={k}.")
    return cast(top_k(predictions, k)[1], _INT64)  # type: ignore[no-any-return]


def _as_labels(labels: Any, classes: Tensor) -> Any:
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


def _only(ids: Any, class_id: int) -> SparseTensor:
    """The ids that equal ``class_id``, at most one per set."""
    if isinstance(ids, SparseTensor):
        return sparse_retain(ids, equal(ids.values, class_id))
    sizes = shape_of(ids, out_type=_INT64)
    one = fill(concat([sizes[:-1], constant([1], _INT64)], 0), constant(class_id, _INT64))
    found = set_intersection(one, ids)
    return SparseTensor(found.indices, found.values, sizes)


def _hits(classes: Any, labels: Any) -> SparseTensor:
    return set_intersection(classes, labels)


def _wrong(classes: Any, labels: Any) -> SparseTensor:
    return set_difference(classes, labels)


def _missed(classes: Any, labels: Any) -> SparseTensor:
    return set_difference(classes, labels, aminusb=False)


def _weighted(amounts: Tensor, weights: Any) -> Tensor:
    if weights is None:
        return amounts
    weights = cast(convert_to_tensor(weights), _FLOAT64)
    with control_dependencies([assert_broadcastable(weights, amounts)]):
        return multiply(amounts, weights)


def _counter(
    compare: Callable[[Any, Any], SparseTensor], classes: Any, labels: Any, weights: Any, name: str
) -> tuple[Any, Any]:
    """(variable, update) of the weighted number of classes that ``compare`` returns."""
    number = _weighted(cast(set_size(compare(classes, labels)), _FLOAT64), weights)
    variable = metric_variable([], _FLOAT64, name=name)
    return variable, accumulated(variable, reduce_sum(number))


def _share(
    given: Published, kind: str, labels: Any, classes: Any, k: int | None, class_id: int | None, weights: Any
) -> Metric:
    suffix = f"_at_{'k' if k is None else k}" + ("" if class_id is None else f"_class{class_id}")
    with name_scope(given.name, kind + suffix, (classes, labels, weights)) as scope:
        classes = cast(convert_to_tensor(classes), _INT64)
        labels = _as_labels(labels, classes)
        if class_id is not None:
            labels, classes = _only(labels, class_id), _only(classes, class_id)
        other, called = (_wrong, "false_positive") if kind == "precision" else (_missed, "false_negative")
        right, more_right = _counter(_hits, classes, labels, weights, "true_positive" + suffix)
        wrong, more_wrong = _counter(other, classes, labels, weights, called + suffix)
        update = div(more_right, more_right + more_wrong, name="update")
        return given.metric(lambda: div(right, right + wrong, name=scope), update)


@export("tf.metrics.precision_at_top_k")
@sharing(Published)
def precision_at_top_k(
    given: Published, labels: Any, predictions_idx: Any, k: int | None = None, class_id: int | None = None,
    weights: Any = None,
) -> Metric:  # fmt: skip
    """The fraction of predicted classes that are labels (``tf.metrics.precision_at_top_k``).

    Args:
      labels: int64 ``[..., number]``, dense or sparse, or ``[...]`` for one label per prediction.
      predictions_idx: the predicted classes, ``[..., k]``.
      k: used for names only.
      class_id: count only this class.
      weights: a scalar or ``[...]``.
    """
    return _share(given, "precision", labels, predictions_idx, k, class_id, weights)


@export("tf.metrics.recall_at_top_k")
@sharing(Published)
def recall_at_top_k(
    given: Published, labels: Any, predictions_idx: Any, k: int | None = None, class_id: int | None = None,
    weights: Any = None,
) -> Metric:  # fmt: skip
    """The fraction of labels that are among the predicted classes (``tf.metrics.recall_at_top_k``)."""
    return _share(given, "recall", labels, predictions_idx, k, class_id, weights)


@export("tf.metrics.precision_at_k")
@sharing(Published)
def precision_at_k(
    given: Published, labels: Any, predictions: Any, k: int, class_id: int | None = None,
    weights: Any = None,
) -> Metric:  # fmt: skip
    """`precision_at_top_k` of the ``k`` largest predictions ``[..., classes]`` (``tf.metrics.precision_at_k``)."""
    return _share(given, "precision", labels, _ranked(predictions, k), k, class_id, weights)


@export("tf.metrics.recall_at_k")
@sharing(Published)
def recall_at_k(
    given: Published, labels: Any, predictions: Any, k: int, class_id: int | None = None,
    weights: Any = None,
) -> Metric:  # fmt: skip
    """`recall_at_top_k` of the ``k`` largest predictions ``[..., classes]`` (``tf.metrics.recall_at_k``)."""
    return _share(given, "recall", labels, _ranked(predictions, k), k, class_id, weights)


@export("tf.metrics.average_precision_at_k")
@sharing(Published)
def average_precision_at_k(given: Published, labels: Any, predictions: Any, k: int, weights: Any = None) -> Metric:
    """The mean of the average precision of the ``k`` best classes (``tf.metrics.average_precision_at_k``)."""
    with variable_scope(given.name, f"average_precision_at_{k}", (predictions, labels, weights)):
        return _mean_precision(given, labels, _ranked(predictions, k), weights)


@sharing(Published)
def average_precision_at_top_k(given: Published, labels: Any, predictions_idx: Any, weights: Any = None) -> Metric:
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


def _mean_precision(given: Published, labels: Any, classes: Tensor, weights: Any) -> Metric:
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
    update = div(accumulated(total, reduce_sum(precision)), accumulated(most, number), name="update")
    return given.metric(lambda: div(total, most, name="mean"), update)


def _average_precision(labels: Any, classes: Tensor, k: int) -> Tensor:
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
