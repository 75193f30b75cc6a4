"""The last part of a premade estimator: from logits and labels to an `EstimatorSpec`."""

from __future__ import annotations

import abc
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tfmini import dtypes
from tfmini.core_types import TensorLike
from tfmini.estimator.columns import Column, NumericColumn
from tfmini.estimator.model_spec import ClassificationOutput, EstimatorSpec, ModeKeys, PredictOutput, RegressionOutput
from tfmini.export import export
from tfmini.graph.conversion import convert_to_tensor
from tfmini.graph.operation import Tensor
from tfmini.graph.scoping import control_dependencies, name_scope
from tfmini.layers import binary_metrics
from tfmini.layers.losses import Reduction, compute_weighted_loss
from tfmini.layers.metrics import accuracy, mean
from tfmini.ops.array.constant import constant
from tfmini.ops.array.filling import ones_like, zeros_like
from tfmini.ops.array.identity import cast, identity
from tfmini.ops.array.joining import concat
from tfmini.ops.array.layout import tile
from tfmini.ops.array.shape import expand_dims, shape, squeeze
from tfmini.ops.checks import assert_equal, assert_less_equal, assert_non_negative
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


@export("tensorflow.python.estimator.canned.prediction_keys.PredictionKeys")
class PredictionKeys:
    """The names of heads' predictions."""

    CLASSES, CLASS_IDS, ALL_CLASSES, ALL_CLASS_IDS = "classes", "class_ids", "all_classes", "all_class_ids"
    LOGISTIC, LOGITS, PREDICTIONS, PROBABILITIES, TOP_K = "logistic", "logits", "predictions", "probabilities", "top_k"


@export("tensorflow.python.estimator.canned.metric_keys.MetricKeys")
class MetricKeys:
    """The names of heads' metrics."""

    LOSS, LOSS_MEAN, LOSS_REGULARIZATION = "loss", "average_loss", "regularization_loss"
    ACCURACY, PRECISION, RECALL, ACCURACY_BASELINE = "accuracy", "precision", "recall", "accuracy_baseline"
    AUC, AUC_PR, LABEL_MEAN, PREDICTION_MEAN = "auc", "auc_precision_recall", "label/mean", "prediction/mean"
    ACCURACY_AT_THRESHOLD = "accuracy/positive_threshold_%g"
    PRECISION_AT_THRESHOLD = "precision/positive_threshold_%g"
    RECALL_AT_THRESHOLD = "recall/positive_threshold_%g"
    PROBABILITY_MEAN_AT_CLASS, PROBABILITY_MEAN_AT_NAME = "probability_mean/class%d", "probability_mean/%s"
    AUC_AT_CLASS, AUC_AT_NAME = "auc/class%d", "auc/%s"
    AUC_PR_AT_CLASS, AUC_PR_AT_NAME = "auc_precision_recall/class%d", "auc_precision_recall/%s"


class PremadeHead(abc.ABC):
    """Base class of heads.

    Args:
      weight_column: name of the feature, or numeric column, with the weight of each example; None: all have weight 1.
      loss_reduction: how the examples' losses become one, of `Reduction`.

    Attributes:
      width: number of logits.
      loss_width: number of losses of an example.
    """

    width: int
    loss_width = 1

    def __init__(self, weight_column: str | Column | None, loss_reduction: str) -> None:
        Reduction.validate(loss_reduction)
        self._weight_column, self._reduction = weight_column, loss_reduction

    @abc.abstractmethod
    def predictions(self, logits: Tensor) -> dict[str, Tensor]:
        """Name -> tensor."""

    @abc.abstractmethod
    def numbers(self, logits: Tensor, labels: TensorLike) -> Tensor:
        """The labels as numbers, [batch, …, size of a label]; ValueError for those that do not fit the logits."""

    @abc.abstractmethod
    def losses_of(self, logits: Tensor, numbers: Tensor) -> Tensor:
        """The loss of each example, [batch, …, 1], or of each number of its label."""

    @abc.abstractmethod
    def metrics(self, found: Mapping[str, Tensor], labels: Tensor, weights: TensorLike | None) -> dict[str, Any]:
        """Name -> metric, but for the losses."""

    @abc.abstractmethod
    def outputs(self, found: Mapping[str, Tensor]) -> dict[str, Any]:
        """Name of a signature -> output."""

    def losses(self, logits: Tensor, labels: TensorLike) -> tuple[Tensor, Tensor]:
        """(the loss of each example, the labels as numbers), both [batch, …]."""
        numbers = self.numbers(logits, labels)
        return self.losses_of(logits, numbers), numbers

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
            _check_batch(labels)
            losses, numbers = self.losses(logits, labels)
            weights = self.weights(features, logits)
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

    def weights(self, features: Any, logits: Tensor) -> Any:
        """The examples' weights, [batch, …, 1] or, where each number of a label has one, as the logits; 1.0 for none.

        Raises:
          TypeError: the column is no numeric one.
          ValueError: the weights are no numbers.
        """
        column = self._weight_column
        if column is None:
            return 1.0
        if not isinstance(column, (str, NumericColumn)):
            raise TypeError(f"Weight column must be either a string or NumericColumn. Given type: {type(column)}.")
        if isinstance(column, str) and column not in features:
            raise ValueError(f"Feature {column} is not in features dictionary.")
        value = convert_to_tensor(features[column] if isinstance(column, str) else column.raw(features))
        if not (value.dtype.is_floating or value.dtype.is_integer):
            raise ValueError(f"Weight column should be castable to float. Given dtype: {value.dtype}")
        return cast(with_last_axis(value, logits), dtypes.float32)


def _check_batch(labels: object) -> None:
    if isinstance(labels, Tensor) and labels.shape.ndims == 0:
        raise ValueError(
            f"The labels {labels} are those of one example, not a batch: does the dataset of input_fn lack .batch(…)?"
        )


def with_last_axis(value: Tensor, logits: Tensor) -> Tensor:
    """A tensor of one number per example, [batch, …], with a last axis of length 1; others as they are."""
    ranks = value.shape.ndims, logits.shape.ndims
    return expand_dims(value, -1) if None not in ranks and ranks[0] == ranks[1] - 1 else value  # type: ignore[operator]


def matched(labels: Any, logits: Tensor, width: int) -> Tensor:
    """Labels as [batch, …, width]; they are compared with the logits, at once or in the step."""
    if labels is None:
        raise ValueError("You must provide a labels Tensor. Given: None. Your input_fn must return (features, labels).")
    if isinstance(labels, Mapping):
        raise ValueError(f"labels must be a Tensor, not a dict of {', '.join(labels)}.")
    if isinstance(labels, SparseTensor):
        raise ValueError(
            "labels must be a Tensor: SparseTensor labels are not supported. Give tf.sparse_tensor_to_dense(labels)."
        )
    column = with_last_axis(convert_to_tensor(labels), logits)
    dims = column.get_shape()
    if dims.ndims and dims[-1].value not in (None, width):
        raise ValueError(
            f"Mismatched label shape. Expected labels dimension={width}. Received {dims[-1].value}: labels have the"
            f" shape {labels.get_shape()}. A classifier takes one per example, a regressor label_dimension."
        )
    wanted = concat([shape(logits)[:-1], [width]], 0)
    message = f"labels shape must be [D0, D1, ... DN, {width}], as the logits'."
    with control_dependencies([assert_equal(wanted, shape(column), message=message)]):
        return identity(column)


def in_range(labels: Tensor, classes: int, message: str | None = None) -> Tensor:
    """Labels that are numbers of classes; a step with others fails (InvalidArgumentError)."""
    most = assert_less_equal(
        labels, cast(classes - 1, labels.dtype), message=message or "Labels must be <= n_classes - 1"
    )
    least = assert_non_negative(labels, message=message or "Labels must be >= 0")
    with control_dependencies([most, least]):
        return identity(labels)


def names_of_classes(scores: Tensor, classes: int, vocabulary: Sequence[str] | None) -> Tensor:
    """The names of all classes for each example, [batch, classes]; those without a vocabulary are the numbers."""
    return _for_each(scores, constant([[str(i) for i in range(classes)] if vocabulary is None else list(vocabulary)]))


def _for_each(scores: Tensor, row: Tensor) -> Tensor:
    return tile(row, concat([shape(scores)[:1], [1]], 0))


class PremadeRegressionHead(PremadeHead):
    """Predicts numbers; the loss is the squared error."""

    def __init__(self, width: int, weight_column: str | Column | None, loss_reduction: str) -> None:
        super().__init__(weight_column, loss_reduction)
        self.width = self.loss_width = width

    def predictions(self, logits: Tensor) -> dict[str, Tensor]:
        return {"predictions": logits}

    def numbers(self, logits: Tensor, labels: Any) -> Tensor:
        return cast(matched(labels, logits, self.width), dtypes.float32)

    def losses_of(self, logits: Tensor, numbers: Tensor) -> Tensor:
        return squared_difference(logits, numbers)

    def metrics(self, found: Mapping[str, Tensor], labels: Tensor, weights: TensorLike | None) -> dict[str, Any]:
        return {
            "prediction/mean": mean(found["predictions"], weights=weights),
            "label/mean": mean(labels, weights=weights),
        }

    def outputs(self, found: Mapping[str, Tensor]) -> dict[str, Any]:
        output = RegressionOutput(found["predictions"])
        return {"serving_default": output, "regression": output, "predict": PredictOutput(found)}


class _ClassHead(PremadeHead):
    vocabulary_argument = "label_vocabulary"  # what users call the labels' names
    fractions = False  # whether a label may lie between two classes

    def __init__(
        self, classes: int, weight_column: str | Column | None, vocabulary: Sequence[str] | None, loss_reduction: str
    ) -> None:
        super().__init__(weight_column, loss_reduction)
        if vocabulary is not None and len(vocabulary) != classes:
            raise ValueError(
                f"Length of {self.vocabulary_argument} must be n_classes. Given {len(vocabulary)} vs {classes}"
            )
        self._classes, self._vocabulary = classes, vocabulary

    def numbers(self, logits: Tensor, labels: Any) -> Tensor:
        column = matched(labels, logits, 1)
        if self._vocabulary is not None:
            if column.dtype != dtypes.string:
                raise ValueError(f"Labels dtype should be string if there is a vocabulary. Instead got {column.dtype}")
            table = index_table_from_tensor(list(self._vocabulary), name="class_id_lookup")
            return in_range(table.lookup(column), self._classes)
        if not (column.dtype.is_integer or self.fractions and column.dtype != dtypes.string):
            raise ValueError(
                f"Labels dtype should be integer. Instead got {column.dtype}. Strings need {self.vocabulary_argument}."
            )
        return in_range(cast(column, dtypes.float32 if self.fractions else column.dtype), self._classes)

    def _named(self, probabilities: Tensor) -> dict[str, Tensor]:
        """Ids and names of the likeliest class and of all classes."""
        ids = expand_dims(argmax(probabilities, axis=-1), -1)
        if self._vocabulary is None:
            names = as_string(ids)
        else:
            names = index_to_string_table_from_tensor(list(self._vocabulary), name="class_string_lookup").lookup(ids)
        all_ids = _for_each(probabilities, constant([list(range(self._classes))], dtypes.int32))
        all_names = names_of_classes(probabilities, self._classes, self._vocabulary)
        return {"class_ids": ids, "classes": names, "all_class_ids": all_ids, "all_classes": all_names}

    def outputs(self, found: Mapping[str, Tensor]) -> dict[str, Any]:
        output = ClassificationOutput(scores=found["probabilities"], classes=found["all_classes"])
        return {"serving_default": output, "classification": output, "predict": PredictOutput(found)}


class PremadeBinaryClassHead(_ClassHead):
    """Predicts one of two classes from one logit; the loss is the sigmoid's cross entropy."""

    width, fractions = 1, True

    def predictions(self, logits: Tensor) -> dict[str, Tensor]:
        both = softmax(concat([zeros_like(logits), logits], -1))
        return {"logits": logits, "logistic": sigmoid(logits), "probabilities": both, **self._named(both)}

    def numbers(self, logits: Tensor, labels: Any) -> Tensor:
        return cast(super().numbers(logits, labels), dtypes.float32)

    def losses_of(self, logits: Tensor, numbers: Tensor) -> Tensor:
        return sigmoid_cross_entropy_with_logits(labels=numbers, logits=logits)

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
            "auc": binary_metrics.auc(labels, logistic, weights=wide),
            "auc_precision_recall": binary_metrics.auc(labels, logistic, weights=wide, curve="PR"),
        }


class PremadeMultiClassHead(_ClassHead):
    """Predicts one of several classes; the loss is the softmax's cross entropy."""

    @property
    def width(self) -> int:  # type: ignore[override]
        """One logit for each class."""
        return self._classes

    def predictions(self, logits: Tensor) -> dict[str, Tensor]:
        probabilities = softmax(logits)
        return {"logits": logits, "probabilities": probabilities, **self._named(probabilities)}

    def losses_of(self, logits: Tensor, numbers: Tensor) -> Tensor:
        classes = cast(squeeze(numbers, -1), dtypes.int64)
        return expand_dims(sparse_softmax_cross_entropy_with_logits(labels=classes, logits=logits), -1)

    def metrics(self, found: Mapping[str, Tensor], labels: Tensor, weights: TensorLike | None) -> dict[str, Any]:
        wide = weights * ones_like(cast(labels, dtypes.float32))
        return {"accuracy": accuracy(labels, found["class_ids"], weights=wide)}


def class_head(
    classes: int, weight_column: str | Column | None, vocabulary: Sequence[Any] | None, loss_reduction: str
) -> PremadeHead:
    """The head for a number of classes; ValueError for fewer than two."""
    if classes < 2:
        raise ValueError(f"n_classes must be at least 2, given: {classes}")
    made = PremadeBinaryClassHead if classes == 2 else PremadeMultiClassHead
    return made(classes, weight_column, vocabulary, loss_reduction)
