"""The models of ``tf.contrib.learn``: linear ones, networks of dense layers, and both added."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from tfmini import dtypes
from tfmini.core_types import TensorLike
from tfmini.estimator.column_layers import input_layer, linear_model
from tfmini.estimator.contrib_column_layers import (
    input_from_feature_columns,
    weighted_sum_from_feature_columns,
)
from tfmini.estimator.contrib_columns import ContribColumn
from tfmini.estimator.contrib_learn import Data, InputFn, LearnEstimator, ModelFnOps, ProblemType
from tfmini.estimator.heads import (
    PremadeBinaryClassHead,
    PremadeHead,
    PremadeMultiClassHead,
    PremadeRegressionHead,
    Train,
    names_of_classes,
)
from tfmini.estimator.model_spec import ModeKeys
from tfmini.estimator.run_config import RunConfig
from tfmini.export import export
from tfmini.graph.operation import Tensor
from tfmini.graph.scoping import control_dependencies, get_collection, name_scope
from tfmini.layers import binary_metrics
from tfmini.layers.contrib.layers import fully_connected
from tfmini.layers.core import dropout as dropout_layer
from tfmini.layers.losses import Reduction
from tfmini.layers.metrics import accuracy, mean
from tfmini.ops.array.filling import ones_like, zeros_like
from tfmini.ops.array.identity import cast
from tfmini.ops.array.joining import concat
from tfmini.ops.array.shape import expand_dims, reshape
from tfmini.ops.control import group
from tfmini.ops.gradients import gradients
from tfmini.ops.math.comparison import greater_equal
from tfmini.ops.math.reductions import argmax, reduce_mean, reduce_sum
from tfmini.ops.math.sums import add_n, clip_by_global_norm
from tfmini.ops.math.unary import sigmoid
from tfmini.ops.nn.activation import relu
from tfmini.ops.nn.cross_entropy import softmax
from tfmini.ops.variables.assignment import assign_add
from tfmini.ops.variables.partitioners import min_max_variable_partitioner
from tfmini.ops.variables.scope import variable_scope
from tfmini.ops.vocabulary_tables import index_to_string_table_from_tensor
from tfmini.train.global_steps import get_global_step
from tfmini.train.optimizers.fused_optimizer import FtrlOptimizer
from tfmini.train.optimizers.optimizer import Optimizer
from tfmini.train.train_ops import optimize_loss, optimizer_of

_DNN_RATE, _LINEAR_RATE = 0.05, 0.2
OptimizerLike = str | Optimizer | Callable[[], Any] | None
ModelFn = Callable[..., ModelFnOps]


# ---- what models predict -------------------------------------------------------------------------------------------


class _LearnHead(PremadeHead):
    """A head of this kind also makes `ModelFnOps`; the loss is the mean over the batch."""

    _scope: str
    problem: ProblemType
    vocabulary_argument = "label_keys"

    def served(self, found: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """The predictions of an export."""
        return found

    def ops(self, features: Any, labels: Any, mode: str, logits: Tensor, train: Train) -> ModelFnOps:
        """What the model function returns."""
        with variable_scope(None, self._scope):
            found = self.predictions(logits)
            if mode == ModeKeys.PREDICT:
                return ModelFnOps(mode, found, output_alternatives={None: (self.problem, self.served(found))})
            losses, numbers = self.losses(logits, labels)
            weights = self.weights(features, logits) * ones_like(losses)
            if mode == ModeKeys.EVAL:
                loss = reduce_sum(losses * weights) / reduce_sum(weights)
                return ModelFnOps(mode, found, loss, None, self.metrics(found, numbers, weights))
            loss = reduce_mean(losses * weights)
            with name_scope(None, "train_op", [loss]):
                return ModelFnOps(mode, found, loss, train(loss))


class _NumberHead(_LearnHead, PremadeRegressionHead):
    _scope, problem = "regression_head", ProblemType.LINEAR_REGRESSION

    def predictions(self, logits: Tensor) -> dict[str, Tensor]:
        return {"scores": reshape(logits, [-1]) if self.width == 1 else logits}

    def metrics(self, found: Mapping[str, Tensor], labels: Tensor, weights: TensorLike | None) -> dict[str, Any]:
        return {}


class _LearnClassHead(_LearnHead):
    _classes: int
    _vocabulary: Sequence[str] | None

    def served(self, found: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        names = names_of_classes(found["probabilities"], self._classes, self._vocabulary)
        return {**found, "all_classes": names}


class _TwoClassesHead(_LearnClassHead, PremadeBinaryClassHead):
    _scope, problem = "binary_logistic_head", ProblemType.LOGISTIC_REGRESSION

    def predictions(self, logits: Tensor) -> dict[str, Tensor]:
        both = concat([zeros_like(logits), logits], 1)
        return {
            "logits": logits, "logistic": sigmoid(logits), "probabilities": softmax(both), "classes": argmax(both, 1),
        }  # fmt: skip

    def metrics(self, found: Mapping[str, Tensor], labels: Tensor, weights: TensorLike | None) -> dict[str, Any]:
        logistic, classes = found["logistic"], reshape(found["classes"], [-1, 1])
        truth, chosen = cast(labels, dtypes.bool), greater_equal(logistic, 0.5)
        half = "threshold_0.500000_mean"
        return {
            "accuracy": accuracy(labels, classes, weights), "labels/prediction_mean": mean(logistic, weights),
            "labels/actual_label_mean": mean(labels, weights), "accuracy/baseline_label_mean": mean(labels, weights),
            "auc": binary_metrics.auc(truth, logistic, weights),
            "auc_precision_recall": binary_metrics.auc(truth, logistic, weights, curve="PR"),
            f"accuracy/{half}": accuracy(labels, cast(chosen, dtypes.float32), weights),
            f"precision/positive_{half}": binary_metrics.precision(truth, chosen, weights),
            f"recall/positive_{half}": binary_metrics.recall(truth, chosen, weights),
        }  # fmt: skip


class _ManyClassesHead(_LearnClassHead, PremadeMultiClassHead):
    _scope, problem = "multi_class_head", ProblemType.CLASSIFICATION

    def predictions(self, logits: Tensor) -> dict[str, Tensor]:
        likeliest = argmax(logits, 1)
        if self._vocabulary is not None:
            likeliest = index_to_string_table_from_tensor(list(self._vocabulary)).lookup(likeliest)
        return {"logits": logits, "probabilities": softmax(logits), "classes": likeliest}

    def metrics(self, found: Mapping[str, Tensor], labels: Tensor, weights: TensorLike | None) -> dict[str, Any]:
        return {"accuracy": accuracy(labels, expand_dims(argmax(found["logits"], 1), -1), weights)}


def _class_head(classes: int, weight_column: str | None, names: Sequence[str] | None) -> _LearnHead:
    if classes < 2:
        raise ValueError(f"n_classes must be at least 2, given: {classes}")
    if classes == 2:
        if names:
            raise ValueError("label_keys is not supported for n_classes=2: give labels that are 0 and 1.")
        return _TwoClassesHead(2, weight_column, None, Reduction.NONE)
    return _ManyClassesHead(classes, weight_column, names or None, Reduction.NONE)


def _number_head(width: int, weight_column: str | None) -> _LearnHead:
    return _NumberHead(width, weight_column, Reduction.NONE)


# ---- models --------------------------------------------------------------------------------------------------------


def _by_name(features: Any) -> dict[str, Any]:
    return dict(features) if isinstance(features, Mapping) else {"": features}


def _are_old(columns: Sequence[Any]) -> bool:
    return all(isinstance(column, ContribColumn) for column in columns)


def _optimizer_of(optimizer: OptimizerLike, learning_rate: float) -> Optimizer:
    return optimizer_of(optimizer() if callable(optimizer) else optimizer, learning_rate)


class _LinearPart:
    """A weighted sum of columns, in the scope ``linear``."""

    def __init__(self, columns: Iterable[Any] | None, optimizer: OptimizerLike, clip: float | None) -> None:
        self.columns, self._clip = list(columns or ()), clip
        self._optimizer = optimizer or self._default_optimizer

    def scope(self, features: dict[str, Any], config: RunConfig) -> Any:
        """The variable scope of the part."""
        parts = min_max_variable_partitioner(max(config.num_ps_replicas, 1), min_slice_size=64 << 20)
        return variable_scope("linear", values=tuple(features.values()), partitioner=parts)

    def logits(self, features: dict[str, Any], mode: str, width: int, scope: Any) -> Tensor:
        """The sums, [batch, width]."""
        if not _are_old(self.columns):
            return linear_model(features, self.columns, width, weight_collections=["linear"])
        return weighted_sum_from_feature_columns(features, self.columns, width, ["linear"], scope=scope)[0]

    def _default_optimizer(self) -> Optimizer:
        return FtrlOptimizer(min(_LINEAR_RATE, 1 / math.sqrt(len(self.columns))))

    def train(self, loss: Tensor) -> Any:
        """The training op of a model of this part alone."""
        own = get_collection("linear")
        slopes = gradients(loss, own)
        if self._clip:
            slopes, _ = clip_by_global_norm(slopes, self._clip)
        optimizer = _optimizer_of(self._optimizer, _LINEAR_RATE)
        return optimizer.apply_gradients(list(zip(slopes, own)), global_step=get_global_step())

    def train_beside(self, loss: Tensor, counts: bool) -> Any:
        """The training op beside another part's."""
        return _optimized(loss, "linear", _LINEAR_RATE, self._optimizer, self._clip, counts)


def _optimized(
    loss: Tensor, part: str, learning_rate: float, optimizer: OptimizerLike, clip: float | None, counts: bool
) -> Any:  # fmt: skip
    return optimize_loss(
        loss, get_global_step(), learning_rate, _optimizer_of(optimizer, learning_rate), clip_gradients=clip,
        variables=get_collection(part), name=part, summaries=[], increment_global_step=counts,
    )  # fmt: skip


class _NetworkPart:
    """Dense layers on columns, in the scope ``dnn``."""

    def __init__(
        self, columns: Iterable[Any] | None, units: Sequence[int], optimizer: OptimizerLike, activation: Any,
        dropout: float | None, clip: float | None,
    ) -> None:  # fmt: skip
        if isinstance(units, int):
            raise TypeError(f"hidden_units must be a list with the units of each layer: write [{units}].")
        self.columns, self._units, self._optimizer = list(columns or ()), units, optimizer or "Adagrad"
        self._activation, self._dropout, self._clip = activation or relu, dropout, clip

    def scope(self, features: dict[str, Any], config: RunConfig) -> Any:
        """The variable scope of the part."""
        parts = min_max_variable_partitioner(max(config.num_ps_replicas, 1))
        return variable_scope("dnn", values=tuple(features.values()), partitioner=parts)

    def logits(self, features: dict[str, Any], mode: str, width: int, scope: Any) -> Tensor:
        """The last layer, [batch, width]."""
        names = {"variables_collections": ["dnn"]}
        with variable_scope("input_from_feature_columns") as inner:
            if _are_old(self.columns):
                net = input_from_feature_columns(features, self.columns, ["dnn"], scope=inner)
            else:
                net = input_layer(features, self.columns, ["dnn"])
        for number, units in enumerate(self._units):
            with variable_scope(f"hiddenlayer_{number}") as inner:
                net = fully_connected(net, units, activation_fn=self._activation, scope=inner, **names)
                if self._dropout is not None and mode == ModeKeys.TRAIN:
                    net = dropout_layer(net, rate=self._dropout, training=True)
        with variable_scope("logits") as inner:
            last: Tensor = fully_connected(net, width, activation_fn=None, scope=inner, **names)
            return last

    def train(self, loss: Tensor) -> Any:
        """The training op of a model of this part alone."""
        return self.train_beside(loss, True)

    def train_beside(self, loss: Tensor, counts: bool) -> Any:
        """The training op beside another part's."""
        return _optimized(loss, "dnn", _DNN_RATE, self._optimizer, self._clip, counts)


def _model_of(part: _LinearPart | _NetworkPart, head: _LearnHead) -> ModelFn:
    """The model function of one part and a head."""

    def model_fn(features: Any, labels: Any, mode: str, config: RunConfig) -> ModelFnOps:
        features = _by_name(features)
        with part.scope(features, config) as scope:
            return head.ops(features, labels, mode, part.logits(features, mode, head.width, scope), part.train)

    return model_fn


def _joint_model_of(parts: Sequence[_LinearPart | _NetworkPart], head: _LearnHead, counts_once: bool) -> ModelFn:
    """The model function of parts whose logits are added.

    Each part counts the global step, as in TensorFlow, or all count it once.
    """

    def train(loss: Tensor) -> Any:
        done = group(*(part.train_beside(loss, not counts_once) for part in parts))
        if not counts_once:
            return done
        with control_dependencies([done]):
            return assign_add(get_global_step(), 1).op

    def model_fn(features: Any, labels: Any, mode: str, config: RunConfig) -> ModelFnOps:
        features, logits = _by_name(features), []
        for part in parts:
            with part.scope(features, config) as scope:
                logits.append(part.logits(features, mode, head.width, scope))
        return head.ops(features, labels, mode, add_n(logits), train)

    return model_fn


class _Predicting(LearnEstimator):
    """A model whose usual prediction is one of those that it has by name."""

    _usual: str

    def predict(self, x: Data = None, input_fn: InputFn | None = None, batch_size: int | None = None,
                outputs: Sequence[str] | None = None, as_iterable: bool = True,
                iterate_batches: bool = False) -> Any:  # fmt: skip
        """The class or number of each example; with ``outputs`` those predictions, by name."""
        if outputs:
            return LearnEstimator.predict(self, x, input_fn, batch_size, outputs, as_iterable, iterate_batches)
        return self._of(self._usual, x, input_fn, batch_size, as_iterable)


class _Classes(_Predicting):
    """The predictions of classifiers."""

    _usual = "classes"

    def predict_classes(self, x: Data = None, input_fn: InputFn | None = None, batch_size: int | None = None,
                        as_iterable: bool = True) -> Any:  # fmt: skip
        """The class of each example."""
        return self._of("classes", x, input_fn, batch_size, as_iterable)

    def predict_proba(self, x: Data = None, input_fn: InputFn | None = None, batch_size: int | None = None,
                      as_iterable: bool = True) -> Any:  # fmt: skip
        """The probabilities of each example's classes."""
        return self._of("probabilities", x, input_fn, batch_size, as_iterable)


class _Scores(_Predicting):
    """The predictions of regressors."""

    _usual = "scores"

    def predict_scores(self, x: Data = None, input_fn: InputFn | None = None, batch_size: int | None = None,
                       as_iterable: bool = True) -> Any:  # fmt: skip
        """The number of each example."""
        return self._of("scores", x, input_fn, batch_size, as_iterable)


def _refuse(centered_bias: bool, multipliers: Any = None, joint_weight: bool = False) -> None:
    """Refuses what would make another model than TensorFlow's."""
    if centered_bias:
        raise NotImplementedError("enable_centered_bias is not in tfmini: the models have biases.")
    if multipliers:
        raise NotImplementedError(
            "embedding_lr_multipliers is not in tfmini: scale the gradients in your own model_fn."
        )
    if joint_weight:
        raise NotImplementedError("_joint_weight is not in tfmini: each linear column has weights of its own.")


@export("tf.contrib.learn.LinearClassifier")
class LearnLinearClassifier(_Classes):
    """A linear model of classes (``tf.contrib.learn.LinearClassifier``).

    Args:
      feature_columns: columns of ``tf.contrib.layers``, or of ``tf.feature_column``.
      n_classes: number of classes; labels are below it.
      weight_column_name: the feature with the weight of each example.
      optimizer: default: Ftrl.
      gradient_clip_norm: the most that the gradients' global norm may be.
      label_keys: the labels' names, if they are strings.
      The others are those of `LearnEstimator`.
    """

    def __init__(
        self, feature_columns: Iterable[Any], model_dir: str | None = None, n_classes: int = 2,
        weight_column_name: str | None = None, optimizer: OptimizerLike = None, gradient_clip_norm: float | None = None,
        enable_centered_bias: bool = False, _joint_weight: bool = False, config: RunConfig | None = None,
        feature_engineering_fn: Callable[..., Any] | None = None, label_keys: Sequence[str] | None = None,
    ) -> None:  # fmt: skip
        _refuse(enable_centered_bias, joint_weight=_joint_weight)
        linear = _LinearPart(feature_columns, optimizer, gradient_clip_norm)
        head = _class_head(n_classes, weight_column_name, label_keys)
        super().__init__(_model_of(linear, head), model_dir, config, None, feature_engineering_fn)


@export("tf.contrib.learn.LinearRegressor")
class LearnLinearRegressor(_Scores):
    """A linear model of numbers (``tf.contrib.learn.LinearRegressor``); see `LearnLinearClassifier`."""

    def __init__(
        self, feature_columns: Iterable[Any], model_dir: str | None = None, weight_column_name: str | None = None,
        optimizer: OptimizerLike = None, gradient_clip_norm: float | None = None, enable_centered_bias: bool = False,
        label_dimension: int = 1, _joint_weights: bool = False, config: RunConfig | None = None,
        feature_engineering_fn: Callable[..., Any] | None = None,
    ) -> None:  # fmt: skip
        _refuse(enable_centered_bias, joint_weight=_joint_weights)
        linear = _LinearPart(feature_columns, optimizer, gradient_clip_norm)
        head = _number_head(label_dimension, weight_column_name)
        super().__init__(_model_of(linear, head), model_dir, config, None, feature_engineering_fn)


@export("tf.contrib.learn.DNNClassifier")
class LearnDNNClassifier(_Classes):
    """A network of dense layers for classes (``tf.contrib.learn.DNNClassifier``).

    Args:
      hidden_units: number of units of each hidden layer.
      activation_fn: of the hidden layers.
      dropout: the share of units that is dropped in training.
      The others are those of `LearnLinearClassifier`; the default optimizer is Adagrad.
    """

    def __init__(
        self, hidden_units: Sequence[int], feature_columns: Iterable[Any], model_dir: str | None = None,
        n_classes: int = 2, weight_column_name: str | None = None, optimizer: OptimizerLike = None,
        activation_fn: Callable[..., Any] | None = relu, dropout: float | None = None,
        gradient_clip_norm: float | None = None, enable_centered_bias: bool = False,
        config: RunConfig | None = None, feature_engineering_fn: Callable[..., Any] | None = None,
        embedding_lr_multipliers: Mapping[Any, float] | None = None, input_layer_min_slice_size: int | None = None,
        label_keys: Sequence[str] | None = None,
    ) -> None:  # fmt: skip
        _refuse(enable_centered_bias, embedding_lr_multipliers)
        network = _NetworkPart(feature_columns, hidden_units, optimizer, activation_fn, dropout, gradient_clip_norm)
        head = _class_head(n_classes, weight_column_name, label_keys)
        super().__init__(_model_of(network, head), model_dir, config, None, feature_engineering_fn)


@export("tf.contrib.learn.DNNRegressor")
class LearnDNNRegressor(_Scores):
    """A network of dense layers for numbers (``tf.contrib.learn.DNNRegressor``); see `LearnDNNClassifier`."""

    def __init__(
        self, hidden_units: Sequence[int], feature_columns: Iterable[Any], model_dir: str | None = None,
        weight_column_name: str | None = None, optimizer: OptimizerLike = None,
        activation_fn: Callable[..., Any] | None = relu, dropout: float | None = None,
        gradient_clip_norm: float | None = None, enable_centered_bias: bool = False,
        config: RunConfig | None = None, feature_engineering_fn: Callable[..., Any] | None = None,
        label_dimension: int = 1, embedding_lr_multipliers: Mapping[Any, float] | None = None,
        input_layer_min_slice_size: int | None = None,
    ) -> None:  # fmt: skip
        _refuse(enable_centered_bias, embedding_lr_multipliers)
        network = _NetworkPart(feature_columns, hidden_units, optimizer, activation_fn, dropout, gradient_clip_norm)
        head = _number_head(label_dimension, weight_column_name)
        super().__init__(_model_of(network, head), model_dir, config, None, feature_engineering_fn)


def _both(
    linear_columns: Iterable[Any] | None, linear_optimizer: OptimizerLike, dnn_columns: Iterable[Any] | None,
    dnn_optimizer: OptimizerLike,
    units: Sequence[int] | None, activation: Any, dropout: float | None, clip: float | None,
) -> list[_LinearPart | _NetworkPart]:  # fmt: skip
    """The parts of a model; one without columns is absent."""
    if dnn_columns and not units:
        raise ValueError("dnn_hidden_units must be defined when dnn_feature_columns is specified.")
    parts: list[_LinearPart | _NetworkPart] = []
    if dnn_columns:
        parts.append(_NetworkPart(dnn_columns, units or (), dnn_optimizer, activation, dropout, clip))
    if linear_columns:
        parts.append(_LinearPart(linear_columns, linear_optimizer, clip))
    if not parts:
        raise ValueError("Either linear_feature_columns or dnn_feature_columns must be defined.")
    return parts


@export("tf.contrib.learn.DNNLinearCombinedClassifier")
class LearnDNNLinearCombinedClassifier(_Classes):
    """A linear model and a network whose logits are added (``tf.contrib.learn.DNNLinearCombinedClassifier``).

    Args:
      linear_feature_columns, dnn_feature_columns: the columns of each part; None: the part is absent.
      linear_optimizer, dnn_optimizer: each part's optimizer; default: Ftrl, Adagrad.
      The others are those of `LearnDNNClassifier`.

    Raises:
      ValueError: when both parts are absent, or the network has no layers.
    """

    def __init__(
        self, model_dir: str | None = None, n_classes: int = 2, weight_column_name: str | None = None,
        linear_feature_columns: Iterable[Any] | None = None, linear_optimizer: OptimizerLike = None,
        _joint_linear_weights: bool = False, dnn_feature_columns: Iterable[Any] | None = None,
        dnn_optimizer: OptimizerLike = None, dnn_hidden_units: Sequence[int] | None = None,
        dnn_activation_fn: Callable[..., Any] | None = relu, dnn_dropout: float | None = None,
        gradient_clip_norm: float | None = None, enable_centered_bias: bool = False,
        config: RunConfig | None = None, feature_engineering_fn: Callable[..., Any] | None = None,
        embedding_lr_multipliers: Mapping[Any, float] | None = None, input_layer_min_slice_size: int | None = None,
        label_keys: Sequence[str] | None = None, fix_global_step_increment_bug: bool = False,
    ) -> None:  # fmt: skip
        _refuse(enable_centered_bias, embedding_lr_multipliers, _joint_linear_weights)
        parts = _both(
            linear_feature_columns, linear_optimizer, dnn_feature_columns, dnn_optimizer, dnn_hidden_units,
            dnn_activation_fn, dnn_dropout, gradient_clip_norm,
        )  # fmt: skip
        head = _class_head(n_classes, weight_column_name, label_keys)
        model_fn = _joint_model_of(parts, head, fix_global_step_increment_bug)
        super().__init__(model_fn, model_dir, config, None, feature_engineering_fn)


@export("tf.contrib.learn.DNNLinearCombinedRegressor")
class LearnDNNLinearCombinedRegressor(_Scores):
    """The same for numbers (``tf.contrib.learn.DNNLinearCombinedRegressor``)."""

    def __init__(
        self, model_dir: str | None = None, weight_column_name: str | None = None,
        linear_feature_columns: Iterable[Any] | None = None, linear_optimizer: OptimizerLike = None,
        _joint_linear_weights: bool = False, dnn_feature_columns: Iterable[Any] | None = None,
        dnn_optimizer: OptimizerLike = None, dnn_hidden_units: Sequence[int] | None = None,
        dnn_activation_fn: Callable[..., Any] | None = relu, dnn_dropout: float | None = None,
        gradient_clip_norm: float | None = None, enable_centered_bias: bool = False, label_dimension: int = 1,
        config: RunConfig | None = None, feature_engineering_fn: Callable[..., Any] | None = None,
        embedding_lr_multipliers: Mapping[Any, float] | None = None, input_layer_min_slice_size: int | None = None,
        fix_global_step_increment_bug: bool = False,
    ) -> None:  # fmt: skip
        _refuse(enable_centered_bias, embedding_lr_multipliers, _joint_linear_weights)
        parts = _both(
            linear_feature_columns, linear_optimizer, dnn_feature_columns, dnn_optimizer, dnn_hidden_units,
            dnn_activation_fn, dnn_dropout, gradient_clip_norm,
        )  # fmt: skip
        head = _number_head(label_dimension, weight_column_name)
        model_fn = _joint_model_of(parts, head, fix_global_step_increment_bug)
        super().__init__(model_fn, model_dir, config, None, feature_engineering_fn)
