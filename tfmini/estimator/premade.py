"""Premade estimators: linear models, networks of dense layers, and both added (``tf.estimator.DNNClassifier`` …).

A classifier and its regressor are one class with two heads.
"""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tfmini.core_types import TensorLike
from tfmini.estimator.column_layers import network_input, sorted_columns, weighted_sum
from tfmini.estimator.columns import Column
from tfmini.estimator.estimator import Estimator
from tfmini.estimator.heads import PremadeHead, PremadeRegressionHead, class_head
from tfmini.estimator.model_spec import EstimatorSpec, ModeKeys
from tfmini.estimator.run_config import RunConfig, WarmStartSettings
from tfmini.export import export
from tfmini.graph.conversion import convert_to_tensor
from tfmini.graph.names import GraphKeys
from tfmini.graph.nest import flatten
from tfmini.graph.operation import Tensor
from tfmini.graph.scoping import control_dependencies, count_ops, counted_as, get_collection
from tfmini.layers.core import dense, dropout, without
from tfmini.layers.losses import Reduction
from tfmini.layers.normalization import batch_normalization
from tfmini.ops.array.filling import ones
from tfmini.ops.array.joining import concat
from tfmini.ops.array.shape import reshape, shape
from tfmini.ops.control import group
from tfmini.ops.math.elementwise import add, multiply
from tfmini.ops.nn.activation import relu
from tfmini.ops.nn.normalization import zero_fraction
from tfmini.ops.summary import histogram, scalar
from tfmini.ops.variables.assignment import assign_add
from tfmini.ops.variables.initializers import zeros_initializer
from tfmini.ops.variables.partitioners import min_max_variable_partitioner
from tfmini.ops.variables.scope import get_variable, variable_scope
from tfmini.train.global_steps import get_global_step
from tfmini.train.optimizers.fused_optimizer import (
    AdagradOptimizer,
    AdamOptimizer,
    FtrlOptimizer,
    GradientDescentOptimizer,
    RMSPropOptimizer,
)
from tfmini.train.optimizers.optimizer import Optimizer

_OPTIMIZERS: dict[str, Callable[..., Any]] = {
    "Adagrad": AdagradOptimizer,
    "Adam": AdamOptimizer,
    "Ftrl": FtrlOptimizer,
    "RMSProp": RMSPropOptimizer,
    "SGD": GradientDescentOptimizer,
}
# Of the networks, at most of the linear models, and of a baseline: alone, and added.
_DNN_RATE, _MOST_LINEAR_RATE, _BASELINE_RATE = 0.05, 0.2, 0.3
_ADDED_DNN_RATE, _MOST_ADDED_LINEAR_RATE = 0.001, 0.005


def _optimizer(given: str | Optimizer | Callable[[], Any], rate: float) -> Any:
    """An optimizer: given as such, as a function that makes it, or by name, with the rate."""
    if isinstance(given, str):
        if given not in _OPTIMIZERS:
            raise ValueError(f"Unsupported optimizer name: {given}. Supported names are: {tuple(sorted(_OPTIMIZERS))}")
        return _OPTIMIZERS[given](learning_rate=rate)
    made = given() if callable(given) else given
    if not hasattr(made, "minimize"):
        raise ValueError(f"The given object is not an Optimizer instance. Given: {given}")
    return made


def _train(optimizer: Any, loss: Tensor) -> Any:
    with control_dependencies(get_collection(GraphKeys.UPDATE_OPS)):
        return group(optimizer.minimize(loss, global_step=get_global_step()))


def _check_features(features: Mapping[str, Any]) -> None:
    if not isinstance(features, dict):
        raise ValueError(f"features should be a dictionary of `Tensor`s. Given type: {type(features)}")


def _partitioner(given: object, config: RunConfig) -> Any:
    """What cuts the variables of columns: the given function, or one that leaves 64 MiB to a part at least."""
    return given or min_max_variable_partitioner(max(config.num_ps_replicas, 1), min_slice_size=64 << 20)


def _linear_rate(most: float, columns: Iterable[Column]) -> float:
    return min(most, 1 / math.sqrt(len(sorted_columns(columns))))


def _regressor(classifier: Callable[..., None]) -> Any:
    """The constructor of a regressor of that of a classifier: its labels have a dimension, but no classes."""
    either = inspect.Parameter.POSITIONAL_OR_KEYWORD
    dimension = inspect.Parameter("label_dimension", either, default=1, annotation="int")
    return without(classifier, "label_vocabulary", n_classes=dimension)


def _number_head(
    dimension: int, weight_column: str | Column | None, vocabulary: None, loss_reduction: str
) -> PremadeHead:
    return PremadeRegressionHead(dimension, weight_column, loss_reduction)


class _GivenHead:
    """A `tf.estimator.Head` of the program, as the premade models use their own."""

    def __init__(self, head: Any) -> None:
        if not hasattr(head, "create_estimator_spec"):
            raise ValueError(f"head must be a tf.estimator.Head. Given: {head}")
        self._head, self.width = head, head.logits_dimension

    def spec(
        self, features: Mapping[str, Any], mode: str, logits: Tensor, labels: TensorLike, train: Callable[..., Any]
    ) -> EstimatorSpec:
        """What the model function returns."""
        return self._head.create_estimator_spec(  # type: ignore[no-any-return]
            features=features, mode=mode, labels=labels, logits=logits, train_op_fn=train
        )


def _of_head(classifier: Callable[..., None], *more: str) -> Any:
    """The constructor of a model with a head of that of a classifier: the head knows labels, weights and losses.

    Args:
      more: other arguments that it does not have.
    """
    made = classifier
    for name in ("n_classes", "weight_column", "label_vocabulary", "loss_reduction", *more):
        made = without(made, name)

    @functools.wraps(made)
    def with_head(self: Any, head: Any, *args: Any, **kwargs: Any) -> None:
        given = _GivenHead(head)
        self._head = lambda *_: given
        made(self, *args, **kwargs)

    names = [*inspect.signature(made).parameters.values()]
    first = inspect.Parameter("head", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation="Head")
    with_head.__signature__ = inspect.Signature([names[0], first, *names[1:]])  # type: ignore[attr-defined]
    return with_head


def _linear_logits(features: Mapping[str, Any], columns: Iterable[Column], width: int, combiner: str) -> Tensor:
    """The weighted sum of the columns, with TensorFlow's summaries of its variables."""
    variables: dict[Any, list[Any]] = {}
    logits = weighted_sum(features, columns, width, combiner, cols_to_vars=variables)
    with counted_as(0):
        bias = convert_to_tensor(variables.pop("bias")[0])
        scalar("bias", bias[0]) if width == 1 else histogram("bias", bias)
        weights = [reshape(part, [-1]) for parts in variables.values() for part in parts]
        scalar("fraction_of_zero_weights", zero_fraction(concat(weights, 0)))
    return logits


class _Linear(Estimator):
    _head: Callable[..., PremadeHead]

    def __init__(
        self,
        feature_columns: Iterable[Column],
        model_dir: str | None = None,
        n_classes: int = 2,
        weight_column: str | Column | None = None,
        label_vocabulary: Sequence[str] | None = None,
        optimizer: str | Optimizer | Callable[[], Any] = "Ftrl",
        config: RunConfig | None = None,
        partitioner: Callable[..., Any] | None = None,
        warm_start_from: str | WarmStartSettings | None = None,
        loss_reduction: str = Reduction.SUM,
        sparse_combiner: str = "sum",
    ) -> None:
        head = self._head(n_classes, weight_column, label_vocabulary, loss_reduction)

        def model_fn(features: Mapping[str, Any], labels: TensorLike, mode: str, config: RunConfig) -> EstimatorSpec:
            _check_features(features)
            parts = _partitioner(partitioner, config)
            # Before the model, as in TensorFlow: a function that makes it may make ops, and later seeds count them.
            made = _optimizer(optimizer, _linear_rate(_MOST_LINEAR_RATE, feature_columns))
            # The head and the optimizer belong to the scope: checkpoints have the slots under names that it makes.
            with variable_scope("linear", values=tuple(features.values()), partitioner=parts):
                logits = _linear_logits(features, feature_columns, head.width, sparse_combiner)
                return head.spec(features, mode, logits, labels, lambda loss: _train(made, loss))

        super().__init__(model_fn, model_dir, config, warm_start_from=warm_start_from)


@export("tf.estimator.LinearClassifier")
class LinearClassifier(_Linear):
    """A linear model of classes (``tf.estimator.LinearClassifier``).

    Args:
      feature_columns: the columns.
      model_dir, config, warm_start_from: see `Estimator`.
      n_classes: number of classes.
      weight_column: a feature's name, or a numeric column, with the weight of each example.
      label_vocabulary: the labels' names, if they are strings.
      optimizer: an optimizer, a function that makes one, or a name.
      partitioner: cuts the variables.
      loss_reduction: how the examples' losses become one.
      sparse_combiner: how the weights of an example's categories are joined.
    """

    _head = staticmethod(class_head)


@export("tf.estimator.LinearRegressor")
class LinearRegressor(_Linear):
    """A linear model of numbers (``tf.estimator.LinearRegressor``); see `LinearClassifier`.

    Args:
      label_dimension: how many numbers a label has.
    """

    _head = staticmethod(_number_head)
    __init__ = _regressor(_Linear.__init__)


@export("tf.estimator.LinearEstimator")
class LinearEstimator(_Linear):
    """A linear model with any head (``tf.estimator.LinearEstimator``).

    Args:
      head: a `tf.estimator.Head`.
      The others are those of `LinearClassifier`, but for what the head knows.
    """

    __init__ = _of_head(_Linear.__init__, "warm_start_from")


class _Baseline(Estimator):
    """Its logits are the same for all examples: a bias for each, which learns the labels' mean."""

    _head: Callable[..., PremadeHead]

    def __init__(
        self,
        model_dir: str | None = None,
        n_classes: int = 2,
        weight_column: str | Column | None = None,
        label_vocabulary: Sequence[str] | None = None,
        optimizer: str | Optimizer | Callable[[], Any] = "Ftrl",
        config: RunConfig | None = None,
        loss_reduction: str = Reduction.SUM,
    ) -> None:
        head = self._head(n_classes, weight_column, label_vocabulary, loss_reduction)

        def model_fn(features: Mapping[str, Any], labels: TensorLike, mode: str) -> EstimatorSpec:
            rows = shape(flatten(features)[0])[0]
            with variable_scope("baseline"):
                bias = get_variable("bias", [head.width], initializer=zeros_initializer())
                logits = multiply(bias, ones([rows, head.width]))
            return head.spec(
                features, mode, logits, labels, lambda loss: _train(_optimizer(optimizer, _BASELINE_RATE), loss)
            )

        super().__init__(model_fn, model_dir, config)


@export("tf.estimator.BaselineClassifier")
class BaselineClassifier(_Baseline):
    """Predicts how frequent each class is, whatever the features (``tf.estimator.BaselineClassifier``).

    Args:
      The arguments are those of `LinearClassifier`.
    """

    _head = staticmethod(class_head)


@export("tf.estimator.BaselineRegressor")
class BaselineRegressor(_Baseline):
    """Predicts the mean of the labels, whatever the features (``tf.estimator.BaselineRegressor``).

    Args:
      label_dimension: how many numbers a label has.
    """

    _head = staticmethod(_number_head)
    __init__ = _regressor(_Baseline.__init__)


@export("tf.estimator.BaselineEstimator")
class BaselineEstimator(_Baseline):
    """Predicts what suits any head, whatever the features (``tf.estimator.BaselineEstimator``)."""

    __init__ = _of_head(_Baseline.__init__)


class _Network:
    """Dense layers on top of the columns; called with the features and the mode in its scope, it returns the logits."""

    def __init__(
        self, columns: Iterable[Column], hidden_units: Sequence[int], activation: Callable[..., Any],
        rate: float | None, partitioner: Callable[..., Any] | None, batch_norm: bool,
    ) -> None:  # fmt: skip
        if isinstance(hidden_units, int):
            raise TypeError(f"hidden_units must be a list with the units of each layer: write [{hidden_units}].")
        self._columns, self._hidden_units, self._activation = columns, hidden_units, activation
        self._rate, self._partitioner, self._batch_norm = rate, partitioner, batch_norm

    def scope(self, features: Mapping[str, Any], config: RunConfig) -> Any:
        """The variable scope of the layers."""
        _check_features(features)
        parts = min_max_variable_partitioner(max(config.num_ps_replicas, 1))
        return variable_scope("dnn", values=tuple(features.values()), partitioner=parts)

    def __call__(self, features: Mapping[str, Any], mode: str, width: int, config: RunConfig) -> Tensor:
        with variable_scope("input_from_feature_columns", partitioner=_partitioner(self._partitioner, config)):
            net = network_input(features, self._columns)
        for number, units in enumerate(self._hidden_units):
            net = self._hidden(net, number, units, mode == ModeKeys.TRAIN)
        with variable_scope("logits") as scope:
            logits: Tensor = dense(net, width, name=scope)  # type: ignore[arg-type]
        _summarize(logits, "dnn/logits")
        return logits

    def _hidden(self, net: Tensor, number: int, units: int, training: bool) -> Tensor:
        with variable_scope(f"hiddenlayer_{number}") as scope:
            net = dense(net, units, activation=self._activation, name=scope)  # type: ignore[arg-type]
            count_ops(4)  # TensorFlow's variables are resources
            if self._rate is not None and training:
                net = dropout(net, rate=self._rate, training=True)
            if self._batch_norm:
                net = batch_normalization(net, training=training, momentum=0.999, name=f"batchnorm_{number}")
                count_ops(10)
        _summarize(net, f"dnn/hiddenlayer_{number}")
        return net


def _summarize(value: Tensor, tag: str) -> None:
    scalar(f"{tag}/fraction_of_zero_values", zero_fraction(value))
    histogram(f"{tag}/activation", value)


class _DNN(Estimator):
    _head: Callable[..., PremadeHead]

    def __init__(
        self,
        hidden_units: Sequence[int],
        feature_columns: Iterable[Column],
        model_dir: str | None = None,
        n_classes: int = 2,
        weight_column: str | Column | None = None,
        label_vocabulary: Sequence[str] | None = None,
        optimizer: str | Optimizer | Callable[[], Any] = "Adagrad",
        activation_fn: Callable[..., Any] = relu,
        dropout: float | None = None,
        input_layer_partitioner: Callable[..., Any] | None = None,
        config: RunConfig | None = None,
        warm_start_from: str | WarmStartSettings | None = None,
        loss_reduction: str = Reduction.SUM,
        batch_norm: bool = False,
    ) -> None:
        network = _Network(feature_columns, hidden_units, activation_fn, dropout, input_layer_partitioner, batch_norm)
        head = self._head(n_classes, weight_column, label_vocabulary, loss_reduction)

        def model_fn(features: Mapping[str, Any], labels: TensorLike, mode: str, config: RunConfig) -> EstimatorSpec:
            made = _optimizer(optimizer, _DNN_RATE)
            with network.scope(features, config):  # as in a linear model
                logits = network(features, mode, head.width, config)
                return head.spec(features, mode, logits, labels, lambda loss: _train(made, loss))

        super().__init__(model_fn, model_dir, config, warm_start_from=warm_start_from)


@export("tf.estimator.DNNClassifier")
class DNNClassifier(_DNN):
    """A network of dense layers for classes (``tf.estimator.DNNClassifier``).

    Args:
      hidden_units: number of units of each hidden layer.
      feature_columns: dense columns.
      activation_fn: of the hidden layers.
      dropout: the share of units that is dropped in training.
      input_layer_partitioner: cuts the variables of the columns.
      batch_norm: normalize after each hidden layer.
      The others are those of `LinearClassifier`.
    """

    _head = staticmethod(class_head)


@export("tf.estimator.DNNRegressor")
class DNNRegressor(_DNN):
    """A network of dense layers for numbers (``tf.estimator.DNNRegressor``); see `DNNClassifier`.

    Args:
      label_dimension: how many numbers a label has.
    """

    _head = staticmethod(_number_head)
    __init__ = _regressor(_DNN.__init__)


@export("tf.estimator.DNNEstimator")
class DNNEstimator(_DNN):
    """A network of dense layers with any head (``tf.estimator.DNNEstimator``); see `LinearEstimator`."""

    __init__ = _of_head(_DNN.__init__)


@dataclass(frozen=True)
class _Parts:
    """The columns and optimizers of both parts; a part without columns is absent."""

    linear_columns: Any
    linear_optimizer: Any
    network: _Network | None
    network_optimizer: Any
    partitioner: Any
    combiner: str

    def linear(self, features: Mapping[str, Any], width: int, config: RunConfig) -> Tensor:
        """The linear model's logits."""
        parts = _partitioner(self.partitioner, config)
        with variable_scope("linear", values=tuple(features.values()), partitioner=parts) as scope:
            logits = _linear_logits(features, self.linear_columns, width, self.combiner)
            _summarize(logits, scope.name)
        return logits

    def made_optimizer(self, part: str) -> Any:
        """The optimizer of "dnn" or "linear"."""
        if part == "dnn":
            return _optimizer(self.network_optimizer, _ADDED_DNN_RATE)
        return _optimizer(self.linear_optimizer, _linear_rate(_MOST_ADDED_LINEAR_RATE, self.linear_columns))

    def train(self, loss: Tensor, optimizers: Mapping[str, Any]) -> Any:
        """Minimizes a loss; each part's optimizer changes that part's variables."""
        with control_dependencies(get_collection(GraphKeys.UPDATE_OPS)):
            steps = [made.minimize(loss, var_list=_variables(part)) for part, made in optimizers.items()]
        with control_dependencies([group(*steps)]):
            return assign_add(get_global_step(), 1).op


def _variables(scope: str) -> list[Any]:
    return get_collection(GraphKeys.TRAINABLE_VARIABLES, scope=scope)


def _combined_fn(head: PremadeHead, parts: _Parts) -> Callable[..., Any]:
    def model_fn(features: Mapping[str, Any], labels: TensorLike, mode: str, config: RunConfig) -> EstimatorSpec:
        _check_features(features)
        logits, optimizers = None, {}
        if parts.network is not None:
            optimizers["dnn"] = parts.made_optimizer("dnn")
            with parts.network.scope(features, config):
                logits = parts.network(features, mode, head.width, config)
        if parts.linear_columns:
            optimizers["linear"] = parts.made_optimizer("linear")
            linear = parts.linear(features, head.width, config)
            logits = linear if logits is None else add(logits, linear)
        assert logits is not None
        return head.spec(features, mode, logits, labels, lambda loss: parts.train(loss, optimizers))

    return model_fn


class _DNNLinearCombined(Estimator):
    _head: Callable[..., PremadeHead]

    def __init__(
        self,
        model_dir: str | None = None,
        linear_feature_columns: Iterable[Column] | None = None,
        linear_optimizer: str | Optimizer | Callable[[], Any] = "Ftrl",
        dnn_feature_columns: Iterable[Column] | None = None,
        dnn_optimizer: str | Optimizer | Callable[[], Any] = "Adagrad",
        dnn_hidden_units: Sequence[int] | None = None,
        dnn_activation_fn: Callable[..., Any] = relu,
        dnn_dropout: float | None = None,
        n_classes: int = 2,
        weight_column: str | Column | None = None,
        label_vocabulary: Sequence[str] | None = None,
        input_layer_partitioner: Callable[..., Any] | None = None,
        config: RunConfig | None = None,
        warm_start_from: str | WarmStartSettings | None = None,
        loss_reduction: str = Reduction.SUM,
        batch_norm: bool = False,
        linear_sparse_combiner: str = "sum",
    ) -> None:
        if not linear_feature_columns and not dnn_feature_columns:
            raise ValueError("Either linear_feature_columns or dnn_feature_columns must be defined.")
        if dnn_feature_columns and not dnn_hidden_units:
            raise ValueError("dnn_hidden_units must be defined when dnn_feature_columns is specified.")
        network = None
        if dnn_feature_columns:
            network = _Network(
                dnn_feature_columns, dnn_hidden_units or (), dnn_activation_fn, dnn_dropout, input_layer_partitioner,
                batch_norm,
            )  # fmt: skip
        parts = _Parts(
            linear_feature_columns, linear_optimizer, network, dnn_optimizer, input_layer_partitioner,
            linear_sparse_combiner,
        )  # fmt: skip
        head = self._head(n_classes, weight_column, label_vocabulary, loss_reduction)
        super().__init__(_combined_fn(head, parts), model_dir, config, warm_start_from=warm_start_from)


@export("tf.estimator.DNNLinearCombinedClassifier")
class DNNLinearCombinedClassifier(_DNNLinearCombined):
    """A linear model and a network whose logits are added, for classes (``tf.estimator.DNNLinearCombinedClassifier``).

    Args:
      linear_feature_columns: the linear model's columns; None: there is none.
      linear_optimizer: its optimizer, as in `LinearClassifier`.
      dnn_feature_columns: the network's dense columns; None: there is none.
      dnn_optimizer: its optimizer.
      dnn_hidden_units: number of units of each hidden layer.
      dnn_activation_fn: of the hidden layers.
      dnn_dropout: the share of units that is dropped in training.
      input_layer_partitioner: cuts the variables of the columns.
      linear_sparse_combiner: how the weights of an example's categories are joined.
      The others are those of `LinearClassifier` and `DNNClassifier`.

    Raises:
      ValueError: when both parts are absent, or a number makes no sense.
    """

    _head = staticmethod(class_head)


@export("tf.estimator.DNNLinearCombinedRegressor")
class DNNLinearCombinedRegressor(_DNNLinearCombined):
    """The same for numbers (``tf.estimator.DNNLinearCombinedRegressor``); see `DNNLinearCombinedClassifier`.

    Args:
      label_dimension: how many numbers a label has.
    """

    _head = staticmethod(_number_head)
    __init__ = _regressor(_DNNLinearCombined.__init__)


@export("tf.estimator.DNNLinearCombinedEstimator")
class DNNLinearCombinedEstimator(_DNNLinearCombined):
    """A linear model and a network, with any head (``tf.estimator.DNNLinearCombinedEstimator``)."""

    __init__ = _of_head(_DNNLinearCombined.__init__, "warm_start_from", "batch_norm")
