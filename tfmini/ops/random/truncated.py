"""``ParameterizedTruncatedNormal``: normal samples between bounds, with parameters per batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tfmini.graph.families import Operation, op
from tfmini.ops.array.constant_value import constant_value_as_shape
from tfmini.ops.array.kernel_arguments import refuse
from tfmini.ops.random.sampling import as_shape, numpy_generator
from tfmini.shapes import RawShape, at_most_rank

Array = np.ndarray[Any, Any]

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


@truncated_op.kernel_factory("CPU")
def _kernel(node: Any) -> Callable[..., Array]:
    generator = numpy_generator(node)
    dtype = node.attrs["dtype"].numpy

    def draw(sizes: Any, *parameters: Any) -> Array:
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


def _truncated(generator: Any, mean: float, stdev: float, low: float, high: float, count: int) -> Array:
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
