"""Random values that depend only on shape and seed: ``tf.random.stateless_uniform`` and related functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tfmini import dtypes
from tfmini.export import export
from tfmini.graph.families import Operation, OpHandle, Tensor, all_of, convert_to_tensor, name_scope, op
from tfmini.numerics import philox
from tfmini.ops.array.constant_value import constant_value, constant_value_as_shape
from tfmini.ops.array.kernel_arguments import refuse
from tfmini.ops.math.elementwise import add, multiply, subtract
from tfmini.ops.random.sampling import as_shape, check_multinomial, cumulative
from tfmini.shapes import RawShape, with_rank

Array = np.ndarray[Any, Any]

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


def _generator(seed: Any) -> philox.PhiloxGenerator:
    """The stream of a seed of two numbers, which are scrambled first so that similar seeds give unrelated streams."""
    if np.shape(seed) != (2,):
        refuse(f"seed must have shape [2], not {list(np.shape(seed))}")
    first, second = (int(part) & 0xFFFFFFFFFFFFFFFF for part in seed)
    mixed = philox.PhiloxGenerator(_SCRAMBLER, 0).words(first | second << 64, 1)[0].astype(object)
    return philox.PhiloxGenerator(mixed[0] | mixed[1] << 32, mixed[2] | mixed[3] << 32)


def _attach(handle: OpHandle, stream: Callable[..., Array]) -> None:
    @handle.kernel("CPU")
    def _kernel(sizes: Any, seed: Any, *, dtype: dtypes.DType) -> Array:
        shape = as_shape(sizes)
        return stream(_generator(seed), int(np.prod(shape)), dtype.numpy).reshape(shape)


_attach(uniform_op, philox.uniform)
_attach(normal_op, philox.normal)
_attach(truncated_op, philox.truncated_normal)


@uniform_int_op.kernel("CPU")
def _uniform_int(sizes: Any, seed: Any, minval: Any, maxval: Any, *, dtype: dtypes.DType) -> Array:
    shape, low, high = as_shape(sizes), int(minval), int(maxval)
    if low >= high:
        refuse(f"Need minval < maxval, got {low} >= {high}")
    return philox.uniform_int(_generator(seed), int(np.prod(shape)), low, high, dtype.numpy).reshape(shape)


@multinomial_op.kernel("CPU")
def _multinomial(logits: Any, num_samples: Any, seed: Any, *, output_dtype: dtypes.DType) -> Array:
    count = check_multinomial(logits, num_samples)
    draws = philox.row_doubles(_generator(seed), len(logits), count)
    out = np.empty((len(logits), count), output_dtype.numpy)
    for row, (bounds, values) in enumerate(zip(cumulative(logits), draws)):
        out[row] = np.searchsorted(bounds, values * bounds[-1], side="right")
    return out


# ---- public functions ---------------------------------------------------------------------------


def _sizes(shape: Any) -> Tensor:
    return convert_to_tensor(shape, dtype=dtypes.int32 if not isinstance(shape, Tensor) else None, name="shape")


@export("tf.random.stateless_uniform")
def stateless_uniform(
    shape: Any, seed: Any, minval: Any = 0, maxval: Any = None, dtype: Any = dtypes.float32, name: str | None = None
) -> Tensor:
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


def _scaled(
    handle: OpHandle, label: str, shape: Any, seed: Any, mean: Any, stddev: Any, dtype: Any, name: Any
) -> Tensor:
    kind = dtypes.as_dtype(dtype)
    with name_scope(name, label, [shape, seed, mean, stddev]) as scope:
        centre, width = convert_to_tensor(mean, dtype=kind, name="mean"), convert_to_tensor(stddev, dtype=kind)
        return add(multiply(handle(_sizes(shape), seed, dtype=kind), width), centre, name=scope)


@export("tf.random.stateless_normal")
def stateless_normal(
    shape: Any, seed: Any, mean: Any = 0.0, stddev: Any = 1.0, dtype: Any = dtypes.float32, name: str | None = None
) -> Tensor:
    """Normal values (``tf.random.stateless_normal``); see `stateless_uniform`."""
    return _scaled(normal_op, "stateless_random_normal", shape, seed, mean, stddev, dtype, name)


@export("tf.random.stateless_truncated_normal")
def stateless_truncated_normal(
    shape: Any, seed: Any, mean: Any = 0.0, stddev: Any = 1.0, dtype: Any = dtypes.float32, name: str | None = None
) -> Tensor:
    """Normal values within two deviations (``tf.random.stateless_truncated_normal``)."""
    return _scaled(truncated_op, "stateless_truncated_normal", shape, seed, mean, stddev, dtype, name)


@export("tf.random.stateless_multinomial")
def stateless_multinomial(
    logits: Any, num_samples: Any, seed: Any, output_dtype: Any = dtypes.int64, name: str | None = None
) -> Tensor:
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
