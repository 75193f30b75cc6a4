"""Sliding windows over images: padding rules, output sizes, patch views and scratch memory.

Shared by convolution and pooling. Everything here works on one spatial axis at a time, so the
kernels can stay in NHWC and treat rows and columns alike.
"""

from __future__ import annotations

import threading
from typing import Any, NamedTuple

import numpy as np
from numpy.lib.stride_tricks import as_strided

from tfmini.shapes import RawShape

Array = np.ndarray[Any, Any]


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

    @property
    def padded(self) -> bool:
        return self.before > 0 or self.after > 0

    def offsets(self, k: int) -> slice:
        """Where the ``k``-th element of each window lies in the padded axis."""
        start = k * self.dilation
        return slice(start, start + (self.out - 1) * self.stride + 1, self.stride)


def window_axis(
    size: int, window: int, stride: int, dilation: int, padding: bytes, explicit: tuple[int, int] = (0, 0)
) -> Axis:
    """Places the windows along an axis.

    Raises:
      ValueError: when the window does not fit, in TF's words.
    """
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


def image_axes(data_format: bytes) -> tuple[int, int, int, int]:
    """The positions of batch, rows, columns and channels."""
    return (0, 2, 3, 1) if data_format == b"NCHW" else (0, 1, 2, 3)


def explicit_pair(explicit_paddings: Any, axis: int) -> tuple[int, int]:
    """The padding before and after ``axis`` in an ``explicit_paddings`` attr."""
    if not explicit_paddings:
        return (0, 0)
    return explicit_paddings[2 * axis], explicit_paddings[2 * axis + 1]


def to_nhwc(image: Array, data_format: bytes) -> Array:
    """A view with the channels last."""
    return image.transpose(0, 2, 3, 1) if data_format == b"NCHW" else image


def from_nhwc(image: Array, data_format: bytes) -> Array:
    """The result in the op's own layout, contiguous."""
    return np.ascontiguousarray(image.transpose(0, 3, 1, 2)) if data_format == b"NCHW" else image


def arrange(shape: tuple[Any, Any, Any, Any], data_format: bytes) -> RawShape:
    """A shape given as (batch, rows, columns, channels) in the op's own layout."""
    batch, rows, columns, channels = shape
    return (batch, channels, rows, columns) if data_format == b"NCHW" else shape


# ---- scratch memory -----------------------------------------------------------------------------

_LOCAL = threading.local()


def scratch(use: str, shape: tuple[int, ...], dtype: Any) -> Array:
    """Uninitialised memory of this thread, reused by the next call for the same ``use``.

    Fresh multi-megabyte arrays cost a page fault per 4 KiB; patch matrices need them in every
    step. What is built here must not leave the kernel.
    """
    buffers: dict[str, Array] = _LOCAL.__dict__
    size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    buffer = buffers.get(use)
    if buffer is None or buffer.nbytes < size:
        buffer = buffers[use] = np.empty(size, np.uint8)
    array: Array = buffer[:size].view(dtype).reshape(shape)
    return array


def padded(image: Array, rows: Axis, columns: Axis, fill: Any = 0, keep: bool = False) -> Array:
    """``image`` (NHWC) with a border of ``fill``; itself when there is no border.

    The result is scratch memory unless ``keep`` is set.
    """
    if not (rows.padded or columns.padded):
        return image
    batch, height, width, channels = image.shape
    shape = (batch, rows.before + height + rows.after, columns.before + width + columns.after, channels)
    result = np.empty(shape, image.dtype) if keep else scratch("padded", shape, image.dtype)
    top, left = rows.before, columns.before
    result[:, :top] = fill
    result[:, top + height :] = fill
    result[:, top : top + height, :left] = fill
    result[:, top : top + height, left + width :] = fill
    result[:, top : top + height, left : left + width] = image
    return result


def patches(image: Array, rows: Axis, columns: Axis) -> Array:
    """A view (batch, out rows, out columns, window rows, window columns, channels) of a padded image."""
    n, h, w, c = image.strides
    return as_strided(
        image,
        (image.shape[0], rows.out, columns.out, rows.window, columns.window, image.shape[3]),
        (n, h * rows.stride, w * columns.stride, h * rows.dilation, w * columns.dilation, c),
        writeable=False,
    )
