"""Premade estimators: linear models and networks of dense layers (``tf.estimator.DNNClassifier`` and its kin)."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

from tfmini.estimator.column_layers import input_layer, linear_model, sorted_columns
from tfmini.estimator.estimator import Estimator
from tfmini.estimator.heads import Head, RegressionHead, class_head
from tfmini.estimator.model_spec import EstimatorSpec
from tfmini.estimator.modes import ModeKeys
from tfmini.export import export
from tfmini.graph.keys import GraphKeys
from tfmini.graph.operation import Tensor
from tfmini.graph.scoping import control_dependencies, get_collection
from tfmini.layers.core import dense, dropout
from tfmini.layers.loss_reduction import Reduction
from tfmini.layers.normalization import batch_normalization
from tfmini.ops.control import group
from tfmini.ops.nn.activation import relu
from tfmini.ops.nn.normalization import zero_fraction
from tfmini.ops.summary.functions import histogram, scalar
from tfmini.ops.variables.partitioners import min_max_variable_partitioner
from tfmini.ops.variables.scope import variable_scope
from tfmini.train.global_steps import get_global_step
from tfmini.train.optimizers.adagrad import AdagradOptimizer
from tfmini.train.optimizers.adam import AdamOptimizer
from tfmini.train.optimizers.ftrl import FtrlOptimizer
from tfmini.train.optimizers.gradient_descent import GradientDescentOptimizer
from tfmini.train.optimizers.rmsprop import RMSPropOptimizer

_OPTIMIZERS: dict[str, Callable[..., Any]] = {
    "Adagrad": AdagradOptimizer,
    "Adam": AdamOptimizer,
    "Ftrl": FtrlOptimizer,
    "RMSProp": RMSPropOptimizer,
    "SGD": GradientDescentOptimizer,
}
_DNN_RATE, _MOST_LINEAR_RATE = 0.05, 0.2


def make_optimizer(given: Any, rate: float) -> Any:
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


def check_features(features: Any) -> None:
    if not isinstance(features, dict):
        raise ValueError(f"features should be a dictionary of `Tensor`s. Given type: {type(features)}")


def _linear_fn(head: Head, columns: Any, optimizer: Any, partitioner: Any, combiner: str) -> Callable[..., Any]:
    def model_fn(features: Any, labels: Any, mode: str, config: Any) -> EstimatorSpec:
        check_features(features)
        rate = min(_MOST_LINEAR_RATE, 1 / math.sqrt(len(sorted_columns(columns))))
        parts = partitioner or min_max_variable_partitioner(max(config.num_ps_replicas, 1), min_slice_size=64 << 20)
        with variable_scope("linear", values=tuple(features.values()), partitioner=parts):
            logits = linear_model(features, columns, head.width, combiner)
        return head.spec(features, mode, logits, labels, lambda loss: _train(make_optimizer(optimizer, rate), loss))

    return model_fn


@export("tf.estimator.LinearClassifier")
class LinearClassifier(Estimator):
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

    def __init__(
        self,
        feature_columns: Any,
        model_dir: str | None = None,
        n_classes: int = 2,
        weight_column: Any = None,
        label_vocabulary: Sequence[str] | None = None,
        optimizer: Any = "Ftrl",
        config: Any = None,
        partitioner: Any = None,
        warm_start_from: Any = None,
        loss_reduction: str = Reduction.SUM,
        sparse_combiner: str = "sum",
    ) -> None:
        head = class_head(n_classes, weight_column, label_vocabulary, loss_reduction)
        model_fn = _linear_fn(head, feature_columns, optimizer, partitioner, sparse_combiner)
        super().__init__(model_fn, model_dir, config, warm_start_from=warm_start_from)


@export("tf.estimator.LinearRegressor")
class LinearRegressor(Estimator):
    """A linear model of numbers (``tf.estimator.LinearRegressor``); see `LinearClassifier`.

    Args:
      label_dimension: how many numbers a label has.
    """

    def __init__(
        self,
        feature_columns: Any,
        model_dir: str | None = None,
        label_dimension: int = 1,
        weight_column: Any = None,
        optimizer: Any = "Ftrl",
        config: Any = None,
        partitioner: Any = None,
        warm_start_from: Any = None,
        loss_reduction: str = Reduction.SUM,
        sparse_combiner: str = "sum",
    ) -> None:
        head = RegressionHead(label_dimension, weight_column, loss_reduction)
        model_fn = _linear_fn(head, feature_columns, optimizer, partitioner, sparse_combiner)
        super().__init__(model_fn, model_dir, config, warm_start_from=warm_start_from)


class Network:
    """Dense layers on top of the columns; called with the features and the mode, it returns the logits."""

    def __init__(
        self, columns: Any, hidden_units: Sequence[int], activation: Any, rate: float | None, partitioner: Any,
        batch_norm: bool,
    ) -> None:  # fmt: skip
        self._columns, self._hidden_units, self._activation = columns, hidden_units, activation
        self._rate, self._partitioner, self._batch_norm = rate, partitioner, batch_norm

    def __call__(self, features: Any, mode: str, width: int, config: Any) -> Tensor:
        check_features(features)
        parts = min_max_variable_partitioner(max(config.num_ps_replicas, 1))
        inputs = self._partitioner or min_max_variable_partitioner(
            max(config.num_ps_replicas, 1), min_slice_size=64 << 20
        )
        with variable_scope("dnn", values=tuple(features.values()), partitioner=parts):
            with variable_scope("input_from_feature_columns", partitioner=inputs):
                net = input_layer(features, self._columns)
            for number, units in enumerate(self._hidden_units):
                net = self._hidden(net, number, units, mode == ModeKeys.TRAIN)
            with variable_scope("logits") as scope:
                logits: Tensor = dense(net, width, name=scope)  # type: ignore[arg-type]
            summarize(logits, "dnn/logits")
        return logits

    def _hidden(self, net: Tensor, number: int, units: int, training: bool) -> Tensor:
        with variable_scope(f"hiddenlayer_{number}") as scope:
            net = dense(net, units, activation=self._activation, name=scope)  # type: ignore[arg-type]
            if self._rate is not None and training:
                net = dropout(net, rate=self._rate, training=True)
            if self._batch_norm:
                net = batch_normalization(net, training=training, momentum=0.999, name=f"batchnorm_{number}")
        summarize(net, f"dnn/hiddenlayer_{number}")
        return net


def summarize(value: Tensor, tag: str) -> None:
    scalar(f"{tag}/fraction_of_zero_values", zero_fraction(value))
    histogram(f"{tag}/activation", value)


def _network_fn(head: Head, network: Network, optimizer: Any) -> Callable[..., Any]:
    def model_fn(features: Any, labels: Any, mode: str, config: Any) -> EstimatorSpec:
        logits = network(features, mode, head.width, config)
        train = functools.partial(_train_named, optimizer)
        return head.spec(features, mode, logits, labels, train)

    return model_fn


def _train_named(optimizer: Any, loss: Tensor) -> Any:
    return _train(make_optimizer(optimizer, _DNN_RATE), loss)


@export("tf.estimator.DNNClassifier")
class DNNClassifier(Estimator):
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

    def __init__(
        self,
        hidden_units: Sequence[int],
        feature_columns: Any,
        model_dir: str | None = None,
        n_classes: int = 2,
        weight_column: Any = None,
        label_vocabulary: Sequence[str] | None = None,
        optimizer: Any = "Adagrad",
        activation_fn: Any = relu,
        dropout: float | None = None,
        input_layer_partitioner: Any = None,
        config: Any = None,
        warm_start_from: Any = None,
        loss_reduction: str = Reduction.SUM,
        batch_norm: bool = False,
    ) -> None:
        network = Network(feature_columns, hidden_units, activation_fn, dropout, input_layer_partitioner, batch_norm)
        head = class_head(n_classes, weight_column, label_vocabulary, loss_reduction)
        super().__init__(_network_fn(head, network, optimizer), model_dir, config, warm_start_from=warm_start_from)


@export("tf.estimator.DNNRegressor")
class DNNRegressor(Estimator):
    """A network of dense layers for numbers (``tf.estimator.DNNRegressor``); see `DNNClassifier`.

    Args:
      label_dimension: how many numbers a label has.
    """

    def __init__(
        self,
        hidden_units: Sequence[int],
        feature_columns: Any,
        model_dir: str | None = None,
        label_dimension: int = 1,
        weight_column: Any = None,
        optimizer: Any = "Adagrad",
        activation_fn: Any = relu,
        dropout: float | None = None,
        input_layer_partitioner: Any = None,
        config: Any = None,
        warm_start_from: Any = None,
        loss_reduction: str = Reduction.SUM,
        batch_norm: bool = False,
    ) -> None:
        network = Network(feature_columns, hidden_units, activation_fn, dropout, input_layer_partitioner, batch_norm)
        head = RegressionHead(label_dimension, weight_column, loss_reduction)
        super().__init__(_network_fn(head, network, optimizer), model_dir, config, warm_start_from=warm_start_from)
