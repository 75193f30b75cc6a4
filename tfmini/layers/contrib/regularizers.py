"""Regularizers, and the Xavier and variance scaling initializers (``tf.contrib.layers``)."""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable, Iterable
from typing import Any

from tfmini import dtypes
from tfmini.export import export, export_names
from tfmini.graph.conversion import convert_to_tensor
from tfmini.graph.keys import GraphKeys
from tfmini.graph.operation import Tensor
from tfmini.graph.scoping import add_to_collection, get_collection, name_scope
from tfmini.ops.array.constant import constant
from tfmini.ops.math.complex import abs as absolute
from tfmini.ops.math.elementwise import multiply
from tfmini.ops.math.reduce_functions import reduce_sum
from tfmini.ops.math.sums import add_n
from tfmini.ops.nn.bias import l2_loss
from tfmini.ops.random import functions as random_values

Regularizer = Callable[[Any], Any]


def _nothing(_: Any) -> None:
    return None


def _checked(scale: Any) -> float:
    if isinstance(scale, numbers.Integral):
        raise ValueError(f"scale cannot be an integer: {scale}")  # noqa: TRY004 - TensorFlow's class
    if scale < 0.0:
        raise ValueError(f"Setting a scale less than 0 on a regularizer: {scale}")
    return float(scale)


@export(
    "tf.contrib.layers.l1_regularizer", "tf.contrib.slim.l1_regularizer", "tf.contrib.slim.regularizers.l1_regularizer"
)
def l1_regularizer(scale: float, scope: str | None = None) -> Regularizer:
    """``scale`` times the sum of absolute values (``tf.contrib.layers.l1_regularizer``)."""
    if _checked(scale) == 0.0:
        return _nothing

    def l1(weights: Any, name: str | None = None) -> Tensor:
        with name_scope(scope, "l1_regularizer", [weights]) as opened:
            factor = constant(scale, dtype=weights.dtype.base_dtype, name="scale")
            return multiply(factor, reduce_sum(absolute(weights)), name=name or opened)

    return l1


@export(
    "tf.contrib.layers.l2_regularizer", "tf.contrib.slim.l2_regularizer", "tf.contrib.slim.regularizers.l2_regularizer"
)
def l2_regularizer(scale: float, scope: str | None = None) -> Regularizer:
    """``scale`` times half the sum of squares (``tf.contrib.layers.l2_regularizer``)."""
    if _checked(scale) == 0.0:
        return _nothing

    def l2(weights: Any) -> Tensor:
        with name_scope(scope, "l2_regularizer", [weights]) as opened:
            factor = constant(scale, dtype=weights.dtype.base_dtype, name="scale")
            return multiply(factor, l2_loss(convert_to_tensor(weights)), name=opened)

    return l2


@export(
    "tf.contrib.layers.l1_l2_regularizer",
    "tf.contrib.slim.l1_l2_regularizer",
    "tf.contrib.slim.regularizers.l1_l2_regularizer",
)
def l1_l2_regularizer(scale_l1: float = 1.0, scale_l2: float = 1.0, scope: str | None = None) -> Any:
    """The sum of an L1 and an L2 regularizer (``tf.contrib.layers.l1_l2_regularizer``)."""
    if _checked(scale_l1) == 0.0:
        return l2_regularizer(scale_l2, scope)
    if _checked(scale_l2) == 0.0:
        return l1_regularizer(scale_l1, scope)
    name = scope or "l1_l2_regularizer"
    return sum_regularizer([l1_regularizer(scale_l1), l2_regularizer(scale_l2)], scope=name)


@export("tf.contrib.layers.sum_regularizer", "tf.contrib.slim.regularizers.sum_regularizer")
def sum_regularizer(regularizer_list: Iterable[Regularizer | None], scope: str | None = None) -> Any:
    """The sum of several regularizers, or None if there are none (``tf.contrib.layers.sum_regularizer``)."""
    regularizers = [r for r in regularizer_list if r is not None]
    if not regularizers:
        return None

    def total(weights: Any) -> Any:
        with name_scope(scope, "sum_regularizer", [weights]) as opened:
            losses = [loss for loss in (r(weights) for r in regularizers) if loss is not None]
            return add_n(losses, name=opened) if losses else None

    return total


@export(
    "tf.contrib.layers.apply_regularization",
    "tf.contrib.slim.apply_regularization",
    "tf.contrib.slim.regularizers.apply_regularization",
)
def apply_regularization(regularizer: Regularizer, weights_list: Any = None) -> Tensor:
    """Sums a regularizer over weights (default: WEIGHTS) and adds the sum to REGULARIZATION_LOSSES.

    ``tf.contrib.layers.apply_regularization``; raises ValueError if there are no weights.
    """
    weights = weights_list or get_collection(GraphKeys.WEIGHTS)
    if not weights:
        raise ValueError("No weights to regularize.")
    with name_scope("get_regularization_penalty", values=weights) as opened:
        losses = [loss for loss in (regularizer(w) for w in weights) if loss is not None]
        penalty = add_n(losses, name=opened) if losses else constant(0.0)
    add_to_collection(GraphKeys.REGULARIZATION_LOSSES, penalty)
    return penalty


@export(
    "tf.contrib.layers.xavier_initializer",
    "tf.contrib.slim.xavier_initializer",
    "tf.contrib.slim.initializers.xavier_initializer",
)
def xavier_initializer(uniform: bool = True, seed: int | None = None, dtype: Any = dtypes.float32) -> Any:
    """The Glorot (Xavier) initializer (``tf.contrib.layers.xavier_initializer``)."""
    return variance_scaling_initializer(factor=1.0, mode="FAN_AVG", uniform=uniform, seed=seed, dtype=dtype)


xavier_initializer_conv2d = xavier_initializer


@export(
    "tf.contrib.layers.variance_scaling_initializer",
    "tf.contrib.slim.variance_scaling_initializer",
    "tf.contrib.slim.initializers.variance_scaling_initializer",
)
def variance_scaling_initializer(
    factor: float = 2.0,
    mode: str = "FAN_IN",
    uniform: bool = False,
    seed: int | None = None,
    dtype: Any = dtypes.float32,
) -> Any:
    """Random values of variance ``factor / n`` (``tf.contrib.layers.variance_scaling_initializer``).

    Args:
      mode: the meaning of n: "FAN_IN", "FAN_OUT" or "FAN_AVG".
      uniform: draw from a uniform rather than a truncated normal distribution.

    Raises:
      TypeError: when the mode is unknown or the dtype is not floating point.
    """
    kind = dtypes.as_dtype(dtype)
    if not kind.is_floating:
        raise TypeError("Cannot create initializer for non-floating point type.")
    if mode not in ("FAN_IN", "FAN_OUT", "FAN_AVG"):
        raise TypeError(f"Unknown mode {mode} [FAN_IN, FAN_OUT, FAN_AVG]")

    def initializer(shape: Any, dtype: Any = kind, partition_info: Any = None) -> Tensor:
        count = _fan(shape if partition_info is None else partition_info.full_shape, mode)
        if uniform:
            limit = math.sqrt(3.0 * factor / count)
            return random_values.random_uniform(shape, -limit, limit, dtype or kind, seed=seed)
        # A normal distribution truncated at two standard deviations has about 1 / 1.3 of the variance.
        deviation = math.sqrt(1.3 * factor / count)
        return random_values.truncated_normal(shape, 0.0, deviation, dtype or kind, seed=seed)

    return initializer


def _fan(shape: Any, mode: str) -> float:
    sizes = [float(size) for size in shape]
    if not sizes:
        return 1.0
    field = math.prod(sizes[:-2])
    fan_in, fan_out = sizes[-2 if len(sizes) > 1 else -1] * field, sizes[-1] * field
    return {"FAN_IN": fan_in, "FAN_OUT": fan_out, "FAN_AVG": (fan_in + fan_out) / 2.0}[mode]


export_names("tf.contrib.layers tf.contrib.slim.initializers", "xavier_initializer_conv2d")
