"""Products of two matrices of float32, by oneDNN where it is installed and they are large, else by numpy's BLAS."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tfmini.numerics import onednn

Array = np.ndarray[Any, Any]
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
    # The size of one matrix, and the free axis of the other.
    if a.ndim == b.ndim == 2 and a.size * b.shape[0 if transpose_b else 1] > _FEW:
        library = onednn.library()
        if library is not None and a.flags.c_contiguous and b.flags.c_contiguous:
            rows, inner = a.shape[::-1] if transpose_a else a.shape
            also_inner, columns = b.shape[::-1] if transpose_b else b.shape
            if inner == also_inner:
                result = (np.empty if new is None else new)((rows, columns), _FLOAT)
                library.multiply(a, b, transpose_a, transpose_b, result)
                return result
    return dot(a.T if transpose_a else a, b.T if transpose_b else b, new)


def dot(a: Array, b: Array, new: Callable[..., Array] | None = None) -> Array:
    """`numpy.dot`; of two matrices of one type in the array ``new(shape, dtype)``, if that is given."""
    found: Array
    if new is not None and a.ndim == b.ndim == 2 and a.shape[1] == b.shape[0]:
        found = np.dot(a, b, new((a.shape[0], b.shape[1]), a.dtype))
    else:
        found = np.dot(a, b)
    return found


def column_sums(matrix: Array) -> Array:
    """The sum of each column: a product with ones reads each element once at memory speed, on all cores."""
    ones = np.ones((1, len(matrix)), matrix.dtype)
    sums = product(ones, matrix, False, False) if matrix.dtype == np.float32 else ones @ matrix
    row: Array = sums[0]
    return row
