"""The public random functions: ``tf.random_uniform``, ``tf.random_normal``, ``tf.random_crop``…"""

from __future__ import annotations

from typing import Any

import numpy as np

from tfmini import dtypes
from tfmini.dimension import dimension_value
from tfmini.export import export
from tfmini.graph import raw_ops
from tfmini.graph.families import Tensor, convert_to_tensor
from tfmini.graph.scoping import get_seed, name_scope
from tfmini.ops.control import with_dependencies
from tfmini.ops.debugging.assertion import Assert
from tfmini.ops.math.elementwise import add, floormod, maximum, multiply, subtract, truediv
from tfmini.ops.random import sampling as sampling

_UNIFORM_TYPES = frozenset(
    (dtypes.float16, dtypes.bfloat16, dtypes.float32, dtypes.float64, dtypes.int32, dtypes.int64)
)


def seed_attrs(seed: int | None) -> dict[str, int]:
    """The attrs ``seed`` and ``seed2`` of an op that draws random numbers."""
    first, second = get_seed(seed)
    return {"seed": first or 0, "seed2": second or 0}


def _shape_tensor(shape: Any) -> Tensor:
    dtype = None
    if isinstance(shape, (list, tuple)):
        shape = [dimension_value(size) for size in shape]
        dtype = None if shape else dtypes.int32
    return convert_to_tensor(shape, dtype=dtype, name="shape")


@export("tf.random_uniform", "tf.random.uniform")
def random_uniform(
    shape: Any, minval: Any = 0, maxval: Any = None, dtype: Any = dtypes.float32, seed: int | None = None,
    name: str | None = None,
) -> Tensor:  # fmt: skip
    """Uniform values in [minval, maxval) of the given shape (``tf.random_uniform``).

    Args:
      shape: 1-D integers.
      minval, maxval: scalars; floats default to [0, 1), integers need ``maxval``.
      dtype: a float type, int32 or int64.
      seed: see ``tf.set_random_seed``.

    Raises:
      ValueError: for another dtype, or integers without ``maxval``.
    """
    dtype = dtypes.as_dtype(dtype)
    if dtype not in _UNIFORM_TYPES:
        raise ValueError(f"Invalid dtype {dtype!r}")
    if maxval is None:
        if dtype.is_integer:
            raise ValueError(f"Must specify maxval for integer dtype {dtype!r}")
        maxval = 1
    with name_scope(name, "random_uniform", [shape, minval, maxval]) as scope:
        shape = _shape_tensor(shape)
        low = convert_to_tensor(minval, dtype=dtype, name="min")
        high = convert_to_tensor(maxval, dtype=dtype, name="max")
        if dtype.is_integer:
            return sampling.uniform_int_op(shape, low, high, name=scope, **seed_attrs(seed))
        values = sampling.uniform_op(shape, dtype=dtype, **seed_attrs(seed))
        return add(multiply(values, subtract(high, low, name="sub"), name="mul"), low, name=scope)


def _scaled(
    handle: Any, default_name: str, shape: Any, mean: Any, stddev: Any, dtype: Any, seed: int | None, name: str | None
) -> Tensor:
    dtype = dtypes.as_dtype(dtype)
    with name_scope(name, default_name, [shape, mean, stddev]) as scope:
        shape = _shape_tensor(shape)
        mean = convert_to_tensor(mean, dtype=dtype, name="mean")
        stddev = convert_to_tensor(stddev, dtype=dtype, name="stddev")
        values = handle(shape, dtype=dtype, **seed_attrs(seed))
        return add(multiply(values, stddev, name="mul"), mean, name=scope)


@export("tf.random_normal", "tf.random.normal")
def random_normal(
    shape: Any, mean: Any = 0.0, stddev: Any = 1.0, dtype: Any = dtypes.float32, seed: int | None = None,
    name: str | None = None,
) -> Tensor:  # fmt: skip
    """Normal values of the given shape (``tf.random_normal``); mean and stddev broadcast against it."""
    return _scaled(sampling.normal_op, "random_normal", shape, mean, stddev, dtype, seed, name)


@export("tf.truncated_normal", "tf.random.truncated_normal")
def truncated_normal(
    shape: Any, mean: Any = 0.0, stddev: Any = 1.0, dtype: Any = dtypes.float32, seed: int | None = None,
    name: str | None = None,
) -> Tensor:  # fmt: skip
    """Normal values; values beyond two standard deviations are redrawn (``tf.truncated_normal``)."""
    return _scaled(sampling.truncated_normal_op, "truncated_normal", shape, mean, stddev, dtype, seed, name)


@export("tf.random_shuffle", "tf.random.shuffle")
def random_shuffle(value: Any, seed: int | None = None, name: str | None = None) -> Tensor:
    """``value`` with its rows in random order (``tf.random_shuffle``)."""
    return sampling.shuffle_op(value, name=name, **seed_attrs(seed))


@export("tf.random_crop", "tf.image.random_crop")
def random_crop(value: Any, size: Any, seed: int | None = None, name: str | None = None) -> Tensor:
    """A random slice of the given size (``tf.random_crop``), which must not exceed that of ``value``."""
    with name_scope(name, "random_crop", [value, size]) as scope:
        value = convert_to_tensor(value, name="value")
        size = convert_to_tensor(size, dtype=dtypes.int32, name="size")
        shape = raw_ops.Shape(value)
        fits = raw_ops.All(raw_ops.GreaterEqual(shape, size), [0])
        check = Assert(fits, ["Need value.shape >= size, got ", shape, size], summarize=1000)
        shape = with_dependencies([check], shape)
        limit = add(subtract(shape, size), 1)
        start = random_uniform(raw_ops.Shape(shape), maxval=dtypes.int32.max, dtype=dtypes.int32, seed=seed)
        return raw_ops.Slice(value, floormod(start, limit), size, name=scope)


@export("tf.multinomial", "tf.random.multinomial")
def multinomial(
    logits: Any, num_samples: Any, seed: int | None = None, name: str | None = None, output_dtype: Any = None
) -> Tensor:
    """Class numbers drawn according to unnormalised log-probabilities (``tf.multinomial``).

    Args:
      logits: [batch, classes].
      num_samples: draws per row.
      output_dtype: int32 or int64 (default).

    Returns:
      [batch, num_samples].
    """
    return _draw_classes("multinomial", logits, num_samples, output_dtype, seed, name)


@export("tf.random.categorical")
def categorical(
    logits: Any, num_samples: Any, dtype: Any = None, seed: int | None = None, name: str | None = None
) -> Tensor:
    """Same as `multinomial` (``tf.random.categorical``)."""
    return _draw_classes("categorical", logits, num_samples, dtype, seed, name)


def _draw_classes(
    default_name: str, logits: Any, num_samples: Any, dtype: Any, seed: int | None, name: str | None
) -> Tensor:
    with name_scope(name, default_name, [logits]):
        logits = convert_to_tensor(logits, name="logits")
        dtype = dtypes.int64 if dtype is None else dtypes.as_dtype(dtype)
        return sampling.multinomial_op(logits, num_samples, output_dtype=dtype, **seed_attrs(seed))


@export("tf.random_gamma", "tf.random.gamma")
def random_gamma(
    shape: Any, alpha: Any, beta: Any = None, dtype: Any = dtypes.float32, seed: int | None = None,
    name: str | None = None,
) -> Tensor:  # fmt: skip
    """``shape`` samples for each gamma distribution of shape alpha and rate beta (``tf.random_gamma``).

    Returns:
      A tensor of shape ``shape + shape(alpha + beta)``.
    """
    dtype = dtypes.as_dtype(dtype)
    with name_scope(name, "random_gamma", [shape, alpha, beta]):
        shape = convert_to_tensor(shape, name="shape", dtype=dtypes.int32)
        alpha = convert_to_tensor(alpha, name="alpha", dtype=dtype)
        beta = convert_to_tensor(1 if beta is None else beta, name="beta", dtype=dtype)
        alpha = add(alpha, raw_ops.ZerosLike(beta))
        values = truediv(sampling.gamma_op(shape, alpha, **seed_attrs(seed)), beta)
        return maximum(values.dtype.as_numpy_dtype(np.finfo(dtype.as_numpy_dtype).tiny), values)


@export("tf.random_poisson", "tf.random.poisson")
def random_poisson(
    lam: Any, shape: Any, dtype: Any = dtypes.float32, seed: int | None = None, name: str | None = None
) -> Tensor:
    """``shape`` samples for each Poisson distribution of rate ``lam`` (``tf.random_poisson``).

    Returns:
      A tensor of shape ``shape + shape(lam)``.
    """
    with name_scope(name, "random_poisson", [lam, shape]):
        shape = convert_to_tensor(shape, name="shape", dtype=dtypes.int32)
        return sampling.poisson_op(shape, lam, dtype=dtypes.as_dtype(dtype), **seed_attrs(seed))
