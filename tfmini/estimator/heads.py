"""The last part of a premade estimator: from logits and labels to an `EstimatorSpec`."""

from __future__ import annotations

import abc
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tfmini import dtypes
from tfmini.core_types import TensorLike
from tfmini.estimator.columns import Column
from tfmini.estimator.model_spec import ClassificationOutput, EstimatorSpec, ModeKeys, PredictOutput, RegressionOutput
from tfmini.graph.operation import Tensor
from tfmini.graph.scoping import name_scope
from tfmini.layers import binary_metrics
from tfmini.layers.losses import Reduction, compute_weighted_loss
from tfmini.layers.metrics import accuracy, mean
from tfmini.ops.array.constant import constant
from tfmini.ops.array.filling import ones_like, zeros_like
from tfmini.ops.array.identity import cast
from tfmini.ops.array.joining import concat
from tfmini.ops.array.layout import tile
from tfmini.ops.array.shape import expand_dims, reshape, shape
from tfmini.ops.composites import SparseTensor
from tfmini.ops.math.elementwise import maximum, multiply, squared_difference, subtract, truediv
from tfmini.ops.math.reductions import argmax, reduce_sum
from tfmini.ops.math.unary import sigmoid
from tfmini.ops.nn.cross_entropy import (
    sigmoid_cross_entropy_with_logits,
    softmax,
    sparse_softmax_cross_entropy_with_logits,
)
from tfmini.ops.string_ops import as_string
from tfmini.ops.summary import scalar
from tfmini.ops.vocabulary_tables import index_table_from_tensor, index_to_string_table_from_tensor

Train = Callable[[Tensor], Any]


class Head(abc.ABC):
    """Base class of heads.

    Args:
      weight_column: name of the feature, or numeric column, with the weight of each example; None: all have weight 1.
      loss_reduction: how the examples' losses become one, of `Reduction`.

    Attributes:
      width: number of logits.
    """

    width: int

    def __init__(self, weight_column: str | Column | None, loss_reduction: str) -> None:
        Reduction.validate(loss_reduction)
        self._weight_column, self._reduction = weight_column, loss_reduction

    @abc.abstractmethod
    def predictions(self, logits: Tensor) -> dict[str, Tensor]:
        """Name -> tensor."""

    @abc.abstractmethod
    def losses(self, logits: Tensor, labels: TensorLike) -> tuple[Tensor, Tensor]:
        """(the loss of each example, the labels as numbers), both [batch, …]."""

    @abc.abstractmethod
    def metrics(self, found: Mapping[str, Tensor], labels: Tensor, weights: TensorLike | None) -> dict[str, Any]:
        """Name -> metric, but for the losses."""

    @abc.abstractmethod
    def outputs(self, found: Mapping[str, Tensor]) -> dict[str, Any]:
        """Name of a signature -> output."""

    def spec(
        self, features: Mapping[str, Any], mode: str, logits: Tensor, labels: TensorLike, train: Train
    ) -> EstimatorSpec:
        """What the model function returns; ``train`` makes the training op of a loss.

        Ops have TensorFlow's names where programs log them: ``head/weighted_loss/Sum`` and ``head/truediv``, the mean.
        """
        with name_scope(None, "head"):
            found = self.predictions(logits)
            if mode == ModeKeys.PREDICT:
                return EstimatorSpec(mode, found, export_outputs=self.outputs(found))
            losses, numbers = self.losses(logits, labels)
            weights = self._weights(features)
            loss = compute_weighted_loss(losses, weights, reduction=self._reduction)
            if mode == ModeKeys.EVAL:
                metrics = {"average_loss": mean(losses, weights=weights), **self.metrics(found, numbers, weights)}
                return EstimatorSpec(mode, found, loss, eval_metric_ops=metrics)
            averages = {}
            if self._reduction == Reduction.SUM:
                averages["average_loss"] = truediv(loss, reduce_sum(multiply(weights, ones_like(losses))))
            with name_scope(""):  # a summary's tag has the scope
                for tag, value in {"loss": loss, **averages}.items():
                    scalar(tag, value)
            return EstimatorSpec(mode, found, loss, train(loss))

    def _weights(self, features: Any) -> Any:
        column = self._weight_column
        if column is None:
            return 1.0
        value = column.dense(features) if hasattr(column, "dense") else cast(features[column], dtypes.float32)
        return reshape(value, [-1, 1])


def _column(labels: Tensor | None, width: int = 1) -> Tensor:
    """Labels as [batch, width]."""
    if labels is None:
        raise ValueError("You must provide a labels Tensor. Given: None. Your input_fn must return (features, labels).")
    if isinstance(labels, Mapping):
        raise ValueError(f"labels must be a Tensor, not a dict of {', '.join(labels)}.")
    if isinstance(labels, SparseTensor):
        raise ValueError(
            "labels must be a Tensor: SparseTensor is not supported. Give tf.sparse_tensor_to_dense(labels)."
        )
    column = expand_dims(labels, -1) if labels.get_shape().ndims == 1 else labels
    dims = column.get_shape()
    if dims.ndims and dims[-1].value not in (None, width):
        raise ValueError(
            f"Mismatched label shape. Expected labels dimension={width}. Received {dims[-1].value}: labels have the"
            f" shape {labels.get_shape()}. A classifier takes one per example, a regressor label_dimension."
        )
    return reshape(column, [-1, width])


class RegressionHead(Head):
    """Predicts numbers; the loss is the squared error."""

    def __init__(self, width: int, weight_column: str | Column | None, loss_reduction: str) -> None:
        super().__init__(weight_column, loss_reduction)
        self.width = width

    def predictions(self, logits: Tensor) -> dict[str, Tensor]:
        return {"predictions": logits}

    def losses(self, logits: Tensor, labels: Any) -> tuple[Tensor, Tensor]:
        numbers = cast(_column(labels, self.width), dtypes.float32)
        return squared_difference(logits, numbers), numbers

    def metrics(self, found: Mapping[str, Tensor], labels: Tensor, weights: TensorLike | None) -> dict[str, Any]:
        return {
            "prediction/mean": mean(found["predictions"], weights=weights),
            "label/mean": mean(labels, weights=weights),
        }

    def outputs(self, found: Mapping[str, Tensor]) -> dict[str, Any]:
        output = RegressionOutput(found["predictions"])
        return {"serving_default": output, "regression": output, "predict": PredictOutput(found)}


class _ClassHead(Head):
    vocabulary_argument = "label_vocabulary"  # what users call the labels' names

    def __init__(
        self, classes: int, weight_column: str | Column | None, vocabulary: Sequence[str] | None, loss_reduction: str
    ) -> None:
        super().__init__(weight_column, loss_reduction)
        if vocabulary is not None and len(vocabulary) != classes:
            raise ValueError(
                f"Length of {self.vocabulary_argument} must be n_classes. Given {len(vocabulary)} vs {classes}"
            )
        self._classes, self._vocabulary = classes, vocabulary

    def _numbers(self, labels: Tensor) -> Tensor:
        column = _column(labels)
        if self._vocabulary is not None:
            if column.dtype != dtypes.string:
                raise ValueError(f"Labels dtype should be string if there is a vocabulary. Instead got {column.dtype}")
            table = index_table_from_tensor(list(self._vocabulary), name="class_id_lookup")
            return table.lookup(column)  # type: ignore[no-any-return]
        if not (column.dtype.is_integer or column.dtype.is_floating or column.dtype.is_bool):
            raise ValueError(
                f"Labels dtype should be integer. Instead got {column.dtype}. Strings need {self.vocabulary_argument}."
            )
        return column

    def _named(self, probabilities: Tensor) -> dict[str, Tensor]:
        """Ids and names of the likeliest class and of all classes."""
        ids = expand_dims(argmax(probabilities, axis=-1), -1)
        every = [str(i) for i in range(self._classes)] if self._vocabulary is None else list(self._vocabulary)
        if self._vocabulary is None:
            names = as_string(ids)
        else:
            names = index_to_string_table_from_tensor(every, name="class_string_lookup").lookup(ids)
        rows = concat([shape(probabilities)[:1], [1]], 0)
        all_ids = tile(constant([list(range(self._classes))], dtypes.int32), rows)
        all_names = tile(constant([every]), rows)
        return {"class_ids": ids, "classes": names, "all_class_ids": all_ids, "all_classes": all_names}

    def outputs(self, found: Mapping[str, Tensor]) -> dict[str, Any]:
        output = ClassificationOutput(scores=found["probabilities"], classes=found["all_classes"])
        return {"serving_default": output, "classification": output, "predict": PredictOutput(found)}


class BinaryClassHead(_ClassHead):
    """Predicts one of two classes from one logit; the loss is the sigmoid's cross entropy."""

    width = 1

    def predictions(self, logits: Tensor) -> dict[str, Tensor]:
        both = softmax(concat([zeros_like(logits), logits], -1))
        return {"logits": logits, "logistic": sigmoid(logits), "probabilities": both, **self._named(both)}

    def losses(self, logits: Tensor, labels: Any) -> tuple[Tensor, Tensor]:
        numbers = cast(self._numbers(labels), dtypes.float32)
        return sigmoid_cross_entropy_with_logits(labels=numbers, logits=logits), numbers

    def outputs(self, found: Mapping[str, Tensor]) -> dict[str, Any]:
        return {**super().outputs(found), "regression": RegressionOutput(found["logistic"])}

    def metrics(self, found: Mapping[str, Tensor], labels: Tensor, weights: TensorLike | None) -> dict[str, Any]:
        logistic, ids = found["logistic"], found["class_ids"]
        label_mean, update = mean(labels, weights=weights)
        # What one reaches who always names the more frequent class.
        baseline = maximum(label_mean, subtract(1.0, label_mean)), maximum(update, subtract(1.0, update))
        wide = weights * ones_like(labels)
        return {
            "accuracy": accuracy(labels, ids, weights=wide),
            "precision": binary_metrics.precision(labels, ids, weights=wide),
            "recall": binary_metrics.recall(labels, ids, weights=wide),
            "prediction/mean": mean(logistic, weights=weights),
            "label/mean": (label_mean, update),
            "accuracy_baseline": baseline,
            "auc": binary_metrics.auc(labels, logistic, weights=wide, summation_method="careful_interpolation"),
            "auc_precision_recall": binary_metrics.auc(
                labels, logistic, weights=wide, curve="PR", summation_method="careful_interpolation"
            ),
        }


class MultiClassHead(_ClassHead):
    """Predicts one of several classes; the loss is the softmax's cross entropy."""

    @property
    def width(self) -> int:  # type: ignore[override]
        """One logit for each class."""
        return self._classes

    def predictions(self, logits: Tensor) -> dict[str, Tensor]:
        probabilities = softmax(logits)
        return {"logits": logits, "probabilities": probabilities, **self._named(probabilities)}

    def losses(self, logits: Tensor, labels: Any) -> tuple[Tensor, Tensor]:
        numbers = cast(self._numbers(labels), dtypes.int64)
        flat = sparse_softmax_cross_entropy_with_logits(labels=reshape(numbers, [-1]), logits=logits)
        return expand_dims(flat, -1), numbers

    def metrics(self, found: Mapping[str, Tensor], labels: Tensor, weights: TensorLike | None) -> dict[str, Any]:
        wide = weights * ones_like(cast(labels, dtypes.float32))
        return {"accuracy": accuracy(labels, found["class_ids"], weights=wide)}


def class_head(
    classes: int, weight_column: str | Column | None, vocabulary: Sequence[Any] | None, loss_reduction: str
) -> Head:
    """The head for a number of classes; ValueError for fewer than two."""
    if classes < 2:
        raise ValueError(f"n_classes must be at least 2, given: {classes}")
    made = BinaryClassHead if classes == 2 else MultiClassHead
    return made(classes, weight_column, vocabulary, loss_reduction)
