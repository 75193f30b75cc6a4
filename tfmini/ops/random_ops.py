"""Random ops: ``RandomUniform``, ``RandomStandardNormal``, ``TruncatedNormal``, ``RandomShuffle``, ``Multinomial``…

A kernel with a seed draws from TensorFlow's stream (`philox`). A kernel without a seed (``seed`` and
``seed2`` are 0) draws from a fast generator seeded by the operating system.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tfmini import dtypes
from tfmini.core_types import Array
from tfmini.graph.families import Operation, OpHandle, all_of, op, same_shape
from tfmini.graph.node import Node
from tfmini.memory import check_room
from tfmini.numerics import philox
from tfmini.ops.array.constant_value import constant_value, constant_value_as_shape, given_shape
from tfmini.ops.array.kernel_arguments import refuse
from tfmini.shapes import RawShape, at_most_rank, with_rank

_BY_SHAPE = """(shape: T) -> output: dtype
    seed: int = 0
    seed2: int = 0
    dtype: {half, bfloat16, float, double}
    T: {int32, int64}"""

uniform_op = op(
    "RandomUniform" + _BY_SHAPE, stateful=True, shape=given_shape, differentiable=False, not_below_zero=True
)
normal_op = op("RandomStandardNormal" + _BY_SHAPE, stateful=True, shape=given_shape, differentiable=False)
truncated_normal_op = op("TruncatedNormal" + _BY_SHAPE, stateful=True, shape=given_shape, differentiable=False)
uniform_int_op = op(
    """RandomUniformInt(shape: T, minval: Tout, maxval: Tout) -> output: Tout
    seed: int = 0
    seed2: int = 0
    Tout: {int32, int64}
    T: {int32, int64}""",
    stateful=True,
    shape=given_shape,
    differentiable=False,
)
shuffle_op = op(
    "RandomShuffle(value: T) -> output: T; seed: int = 0; seed2: int = 0; T: type",
    stateful=True,
    shape=same_shape,
    differentiable=None,
)
multinomial_op = op(
    """Multinomial(logits: T, num_samples: int32) -> output: output_dtype
    seed: int = 0
    seed2: int = 0
    T: realnumbertype
    output_dtype: {int32, int64} = DT_INT64""",
    stateful=True,
    differentiable=False,
)


# ---- shapes ---------------------------------------------------------------------------------


@multinomial_op.shape
def _multinomial_shape(node: Operation) -> list[RawShape]:
    batch = with_rank(node.inputs[0].raw_shape, 2)[0]
    with_rank(node.inputs[1].raw_shape, 0)
    count = constant_value(node.inputs[1])
    return [(batch, None if count is None else int(count))]


# ---- kernels --------------------------------------------------------------------------------


def generators(node: Node) -> tuple[philox.PhiloxGenerator | None, Any]:
    """The generator of a kernel: TensorFlow's stream if the node has a seed, else numpy's fastest generator."""
    seed, seed2 = node.attrs["seed"], node.attrs["seed2"]
    if seed or seed2:
        return philox.PhiloxGenerator(seed, seed2), None
    return None, np.random.Generator(np.random.SFC64())


def as_shape(value: Array) -> tuple[int, ...]:
    """The shape in a shape tensor.

    Raises:
      InvalidArgumentError: when it is not a vector, or a size is negative.
    """
    if np.ndim(value) != 1:
        refuse(f"shape must be a vector of {{int32,int64}}, got shape {np.shape(value)}")
    shape = tuple(value.tolist())
    for i, size in enumerate(shape):
        if size < 0:
            refuse(f"Dimension {i} must be >= 0, got {size}")
    check_room(shape, 8)
    return shape


def _size(shape: tuple[int, ...]) -> int:
    size = 1
    for dim in shape:
        size *= dim
    return size


Draw = Callable[[Any, tuple[int, ...], Any], Any]


def _attach(handle: OpHandle, stream: Callable[..., Any], fast: Draw) -> None:
    """Registers the kernel of a distribution without parameters."""

    @handle.kernel_factory("CPU")
    def _factory(node: Node) -> Callable[[Any], Any]:
        seeded, free = generators(node)
        dtype = node.attrs["dtype"].numpy
        if seeded is None:
            return lambda shape: fast(free, as_shape(shape), dtype)

        def draw(value: Array) -> Any:
            shape = as_shape(value)
            return stream(seeded, _size(shape), dtype).reshape(shape)

        return draw


def _working(dtype: np.dtype[Any]) -> Any:
    return np.float64 if dtype == np.float64 else np.float32


_MANY = 1 << 14  # numbers from which two of 32 bits are taken from each random one of 64
_TILE = 1 << 14  # numbers that stay in cache
_EXPONENT_OF_ONE, _MANTISSA_FROM = np.uint32(127 << 23), np.uint32(9)


def _fast_uniform(free: Any, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
    working, size = _working(dtype), _size(shape)
    values = free.random(shape, working) if working is np.float64 or size < _MANY else _many_uniform(free, size)
    values = values.reshape(shape)
    if values.dtype == dtype:
        return values
    # Rounding to a shorter type must not give 1.
    return np.minimum(values.astype(dtype), dtype.type(0.996 if dtype != np.float16 else 0.9995))


def _many_uniform(free: Any, size: int) -> Any:
    """Numbers of float32 in [0, 1) with 23 random bits, as TensorFlow's have; in less time than numpy's own."""
    words = free.integers(0, (1 << 64) - 1, (size + 1) // 2, np.uint64, endpoint=True).view(np.uint32)[:size]
    values = words.view(np.float32)
    for start in range(0, size, _TILE):
        bits, tile = words[start : start + _TILE], values[start : start + _TILE]
        np.right_shift(bits, _MANTISSA_FROM, out=bits)
        np.bitwise_or(bits, _EXPONENT_OF_ONE, out=bits)
        np.subtract(tile, np.float32(1), out=tile)
    return values


def _fast_normal(free: Any, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
    return free.standard_normal(shape, _working(dtype)).astype(dtype, copy=False)


def _fast_truncated(free: Any, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
    values = free.standard_normal(_size(shape), _working(dtype))
    outside = np.flatnonzero(np.abs(values) >= 2)
    while len(outside):
        values[outside] = free.standard_normal(len(outside), values.dtype)
        outside = outside[np.abs(values[outside]) >= 2]
    return values.reshape(shape).astype(dtype, copy=False)


_attach(uniform_op, philox.uniform, _fast_uniform)
_attach(normal_op, philox.normal, _fast_normal)
_attach(truncated_normal_op, philox.truncated_normal, _fast_truncated)


@uniform_int_op.kernel_factory("CPU")
def _uniform_int(node: Node) -> Callable[..., Any]:
    seeded, free = generators(node)
    dtype = node.attrs["Tout"].numpy

    def draw(shape_value: Array, minval: Array, maxval: Array) -> Any:
        shape = as_shape(shape_value)
        for what, bound in (("minval", minval), ("maxval", maxval)):
            if np.ndim(bound):
                refuse(f"{what} must be 0-D, got shape {list(np.shape(bound))}")
        low, high, size = int(minval), int(maxval), _size(shape)
        if not size:
            return np.empty(shape, dtype)
        if low >= high:
            refuse(f"Need minval < maxval, got {low} >= {high}")
        if seeded is None:
            return free.integers(low, high, shape, dtype)
        return philox.uniform_int(seeded, size, low, high, dtype).reshape(shape)

    return draw


@shuffle_op.kernel_factory("CPU")
def _shuffle(node: Node) -> Callable[[Any], Any]:
    seeded, free = generators(node)

    def shuffle(value: Array) -> Any:
        if np.ndim(value) == 0 or len(value) < 2 or not value.size:
            return value
        if seeded is None:
            return value[free.permutation(len(value))]
        return value[philox.permutation(seeded, len(value))]

    return shuffle


@multinomial_op.kernel_factory("CPU")
def _multinomial(node: Node) -> Callable[..., Any]:
    seeded, free = generators(node)
    dtype = node.attrs["output_dtype"].numpy

    def sample(logits: Array, num_samples: Array) -> Any:
        count = check_multinomial(logits, num_samples)
        bounds_of_rows = cumulative(logits)
        shape = (len(logits), count)
        draws = free.random(shape) if seeded is None else philox.row_doubles(seeded, *shape)
        out = np.empty(shape, dtype)
        for row, (bounds, values) in enumerate(zip(bounds_of_rows, draws)):
            out[row] = np.searchsorted(bounds, values * bounds[-1], side="right")
        return out

    return sample


def check_multinomial(logits: Array, num_samples: Array) -> int:
    if np.ndim(logits) != 2:
        refuse(f"logits should be a matrix, got shape {list(np.shape(logits))}")
    if np.ndim(num_samples):
        shape = list(np.shape(num_samples))
        refuse(f"num_samples should be a scalar, got shape {shape}")
    count = int(num_samples)
    if count < 0:
        refuse(f"num_samples should be nonnegative, got {count}")
    if not logits.shape[1]:
        refuse("num_classes should be positive, got 0")
    check_room((len(logits), count), 8)
    return count


def cumulative(logits: Array) -> Any:
    """The running sums of the classes' unnormalised probabilities, per row."""
    values = logits.astype(np.float64)
    finite = np.isfinite(values)
    peak = np.max(np.where(finite, values, -np.inf), axis=1, keepdims=True, initial=-np.inf)
    weights = np.where(finite, np.exp(values - np.where(np.isfinite(peak), peak, 0.0)), 0.0)
    return np.cumsum(weights, axis=1)


# ---- gamma and Poisson ----------------------------------------------------------------------

gamma_op = op(
    """RandomGamma(shape: S, alpha: T) -> output: T
    seed: int = 0
    seed2: int = 0
    S: {int32, int64}
    T: {half, float, double}""",
    stateful=True,
)
poisson_op = op(
    """RandomPoissonV2(shape: S, rate: R) -> output: dtype
    seed: int = 0
    seed2: int = 0
    S: {int32, int64}
    R: {half, float, double, int32, int64} = DT_DOUBLE
    dtype: {half, float, double, int32, int64} = DT_INT64""",
    stateful=True,
    differentiable=None,
)


@all_of(gamma_op, poisson_op).shape
def _samples_by_parameters(node: Operation) -> list[RawShape]:
    samples, parameters = constant_value_as_shape(node.inputs[0]), node.inputs[1].raw_shape
    return [None if samples is None or parameters is None else samples + parameters]


@gamma_op.kernel_factory("CPU")
def _gamma(node: Node) -> Callable[..., Any]:
    seeded, free = generators(node)
    dtype = node.attrs["T"].numpy

    def kernel(shape: Array, alpha: Array) -> Any:
        count, wide = as_shape(shape), np.asarray(alpha, np.float64)
        if seeded is None:
            return free.standard_gamma(wide, count + wide.shape).astype(dtype)
        return _per_parameter(lambda each: philox.gamma(seeded, each), count, wide).astype(dtype)

    return kernel


@poisson_op.kernel_factory("CPU")
def _poisson(node: Node) -> Callable[..., Any]:
    seeded, free = generators(node)
    dtype = node.attrs["dtype"].numpy
    highest = float(dtypes.as_dtype(node.attrs["dtype"]).max)

    def kernel(shape: Array, rate: Array) -> Any:
        count, wide = as_shape(shape), np.asarray(rate, np.float64)
        if seeded is None:
            return free.poisson(wide, count + wide.shape).astype(dtype)
        if not (np.isfinite(wide) & (wide <= highest)).all():
            refuse(f"rate must be finite and at most {highest:g}, the largest number of the result's type")
        return _per_parameter(lambda each: philox.poisson(seeded, each, highest), count, wide).astype(dtype)

    return kernel


def _per_parameter(draw: Callable[[Array], Array], count: tuple[int, ...], parameters: Array) -> Array:
    """Samples of shape ``count + parameters.shape``; as in TensorFlow all those of one parameter are drawn first."""
    samples = math.prod(count)
    drawn = draw(np.repeat(parameters.ravel(), samples))
    return np.ascontiguousarray(drawn.reshape(parameters.size, samples).T).reshape(count + parameters.shape)


# ---- ``ParameterizedTruncatedNormal``: normal samples between bounds, with parameters per batch --------------------

truncated_op = op(
    "ParameterizedTruncatedNormal(shape: T, means: dtype, stdevs: dtype, minvals: dtype, maxvals: dtype)"
    """ -> output: dtype
    seed: int = 0
    seed2: int = 0
    dtype: {half, bfloat16, float, double}
    T: {int32, int64}""",
    stateful=True,
    differentiable=False,
)


@truncated_op.shape
def _shape(node: Operation) -> list[RawShape]:
    for tensor in node.inputs[1:]:
        at_most_rank(tensor.raw_shape, 1)
    return [constant_value_as_shape(node.inputs[0])]


def numpy_generator(node: Node) -> Any:
    """numpy's generator, seeded by both seeds. These streams differ from TensorFlow's."""
    seed, seed2 = node.attrs["seed"], node.attrs["seed2"]
    if not (seed or seed2):
        return np.random.Generator(np.random.SFC64())
    return np.random.Generator(np.random.Philox(np.random.SeedSequence([seed % 2**64, seed2 % 2**64])))


@truncated_op.kernel_factory("CPU")
def _kernel(node: Node) -> Callable[..., Array]:
    generator = numpy_generator(node)
    dtype = node.attrs["dtype"].numpy

    def draw(sizes: Array, *parameters: object) -> Array:
        shape = as_shape(sizes)
        if not shape:
            refuse("Shape tensor must not be empty, got a scalar")
        batches = _per_batch(shape, parameters)
        samples = np.empty((len(batches), int(np.prod(shape)) // max(len(batches), 1)))
        for row, (mean, stdev, low, high) in zip(samples, batches):
            row[:] = _truncated(generator, mean, stdev, low, high, len(row))
        return samples.reshape(shape).astype(dtype)

    return draw


def _per_batch(shape: tuple[int, ...], parameters: tuple[Any, ...]) -> list[tuple[float, ...]]:
    """Mean, deviation, lower and upper bound of each batch; a single value is used for all batches."""
    names = ("means", "stdevs", "minvals", "maxvals")
    columns = [np.atleast_1d(np.asarray(p, np.float64)) for p in parameters]
    count = max((len(c) for c in columns), default=1)
    if count > 1 and shape[0] != count:
        refuse(f"Shape passed in must have {count} batches in dimension 0, got {shape[0]}")
    for name, column in zip(names, columns):
        if len(column) not in (1, count):
            refuse(f"{name} should be a scalar or have {count} elements, got {len(column)}")
    return list(zip(*(np.broadcast_to(c, count).tolist() for c in columns)))


def _truncated(generator: object, mean: float, stdev: float, low: float, high: float, count: int) -> Array:
    if not (stdev > 0 and low < high and np.isfinite([mean, stdev]).all() and (np.isfinite(low) or np.isfinite(high))):
        refuse("Invalid parameters")
    a, b = (low - mean) / stdev, (high - mean) / stdev
    if b < -a:  # The interval is on the left: mirror it.
        return np.clip(mean - stdev * _standard(generator, -b, -a, count), low, high)
    return np.clip(mean + stdev * _standard(generator, a, b, count), low, high)


def _standard(generator: Any, a: float, b: float, count: int) -> Array:
    """Standard normal samples in [a, b], by rejection from a proposal that suits the interval (Robert, 1995)."""
    samples = np.empty(count)
    missing = np.arange(count)
    while len(missing):
        if a > 0.5:
            values, accepted = _from_tail(generator, a, b, len(missing))
        elif b - a < 2.5:
            values = generator.uniform(a, b, len(missing))
            nearest = 0.0 if a <= 0 <= b else min(abs(a), abs(b))
            accepted = generator.random(len(missing)) <= np.exp((nearest**2 - values**2) / 2)
        else:
            values = generator.standard_normal(len(missing))
            accepted = (a <= values) & (values <= b)
        samples[missing[accepted]] = values[accepted]
        missing = missing[~accepted]
    return samples


def _from_tail(generator: Any, a: float, b: float, count: int) -> tuple[Array, Array]:
    """Candidates in [a, b], a > 0, from an exponential distribution truncated at b, and the mask of accepted ones."""
    rate = (a + np.sqrt(a * a + 4)) / 2
    mass = -np.expm1(-rate * (b - a))
    values = a - np.log1p(-generator.random(count) * mass) / rate
    best = max(a, min(rate, b))  # The point with the largest ratio of the normal to the exponential density.
    exponent = -(values**2) / 2 + rate * values + best**2 / 2 - rate * best
    return values, generator.random(count) <= np.exp(exponent)
