"""Any diagonals of matrices: ``MatrixDiagV2``, ``MatrixDiagPartV2``, ``MatrixSetDiagV2``.

Diagonal 0 is the main one; positive numbers are above it. Several diagonals are the rows of a
matrix, the uppermost first, each padded at its end.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from tfmini.graph import raw_ops
from tfmini.graph.families import Operation, Tensor, op
from tfmini.machine_memory import check_room
from tfmini.ops.array.constant_value import constant_value
from tfmini.ops.array.kernel_arguments import at_least_rank, refuse
from tfmini.ops.array.shape import shape
from tfmini.shapes import RawShape, merge_raw

Array = np.ndarray[Any, Any]

diag_op = op(
    "MatrixDiagV2(diagonal: T, k: int32, num_rows: int32, num_cols: int32, padding_value: T) -> output: T; T: type"
)
part_op = op("MatrixDiagPartV2(input: T, k: int32, padding_value: T) -> diagonal: T; T: type")
set_op = op("MatrixSetDiagV2(input: T, diagonal: T, k: int32) -> output: T; T: type")


def _limits(k: Any) -> tuple[int, int]:
    """The lowest and the highest diagonal."""
    found = np.ravel(k).tolist()
    if np.ndim(k) > 1 or len(found) not in (1, 2):
        refuse(f"diag_index must have only one or two elements, received {len(found)} elements.")
    low, high = found[0], found[-1]
    if low > high:
        refuse(f"lower_diag_index must not be larger than upper_diag_index: {low} > {high}")
    return low, high


def _length(rows: int, columns: int, low: int, high: int) -> int:
    """The elements of the longest diagonal."""
    return min(rows + min(high, 0), columns + min(-low, 0))


def _check_inside(rows: int, columns: int, low: int, high: int) -> None:
    for name, k in (("lower", low), ("upper", high)):
        if k != 0 and not -rows < k < columns:
            refuse(f"{name}_diag_index is out of bound: {k}. It must be between {-rows} and {columns}")


def _places(rows: int, columns: int, low: int, high: int) -> Iterator[tuple[int, int, int, int]]:
    """Per diagonal, its row among the diagonals, its first row and column in the matrix, and its length."""
    for i, k in enumerate(range(high, low - 1, -1)):
        row, column = max(-k, 0), max(k, 0)
        yield i, row, column, min(rows - row, columns - column)


# ---- shapes -------------------------------------------------------------------------------------


def _known_limits(tensor: Tensor) -> tuple[int, int] | None:
    value = constant_value(tensor)
    return None if value is None else _limits(value)


@part_op.shape
def _part_shape(node: Operation) -> list[RawShape]:
    raw = at_least_rank(node.inputs[0].raw_shape, 2)
    limits = _known_limits(node.inputs[1])
    if raw is None or limits is None:
        return [None]
    low, high = limits
    several = () if low == high else (high - low + 1,)
    if None in raw[-2:]:
        return [(*raw[:-2], *several, None)]
    return [(*raw[:-2], *several, _length(raw[-2], raw[-1], low, high))]  # type: ignore[arg-type]


@set_op.shape
def _set_shape(node: Operation) -> list[RawShape]:
    raw = at_least_rank(node.inputs[0].raw_shape, 2)
    diagonals = at_least_rank(node.inputs[1].raw_shape, 1)
    limits = _known_limits(node.inputs[2])
    if raw is None or diagonals is None or limits is None:
        return [raw]
    low, high = limits
    several = () if low == high else (high - low + 1,)
    length = None if None in raw[-2:] else _length(raw[-2], raw[-1], low, high)  # type: ignore[arg-type]
    merge_raw(diagonals, (*raw[:-2], *several, length))
    return [raw]


@diag_op.shape
def _diag_shape(node: Operation) -> list[RawShape]:
    raw = at_least_rank(node.inputs[0].raw_shape, 1)
    limits = _known_limits(node.inputs[1])
    rows, columns = (constant_value(t) for t in node.inputs[2:4])
    if raw is None or limits is None:
        return [None]
    low, high = limits
    head = raw[:-1] if low == high else raw[:-2]
    if raw[-1] is None or rows is None or columns is None:
        return [(*head, None, None)]
    return [(*head, *_form(raw[-1], low, high, int(rows), int(columns)))]


def _form(length: int, low: int, high: int, rows: int, columns: int) -> tuple[int, int]:
    """The rows and columns of a matrix with these diagonals; -1 stands for the smallest that fits."""
    least_rows, least_columns = length - min(high, 0), length + max(low, 0)
    if rows == -1 and columns == -1:
        return (max(least_rows, least_columns),) * 2
    rows = least_rows if rows == -1 else rows
    columns = least_columns if columns == -1 else columns
    fits = rows >= least_rows and columns >= least_columns and (rows == least_rows or columns == least_columns)
    if not fits:
        raise ValueError(
            "The number of rows or columns is not consistent with the specified d_lower, d_upper, and diagonal."
        )
    return rows, columns


# ---- kernels ------------------------------------------------------------------------------------


@part_op.kernel("CPU")
def _part(matrix: Array, k: Any, padding: Any) -> Array:
    if matrix.ndim < 2:
        refuse(f"input must be at least 2-dim, received shape: {list(matrix.shape)}")
    low, high = _limits(k)
    rows, columns = matrix.shape[-2:]
    _check_inside(rows, columns, low, high)
    length = _length(rows, columns, low, high)
    result = np.full((*matrix.shape[:-2], high - low + 1, length), np.asarray(padding)[()], matrix.dtype)
    for i, row, column, count in _places(rows, columns, low, high):
        steps = np.arange(count)
        result[..., i, :count] = matrix[..., row + steps, column + steps]
    return result[..., 0, :] if low == high else result


def _put(matrix: Array, diagonals: Array, low: int, high: int) -> None:
    rows, columns = matrix.shape[-2:]
    _check_inside(rows, columns, low, high)
    several = diagonals[..., None, :] if low == high else diagonals
    wanted = (*matrix.shape[:-2], high - low + 1, _length(rows, columns, low, high))
    if several.shape != wanted:
        refuse(f"diagonals must have the shape {list(wanted)}, received {list(several.shape)}")
    for i, row, column, count in _places(rows, columns, low, high):
        steps = np.arange(count)
        matrix[..., row + steps, column + steps] = several[..., i, :count]


@set_op.kernel("CPU")
def _set(matrix: Array, diagonals: Array, k: Any) -> Array:
    if matrix.ndim < 2:
        refuse(f"input must be at least 2-dim, received shape: {list(matrix.shape)}")
    if diagonals.ndim < 1:
        refuse("diagonal must be at least 1-dim, received shape: []")
    result = matrix.copy()
    _put(result, diagonals, *_limits(k))
    return result


@diag_op.kernel("CPU")
def _diag(diagonals: Array, k: Any, num_rows: Any, num_cols: Any, padding: Any) -> Array:
    low, high = _limits(k)
    least = 1 if low == high else 2
    if diagonals.ndim < least:
        refuse(f"diagonal must be at least {least}-dim, received shape: {list(diagonals.shape)}")
    try:
        form = _form(diagonals.shape[-1], low, high, int(num_rows), int(num_cols))
    except ValueError as error:
        refuse(str(error))
    head = diagonals.shape[:-1] if low == high else diagonals.shape[:-2]
    check_room((*head, *form), diagonals.itemsize)
    result = np.full((*head, *form), np.asarray(padding)[()], diagonals.dtype)
    _put(result, diagonals, low, high)
    return result


# ---- gradients ----------------------------------------------------------------------------------


def _zero(tensor: Tensor) -> Tensor:
    return raw_ops.ZerosLike(tensor)


@part_op.gradient
def _part_gradient(node: Operation, grad: Tensor) -> list[Any]:
    matrix, k, _ = node.inputs
    return [set_op(_zero(matrix), grad, k), None, None]


@set_op.gradient
def _set_gradient(node: Operation, grad: Tensor) -> list[Any]:
    _, diagonals, k = node.inputs
    zeros = raw_ops.Fill(shape(diagonals), np.zeros((), grad.dtype.base_dtype.numpy))
    return [set_op(grad, zeros, k), part_op(grad, k, np.zeros((), grad.dtype.base_dtype.numpy)), None]


@diag_op.gradient
def _diag_gradient(node: Operation, grad: Tensor) -> list[Any]:
    k = node.inputs[1]
    return [part_op(grad, k, np.zeros((), grad.dtype.base_dtype.numpy)), None, None, None, None]
