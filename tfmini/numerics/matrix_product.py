"""Products of two matrices of float32, by oneDNN where it is installed and they are large, else by numpy's BLAS."""

from __future__ import annotations

from typing import Any

import numpy as np

from tfmini.numerics import onednn

Array = np.ndarray[Any, Any]
# Below this many multiplications the call costs more than oneDNN saves.
_FEW = 1 << 18


def product(a: Array, b: Array, transpose_a: bool, transpose_b: bool) -> Array:
    """``a @ b``, each transposed if asked for.

    Raises:
      ValueError: for sizes that do not fit.
    """
    if a.ndim == b.ndim == 2:
        rows, inner = a.shape[::-1] if transpose_a else a.shape
        also_inner, columns = b.shape[::-1] if transpose_b else b.shape
        if rows * inner * columns > _FEW and inner == also_inner and a.flags.c_contiguous and b.flags.c_contiguous:
            library = onednn.library()
            if library is not None:
                result = np.empty((rows, columns), np.float32)
                library.multiply(a, b, transpose_a, transpose_b, result)
                return result
    found: Array = np.dot(a.T if transpose_a else a, b.T if transpose_b else b)
    return found


def column_sums(matrix: Array) -> Array:
    """The sum of each column: a product with ones reads each element once at memory speed, on all cores."""
    ones = np.ones((1, len(matrix)), matrix.dtype)
    sums = product(ones, matrix, False, False) if matrix.dtype == np.float32 else ones @ matrix
    row: Array = sums[0]
    return row
