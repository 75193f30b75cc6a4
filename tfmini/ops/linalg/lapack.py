"""Shapes of matrices, and LAPACK calls with TensorFlow's errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tfmini.errors import InvalidArgumentError
from tfmini.ops.array.kernel_arguments import as_ndarray, refuse
from tfmini.shapes import RawShape, format_raw, merge_dims

FLOATS = "{double, float, half, complex64, complex128}"


def matrix_parts(shape: RawShape) -> tuple[tuple[int | None, ...], int | None, int | None] | None:
    """(batch, rows, columns) of a static shape, None for an unknown rank.

    Raises:
      ValueError: when the rank is less than two.
    """
    if shape is None:
        return None
    if len(shape) < 2:
        raise ValueError(f"Shape must be at least rank 2 but is rank {len(shape)}")
    return shape[:-2], shape[-2], shape[-1]


def square(shape: RawShape) -> RawShape:
    """``shape`` if its matrices can be square.

    Raises:
      ValueError: otherwise.
    """
    parts = matrix_parts(shape)
    if parts is None:
        return None
    batch, rows, columns = parts
    size = merge_dims(rows, columns)
    return (*batch, size, size)


def check_square(value: Any) -> Any:
    """The array, refused at run time unless it holds square matrices."""
    value = as_ndarray(value)
    if value.ndim < 2:
        refuse(f"Input tensor 0 must have rank >= 2, got {value.ndim}")
    if value.shape[-1] != value.shape[-2]:
        refuse(f"Input matrix must be square. Got shape {format_raw(value.shape)}")
    return value


def iterated(function: Callable[..., Any], message: str, value: Any, **options: Any) -> Any:
    """`lapack` for what is found by iteration, which may not end where an element is infinite.

    Raises:
      InvalidArgumentError: as `lapack`; for elements that are not finite.
    """
    if not np.isfinite(value).all():
        refuse(f"{message} The input has elements that are infinite or NaN.")
    return lapack(function, message, value, **options)


def lapack(function: Callable[..., Any], message: str, *values: Any, **options: Any) -> Any:
    """Calls ``function`` in a precision that LAPACK supports; a failure raises an error with ``message``.

    Raises:
      InvalidArgumentError: when LAPACK reports a singular or otherwise unusable matrix.
    """
    half = values[0].dtype == np.float16
    if half:
        values = tuple(v.astype(np.float32) for v in values)
    try:
        found = function(*values, **options)
    except np.linalg.LinAlgError:
        raise InvalidArgumentError.of(message) from None
    if not half:
        return found
    if isinstance(found, tuple):
        return tuple(f.astype(np.float16) for f in found)
    return found.astype(np.float16)
