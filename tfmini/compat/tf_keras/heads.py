"""The heads of ``tf.estimator``, whose metrics are those of ``tf.keras``: from logits and labels to an EstimatorSpec.

What they predict, their losses and what they export is that of the premade estimators' heads
(`tfmini.estimator.heads`), which a head of this module holds.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tfmini import dtypes
from tfmini.compat.internal_names import fn_args
from tfmini.compat.tf_keras.library import library
from tfmini.compat.tf_keras.optimizer_v2 import Optimizer
from tfmini.core_types import TensorLike
from tfmini.estimator import heads
from tfmini.estimator.columns import Column
from tfmini.estimator.model_spec import ClassificationOutput, EstimatorSpec, ModeKeys, PredictOutput
from tfmini.estimator.tpu_estimator import TPUEstimatorSpec
from tfmini.export import export
from tfmini.graph.conversion import convert_to_tensor
from tfmini.graph.operation import Tensor
from tfmini.graph.scoping import control_dependencies, name_scope
from tfmini.layers.losses import Reduction, broadcast_weights, compute_weighted_loss, sigmoid_cross_entropy
from tfmini.ops.array.identity import cast, identity
from tfmini.ops.array.joining import concat
from tfmini.ops.array.shape import shape
from tfmini.ops.checks import assert_equal
from tfmini.ops.composites import SparseTensor
from tfmini.ops.control import group, no_op
from tfmini.ops.math.elementwise import maximum
from tfmini.ops.math.reductions import reduce_mean
from tfmini.ops.math.sums import add_n
from tfmini.ops.math.unary import exp, sigmoid
from tfmini.ops.nn.cross_entropy import log_poisson_loss, sigmoid_cross_entropy_with_logits
from tfmini.ops.sparse.functions import sparse_to_indicator
from tfmini.ops.summary import scalar
from tfmini.ops.vocabulary_tables import index_table_from_tensor

_SUM_OVER_BATCH_SIZE = "sum_over_batch_size"
# tf.keras's names of reductions, which a head takes.
_REDUCTIONS = {
    "auto": Reduction.SUM_OVER_BATCH_SIZE, _SUM_OVER_BATCH_SIZE: Reduction.SUM_OVER_BATCH_SIZE, "sum": Reduction.SUM,
}  # fmt: skip
REGULARIZATION = "regularization_loss"
LossFn = Callable[..., Any]
Losses = Sequence[Tensor] | None


@export("tf.estimator.Head")
class Head(abc.ABC):
    """The end of a model (``tf.estimator.Head``): predictions, loss, metrics and the EstimatorSpec of its logits.

    A class of a program gives the abstract ones, and `create_estimator_spec`.
    """

    @property
    @abc.abstractmethod
    def name(self) -> str | None:
        """What names of metrics and summaries end with, after a slash; None: nothing."""

    @property
    @abc.abstractmethod
    def logits_dimension(self) -> int:
        """The size of the logits' last axis."""

    @property
    @abc.abstractmethod
    def loss_reduction(self) -> str:
        """How the examples' losses become one."""

    @abc.abstractmethod
    def loss(
        self, labels: Any, logits: Any, features: Any = None, mode: str | None = None,
        regularization_losses: Losses = None,
    ) -> Tensor:  # fmt: skip
        """The scalar loss with the regularization losses."""

    @abc.abstractmethod
    def predictions(self, logits: Any) -> dict[Any, Tensor]:
        """Name -> tensor."""

    @abc.abstractmethod
    def metrics(self, regularization_losses: Losses = None) -> dict[str, Any]:
        """Name -> new metric of ``tf.keras.metrics``."""

    @abc.abstractmethod
    def update_metrics(
        self, eval_metrics: dict[str, Any], features: Any, logits: Any, labels: Any,
        regularization_losses: Losses = None,
    ) -> dict[str, Any]:  # fmt: skip
        """Adds a batch to metrics that `metrics` made, and returns them."""

    def create_estimator_spec(
        self, features: Any, mode: str, logits: Any, labels: Any = None, optimizer: Optimizer | None = None,
        trainable_variables: Sequence[Any] | None = None, train_op_fn: Callable[[Tensor], Any] | None = None,
        update_ops: Sequence[Any] | None = None, regularization_losses: Losses = None,
    ) -> EstimatorSpec:  # fmt: skip
        """What a model function returns (``tf.estimator.Head.create_estimator_spec``).

        Args:
          features: name -> tensor; the weights are among them.
          mode: one of `ModeKeys`.
          logits: floats [batch, …, logits_dimension].
          labels: what `loss` takes; not needed to predict.
          optimizer: one of ``tf.keras.optimizers``, for training with ``trainable_variables``; or
          train_op_fn: makes the training op of a loss.
          update_ops: ops to run with the training op.
          regularization_losses: scalars to add to the loss.

        Raises:
          ValueError: to train, both or none of optimizer and train_op_fn are given, or one is of another kind.
        """
        return self._create_tpu_estimator_spec(
            features, mode, logits, labels, optimizer, trainable_variables, train_op_fn, update_ops,
            regularization_losses,
        ).as_estimator_spec()  # fmt: skip

    def _create_tpu_estimator_spec(self, *arguments: Any, **named: Any) -> TPUEstimatorSpec:
        raise NotImplementedError(
            "Subclasses of Head must implement create_estimator_spec() or _create_tpu_estimator_spec()."
        )

    def _key(self, key: str) -> str:
        return f"{key}/{self.name}" if self.name else key


# ---- What heads check and share --------------------------------------------------------------------------------------


def _check_loss_fn(loss_fn: LossFn | None) -> None:
    if loss_fn is None:
        return
    names = fn_args(loss_fn)
    for required in ("labels", "logits"):
        if required not in names:
            raise ValueError(f"loss_fn must contain argument: {required}. Given arguments: {names}")
    others = sorted({*names} - {"labels", "logits", "features", "loss_reduction"})
    if others:
        raise ValueError(f"loss_fn has unexpected args: {others}")


def _checked_thresholds(thresholds: Sequence[float] | None) -> tuple[float, ...]:
    found = tuple(thresholds or ())
    for threshold in found:
        if not 0.0 < threshold < 1.0:
            raise ValueError(f"thresholds not in (0, 1) range: {found}.")
    return found


def _check_vocabulary(vocabulary: Sequence[str] | None, classes: int) -> None:
    if vocabulary is None:
        return
    if not isinstance(vocabulary, (list, tuple)):
        raise ValueError(f"label_vocabulary must be a list or tuple. Given type: {type(vocabulary)}")
    if len(vocabulary) != classes:
        raise ValueError(
            f'"label_vocabulary" does not have "n_classes" items. len(label_vocabulary)={len(vocabulary)},'
            f" n_classes={classes}, label_vocabulary={vocabulary}"
        )


def checked_logits(logits: Any, width: int) -> Tensor:
    """Logits as float32 [batch, …, width]; ValueError for others, in the step where the shape is not known before."""
    with name_scope(None, "logits", [logits]):
        floats: Tensor = cast(convert_to_tensor(logits), dtypes.float32)
        found = floats.shape
        message = "logits shape must be [D0, D1, ... DN, logits_dimension]"
        if found.ndims is not None and (found.ndims < 2 or found[-1].value not in (None, width)):
            raise ValueError(f"{message}, got {found}, and the logits_dimension is {width}.")
        if found.ndims is not None and found[-1].value == width:
            return floats
        with control_dependencies([assert_equal(width, shape(floats)[-1], message=message)]):
            return identity(floats)


def train_op(
    loss: Tensor, reduction: str, optimizer: Optimizer | None, trainable_variables: Sequence[Any] | None,
    train_op_fn: Callable[[Tensor], Any] | None, update_ops: Sequence[Any] | None,
) -> Any:  # fmt: skip
    """The op of a step of training; see `Head.create_estimator_spec`."""
    for what, value in {"update_ops": update_ops, "trainable_variables": trainable_variables}.items():
        if value is not None and not isinstance(value, (list, tuple)):
            raise ValueError(f"{what} should be a list or a tuple. Given type: {type(value)}.")
    with name_scope(""), name_scope("training"):
        made = _step(loss, optimizer, trainable_variables, train_op_fn)
        return made if update_ops is None else group(made, *update_ops)


def _step(loss: Tensor, optimizer: Any, variables: Sequence[Any] | None, train_op_fn: Any) -> Any:
    if optimizer is not None and train_op_fn is not None:
        raise ValueError("train_op_fn and optimizer cannot both be set.")
    if train_op_fn is not None:
        return train_op_fn(loss)
    if optimizer is None:
        raise ValueError("train_op_fn and optimizer cannot both be None.")
    if not isinstance(optimizer, Optimizer):
        raise ValueError(
            f"The given optimizer is not a tf.keras.optimizers.Optimizer instance. Given: {optimizer}. One of tf.train"
            " trains by train_op_fn=lambda loss: optimizer.minimize(loss, tf.train.get_global_step())."
        )
    if variables is None:
        raise ValueError("trainable_variables cannot be None. Give tf.trainable_variables().")
    return optimizer.get_updates(loss, variables)[0]


def summarize(loss: Tensor, regularization_losses: Losses, key: Callable[[str], str]) -> None:
    """Summaries of the loss and of the regularization losses' sum."""
    with name_scope(""):
        scalar(key("loss"), loss)
        if regularization_losses is not None:
            scalar(key(REGULARIZATION), add_n(regularization_losses))


def regularized(loss: Tensor, regularization_losses: Losses) -> Tensor:
    """A loss and the regularization losses."""
    return loss if regularization_losses is None else loss + add_n(regularization_losses)


def mean_metric(key: str) -> Any:
    """A new ``tf.keras.metrics.Mean``."""
    return library().metrics.Mean(name=key)


# ---- The heads -------------------------------------------------------------------------------------------------------


class OneHead(Head):
    """A head with one loss around a head of the premade estimators, which has the same predictions and outputs.

    Args:
      core: the head of `tfmini.estimator.heads`.
      loss_reduction: "sum" or "sum_over_batch_size".
      loss_fn: in the place of the core's; a function of labels, logits and, if it takes them, features, which
        returns the losses [batch, …, size of a label].
      name: of the head.
    """

    def __init__(self, core: heads.PremadeHead, loss_reduction: str, loss_fn: LossFn | None, name: str | None) -> None:
        if loss_reduction not in _REDUCTIONS:
            raise ValueError(
                f"Invalid loss_reduction: {loss_reduction}. See `tf.keras.losses.Reduction`: 'sum' and"
                f" {_SUM_OVER_BATCH_SIZE!r}."
            )
        _check_loss_fn(loss_fn)
        self._core, self._loss_reduction, self._loss_fn, self._name = core, loss_reduction, loss_fn, name

    @property
    def name(self) -> str | None:
        return self._name

    @property
    def logits_dimension(self) -> int:
        return self._core.width

    @property
    def loss_reduction(self) -> str:
        return self._loss_reduction

    def _losses(self, labels: Any, logits: Tensor, features: Any) -> tuple[Tensor, Tensor, Any]:
        """(the losses, the labels as numbers, the weights)."""
        numbers = self._core.numbers(logits, labels)
        losses = self._called(numbers, logits, features) if self._loss_fn else self._core.losses_of(logits, numbers)
        return losses, numbers, self._core.weights(features or {}, logits)

    def _called(self, labels: Tensor, logits: Tensor, features: Any) -> Tensor:
        assert self._loss_fn is not None
        given = {"features": features} if "features" in fn_args(self._loss_fn) else {}
        losses = self._loss_fn(labels=labels, logits=logits, **given)
        wanted = concat([shape(logits)[:-1], [self._core.loss_width]], 0)
        message = f"loss_fn must return Tensor of shape [D0, D1, ... DN, {self._core.loss_width}]."
        with control_dependencies([assert_equal(wanted, shape(losses), message=message)]):
            return identity(losses)

    def loss(
        self, labels: Any, logits: Any, features: Any = None, mode: str | None = None,
        regularization_losses: Losses = None,
    ) -> Tensor:  # fmt: skip
        with name_scope(None, "losses"):
            losses, _, weights = self._losses(labels, checked_logits(logits, self.logits_dimension), features)
            reduction = _REDUCTIONS[self._loss_reduction]
            loss = compute_weighted_loss(losses, weights, loss_collection=None, reduction=reduction)
            return regularized(loss, regularization_losses)

    def predictions(self, logits: Any, keys: Sequence[str] | None = None) -> dict[str, Tensor]:
        logits = checked_logits(logits, self.logits_dimension)
        with name_scope(None, "predictions", [logits]):
            found = self._found(logits)
        for key in keys or ():
            if key not in found:
                raise ValueError(
                    f"Prediction key must be in PredictionKeys, given: {key}. Valid prediction keys include"
                    f" {list(found)}."
                )
        return {key: found[key] for key in keys or found}

    def _found(self, logits: Tensor) -> dict[str, Tensor]:
        return self._core.predictions(logits)

    def _kinds(self) -> dict[str, tuple[str, dict[str, Any]]]:
        """Name of a metric -> (its class in ``tf.keras.metrics``, arguments), but for the losses."""
        raise NotImplementedError

    def _seen(self, found: Mapping[str, Tensor], numbers: Tensor) -> dict[str, tuple[Tensor, ...]]:
        """Name of a metric -> the values that it takes, but for the losses."""
        raise NotImplementedError

    def metrics(self, regularization_losses: Losses = None) -> dict[str, Any]:
        kinds = {"average_loss": ("Mean", {}), **self._kinds()}
        if regularization_losses is not None:
            kinds[REGULARIZATION] = ("Mean", {})
        classes = library().metrics
        with name_scope(None, "metrics"):
            return {self._key(key): getattr(classes, kind)(name=key, **more) for key, (kind, more) in kinds.items()}

    def update_metrics(
        self, eval_metrics: dict[str, Any], features: Any, logits: Any, labels: Any,
        regularization_losses: Losses = None,
    ) -> dict[str, Any]:  # fmt: skip
        logits = checked_logits(logits, self.logits_dimension)
        losses, numbers, weights = self._losses(labels, logits, features)
        eval_metrics[self._key("average_loss")].update_state(losses, sample_weight=weights)
        for key, values in self._seen(self.predictions(logits), numbers).items():
            wide = self._kinds()[key][0] in ("Mean", "AUC")
            values = tuple(cast(value, dtypes.float32) for value in values)
            each = broadcast_weights(weights, values[-1]) if wide else weights
            eval_metrics[self._key(key)].update_state(*values, sample_weight=each)
        if regularization_losses is not None:
            eval_metrics[self._key(REGULARIZATION)].update_state(add_n(regularization_losses))
        return eval_metrics

    def _create_tpu_estimator_spec(
        self, features: Any, mode: str, logits: Any, labels: Any = None, optimizer: Optimizer | None = None,
        trainable_variables: Sequence[Any] | None = None, train_op_fn: Callable[[Tensor], Any] | None = None,
        update_ops: Sequence[Any] | None = None, regularization_losses: Losses = None,
    ) -> TPUEstimatorSpec:  # fmt: skip
        with name_scope(self._name, "head"):
            found = self.predictions(logits)
            if mode == ModeKeys.PREDICT:
                return TPUEstimatorSpec(mode, found, export_outputs=self._core.outputs(found))
            loss = self.loss(labels, logits, features, mode, regularization_losses)
            if mode == ModeKeys.EVAL:
                call = self._evaluation(features, logits, labels, regularization_losses)
                return TPUEstimatorSpec(mode, found, loss, eval_metrics=call)
            step = train_op(
                loss, self._loss_reduction, optimizer, trainable_variables, train_op_fn, update_ops
            )  # fmt: skip
        summarize(loss, regularization_losses, self._key)
        return TPUEstimatorSpec(mode, found, loss, step)

    def _evaluation(self, features: Any, logits: Any, labels: Any, regularization_losses: Losses) -> Any:
        """(the function that updates new metrics, its tensors by name)."""
        metrics = self.metrics(regularization_losses)

        def update(**tensors: Any) -> dict[str, Any]:
            given = {"labels": labels, **tensors}
            return self.update_metrics(metrics, features, given["logits"], given["labels"], regularization_losses)

        tensors = {"logits": logits, "labels": labels}
        return update, {name: value for name, value in tensors.items() if isinstance(value, Tensor)}


@export("tf.estimator.RegressionHead")
class RegressionHead(OneHead):
    """Predicts numbers; the loss is the squared error (``tf.estimator.RegressionHead``).

    Args:
      label_dimension: how many numbers a label has.
      weight_column: name of the feature, or numeric column, with the weight of each example or number.
      loss_reduction: "sum" or "sum_over_batch_size" of ``tf.keras.losses.Reduction``.
      loss_fn: in the place of the squared error: a function of ``labels``, ``logits`` and perhaps ``features`` that
        returns losses [batch, …, label_dimension].
      inverse_link_fn: makes the predictions of logits; default: they are the logits.
      name: of the head: metrics and summaries have it at their end.

    Raises:
      ValueError: an argument is out of its range.
    """

    def __init__(
        self, label_dimension: int = 1, weight_column: str | Column | None = None,
        loss_reduction: str = _SUM_OVER_BATCH_SIZE, loss_fn: LossFn | None = None,
        inverse_link_fn: Callable[[Tensor], Tensor] | None = None, name: str | None = None,
    ) -> None:  # fmt: skip
        if label_dimension < 1:
            raise ValueError(f"Invalid label_dimension {label_dimension}.")
        core = heads.PremadeRegressionHead(label_dimension, weight_column, Reduction.SUM)
        super().__init__(core, loss_reduction, loss_fn, name)
        self._inverse_link_fn = inverse_link_fn

    def predictions(self, logits: Any) -> dict[str, Tensor]:  # type: ignore[override]
        return super().predictions(logits)

    def _found(self, logits: Tensor) -> dict[str, Tensor]:
        if self._inverse_link_fn is None:
            return super()._found(logits)
        return {"predictions": self._inverse_link_fn(logits), "logits": logits}

    def _kinds(self) -> dict[str, tuple[str, dict[str, Any]]]:
        return {"prediction/mean": ("Mean", {}), "label/mean": ("Mean", {})}

    def _seen(self, found: Mapping[str, Tensor], numbers: Tensor) -> dict[str, tuple[Tensor, ...]]:
        return {"prediction/mean": (found["predictions"],), "label/mean": (numbers,)}


@export("tf.estimator.PoissonRegressionHead")
class PoissonRegressionHead(RegressionHead):
    """Predicts rates of Poisson distributions; logits are their logarithms (``tf.estimator.PoissonRegressionHead``).

    Args:
      compute_full_loss: with Stirling's term for the labels' factorials.
      The others are those of `RegressionHead`.
    """

    def __init__(
        self, label_dimension: int = 1, weight_column: str | Column | None = None,
        loss_reduction: str = _SUM_OVER_BATCH_SIZE, compute_full_loss: bool = True, name: str | None = None,
    ) -> None:  # fmt: skip
        def poisson_loss(labels: Tensor, logits: Tensor) -> Tensor:
            return log_poisson_loss(labels, logits, compute_full_loss)

        super().__init__(label_dimension, weight_column, loss_reduction, poisson_loss, exp, name)


@export("tf.estimator.LogisticRegressionHead")
class LogisticRegressionHead(RegressionHead):
    """Predicts a probability; the loss is the sigmoid's cross entropy (``tf.estimator.LogisticRegressionHead``).

    Labels are numbers in [0, 1]. The arguments are those of `RegressionHead`.
    """

    def __init__(
        self, weight_column: str | Column | None = None, loss_reduction: str = _SUM_OVER_BATCH_SIZE,
        name: str | None = None,
    ) -> None:  # fmt: skip
        super().__init__(1, weight_column, loss_reduction, _logistic_loss, sigmoid, name)


def _logistic_loss(labels: Tensor, logits: Tensor) -> Tensor:
    labels = heads.in_range(labels, 2, "Labels must be in range [0, 1]")
    return sigmoid_cross_entropy_with_logits(labels=labels, logits=logits)


def _threshold_kinds(thresholds: Sequence[float]) -> dict[str, tuple[str, dict[str, Any]]]:
    """Accuracy, precision and recall of those who take a probability above a threshold for a yes."""
    made: dict[str, tuple[str, dict[str, Any]]] = {}
    for threshold in thresholds:
        made[f"accuracy/positive_threshold_{threshold:g}"] = ("BinaryAccuracy", {"threshold": threshold})
        made[f"precision/positive_threshold_{threshold:g}"] = ("Precision", {"thresholds": threshold})
        made[f"recall/positive_threshold_{threshold:g}"] = ("Recall", {"thresholds": threshold})
    return made


@export("tf.estimator.BinaryClassHead")
class BinaryClassHead(OneHead):
    """Predicts one of two classes from one logit (``tf.estimator.BinaryClassHead``).

    Args:
      thresholds: of probabilities, in (0, 1): there are an accuracy, a precision and a recall for each.
      label_vocabulary: the labels' names, if they are strings; else labels are numbers in [0, 1].
      The others are those of `RegressionHead`.
    """

    def __init__(
        self, weight_column: str | Column | None = None, thresholds: Sequence[float] | None = None,
        label_vocabulary: Sequence[str] | None = None, loss_reduction: str = _SUM_OVER_BATCH_SIZE,
        loss_fn: LossFn | None = None, name: str | None = None,
    ) -> None:  # fmt: skip
        _check_vocabulary(label_vocabulary, 2)
        self._thresholds = _checked_thresholds(thresholds)
        core = heads.PremadeBinaryClassHead(2, weight_column, label_vocabulary, Reduction.SUM)
        super().__init__(core, loss_reduction, loss_fn, name)

    def _kinds(self) -> dict[str, tuple[str, dict[str, Any]]]:
        plain = {"accuracy": "Accuracy", "precision": "Precision", "recall": "Recall", "prediction/mean": "Mean",
                 "label/mean": "Mean", "accuracy_baseline": "Mean", "auc": "AUC"}  # fmt: skip
        kinds: dict[str, tuple[str, dict[str, Any]]] = {key: (kind, {}) for key, kind in plain.items()}
        return {**kinds, "auc_precision_recall": ("AUC", {"curve": "PR"}), **_threshold_kinds(self._thresholds)}

    def _seen(self, found: Mapping[str, Tensor], numbers: Tensor) -> dict[str, tuple[Tensor, ...]]:
        logistic, ids = found["logistic"], found["class_ids"]
        decided = dict.fromkeys(("accuracy", "precision", "recall"), (numbers, ids))
        measured = ("auc", "auc_precision_recall", *_threshold_kinds(self._thresholds))
        return {
            **decided, "prediction/mean": (logistic,), "label/mean": (numbers,),
            **dict.fromkeys(measured, (numbers, logistic)),
        }  # fmt: skip

    def update_metrics(
        self, eval_metrics: dict[str, Any], features: Any, logits: Any, labels: Any,
        regularization_losses: Losses = None,
    ) -> dict[str, Any]:  # fmt: skip
        updated = super().update_metrics(eval_metrics, features, logits, labels, regularization_losses)
        # What one reaches who always names the more frequent class: it follows from another metric's variables.
        mean, baseline = updated[self._key("label/mean")], updated[self._key("accuracy_baseline")]
        baseline._updates = [no_op()]
        baseline.total, baseline.count = maximum(mean.total, mean.count - mean.total), mean.count
        return updated


@export("tf.estimator.MultiClassHead")
class MultiClassHead(OneHead):
    """Predicts one of more than two classes; the loss is the softmax's cross entropy (``tf.estimator.MultiClassHead``).

    Args:
      n_classes: number of classes.
      label_vocabulary: the labels' names, if they are strings; else labels are integers in [0, n_classes).
      The others are those of `RegressionHead`.
    """

    def __init__(
        self, n_classes: int, weight_column: str | Column | None = None, label_vocabulary: Sequence[str] | None = None,
        loss_reduction: str = _SUM_OVER_BATCH_SIZE, loss_fn: LossFn | None = None, name: str | None = None,
    ) -> None:  # fmt: skip
        if n_classes is None:
            raise ValueError("n_classes cannot be None")
        _check_vocabulary(label_vocabulary, n_classes)
        if n_classes <= 2:
            raise ValueError(f"n_classes must be > 2: {n_classes}. For two classes there is BinaryClassHead.")
        core = heads.PremadeMultiClassHead(n_classes, weight_column, label_vocabulary, Reduction.SUM)
        super().__init__(core, loss_reduction, loss_fn, name)

    def _kinds(self) -> dict[str, tuple[str, dict[str, Any]]]:
        return {"accuracy": ("Accuracy", {})}

    def _seen(self, found: Mapping[str, Tensor], numbers: Tensor) -> dict[str, tuple[Tensor, ...]]:
        return {"accuracy": (numbers, found["class_ids"])}


class _LabelsCore(heads.PremadeHead):
    """Any number of classes at once: the mean of their sigmoids' cross entropies."""

    def __init__(self, width: int, weight_column: str | Column | None, vocabulary: Sequence[str] | None) -> None:
        super().__init__(weight_column, Reduction.SUM)
        self.width = width
        self._vocabulary = vocabulary

    def predictions(self, logits: Tensor) -> dict[str, Tensor]:
        return {"logits": logits, "probabilities": sigmoid(logits)}

    def numbers(self, logits: Tensor, labels: Any) -> Tensor:
        if isinstance(labels, SparseTensor):
            marked = cast(sparse_to_indicator(self._ids(labels), self.width), dtypes.int64)
            return heads.matched(marked, logits, self.width)
        marks = heads.matched(labels, logits, self.width)
        return heads.in_range(marks, 2, "labels must be an integer indicator Tensor with values in [0, 1]")

    def _ids(self, labels: SparseTensor) -> SparseTensor:
        if labels.dtype == dtypes.string:
            table = index_table_from_tensor(list(self._vocabulary or ()), name="class_id_lookup")
            return SparseTensor(labels.indices, table.lookup(labels.values), labels.dense_shape)
        if not labels.dtype.is_integer:
            raise ValueError(f"Labels dtype should be integer. Instead got {labels.dtype}.")
        message = f"labels must be an integer SparseTensor with values in [0, {self.width})"
        return SparseTensor(labels.indices, heads.in_range(labels.values, self.width, message), labels.dense_shape)

    def losses_of(self, logits: Tensor, numbers: Tensor) -> Tensor:
        return reduce_mean(
            sigmoid_cross_entropy(numbers, logits, loss_collection=None, reduction=Reduction.NONE), -1, True
        )

    def metrics(self, found: Mapping[str, Tensor], labels: Tensor, weights: TensorLike | None) -> dict[str, Any]:
        return {}

    def outputs(self, found: Mapping[str, Tensor]) -> dict[str, Any]:
        scores = found["probabilities"]
        output = ClassificationOutput(scores, heads.names_of_classes(scores, self.width, self._vocabulary))
        return {"serving_default": output, "classification": output, "predict": PredictOutput(found)}


@export("tf.estimator.MultiLabelHead")
class MultiLabelHead(OneHead):
    """Predicts for each class whether an example is of it (``tf.estimator.MultiLabelHead``).

    Args:
      n_classes: number of classes, two or more.
      label_vocabulary: the classes' names, if a SparseTensor of strings has the labels. Labels else are a SparseTensor
        of integers in [0, n_classes), or an indicator [batch, …, n_classes] of 0 and 1.
      classes_for_class_based_metrics: numbers or names of classes with metrics of their own.
      The others are those of `BinaryClassHead`.
    """

    def __init__(
        self, n_classes: int, weight_column: str | Column | None = None, thresholds: Sequence[float] | None = None,
        label_vocabulary: Sequence[str] | None = None, loss_reduction: str = _SUM_OVER_BATCH_SIZE,
        loss_fn: LossFn | None = None, classes_for_class_based_metrics: Sequence[Any] | None = None,
        name: str | None = None,
    ) -> None:  # fmt: skip
        if n_classes is None or n_classes < 2:
            raise ValueError(f"n_classes must be > 1 for multi-label classification. Given: {n_classes}")
        self._thresholds = _checked_thresholds(thresholds)
        _check_vocabulary(label_vocabulary, n_classes)
        super().__init__(_LabelsCore(n_classes, weight_column, label_vocabulary), loss_reduction, loss_fn, name)
        self._classes = self._named_classes(classes_for_class_based_metrics or (), n_classes, label_vocabulary)

    @staticmethod
    def _named_classes(given: Sequence[Any], classes: int, vocabulary: Sequence[str] | None) -> dict[str, int]:
        """How metrics name a class -> its number."""
        if given and isinstance(given[0], str):
            if not vocabulary:
                raise ValueError("label_vocabulary must be provided when classes_for_class_based_metrics are strings.")
            given = [vocabulary.index(name) for name in given]
        for number in given:
            if not 0 <= number < classes:
                raise ValueError(
                    f"All classes_for_class_based_metrics must be in range [0, {classes - 1}]. Given: {number}"
                )
        return {vocabulary[number] if vocabulary else f"class{number}": number for number in given}

    def _kinds(self) -> dict[str, tuple[str, dict[str, Any]]]:
        curve: dict[str, Any] = {"curve": "PR"}
        kinds: dict[str, tuple[str, dict[str, Any]]] = {"auc": ("AUC", {}), "auc_precision_recall": ("AUC", curve)}
        kinds |= _threshold_kinds(self._thresholds)
        for name in self._classes:
            kinds[f"probability_mean/{name}"] = ("Mean", {})
            kinds[f"auc/{name}"], kinds[f"auc_precision_recall/{name}"] = ("AUC", {}), ("AUC", curve)
        return kinds

    def _seen(self, found: Mapping[str, Tensor], numbers: Tensor) -> dict[str, tuple[Tensor, ...]]:
        chances = found["probabilities"]
        whole = ("auc", "auc_precision_recall", *_threshold_kinds(self._thresholds))
        seen: dict[str, tuple[Tensor, ...]] = dict.fromkeys(whole, (numbers, chances))
        for name, number in self._classes.items():
            chance, mark = (value[..., number : number + 1] for value in (chances, numbers))
            seen[f"probability_mean/{name}"] = (chance,)
            seen[f"auc/{name}"] = seen[f"auc_precision_recall/{name}"] = (mark, chance)
        return seen
