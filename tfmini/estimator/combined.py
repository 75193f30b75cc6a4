"""Premade estimators that add a linear model and a network (``DNNLinearCombinedClassifier``)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tfmini.estimator.column_layers import linear_model, sorted_columns
from tfmini.estimator.estimator import Estimator
from tfmini.estimator.heads import Head, RegressionHead, class_head
from tfmini.estimator.model_spec import EstimatorSpec
from tfmini.estimator.premade import Network, check_features, make_optimizer, summarize
from tfmini.export import export
from tfmini.graph.keys import GraphKeys
from tfmini.graph.operation import Tensor
from tfmini.graph.scoping import control_dependencies, get_collection
from tfmini.layers.loss_reduction import Reduction
from tfmini.ops.control import group
from tfmini.ops.math.elementwise import add
from tfmini.ops.nn.activation import relu
from tfmini.ops.variables.assignment import assign_add
from tfmini.ops.variables.partitioners import min_max_variable_partitioner
from tfmini.ops.variables.scope import variable_scope
from tfmini.train.global_steps import get_global_step

_DNN_RATE, _MOST_LINEAR_RATE = 0.001, 0.005


@dataclass(frozen=True)
class _Parts:
    """The columns and optimizers of both parts; a part without columns is absent."""

    linear_columns: Any
    linear_optimizer: Any
    network: Network | None
    network_optimizer: Any
    partitioner: Any
    combiner: str

    def linear(self, features: Any, width: int, config: Any) -> Tensor:
        """The linear model's logits."""
        parts = self.partitioner or min_max_variable_partitioner(
            max(config.num_ps_replicas, 1), min_slice_size=64 << 20
        )
        with variable_scope("linear", values=tuple(features.values()), partitioner=parts) as scope:
            logits = linear_model(features, self.linear_columns, width, self.combiner)
            summarize(logits, scope.name)
        return logits

    def train(self, loss: Tensor) -> Any:
        """Minimizes a loss; each part's optimizer changes that part's variables."""
        steps = []
        with control_dependencies(get_collection(GraphKeys.UPDATE_OPS)):
            if self.network is not None:
                optimizer = make_optimizer(self.network_optimizer, _DNN_RATE)
                steps.append(optimizer.minimize(loss, var_list=_variables("dnn")))
            if self.linear_columns:
                rate = min(_MOST_LINEAR_RATE, 1 / math.sqrt(len(sorted_columns(self.linear_columns))))
                optimizer = make_optimizer(self.linear_optimizer, rate)
                steps.append(optimizer.minimize(loss, var_list=_variables("linear")))
        with control_dependencies([group(*steps)]):
            return assign_add(get_global_step(), 1).op


def _variables(scope: str) -> list[Any]:
    return get_collection(GraphKeys.TRAINABLE_VARIABLES, scope=scope)


def _combined_fn(head: Head, parts: _Parts) -> Callable[..., Any]:
    def model_fn(features: Any, labels: Any, mode: str, config: Any) -> EstimatorSpec:
        check_features(features)
        logits = None if parts.network is None else parts.network(features, mode, head.width, config)
        if parts.linear_columns:
            linear = parts.linear(features, head.width, config)
            logits = linear if logits is None else add(logits, linear)
        assert logits is not None
        return head.spec(features, mode, logits, labels, parts.train)

    return model_fn


def _parts(
    linear_columns: Any, linear_optimizer: Any, dnn_columns: Any, dnn_optimizer: Any, hidden_units: Any,
    activation: Any, rate: float | None, partitioner: Any, batch_norm: bool, combiner: str,
) -> _Parts:  # fmt: skip
    if not linear_columns and not dnn_columns:
        raise ValueError("Either linear_feature_columns or dnn_feature_columns must be defined.")
    if dnn_columns and not hidden_units:
        raise ValueError("dnn_hidden_units must be defined when dnn_feature_columns is specified.")
    network = Network(dnn_columns, hidden_units, activation, rate, partitioner, batch_norm) if dnn_columns else None
    return _Parts(linear_columns, linear_optimizer, network, dnn_optimizer, partitioner, combiner)


@export("tf.estimator.DNNLinearCombinedClassifier")
class DNNLinearCombinedClassifier(Estimator):
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

    def __init__(
        self,
        model_dir: str | None = None,
        linear_feature_columns: Any = None,
        linear_optimizer: Any = "Ftrl",
        dnn_feature_columns: Any = None,
        dnn_optimizer: Any = "Adagrad",
        dnn_hidden_units: Sequence[int] | None = None,
        dnn_activation_fn: Any = relu,
        dnn_dropout: float | None = None,
        n_classes: int = 2,
        weight_column: Any = None,
        label_vocabulary: Sequence[str] | None = None,
        input_layer_partitioner: Any = None,
        config: Any = None,
        warm_start_from: Any = None,
        loss_reduction: str = Reduction.SUM,
        batch_norm: bool = False,
        linear_sparse_combiner: str = "sum",
    ) -> None:
        parts = _parts(
            linear_feature_columns, linear_optimizer, dnn_feature_columns, dnn_optimizer, dnn_hidden_units,
            dnn_activation_fn, dnn_dropout, input_layer_partitioner, batch_norm, linear_sparse_combiner,
        )  # fmt: skip
        head = class_head(n_classes, weight_column, label_vocabulary, loss_reduction)
        super().__init__(_combined_fn(head, parts), model_dir, config, warm_start_from=warm_start_from)


@export("tf.estimator.DNNLinearCombinedRegressor")
class DNNLinearCombinedRegressor(Estimator):
    """The same for numbers (``tf.estimator.DNNLinearCombinedRegressor``); see `DNNLinearCombinedClassifier`.

    Args:
      label_dimension: how many numbers a label has.
    """

    def __init__(
        self,
        model_dir: str | None = None,
        linear_feature_columns: Any = None,
        linear_optimizer: Any = "Ftrl",
        dnn_feature_columns: Any = None,
        dnn_optimizer: Any = "Adagrad",
        dnn_hidden_units: Sequence[int] | None = None,
        dnn_activation_fn: Any = relu,
        dnn_dropout: float | None = None,
        label_dimension: int = 1,
        weight_column: Any = None,
        input_layer_partitioner: Any = None,
        config: Any = None,
        warm_start_from: Any = None,
        loss_reduction: str = Reduction.SUM,
        batch_norm: bool = False,
        linear_sparse_combiner: str = "sum",
    ) -> None:
        parts = _parts(
            linear_feature_columns, linear_optimizer, dnn_feature_columns, dnn_optimizer, dnn_hidden_units,
            dnn_activation_fn, dnn_dropout, input_layer_partitioner, batch_norm, linear_sparse_combiner,
        )  # fmt: skip
        head = RegressionHead(label_dimension, weight_column, loss_reduction)
        super().__init__(_combined_fn(head, parts), model_dir, config, warm_start_from=warm_start_from)
