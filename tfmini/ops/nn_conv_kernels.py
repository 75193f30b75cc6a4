"""Convolution in numpy: patch matrices and matrix products, all in NHWC.

The patch matrix is built block by block over the batch, so that it is still in cache when the
product reads it. Measured on 32x14x14x32 with a 5x5x32x64 filter (two cores): one copy and one
product per block beats the 25 products of a loop over kernel offsets by a factor of two.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tfmini.ops.nn_windows import Array, Axis, padded, patches, scratch

# A block's patch matrix: small enough for the cache, large enough that products are few.
_BLOCK_BYTES = 4 << 20
# Below this many contiguous elements per patch row it is quicker to copy along the image's columns.
_SHORT_RUN = 16


def forward(image: Array, filters: Array, rows: Axis, columns: Axis) -> Array:
    """Convolves ``image`` (N, H, W, C) with ``filters`` (KH, KW, C, F) -> (N, OH, OW, F)."""
    batch, channels, count = image.shape[0], image.shape[3], filters.shape[3]
    result = np.empty((batch, rows.out, columns.out, count), image.dtype)
    matrix = filters.reshape(-1, count)
    if _pointwise(rows) and _pointwise(columns):
        np.matmul(image.reshape(-1, channels), matrix, out=result.reshape(-1, count))
        return result
    for start, stop, block in _patch_matrices(image, rows, columns):
        np.matmul(block, matrix, out=result[start:stop].reshape(-1, count))
    return result


def backprop_filter(image: Array, grad: Array, rows: Axis, columns: Axis) -> Array:
    """The gradient of `forward` for its filters, (KH, KW, C, F)."""
    channels, count = image.shape[3], grad.shape[3]
    shape = (rows.window, columns.window, channels, count)
    if _pointwise(rows) and _pointwise(columns):
        return (image.reshape(-1, channels).T @ grad.reshape(-1, count)).reshape(shape)
    total = np.zeros((rows.window * columns.window * channels, count), image.dtype)
    partial = np.empty_like(total)
    for start, stop, block in _patch_matrices(image, rows, columns):
        np.matmul(block.T, grad[start:stop].reshape(-1, count), out=partial)
        total += partial
    return total.reshape(shape)


def backprop_input(grad: Array, filters: Array, rows: Axis, columns: Axis) -> Array:
    """The gradient of `forward` for its image, (N, H, W, C)."""
    channels, count = filters.shape[2:]
    if _pointwise(rows) and _pointwise(columns):
        return (grad.reshape(-1, count) @ filters.reshape(channels, count).T).reshape(grad.shape[:3] + (channels,))
    turned = _turned(rows), _turned(columns)
    if turned[0] is not None and turned[1] is not None and count <= 4 * channels:
        flipped = np.ascontiguousarray(filters[::-1, ::-1].transpose(0, 1, 3, 2))
        return forward(grad, flipped, turned[0], turned[1])
    return _scatter(grad, filters, rows, columns)


def _pointwise(axis: Axis) -> bool:
    return axis.window == 1 and axis.stride == 1 and not axis.padded


def _turned(axis: Axis) -> Axis | None:
    """The axis of the transposed convolution, when that is a plain convolution of the gradient."""
    before = axis.reach - 1 - axis.before
    after = axis.size - 1 + axis.reach - before - axis.out
    if axis.stride != 1 or before < 0 or after < 0:
        return None
    return Axis(axis.out, axis.window, 1, axis.dilation, before, after, axis.size)


def _patch_matrices(image: Array, rows: Axis, columns: Axis) -> Iterator[tuple[int, int, Array]]:
    """Yields (first image, end, patch matrix) for blocks of the batch.

    A patch matrix has one line per output pixel and one column per filter element.
    """
    batch, channels = image.shape[0], image.shape[3]
    pixels, elements = rows.out * columns.out, rows.window * columns.window * channels
    step = max(1, _BLOCK_BYTES // max(1, pixels * elements * image.dtype.itemsize))
    short = columns.window * channels < _SHORT_RUN
    for start in range(0, batch, step):
        stop = min(start + step, batch)
        view = patches(padded(image[start:stop], rows, columns), rows, columns)
        matrix = scratch("patches", (elements * pixels * (stop - start),), image.dtype)
        if short:
            turned = view.transpose(3, 4, 5, 0, 1, 2)
            np.copyto(matrix.reshape(turned.shape), turned)
            yield start, stop, matrix.reshape(elements, -1).T
        else:
            np.copyto(matrix.reshape(view.shape), view)
            yield start, stop, matrix.reshape(-1, elements)


def _scatter(grad: Array, filters: Array, rows: Axis, columns: Axis) -> Array:
    """Adds each kernel offset's share to the pixels it came from; works for every stride."""
    batch, channels, count = grad.shape[0], filters.shape[2], filters.shape[3]
    height, width = rows.before + rows.size + rows.after, columns.before + columns.size + columns.after
    total = np.zeros((batch, height, width, channels), grad.dtype)
    share = scratch("patches", (batch, rows.out, columns.out, channels), grad.dtype)
    flat = grad.reshape(-1, count)
    for i in range(rows.window):
        for j in range(columns.window):
            np.matmul(flat, filters[i, j].T, out=share.reshape(-1, channels))
            total[:, rows.offsets(i), columns.offsets(j)] += share
    return _inner(total, rows, columns)


def _inner(image: Array, rows: Axis, columns: Axis) -> Array:
    """Cuts the padding off again."""
    return image[:, rows.before : rows.before + rows.size, columns.before : columns.before + columns.size]


# ---- depthwise ----------------------------------------------------------------------------------


def depthwise_forward(image: Array, filters: Array, rows: Axis, columns: Axis) -> Array:
    """Convolves each channel by itself: filters (KH, KW, C, M) -> (N, OH, OW, C * M)."""
    source = padded(image, rows, columns)[..., None]
    shape = (image.shape[0], rows.out, columns.out, filters.shape[2], filters.shape[3])
    total = np.zeros(shape, image.dtype)
    share = scratch("patches", shape, image.dtype)
    for i in range(rows.window):
        for j in range(columns.window):
            np.multiply(source[:, rows.offsets(i), columns.offsets(j)], filters[i, j], out=share)
            total += share
    return total.reshape(shape[:3] + (-1,))


def depthwise_backprop_filter(image: Array, grad: Array, filters: tuple[int, ...], rows: Axis, columns: Axis) -> Array:
    """The gradient of `depthwise_forward` for its filters."""
    source = padded(image, rows, columns)
    split = grad.reshape(grad.shape[:3] + tuple(filters[2:]))
    result = np.empty(filters, image.dtype)
    for i in range(rows.window):
        for j in range(columns.window):
            part = source[:, rows.offsets(i), columns.offsets(j)]
            np.einsum("nhwc,nhwcm->cm", part, split, out=result[i, j])
    return result


def depthwise_backprop_input(grad: Array, filters: Array, rows: Axis, columns: Axis) -> Array:
    """The gradient of `depthwise_forward` for its image."""
    split = grad.reshape(grad.shape[:3] + filters.shape[2:])
    height, width = rows.before + rows.size + rows.after, columns.before + columns.size + columns.after
    total = np.zeros((grad.shape[0], height, width, filters.shape[2]), grad.dtype)
    for i in range(rows.window):
        for j in range(columns.window):
            share = np.einsum("nhwcm,cm->nhwc", split, filters[i, j])
            total[:, rows.offsets(i), columns.offsets(j)] += share
    return _inner(total, rows, columns)
