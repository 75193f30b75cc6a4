"""Pooling in numpy over any number of spatial axes, channels last (see `windows`)."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np

from tfmini.machine_memory import check_room
from tfmini.numerics.windows import Array, Axes, Axis


def lowest(dtype: np.dtype[Any]) -> Any:
    """The smallest finite value: a border of it never holds a maximum."""
    return np.iinfo(dtype).min if dtype.kind in "iu" else ml_dtypes.finfo(dtype).min


def reduce_windows(ufunc: np.ufunc, source: Array, axes: Axes) -> Array:
    """Reduces each window of a padded image, one axis after the other: first along long contiguous runs."""
    result = source
    for number, axis in enumerate(axes, 1):
        before, source = (slice(None),) * number, result
        result = source[(*before, axis.offsets(0))]
        for k in range(1, axis.window):
            result = ufunc(result, source[(*before, axis.offsets(k))], out=result if k > 1 else None)
    return result.copy() if axes[-1].window == 1 else result


def without_nan(source: Array, result: Array, axes: Axes) -> tuple[Array, Array]:
    """Images and maxima without NaN: a window whose maximum is NaN gets its maximum in its first element."""
    source = np.where(np.isnan(source), lowest(source.dtype), source)
    _, first = next(axes.elements())
    return source, np.where(np.isnan(result), source[first], result)


def first_matches(source: Array, result: Array, axes: Axes) -> Iterator[tuple[tuple[slice, ...], Array]]:
    """Yields, for each element of the windows in row-major order, where it is the first maximum of its window."""
    taken = None
    last = tuple(size - 1 for size in axes.window)
    for place, where in axes.elements():
        match = np.equal(source[where], result)
        if taken is None:
            taken = match
        else:
            np.greater(match, taken, out=match)  # match and not taken
            if place != last:
                taken = taken | match
        yield where, match


def spread(batch: int, axes: Axes, channels: int, dtype: Any) -> tuple[Array, bool]:
    """A gradient image with its border, and whether windows tile it (each pixel in exactly one).

    Raises:
      MemoryError: there is no room for it.
    """
    full = (batch, *axes.full, channels)
    check_room(full, np.dtype(dtype).itemsize)
    tiled = all(axis.stride == axis.window and axis.out * axis.window == size for axis, size in zip(axes, axes.full))
    return (np.empty(full, dtype) if tiled else np.zeros(full, dtype)), tiled


def counts(axes: Axes, dtype: Any) -> Array:
    """How many real pixels each window holds, (*out, 1)."""

    def along(axis: Axis) -> Array:
        start = np.arange(axis.out) * axis.stride - axis.before
        return np.minimum(start + axis.window, axis.size) - np.maximum(start, 0)

    return functools.reduce(np.multiply.outer, map(along, axes)).astype(dtype)[..., None]
