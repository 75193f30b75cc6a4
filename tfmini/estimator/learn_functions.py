"""Functions of ``tf.contrib.learn``: models of one layer, input functions and tables of numbers."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

from tfmini.core_types import TensorLike
from tfmini.estimator import input_functions
from tfmini.estimator.contrib_learn import Data
from tfmini.export import export
from tfmini.graph.conversion import convert_to_tensor
from tfmini.graph.default_graph import get_default_graph
from tfmini.graph.operation import Tensor
from tfmini.graph.scoping import name_scope
from tfmini.layers.losses import mean_squared_error, softmax_cross_entropy
from tfmini.ops.array.shape import squeeze
from tfmini.ops.math.elementwise import multiply
from tfmini.ops.nn.batch_norm import xw_plus_b
from tfmini.ops.nn.cross_entropy import softmax
from tfmini.ops.summary import histogram
from tfmini.ops.variables.initializers import random_normal_initializer
from tfmini.ops.variables.scope import get_variable, get_variable_scope, variable_scope

Made = tuple[Tensor, Tensor]
_DENSE = "contrib.learn takes numbers and booleans only; these columns have others: "


def _weights(x: Tensor, y: Tensor, mean: float | None, stddev: float | None) -> tuple[Any, Any]:
    """A weight for each feature and output and a bias for each output, with the summaries of a model."""
    width = 1 if y.shape.ndims == 1 else y.shape[-1].value
    start = None if mean is None else random_normal_initializer(mean, stddev or 0.0, dtype=x.dtype)
    scope = get_variable_scope().name
    histogram(f"{scope}.x", x)
    histogram(f"{scope}.y", y)
    weights = get_variable("weights", [x.shape[1].value, width], x.dtype, start)
    bias = get_variable("bias", [width], x.dtype, start)
    histogram(f"{scope}.weights", weights)
    histogram(f"{scope}.bias", bias)
    return weights, bias


@export("tf.contrib.learn.ops.mean_squared_error_regressor")
def mean_squared_error_regressor(
    tensor_in: Tensor, labels: Tensor, weights: TensorLike, biases: TensorLike, name: str | None = None
) -> Made:
    """Linear predictions and their mean squared error (``tf.contrib.learn.ops``)."""
    with name_scope(name, "mean_squared_error_regressor", [tensor_in, labels]):
        made = xw_plus_b(tensor_in, weights, biases)
        if labels.shape.ndims == 1 and made.shape.ndims == 2:
            made = squeeze(made, axis=[1])
        return made, mean_squared_error(labels, made)


@export("tf.contrib.learn.ops.softmax_classifier")
def softmax_classifier(
    tensor_in: Tensor, labels: TensorLike, weights: TensorLike, biases: TensorLike,
    class_weight: TensorLike | None = None, name: str | None = None,
) -> Made:  # fmt: skip
    """Probabilities of classes and their cross entropy with one-hot labels (``tf.contrib.learn.ops``)."""
    with name_scope(name, "softmax_classifier", [tensor_in, labels]):
        logits = xw_plus_b(tensor_in, weights, biases)
        if class_weight is not None:
            logits = multiply(logits, class_weight)
        return softmax(logits), softmax_cross_entropy(labels, logits)


@export("tf.contrib.learn.models.linear_regression")
def linear_regression(x: TensorLike, y: TensorLike, init_mean: float | None = None, init_stddev: float = 1.0) -> Made:
    """(predictions, loss) of a linear model (``tf.contrib.learn.models.linear_regression``).

    Args:
      x: features, [batch, features].
      y: numbers, [batch] or [batch, outputs].
      init_mean, init_stddev: the distribution of the initial values; without a mean it is that of `get_variable`.
    """
    x, y = convert_to_tensor(x), convert_to_tensor(y)
    with variable_scope("linear_regression"):
        return mean_squared_error_regressor(x, y, *_weights(x, y, init_mean, init_stddev))


@export("tf.contrib.learn.models.linear_regression_zero_init")
def linear_regression_zero_init(x: TensorLike, y: TensorLike) -> Made:
    """`linear_regression` that begins with zeros."""
    return linear_regression(x, y, 0.0, 0.0)


@export("tf.contrib.learn.models.logistic_regression")
def logistic_regression(
    x: TensorLike, y: TensorLike, class_weight: TensorLike | None = None, init_mean: float | None = None,
    init_stddev: float = 1.0,
) -> Made:  # fmt: skip
    """(probabilities, loss) of a model of classes (``tf.contrib.learn.models.logistic_regression``).

    Args:
      x: features, [batch, features].
      y: one-hot labels, [batch, classes].
      class_weight: a weight for each class; default: the graph's tensor ``class_weight:0``, if there is one.
      init_mean, init_stddev: see `linear_regression`.
    """
    x, y = convert_to_tensor(x), convert_to_tensor(y)
    with variable_scope("logistic_regression"):
        weights = _weights(x, y, init_mean, init_stddev)
        if class_weight is None:
            with contextlib.suppress(KeyError):
                class_weight = get_default_graph().get_tensor_by_name("class_weight:0")
        return softmax_classifier(x, y, *weights, class_weight=class_weight)


@export("tf.contrib.learn.models.logistic_regression_zero_init")
def logistic_regression_zero_init(x: TensorLike, y: TensorLike) -> Made:
    """`logistic_regression` that begins with zeros."""
    return logistic_regression(x, y, init_mean=0.0, init_stddev=0.0)


@export("tf.contrib.learn.io.numpy_input_fn")
def numpy_input_fn(
    x: Data, y: Data = None, batch_size: int = 128, num_epochs: int | None = 1, shuffle: bool = True,
    queue_capacity: int = 1000, num_threads: int = 1,
) -> Callable[[], Any]:  # fmt: skip
    """`tf.estimator.inputs.numpy_input_fn` that shuffles unless told not to (``tf.contrib.learn.io``)."""
    return input_functions.numpy_input_fn(x, y, batch_size, num_epochs, shuffle, queue_capacity, num_threads)


@export("tf.contrib.learn.io.pandas_input_fn")
def pandas_input_fn(
    x: Data, y: Data = None, batch_size: int = 128, num_epochs: int | None = 1, shuffle: bool = True,
    queue_capacity: int = 1000, num_threads: int = 1, target_column: str = "target",
) -> Callable[[], Any]:  # fmt: skip
    """`tf.estimator.inputs.pandas_input_fn` that shuffles unless told not to (``tf.contrib.learn.io``)."""
    return input_functions.pandas_input_fn(
        x, y, batch_size, num_epochs, shuffle, queue_capacity, num_threads, target_column
    )


@export("tf.contrib.learn.extract_pandas_data", "tf.contrib.learn.io.extract_pandas_data")
def extract_pandas_data(data: Any) -> Any:
    """The numbers of a DataFrame as float64 (``tf.contrib.learn.extract_pandas_data``); other data as they are.

    Raises:
      ValueError: when a column has other values than numbers and booleans.
    """
    if not hasattr(data, "dtypes"):
        return data
    bad = [f"{name} ({kind})" for name, kind in data.dtypes.items() if getattr(kind, "kind", "O") not in "biuf"]
    if bad:
        raise ValueError(_DENSE + ", ".join(bad))
    return data.values.astype("float")


@export("tf.contrib.learn.extract_pandas_labels", "tf.contrib.learn.io.extract_pandas_labels")
def extract_pandas_labels(labels: Any) -> Any:
    """The values of a Series, or of a DataFrame of one column; other labels as they are (``tf.contrib.learn``).

    Raises:
      ValueError: for several columns, and for other values than numbers and booleans.
    """
    if not hasattr(labels, "columns"):
        return labels
    if len(labels.columns) > 1:
        raise ValueError("Only one column for labels is allowed.")
    extract_pandas_data(labels)
    return labels.values


@export("tf.contrib.learn.extract_pandas_matrix", "tf.contrib.learn.io.extract_pandas_matrix")
def extract_pandas_matrix(data: Any) -> Any:
    """The array of a DataFrame; other data as they are (``tf.contrib.learn``)."""
    return data.values if hasattr(data, "columns") else data
