"""The public random functions: ``tf.random_uniform``, ``tf.random_normal``, ``tf.random_crop``…"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

import numpy as np

from tfmini import dtypes
from tfmini.core_types import Array, DTypeLike, ShapeLike, TensorLike
from tfmini.export import export
from tfmini.graph import raw_ops
from tfmini.graph.families import Operation, OpHandle, Tensor, all_of, convert_to_tensor, op
from tfmini.graph.scoping import count_ops, get_seed, name_scope
from tfmini.numerics import philox
from tfmini.ops import random_ops
from tfmini.ops.array.constant_value import constant_value, constant_value_as_shape
from tfmini.ops.array.kernel_arguments import refuse
from tfmini.ops.control import with_dependencies
from tfmini.ops.debugging import Assert
from tfmini.ops.math.elementwise import add, floormod, maximum, multiply, subtract, truediv
from tfmini.ops.random_ops import as_shape, check_multinomial, cumulative
from tfmini.shapes import RawShape, dimension_value, with_rank

_UNIFORM_TYPES = frozenset(
    (dtypes.float16, dtypes.bfloat16, dtypes.float32, dtypes.float64, dtypes.int32, dtypes.int64)
)


@export("tensorflow.python.ops.distributions.util.gen_new_seed")
def gen_new_seed(seed: int | None, salt: str) -> int | None:
    """A seed that follows from another one and a text; None for None."""
    if seed is None:
        return None
    return int(hashlib.md5(f"{seed}{salt}".encode()).hexdigest()[:8], 16) & 0x7FFFFFFF


def seed_attrs(seed: int | None) -> dict[str, int]:
    """The attrs ``seed`` and ``seed2`` of an op that draws random numbers."""
    first, second = get_seed(seed)
    return {"seed": first or 0, "seed2": second or 0}


def _shape_tensor(shape: ShapeLike) -> Tensor:
    dtype = None
    if isinstance(shape, (list, tuple)):
        shape = [dimension_value(size) for size in shape]
        dtype = None if shape else dtypes.int32
    return convert_to_tensor(shape, dtype=dtype, name="shape")


@export("tf.random_uniform", "tf.random.uniform")
def random_uniform(
    shape: Any, minval: TensorLike = 0, maxval: TensorLike | None = None, dtype: DTypeLike = dtypes.float32,
    seed: int | None = None, name: str | None = None,
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
            return random_ops.uniform_int_op(shape, low, high, name=scope, **seed_attrs(seed))
        values = random_ops.uniform_op(shape, dtype=dtype, **seed_attrs(seed))
        return add(multiply(values, subtract(high, low, name="sub"), name="mul"), low, name=scope)


def _scaled(
    handle: OpHandle, default_name: str, shape: Any, mean: object, stddev: object, dtype: object, seed: int | None,
    name: str | None,
) -> Tensor:  # fmt: skip
    dtype = dtypes.as_dtype(dtype)
    with name_scope(name, default_name, [shape, mean, stddev]) as scope:
        shape = _shape_tensor(shape)
        mean = convert_to_tensor(mean, dtype=dtype, name="mean")
        stddev = convert_to_tensor(stddev, dtype=dtype, name="stddev")
        values = handle(shape, dtype=dtype, **seed_attrs(seed))
        return add(multiply(values, stddev, name="mul"), mean, name=scope)


@export("tf.random_normal", "tf.random.normal")
def random_normal(
    shape: ShapeLike | TensorLike, mean: TensorLike = 0.0, stddev: TensorLike = 1.0, dtype: DTypeLike = dtypes.float32,
    seed: int | None = None, name: str | None = None,
) -> Tensor:  # fmt: skip
    """Normal values of the given shape (``tf.random_normal``); mean and stddev broadcast against it.

    Args:
      shape: of the result, as a list of ints or an int tensor.
      mean: a number, or a tensor that broadcasts to ``shape``.
      stddev: the standard deviation, likewise.
      dtype: float16, bfloat16, float32 or float64.
      seed: an int, for the same numbers in each run; see `set_random_seed`.
      name: of the op.

    Returns:
      A tensor of ``shape`` and ``dtype`` with new values in every step.
    """
    return _scaled(random_ops.normal_op, "random_normal", shape, mean, stddev, dtype, seed, name)


@export("tf.truncated_normal", "tf.random.truncated_normal")
def truncated_normal(
    shape: ShapeLike | TensorLike, mean: TensorLike = 0.0, stddev: TensorLike = 1.0, dtype: DTypeLike = dtypes.float32,
    seed: int | None = None, name: str | None = None,
) -> Tensor:  # fmt: skip
    """Normal values; values beyond two standard deviations are redrawn (``tf.truncated_normal``).

    Args:
      shape: of the result, as a list of ints or an int tensor.
      mean: a number, or a tensor that broadcasts to ``shape``.
      stddev: the standard deviation, likewise, before values are redrawn.
      dtype: float16, bfloat16, float32 or float64.
      seed: an int, for the same numbers in each run; see `set_random_seed`.
      name: of the op.

    Returns:
      A tensor of ``shape`` and ``dtype`` with new values in every step.
    """
    return _scaled(random_ops.truncated_normal_op, "truncated_normal", shape, mean, stddev, dtype, seed, name)


@export("tensorflow.python.ops.random_ops.parameterized_truncated_normal")
def parameterized_truncated_normal(
    shape: ShapeLike | TensorLike, means: TensorLike = 0.0, stddevs: TensorLike = 1.0, minvals: TensorLike = -2.0,
    maxvals: TensorLike = 2.0, dtype: DTypeLike = dtypes.float32, seed: int | None = None, name: str | None = None,
) -> Tensor:  # fmt: skip
    """Normal values between bounds; other numbers by seed than TensorFlow's.

    Args:
      shape: of the result; its first dimension is that of the batches where a parameter is a vector.
      means, stddevs: scalars or [batches].
      minvals, maxvals: the bounds, likewise.
      dtype: float16, bfloat16, float32 or float64.
      seed: an int, for the same numbers in each run.
      name: of the op.
    """
    with name_scope(name, "parameterized_truncated_normal", [shape, means, stddevs, minvals, maxvals]):
        own_shape: Any = shape
        sizes = _shape_tensor(own_shape)
        given = [convert_to_tensor(x, dtype=dtype, name=key) for key, x in
                 (("means", means), ("stddevs", stddevs), ("minvals", minvals), ("maxvals", maxvals))]  # fmt: skip
        return random_ops.truncated_op(sizes, *given, **seed_attrs(seed))


@export("tf.random_shuffle", "tf.random.shuffle")
def random_shuffle(value: TensorLike, seed: int | None = None, name: str | None = None) -> Tensor:
    """``value`` with its rows in random order (``tf.random_shuffle``)."""
    return random_ops.shuffle_op(value, name=name, **seed_attrs(seed))


@export("tf.random_crop", "tf.image.random_crop")
def random_crop(value: TensorLike, size: TensorLike, seed: int | None = None, name: str | None = None) -> Tensor:
    """A random slice of the given size (``tf.random_crop``), which must not exceed that of ``value``.

    Args:
      value: a tensor.
      size: the shape of the slice, an int vector.
      seed: an int, for the same choice in each run.
      name: of the op.
    """
    with name_scope(name, "random_crop", [value, size]) as scope:
        value = convert_to_tensor(value, name="value")
        size = convert_to_tensor(size, dtype=dtypes.int32, name="size")
        shape = raw_ops.Shape(value)
        count_ops(1)  # the message
        fits = raw_ops.All(raw_ops.GreaterEqual(shape, size), [0])
        check = Assert(fits, ["Need value.shape >= size, got ", shape, size], summarize=1000)
        shape = with_dependencies([check], shape)
        limit = add(subtract(shape, size), 1)
        start = random_uniform(raw_ops.Shape(shape), maxval=dtypes.int32.max, dtype=dtypes.int32, seed=seed)
        return raw_ops.Slice(value, floormod(start, limit), size, name=scope)


@export("tf.multinomial", "tf.random.multinomial")
def multinomial(
    logits: TensorLike,
    num_samples: TensorLike,
    seed: int | None = None,
    name: str | None = None,
    output_dtype: DTypeLike | None = None,
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
    logits: TensorLike, num_samples: TensorLike, dtype: DTypeLike | None = None, seed: int | None = None,
    name: str | None = None,
) -> Tensor:  # fmt: skip
    """Same as `multinomial` (``tf.random.categorical``)."""
    return _draw_classes("categorical", logits, num_samples, dtype, seed, name)


def _draw_classes(
    default_name: str, logits: object, num_samples: object, dtype: DTypeLike | None, seed: int | None, name: str | None
) -> Tensor:
    with name_scope(name, default_name, [logits]):
        logits = convert_to_tensor(logits, name="logits")
        dtype = dtypes.int64 if dtype is None else dtypes.as_dtype(dtype)
        return random_ops.multinomial_op(logits, num_samples, output_dtype=dtype, **seed_attrs(seed))


@export("tf.random_gamma", "tf.random.gamma")
def random_gamma(
    shape: ShapeLike | TensorLike, alpha: TensorLike, beta: TensorLike | None = None, dtype: DTypeLike = dtypes.float32,
    seed: int | None = None, name: str | None = None,
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
        values = truediv(random_ops.gamma_op(shape, alpha, **seed_attrs(seed)), beta)
        return maximum(values.dtype.as_numpy_dtype(np.finfo(dtype.as_numpy_dtype).tiny), values)


@export("tf.random_poisson", "tf.random.poisson")
def random_poisson(
    lam: TensorLike, shape: ShapeLike | TensorLike, dtype: DTypeLike = dtypes.float32, seed: int | None = None,
    name: str | None = None,
) -> Tensor:  # fmt: skip
    """``shape`` samples for each Poisson distribution of rate ``lam`` (``tf.random_poisson``).

    Returns:
      A tensor of shape ``shape + shape(lam)``.
    """
    with name_scope(name, "random_poisson", [lam, shape]):
        shape = convert_to_tensor(shape, name="shape", dtype=dtypes.int32)
        return random_ops.poisson_op(shape, lam, dtype=dtypes.as_dtype(dtype), **seed_attrs(seed))


# ---- Random values that depend only on shape and seed: ``tf.random.stateless_uniform`` and related functions -------

_BY_SHAPE = (
    "(shape: T, seed: Tseed) -> output: dtype; dtype: {half, bfloat16, float, double} = DT_FLOAT"
    "; T: {int32, int64} = DT_INT32; Tseed: {int32, int64} = DT_INT64"
)
uniform_op, normal_op, truncated_op = (
    op(name + _BY_SHAPE) for name in ("StatelessRandomUniform", "StatelessRandomNormal", "StatelessTruncatedNormal")
)
uniform_int_op = op(
    "StatelessRandomUniformInt(shape: T, seed: Tseed, minval: dtype, maxval: dtype) -> output: dtype"
    "; dtype: {int32, int64}; T: {int32, int64}; Tseed: {int32, int64} = DT_INT64"
)
multinomial_op = op(
    "StatelessMultinomial(logits: T, num_samples: int32, seed: Tseed) -> output: output_dtype"
    "; T: realnumbertype; Tseed: {int32, int64} = DT_INT64; output_dtype: {int32, int64} = DT_INT64"
)
all_of(uniform_op, normal_op, truncated_op, uniform_int_op, multinomial_op).not_differentiable()

# The key with which TensorFlow scrambles seeds.
_SCRAMBLER = 0x02461E29_3EC8F720


@all_of(uniform_op, normal_op, truncated_op, uniform_int_op).shape
def _shape(node: Operation) -> list[RawShape]:
    _check_seed(node.inputs[1].raw_shape)
    return [constant_value_as_shape(node.inputs[0])]


@multinomial_op.shape
def _multinomial_shape(node: Operation) -> list[RawShape]:
    _check_seed(node.inputs[2].raw_shape)
    batch, count = with_rank(node.inputs[0].raw_shape, 2)[0], constant_value(node.inputs[1])
    return [(batch, None if count is None else int(count))]


def _check_seed(seed: RawShape) -> None:
    (length,) = with_rank(seed, 1)
    if length not in (None, 2):
        raise ValueError(f"seed must have shape [2], not [{length}]")


def _generator(seed: Array) -> philox.PhiloxGenerator:
    """The stream of a seed of two numbers, which are scrambled first so that similar seeds give unrelated streams."""
    if np.shape(seed) != (2,):
        refuse(f"seed must have shape [2], not {list(np.shape(seed))}")
    first, second = (int(part) & 0xFFFFFFFFFFFFFFFF for part in seed)
    mixed = philox.PhiloxGenerator(_SCRAMBLER, 0).words(first | second << 64, 1)[0].astype(object)
    return philox.PhiloxGenerator(mixed[0] | mixed[1] << 32, mixed[2] | mixed[3] << 32)


def _attach(handle: OpHandle, stream: Callable[..., Array]) -> None:
    @handle.kernel("CPU")
    def _kernel(sizes: np.ndarray, seed: np.ndarray, *, dtype: dtypes.DType) -> Array:
        shape = as_shape(sizes)
        return stream(_generator(seed), int(np.prod(shape)), dtype.numpy).reshape(shape)


_attach(uniform_op, philox.uniform)
_attach(normal_op, philox.normal)
_attach(truncated_op, philox.truncated_normal)


@uniform_int_op.kernel("CPU")
def _uniform_int(sizes: np.ndarray, seed: np.ndarray, minval: Array, maxval: Array, *, dtype: dtypes.DType) -> Array:
    shape, low, high = as_shape(sizes), int(minval), int(maxval)
    if low >= high:
        refuse(f"Need minval < maxval, got {low} >= {high}")
    return philox.uniform_int(_generator(seed), int(np.prod(shape)), low, high, dtype.numpy).reshape(shape)


@multinomial_op.kernel("CPU")
def _multinomial(logits: Array, num_samples: Array, seed: Array, *, output_dtype: dtypes.DType) -> Array:
    count = check_multinomial(logits, num_samples)
    draws = philox.row_doubles(_generator(seed), len(logits), count)
    out = np.empty((len(logits), count), output_dtype.numpy)
    for row, (bounds, values) in enumerate(zip(cumulative(logits), draws)):
        out[row] = np.searchsorted(bounds, values * bounds[-1], side="right")
    return out


# ---- public functions ---------------------------------------------------------------------------


def _sizes(shape: ShapeLike | TensorLike) -> Tensor:
    return convert_to_tensor(shape, dtype=dtypes.int32 if not isinstance(shape, Tensor) else None, name="shape")


@export("tf.random.stateless_uniform", "tf.contrib.stateless.stateless_random_uniform")
def stateless_uniform(
    shape: ShapeLike, seed: TensorLike, minval: TensorLike = 0, maxval: TensorLike | None = None,
    dtype: DTypeLike = dtypes.float32, name: str | None = None,
) -> Tensor:  # fmt: skip
    """Uniform values in [minval, maxval) (``tf.random.stateless_uniform``).

    Args:
      shape: of the result.
      seed: two integers; equal seeds give equal values.
      minval, maxval: scalars; floats default to [0, 1), integers need ``maxval``.
      dtype: a float type, int32 or int64.

    Raises:
      ValueError: for another type, or integers without ``maxval``.
    """
    kind = dtypes.as_dtype(dtype)
    if kind not in (dtypes.float16, dtypes.bfloat16, dtypes.float32, dtypes.float64, dtypes.int32, dtypes.int64):
        raise ValueError(f"Invalid dtype {kind!r}")
    if maxval is None:
        if kind.is_integer:
            raise ValueError(f"Must specify maxval for integer dtype {kind!r}")
        maxval = 1
    with name_scope(name, "stateless_random_uniform", [shape, seed, minval, maxval]) as scope:
        low, high = convert_to_tensor(minval, dtype=kind, name="min"), convert_to_tensor(maxval, dtype=kind, name="max")
        if kind.is_integer:
            return uniform_int_op(_sizes(shape), seed, low, high, name=scope)
        values = uniform_op(_sizes(shape), seed, dtype=kind)
        return add(multiply(values, subtract(high, low)), low, name=scope)


def _stateless_scaled(
    handle: OpHandle, label: str, shape: ShapeLike | TensorLike, seed: TensorLike, mean: TensorLike, stddev: TensorLike,
    dtype: DTypeLike, name: Any,
) -> Tensor:  # fmt: skip
    kind = dtypes.as_dtype(dtype)
    with name_scope(name, label, [shape, seed, mean, stddev]) as scope:
        centre, width = convert_to_tensor(mean, dtype=kind, name="mean"), convert_to_tensor(stddev, dtype=kind)
        return add(multiply(handle(_sizes(shape), seed, dtype=kind), width), centre, name=scope)


@export("tf.random.stateless_normal", "tf.contrib.stateless.stateless_random_normal")
def stateless_normal(
    shape: ShapeLike | TensorLike, seed: TensorLike, mean: TensorLike = 0.0, stddev: TensorLike = 1.0,
    dtype: DTypeLike = dtypes.float32, name: str | None = None,
) -> Tensor:  # fmt: skip
    """Normal values (``tf.random.stateless_normal``); see `stateless_uniform`."""
    return _stateless_scaled(normal_op, "stateless_random_normal", shape, seed, mean, stddev, dtype, name)


@export("tf.random.stateless_truncated_normal", "tf.contrib.stateless.stateless_truncated_normal")
def stateless_truncated_normal(
    shape: ShapeLike | TensorLike, seed: TensorLike, mean: TensorLike = 0.0, stddev: TensorLike = 1.0,
    dtype: DTypeLike = dtypes.float32, name: str | None = None,
) -> Tensor:  # fmt: skip
    """Normal values within two deviations (``tf.random.stateless_truncated_normal``)."""
    return _stateless_scaled(truncated_op, "stateless_truncated_normal", shape, seed, mean, stddev, dtype, name)


@export("tf.random.stateless_multinomial", "tf.contrib.stateless.stateless_multinomial")
def stateless_multinomial(
    logits: TensorLike, num_samples: TensorLike, seed: TensorLike, output_dtype: DTypeLike = dtypes.int64,
    name: str | None = None,
) -> Tensor:  # fmt: skip
    """Class numbers drawn according to unnormalised log-probabilities (``tf.random.stateless_multinomial``).

    Args:
      logits: (batch, class).
      num_samples: the number of draws for each row.
      seed: two integers.
    """
    with name_scope(name, "stateless_multinomial", [logits, seed]):
        kind = dtypes.as_dtype(output_dtype)
        return multinomial_op(logits, num_samples, seed, output_dtype=kind)


@export("tf.random.stateless_categorical")
def stateless_categorical(
    logits: Any, num_samples: Any, seed: Any, dtype: Any = dtypes.int64, name: str | None = None
) -> Tensor:
    """`stateless_multinomial` (``tf.random.stateless_categorical``)."""
    with name_scope(name, "stateless_categorical", [logits, seed]):
        return stateless_multinomial(logits, num_samples, seed, dtype)
