"""Learning rate schedules: rates that depend on the global step (``tf.train.exponential_decay`` and others).

Each function returns a scalar tensor of the type of ``learning_rate``. ``global_step`` is a scalar tensor or
variable of any number type; all but `piecewise_constant` raise ValueError if it is None.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from tfmini import dtypes
from tfmini.core_types import TensorLike
from tfmini.export import export, export_names
from tfmini.graph.conversion import convert_n_to_tensor, convert_to_tensor
from tfmini.graph.operation import Tensor
from tfmini.graph.scoping import name_scope
from tfmini.ops.array.constant import constant
from tfmini.ops.array.identity import cast
from tfmini.ops.flow.functional import case
from tfmini.ops.math import comparison as compare
from tfmini.ops.math import elementwise, unary
from tfmini.ops.math.unary import pow as power_of
from tfmini.ops.random_functions import random_normal
from tfmini.ops.variables.base import Variable


@export("tf.train.exponential_decay")
def exponential_decay(
    learning_rate: TensorLike,
    global_step: Variable,
    decay_steps: TensorLike,
    decay_rate: TensorLike,
    staircase: bool = False,
    name: str | None = None,
) -> Tensor:
    """learning_rate * decay_rate ^ (global_step / decay_steps); ``staircase`` rounds the quotient down.

    Args:
      learning_rate: the rate at step 0, a number or a scalar float tensor.
      global_step: the step, a scalar variable or tensor.
      decay_steps: after how many steps the rate is multiplied by ``decay_rate``.
      decay_rate: a number.
      staircase: whether the rate changes only each ``decay_steps`` steps.
      name: of the op.

    Returns:
      A scalar of the dtype of ``learning_rate``, computed anew in each step.
    """
    with _schedule("exponential_decay", learning_rate, global_step, name or "ExponentialDecay") as (rate, scope):
        steps, base = cast(decay_steps, rate.dtype), cast(decay_rate, rate.dtype)
        exponent = _periods(global_step, steps, staircase)
        return elementwise.multiply(rate, power_of(base, exponent), name=scope)


@export("tf.train.natural_exp_decay")
def natural_exp_decay(
    learning_rate: TensorLike,
    global_step: Variable,
    decay_steps: TensorLike,
    decay_rate: TensorLike,
    staircase: bool = False,
    name: str | None = None,
) -> Tensor:
    """learning_rate * exp(-decay_rate * global_step / decay_steps); ``staircase`` rounds the quotient down."""
    _require_step(global_step, "natural_exp_decay")
    base = unary.exp(elementwise.negative(decay_rate))
    return exponential_decay(learning_rate, global_step, decay_steps, base, staircase, name)


@export("tf.train.inverse_time_decay")
def inverse_time_decay(
    learning_rate: TensorLike,
    global_step: Variable,
    decay_steps: TensorLike,
    decay_rate: TensorLike,
    staircase: bool = False,
    name: str | None = None,
) -> Tensor:
    """learning_rate / (1 + decay_rate * global_step / decay_steps); ``staircase`` rounds the quotient down."""
    with _schedule("inverse_time_decay", learning_rate, global_step, name or "InverseTimeDecay") as (rate, scope):
        steps, slope = cast(decay_steps, rate.dtype), cast(decay_rate, rate.dtype)
        periods = _periods(global_step, steps, staircase)
        one = cast(constant(1), rate.dtype)
        return elementwise.divide(rate, elementwise.add(one, elementwise.multiply(slope, periods)), name=scope)


@export("tf.train.polynomial_decay")
def polynomial_decay(
    learning_rate: TensorLike,
    global_step: Variable,
    decay_steps: TensorLike,
    end_learning_rate: TensorLike = 0.0001,
    power: TensorLike = 1.0,
    cycle: bool = False,
    name: str | None = None,
) -> Tensor:
    """Decreases from ``learning_rate`` to ``end_learning_rate`` over ``decay_steps`` like (1 - fraction) ^ power.

    After that the rate is constant. With ``cycle`` the decay is stretched to 2, 3, … times ``decay_steps``.
    """
    with _schedule("polynomial_decay", learning_rate, global_step, name or "PolynomialDecay") as (rate, scope):
        end, exponent = cast(end_learning_rate, rate.dtype), cast(power, rate.dtype)
        step, steps = cast(global_step, rate.dtype), cast(decay_steps, rate.dtype)
        if cycle:
            # The number of cycles is ceil(step / steps), but 1 at step 0.
            started = unary.ceil(elementwise.truediv(step, steps))
            steps = elementwise.multiply(steps, elementwise.maximum(started, cast(1.0, rate.dtype)))
        else:
            step = elementwise.minimum(step, steps)
        left = power_of(1 - elementwise.truediv(step, steps), exponent)
        return elementwise.add(elementwise.multiply(elementwise.subtract(rate, end), left), end, name=scope)


@export("tf.train.piecewise_constant")
def piecewise_constant(x: TensorLike, boundaries: Sequence[Any], values: TensorLike, name: str | None = None) -> Tensor:
    """``values[i]`` for the first i with ``x <= boundaries[i]``; the last value beyond the last boundary.

    Args:
      x: a scalar, usually the global step.
      boundaries: increasing numbers of the type of ``x``.
      values: numbers, one more than boundaries.
      name: of the op.

    Returns:
      A scalar.

    Raises:
      ValueError: when there is not one value more than boundaries, or types differ.
    """
    boundaries = convert_n_to_tensor(boundaries)
    values = convert_n_to_tensor(values)
    position = convert_to_tensor(x)
    boundaries = [_as_position(b, position.dtype.base_dtype) for b in boundaries]
    for value in values[1:]:
        if value.dtype.base_dtype != values[0].dtype.base_dtype:
            raise ValueError(
                "Values must have elements all with the same dtype"
                f" ({values[0].dtype.base_dtype} vs {value.dtype.base_dtype})."
            )
    if len(boundaries) != len(values) - 1:
        raise ValueError("The length of boundaries should be 1 less than the length of values")
    with name_scope(name or "PiecewiseConstant"):
        pairs = [
            (compare.less_equal(position, boundaries[0]), partial(_value_of, values[0])),
            (compare.greater(position, boundaries[-1]), partial(_value_of, values[-1])),
        ]
        for low, high, value in zip(boundaries[:-1], boundaries[1:], values[1:-1]):
            between = compare.logical_and(compare.greater(position, low), compare.less_equal(position, high))
            pairs.append((between, partial(_value_of, value)))
        # One condition is always true, so the default is never used.
        return case(pairs, default=partial(_value_of, values[0]), exclusive=True)  # type: ignore[no-any-return]


def _value_of(value: Tensor) -> Tensor:
    return value


piecewise_constant_decay = piecewise_constant


@export("tf.train.cosine_decay")
def cosine_decay(
    learning_rate: TensorLike,
    global_step: Variable,
    decay_steps: TensorLike,
    alpha: float = 0.0,
    name: str | None = None,
) -> Tensor:
    """Decreases along half a cosine wave to ``alpha * learning_rate`` over ``decay_steps``, then is constant."""
    with _schedule("cosine_decay", learning_rate, global_step, name or "CosineDecay") as (rate, _):
        steps = cast(decay_steps, rate.dtype)
        step = elementwise.minimum(cast(global_step, rate.dtype), steps)
        wave = _half_wave(elementwise.truediv(step, steps))
        return elementwise.multiply(rate, (1 - alpha) * wave + alpha)


@export("tf.train.cosine_decay_restarts")
def cosine_decay_restarts(
    learning_rate: TensorLike, global_step: Variable, first_decay_steps: TensorLike, t_mul: TensorLike = 2.0,
    m_mul: TensorLike = 1.0, alpha: TensorLike = 0.0, name: str | None = None,
) -> Tensor:  # fmt: skip
    """`cosine_decay` with restarts: period i is ``t_mul ^ i`` times as long and starts at rate ``m_mul ^ i``.

    Args:
      t_mul: a number or a tensor.
    """
    with _schedule("cosine_decay_restarts", learning_rate, global_step, name or "SGDRDecay") as (rate, scope):
        dtype = rate.dtype
        steps, floor_rate = cast(first_decay_steps, dtype), cast(alpha, dtype)
        growth, fading = cast(t_mul, dtype), cast(m_mul, dtype)
        fraction: Any = elementwise.truediv(cast(global_step, dtype), steps)
        restarts, fraction = _restarts(fraction, growth)
        wave = _half_wave(fraction) * power_of(fading, restarts)
        return elementwise.multiply(rate, (1 - floor_rate) * wave + floor_rate, name=scope)


@export("tf.train.linear_cosine_decay")
def linear_cosine_decay(
    learning_rate: TensorLike,
    global_step: Variable,
    decay_steps: TensorLike,
    num_periods: TensorLike = 0.5,
    alpha: TensorLike = 0.0,
    beta: TensorLike = 0.001,
    name: str | None = None,
) -> Tensor:
    """A linear decay times a cosine wave of ``num_periods`` periods: (alpha + linear) * cosine + beta."""
    with _schedule("linear_cosine_decay", learning_rate, global_step, name or "LinearCosineDecay") as (rate, scope):
        dtype = rate.dtype
        steps = cast(decay_steps, dtype)
        step = elementwise.minimum(cast(global_step, dtype), steps)
        linear: Any = elementwise.truediv(elementwise.subtract(steps, step), steps)
        wave = _half_wave(2.0 * cast(num_periods, dtype) * elementwise.truediv(step, steps))
        return elementwise.multiply(rate, (cast(alpha, dtype) + linear) * wave + cast(beta, dtype), name=scope)


@export("tf.train.noisy_linear_cosine_decay")
def noisy_linear_cosine_decay(
    learning_rate: TensorLike,
    global_step: Variable,
    decay_steps: TensorLike,
    initial_variance: TensorLike = 1.0,
    variance_decay: TensorLike = 0.55,
    num_periods: TensorLike = 0.5,
    alpha: TensorLike = 0.0,
    beta: TensorLike = 0.001,
    name: str | None = None,
) -> Tensor:
    """`linear_cosine_decay` with noise on the linear part; the variance of the noise decreases with the steps.

    variance = initial_variance / (1 + step)^variance_decay.
    """
    name = name or "NoisyLinearCosineDecay"
    with _schedule("noisy_linear_cosine_decay", learning_rate, global_step, name) as (rate, scope):
        dtype = rate.dtype
        steps = cast(decay_steps, dtype)
        step: Any = elementwise.minimum(cast(global_step, dtype), steps)
        linear: Any = elementwise.truediv(elementwise.subtract(steps, step), steps)
        spread = unary.sqrt(cast(initial_variance, dtype) / power_of(1.0 + step, cast(variance_decay, dtype)))
        noisy = linear + random_normal(linear.shape, stddev=spread, dtype=dtype)
        wave = _half_wave(2.0 * cast(num_periods, dtype) * elementwise.truediv(step, steps))
        return elementwise.multiply(rate, (cast(alpha, dtype) + noisy) * wave + cast(beta, dtype), name=scope)


def _require_step(global_step: Variable, function: str) -> None:
    if global_step is None:
        raise ValueError(f"global_step is required for {function}.")


@contextmanager
def _schedule(
    function: str, learning_rate: TensorLike, global_step: Variable, name: str
) -> Iterator[tuple[Tensor, str]]:
    """The name scope of a schedule, as (the initial rate, the scope's name)."""
    _require_step(global_step, function)
    with name_scope(name) as scope:
        yield convert_to_tensor(learning_rate, name="initial_learning_rate"), scope


def _periods(global_step: TensorLike, steps: Tensor, staircase: bool) -> Tensor:
    periods = elementwise.truediv(cast(global_step, steps.dtype), steps)
    return unary.floor(periods) if staircase else periods


def _half_wave(fraction: Tensor) -> Any:
    """Half a cosine wave, from 1 at fraction 0 to 0 at fraction 1."""
    wave: Any = unary.cos(cast(constant(math.pi), fraction.dtype) * fraction)
    return 0.5 * (1.0 + wave)


def _restarts(fraction: Tensor, growth: Tensor) -> tuple[Any, Any]:
    """The number of restarts so far, and the elapsed fraction of the current period."""
    plain = unary.floor(fraction)
    # With equal periods the geometric formula divides zero by zero; `where` discards that result.
    geometric: Any = unary.floor(elementwise.truediv(unary.log(1.0 - fraction * (1.0 - growth)), unary.log(growth)))
    length: Any = power_of(growth, geometric)
    before = (1.0 - length) / (1.0 - growth)
    equal = compare.equal(growth, cast(1.0, growth.dtype))
    count = compare.where(equal, plain, geometric)
    return count, compare.where(equal, fraction - plain, (fraction - before) / length)


def _as_position(boundary: Tensor, dtype: dtypes.DType) -> Tensor:
    own = boundary.dtype.base_dtype
    if own == dtype:
        return boundary
    if own == dtypes.int32 and dtype == dtypes.int64:
        return cast(boundary, dtype)
    raise ValueError(f"Boundaries ({own}) must have the same dtype as x ({dtype}).")


export_names("tf.train", "piecewise_constant_decay")
