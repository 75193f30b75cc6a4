"""Sliding windows over images and volumes: padding rules, output sizes, patch views and scratch memory.

Shared by convolution, pooling and morphology. An image is an array with the batch first, the channels last and any
number of spatial axes between; an `Axis` says how windows slide along one of them.
"""

from __future__ import annotations

import functools
import itertools
import threading
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
from numpy.lib.stride_tricks import as_strided

from tfmini.core_types import Array
from tfmini.memory import check_room
from tfmini.shapes import RawShape

Index = tuple[slice, ...]
_ALL = slice(None)


class Axis(NamedTuple):
    """How a window slides along one spatial axis of ``size`` elements."""

    size: int
    window: int
    stride: int
    dilation: int
    before: int
    after: int
    out: int

    @property
    def reach(self) -> int:
        """The elements that one window spans, holes included."""
        return (self.window - 1) * self.dilation + 1

    def offsets(self, k: int) -> slice:
        """Where the ``k``-th element of each window lies in the padded axis."""
        start = k * self.dilation
        return slice(start, start + (self.out - 1) * self.stride + 1, self.stride)

    def turned(self) -> Axis | None:
        """The axis of the transposed convolution, where that is a plain convolution of the gradient."""
        before = self.reach - 1 - self.before
        after = self.size - 1 + self.reach - before - self.out
        if self.stride != 1 or before < 0 or after < 0:
            return None
        return Axis(self.out, self.window, 1, self.dilation, before, after, self.size)


class Axes(tuple[Axis, ...]):
    """How windows slide along all spatial axes, with cached values that kernels derive from it."""

    @cached_property
    def out(self) -> tuple[int, ...]:
        """The number of windows along each axis."""
        return tuple(axis.out for axis in self)

    @cached_property
    def window(self) -> tuple[int, ...]:
        """The elements of a window along each axis."""
        return tuple(axis.window for axis in self)

    @cached_property
    def full(self) -> tuple[int, ...]:
        """The sizes with the border."""
        return tuple(axis.before + axis.size + axis.after for axis in self)

    @cached_property
    def inner(self) -> Index:
        """The index of the image in an array with the border."""
        return (_ALL, *(slice(axis.before, axis.before + axis.size) for axis in self))

    @cached_property
    def border(self) -> list[Index]:
        """The indices of the parts of the border, which do not overlap."""
        parts: list[Index] = []
        for i, axis in enumerate(self):
            parts += [(*self.inner[: i + 1], slice(axis.before))] if axis.before else []
            parts += [(*self.inner[: i + 1], slice(axis.before + axis.size, None))] if axis.after else []
        return parts

    @cached_property
    def pointwise(self) -> bool:
        """Whether windows are single pixels, and all of them."""
        return not self.border and all(axis.window == axis.stride == 1 for axis in self)

    @cached_property
    def turned(self) -> Axes | None:
        """The windows of the transposed convolution, where that is a plain convolution of the gradient."""
        found = [axis.turned() for axis in self]
        return None if None in found else Axes(axis for axis in found if axis is not None)

    @cached_property
    def joined(self) -> Axes | None:
        """The windows once the last axis has joined the channels, where each window is as wide as that axis."""
        last = self[-1]
        if last.size == 1 or len(self) == 1 or last != Axis(last.size, last.size, last.stride, 1, 0, 0, 1):
            return None
        return Axes((*self[:-1], Axis(1, 1, 1, 1, 0, 0, 1)))

    @cached_property
    def _slices(self) -> list[list[slice]]:
        return [[_ALL], *([axis.offsets(k) for k in range(axis.window)] for axis in self)]

    def elements(self) -> Iterator[tuple[tuple[int, ...], Index]]:
        """Each place in the window, row-major, and the index of that element of all windows (with the border)."""
        return zip(itertools.product(*map(range, self.window)), itertools.product(*self._slices))


def window_axis(
    size: int, window: int, stride: int, dilation: int, padding: bytes, explicit: tuple[int, int] = (0, 0)
) -> Axis:
    """Places the windows along an axis.

    Raises:
      ValueError: when the window does not fit, in TF's words, or a size is negative, a step none. The views of
        `patches` and the strides of oneDNN would lead out of the array.
    """
    if size < 0 or min(window, stride, dilation) < 1 or min(explicit) < 0:
        raise ValueError(
            f"A window of {window} with stride {stride}, dilation {dilation} and padding {tuple(explicit)} over a size"
            f" of {size}: window, stride and dilation must be positive, size and padding not negative"
        )
    reach = (window - 1) * dilation + 1
    if padding == b"SAME":
        out = -(-size // stride)
        total = max((out - 1) * stride + reach - size, 0)
        return Axis(size, window, stride, dilation, total // 2, total - total // 2, out)
    before, after = explicit if padding == b"EXPLICIT" else (0, 0)
    room = size + before + after - reach
    if room < 0:
        raise ValueError(f"Negative dimension size caused by subtracting {reach} from {size + before + after}")
    return Axis(size, window, stride, dilation, before, after, room // stride + 1)


def output_size(
    size: int | None, window: int | None, stride: int, dilation: int, padding: bytes, explicit: tuple[int, int] = (0, 0)
) -> int | None:
    """The number of windows along an axis, None while it is unknown."""
    if size is None or (window is None and padding != b"SAME"):
        return None
    return window_axis(size, window or 1, stride, dilation, padding, explicit).out


# The positions of batch, spatial axes and channels.
_AXES = {b"NCHW": (0, 2, 3, 1), b"NDHWC": (0, 1, 2, 3, 4), b"NCDHW": (0, 2, 3, 4, 1)}
_CHANNELS_SECOND = (b"NCHW", b"NCDHW")


def layout_axes(data_format: bytes) -> tuple[int, ...]:
    """The positions of batch, spatial axes and channels, in this order."""
    return _AXES.get(data_format, (0, 1, 2, 3))


def explicit_pair(explicit_paddings: Sequence[int] | None, axis: int) -> tuple[int, int]:
    """The padding before and after ``axis`` in an ``explicit_paddings`` attr."""
    if not explicit_paddings:
        return (0, 0)
    return explicit_paddings[2 * axis], explicit_paddings[2 * axis + 1]


def channels_last(image: Array, data_format: bytes) -> Array:
    """A view with the channels last."""
    return image.transpose(_AXES[data_format]) if data_format in _CHANNELS_SECOND else image


def in_layout(image: Array, data_format: bytes) -> Array:
    """An array with the channels last in the op's own layout, contiguous."""
    if data_format not in _CHANNELS_SECOND:
        return image
    return np.ascontiguousarray(image.transpose(0, image.ndim - 1, *range(1, image.ndim - 1)))


def arranged(shape: tuple[Any, ...], data_format: bytes) -> RawShape:
    """A shape with the channels last in the op's own layout."""
    return (shape[0], shape[-1], *shape[1:-1]) if data_format in _CHANNELS_SECOND else shape


# ---- scratch memory -----------------------------------------------------------------------------

SCRATCH = threading.local()


def scratch(use: str, shape: tuple[int, ...], dtype: Any) -> Array:
    """Uninitialised memory of this thread, reused by the next call for the same ``use``.

    Fresh multi-megabyte arrays cost a page fault per 4 KiB; patch matrices need them in every
    step. A kernel must not return this memory.
    """
    buffers: dict[str, Array] = SCRATCH.__dict__
    size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    buffer = buffers.get(use)
    if buffer is None or buffer.nbytes < size:
        buffer = buffers[use] = np.empty(size, np.uint8)
    array: Array = buffer[:size].view(dtype).reshape(shape)
    return array


def padded(image: Array, axes: Axes, fill: float | np.generic = 0, keep: bool = False) -> Array:
    """``image`` with a border of ``fill``; itself when there is no border.

    The result is scratch memory unless ``keep`` is set.

    Raises:
      MemoryError: there is no room for it.
    """
    if not axes.border:
        return image
    shape = (image.shape[0], *axes.full, image.shape[-1])
    check_room(shape, image.itemsize)
    result = np.empty(shape, image.dtype) if keep else scratch("padded", shape, image.dtype)
    for index in axes.border:
        result[index] = fill
    result[axes.inner] = image
    return result


def patches(image: Array, axes: Axes) -> Array:
    """A view (batch, *out sizes, *window sizes, channels) of an array with its border.

    Raises:
      ValueError: for an array of another size. The view would show memory behind it.
    """
    if image.shape[1:-1] != axes.full:
        raise ValueError(f"The windows are for images of {list(axes.full)}, not of {list(image.shape[1:-1])}")
    batch, *space, channels = image.strides
    steps = [stride * axis.stride for stride, axis in zip(space, axes)]
    holes = [stride * axis.dilation for stride, axis in zip(space, axes)]
    shape = (image.shape[0], *axes.out, *axes.window, image.shape[-1])
    return as_strided(image, shape, (batch, *steps, *holes, channels), writeable=False)


# ---- Pooling in numpy over any number of spatial axes, channels last (see `windows`) -------------------------------


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


def every_match(source: Array, result: Array, axes: Axes) -> Iterator[tuple[tuple[slice, ...], Array]]:
    """Yields, for each element of the windows, where it equals the maximum of its window."""
    for _, where in axes.elements():
        yield where, np.equal(source[where], result)


def spread(batch: int, axes: Axes, channels: int, dtype: np.dtype[Any] | type) -> tuple[Array, bool]:
    """A gradient image with its border, and whether windows tile it (each pixel in exactly one).

    Raises:
      MemoryError: there is no room for it.
    """
    full = (batch, *axes.full, channels)
    check_room(full, np.dtype(dtype).itemsize)
    tiled = all(axis.stride == axis.window and axis.out * axis.window == size for axis, size in zip(axes, axes.full))
    return (np.empty(full, dtype) if tiled else np.zeros(full, dtype)), tiled


def counts(axes: Axes, dtype: np.dtype[Any] | type) -> Array:
    """How many real pixels each window holds, (*out, 1)."""

    def along(axis: Axis) -> Array:
        start = np.arange(axis.out) * axis.stride - axis.before
        return np.minimum(start + axis.window, axis.size) - np.maximum(start, 0)

    return functools.reduce(np.multiply.outer, map(along, axes)).astype(dtype)[..., None]
