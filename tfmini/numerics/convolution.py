"""Convolution over any number of spatial axes, channels last: patch matrices and matrix products.

oneDNN is used where it is installed (`onednn_kernels`); the rest of this file is numpy. The patch matrix is built
block by block, so that it is still in cache when the product reads it. Measured on 32x14x14x32 with a 5x5x32x64
filter (two cores): one copy and one product per block beats the 25 products of a loop over kernel offsets by a factor
of two.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import numpy as np

from tfmini.core_types import Array
from tfmini.numerics import onednn as matrix_product_onednn
from tfmini.numerics import onednn_kernels
from tfmini.numerics.windows import Axes, padded, patches, scratch

# A block's patch matrix: small enough for the cache, large enough that products are few.
BLOCK_BYTES = 4 << 20
# Below this many contiguous elements per patch row it is quicker to copy along the image's last spatial axis.
_SHORT_RUN = 16


def forward(image: Array, filters: Array, axes: Axes) -> Array:
    """Convolves ``image`` (N, *space, C) with ``filters`` (*window, C, F) -> (N, *out, F)."""
    channels, count = filters.shape[-2:]
    if not image.size or not filters.size:
        return np.zeros((image.shape[0], *axes.out, count), image.dtype)
    if axes.joined is not None:
        return forward(_joined(image), _joined(filters, behind=1), axes.joined)
    matrix = filters.reshape(-1, count)
    if axes.pointwise:
        return (image.reshape(-1, channels) @ matrix).reshape((*image.shape[:-1], count))
    if (found := onednn_kernels.forward(image, filters, axes)) is not None:
        return found
    result = np.empty((image.shape[0], *axes.out, count), image.dtype)
    for where, block in _patch_matrices(image, axes):
        np.matmul(block, matrix, out=result[where].reshape(-1, count))
    return result


def backprop_filter(image: Array, grad: Array, axes: Axes) -> Array:
    """The gradient of `forward` for its filters, (*window, C, F)."""
    channels, count = image.shape[-1], grad.shape[-1]
    shape = (*axes.window, channels, count)
    if not image.size or not grad.size:
        return np.zeros(shape, image.dtype)
    if axes.joined is not None:
        return backprop_filter(_joined(image), grad, axes.joined).reshape(shape)
    if axes.pointwise:
        return (image.reshape(-1, channels).T @ grad.reshape(-1, count)).reshape(shape)
    if (found := onednn_kernels.backprop_filter(image, grad, axes)) is not None:
        return found
    total = np.zeros((math.prod(shape[:-1]), count), image.dtype)
    partial = np.empty_like(total)
    for where, block in _patch_matrices(image, axes):
        np.matmul(block.T, grad[where].reshape(-1, count), out=partial)
        total += partial
    return total.reshape(shape)


def backprop_input(grad: Array, filters: Array, axes: Axes) -> Array:
    """The gradient of `forward` for its image, (N, *space, C)."""
    channels, count = filters.shape[-2:]
    shape = (grad.shape[0], *(axis.size for axis in axes), channels)
    if not grad.size or not filters.size:
        return np.zeros(shape, grad.dtype)
    if axes.joined is not None:
        return backprop_input(grad, _joined(filters, behind=1), axes.joined).reshape(shape)
    if axes.pointwise:
        return (grad.reshape(-1, count) @ filters.reshape(channels, count).T).reshape((*grad.shape[:-1], channels))
    if (found := onednn_kernels.backprop_input(grad, filters, axes)) is not None:
        return found
    if axes.turned is not None and count <= 4 * channels:
        flipped = np.flip(filters, tuple(range(len(axes)))).swapaxes(-1, -2)
        return forward(grad, np.ascontiguousarray(flipped), axes.turned)
    return _scatter(grad, filters, axes)


def _joined(array: Array, behind: int = 0) -> Array:
    """The array with its last spatial axis and its channels as channels, and ``behind`` axes after these.

    Windows as wide as the image, as those over sentences of word vectors are, become those of one column with many
    channels, which products compute.
    """
    end = array.ndim - behind
    columns, channels = array.shape[end - 2 : end]
    return array.reshape(*array.shape[: end - 2], 1, columns * channels, *array.shape[end:])


def _patch_matrices(image: Array, axes: Axes) -> Iterator[tuple[tuple[slice, slice], Array]]:
    """Yields (block of output pixels, its patch matrix) for all of the output.

    A patch matrix has one line per output pixel and one column per filter element. A block is some images or, where
    the matrix of one image is too large, some of its positions along the first spatial axis.
    """
    batch, lines = image.shape[0], axes[0].out
    pixels = math.prod(axes.out)
    elements = math.prod(axes.window) * image.shape[-1]
    most = BLOCK_BYTES // max(1, elements * image.dtype.itemsize)
    step = max(1, most // max(1, pixels))
    run = max(1, lines if pixels <= most else most * lines // pixels)
    for start in range(0, batch, step):
        some = slice(start, min(start + step, batch))
        view = patches(padded(image[some], axes), axes)
        for first in range(0, lines, run):
            part = slice(first, min(first + run, lines))
            yield (some, part), _as_matrix(view[:, part], axes, elements)


def _as_matrix(view: Array, axes: Axes, elements: int) -> Array:
    matrix = scratch("patches", (view.size,), view.dtype)
    if axes[-1].window * view.shape[-1] < _SHORT_RUN:
        rank = len(axes)
        turned = view.transpose(*range(rank + 1, 2 * rank + 2), *range(rank + 1))
        np.copyto(matrix.reshape(turned.shape), turned)
        return matrix.reshape(elements, -1).T
    np.copyto(matrix.reshape(view.shape), view)
    return matrix.reshape(-1, elements)


def _scatter(grad: Array, filters: Array, axes: Axes) -> Array:
    """Adds each kernel offset's share to the pixels it came from; works for every stride."""
    channels, count = filters.shape[-2:]
    total = np.zeros((grad.shape[0], *axes.full, channels), grad.dtype)
    share = scratch("patches", (*grad.shape[:-1], channels), grad.dtype)
    flat = grad.reshape(-1, count)
    for place, where in axes.elements():
        np.matmul(flat, filters[place].T, out=share.reshape(-1, channels))
        total[where] += share
    return total[axes.inner]


# ---- depthwise, over two spatial axes -----------------------------------------------------------


def depthwise_forward(image: Array, filters: Array, axes: Axes) -> Array:
    """Convolves each channel by itself: filters (KH, KW, C, M) -> (N, OH, OW, C * M)."""
    source = padded(image, axes)[..., None]
    shape = (image.shape[0], *axes.out, *filters.shape[2:])
    total = np.zeros(shape, image.dtype)
    share = scratch("patches", shape, image.dtype)
    for place, where in axes.elements():
        np.multiply(source[where], filters[place], out=share)
        total += share
    return total.reshape(shape[:3] + (-1,))


def depthwise_backprop_filter(image: Array, grad: Array, filters: tuple[int, ...], axes: Axes) -> Array:
    """The gradient of `depthwise_forward` for its filters."""
    source = padded(image, axes)
    split = grad.reshape(grad.shape[:3] + tuple(filters[2:]))
    result = np.empty(filters, image.dtype)
    for place, where in axes.elements():
        np.einsum("nhwc,nhwcm->cm", source[where], split, out=result[place])
    return result


def depthwise_backprop_input(grad: Array, filters: Array, axes: Axes) -> Array:
    """The gradient of `depthwise_forward` for its image."""
    split = grad.reshape(grad.shape[:3] + filters.shape[2:])
    total = np.zeros((grad.shape[0], *axes.full, filters.shape[2]), grad.dtype)
    for place, where in axes.elements():
        total[where] += np.einsum("nhwcm,cm->nhwc", split, filters[place])
    return total[axes.inner]


# ---- matrix product ----------------------------------------
# Products of two matrices of float32, by oneDNN where it is installed and they are large, else by numpy's BLAS.

# Up to this many multiplications numpy's BLAS uses one thread. Larger products must not go there while anything else
# goes to oneDNN: the threads of each wait for work by spinning, on cores that the other's need (with 1 << 22 a step of
# the benchmarks' convolutional network takes 2.3 times as long).
_FEW = 1 << 18
_FLOAT = np.dtype(np.float32)


def product(a: Array, b: Array, transpose_a: bool, transpose_b: bool, new: Callable[..., Array] | None = None) -> Array:
    """``a @ b``, each transposed if asked for.

    Args:
      new: (shape, dtype) -> the array for the result, if it is large.

    Raises:
      ValueError: for sizes that do not fit.
    """
    a, b = a.T if transpose_a else a, b.T if transpose_b else b
    if a.ndim == b.ndim == 2 and a.shape[1] == b.shape[0] and a.size * b.shape[1] > _FEW:
        library = matrix_product_onednn.library()
        if library is not None:
            result = (np.empty if new is None else new)((a.shape[0], b.shape[1]), _FLOAT)
            library.multiply(a, b, result)
            return result
    return dot(a, b, new)


def dot(a: Array, b: Array, new: Callable[..., Array] | None = None) -> Array:
    """`numpy.dot`; of two matrices of one type in the array ``new(shape, dtype)``, if that is given."""
    found: Array
    fits = a.ndim == b.ndim == 2 and a.shape[1] == b.shape[0]
    out = new((a.shape[0], b.shape[1]), a.dtype) if new is not None and fits else None
    # BLAS does not read the other matrix if the one number is 0: its NaN would be lost.
    if fits and (a.size == 1 or b.size == 1):
        found = np.multiply(a, b, out)
    else:
        found = np.dot(a, b, out)
    return found


def column_sums(matrix: Array) -> Array:
    """The sum of each column: a product with ones reads each element once at memory speed, on all cores."""
    ones = np.ones((1, len(matrix)), matrix.dtype)
    sums = product(ones, matrix, False, False) if matrix.dtype == np.float32 else ones @ matrix
    row: Array = sums[0]
    return row
