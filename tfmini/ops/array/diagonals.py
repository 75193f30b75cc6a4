"""Diagonals and bands of matrices: ``tf.diag``, ``tf.matrix_diag``, ``tf.matrix_band_part``, ``tf.eye``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from tfmini import dtypes
from tfmini.core_types import Array, DTypeLike, SizesLike, TensorLike
from tfmini.export import export
from tfmini.graph import raw_ops
from tfmini.graph.families import Operation, OpHandle, Tensor, convert_to_tensor, name_scope, op
from tfmini.memory import check_room
from tfmini.ops.array.constant_value import constant_value
from tfmini.ops.array.filling import ones, zeros
from tfmini.ops.array.joining import concat
from tfmini.ops.array.kernel_arguments import filled, refuse, zero_of
from tfmini.ops.array.shape import shape
from tfmini.shapes import RawShape, at_least_rank, merge_raw

# ---- Any diagonals of matrices: ``MatrixDiagV2``, ``MatrixDiagPartV2``, ``MatrixSetDiagV2`` ------------------------
# Diagonal 0 is the main one; positive numbers are above it. Several diagonals are the rows of a
# matrix, the uppermost first, each padded at its end.


diag_op = op(
    "MatrixDiagV2(diagonal: T, k: int32, num_rows: int32, num_cols: int32, padding_value: T) -> output: T; T: type"
)
part_op = op("MatrixDiagPartV2(input: T, k: int32, padding_value: T) -> diagonal: T; T: type")
set_op = op("MatrixSetDiagV2(input: T, diagonal: T, k: int32) -> output: T; T: type")


def _limits(k: Array) -> tuple[int, int]:
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
def _part(matrix: Array, k: Array, padding: Array) -> Array:
    if matrix.ndim < 2:
        refuse(f"input must be at least 2-dim, received shape: {list(matrix.shape)}")
    low, high = _limits(k)
    rows, columns = matrix.shape[-2:]
    _check_inside(rows, columns, low, high)
    length = _length(rows, columns, low, high)
    result = filled((*matrix.shape[:-2], high - low + 1, length), padding, matrix.dtype)
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
def _set(matrix: Array, diagonals: Array, k: Array) -> Array:
    if matrix.ndim < 2:
        refuse(f"input must be at least 2-dim, received shape: {list(matrix.shape)}")
    if diagonals.ndim < 1:
        refuse("diagonal must be at least 1-dim, received shape: []")
    result = matrix.copy()
    _put(result, diagonals, *_limits(k))
    return result


@diag_op.kernel("CPU")
def _diag(diagonals: Array, k: Array, num_rows: Array, num_cols: Array, padding: Array) -> Array:
    low, high = _limits(k)
    least = 1 if low == high else 2
    if diagonals.ndim < least:
        refuse(f"diagonal must be at least {least}-dim, received shape: {list(diagonals.shape)}")
    try:
        form = _form(diagonals.shape[-1], low, high, int(num_rows), int(num_cols))
    except ValueError as error:
        refuse(str(error))
    head = diagonals.shape[:-1] if low == high else diagonals.shape[:-2]
    result = filled((*head, *form), padding, diagonals.dtype)
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


# ---- Diagonals of whole tensors: ``Diag`` and ``DiagPart``; and the declarations for matrices ----------------------

_NUMBERS = "T: {bfloat16, half, float, double, int32, int64, complex64, complex128}"
_tensor_diag = op(f"Diag(diagonal: T) -> output: T; {_NUMBERS}")
_tensor_diag.kernel("CPU")(lambda diagonal: np.diag(diagonal.ravel()).reshape(diagonal.shape * 2))
_tensor_diag.gradient(lambda node, grad: [_diag_part(grad)])
_diag_part: OpHandle = op(f"DiagPart(input: T) -> diagonal: T; {_NUMBERS}")
_diag_part.gradient(lambda node, grad: [_tensor_diag(grad)])
_matrix_diag = op("MatrixDiag(diagonal: T) -> output: T; T: type")
_matrix_diag.gradient(lambda node, grad: [_matrix_diag_part(grad)])
_matrix_diag_part: OpHandle = op("MatrixDiagPart(input: T) -> diagonal: T; T: type")
_matrix_set_diag = op("MatrixSetDiag(input: T, diagonal: T) -> output: T; T: type")
_band_part = op(
    "MatrixBandPart(input: T, num_lower: Tindex, num_upper: Tindex) -> band: T; T: type;"
    " Tindex: {int32, int64} = DT_INT64",
    shape=lambda node: [at_least_rank(node.inputs[0].raw_shape, 2)],
)
_band_part.gradient(lambda node, grad: [_band_part(grad, node.inputs[1], node.inputs[2]), None, None])


@_tensor_diag.shape
def _tensor_diag_shape(node: Operation) -> list[RawShape]:
    raw = at_least_rank(node.inputs[0].raw_shape, 1)
    return [None if raw is None else raw + raw]


@_diag_part.shape
def _diag_part_shape(node: Operation) -> list[RawShape]:
    raw = node.inputs[0].raw_shape
    if raw is None:
        return [None]
    if len(raw) % 2 or not raw:
        raise ValueError(f"Input must have even and non-zero rank, input rank is {len(raw)}")
    half = len(raw) // 2
    return [merge_raw(raw[:half], raw[half:])]


@_diag_part.kernel("CPU")
def _diag_part_kernel(value: Array) -> Any:
    half = value.shape[: value.ndim // 2]
    if half != value.shape[value.ndim // 2 :]:
        refuse(f"Invalid shape {list(value.shape)}: its two halves must be equal")
    count = int(np.prod(half))
    return value.reshape(count, count).diagonal().reshape(half)


# ---- batches of matrices ------------------------------------------------------------------------


@_matrix_diag.shape
def _matrix_diag_shape(node: Operation) -> list[RawShape]:
    raw = at_least_rank(node.inputs[0].raw_shape, 1)
    return [None if raw is None else (*raw, raw[-1])]


@_matrix_diag.kernel("CPU")
def _matrix_diag_kernel(diagonal: Array) -> Any:
    if not np.ndim(diagonal):
        refuse("diagonal must be at least 1-dim, received shape: []")
    size = diagonal.shape[-1]
    check_room((*diagonal.shape, size), diagonal.itemsize)
    result = np.full((*diagonal.shape, size), zero_of(diagonal.dtype), diagonal.dtype)
    position = np.arange(size)
    result[..., position, position] = diagonal
    return result


def _shorter(rows: int | None, columns: int | None) -> int | None:
    return None if rows is None or columns is None else min(rows, columns)


@_matrix_diag_part.shape
def _matrix_diag_part_shape(node: Operation) -> list[RawShape]:
    raw = at_least_rank(node.inputs[0].raw_shape, 2)
    return [None if raw is None else (*raw[:-2], _shorter(*raw[-2:]))]


@_matrix_diag_part.kernel("CPU")
def _matrix_diag_part_kernel(value: Array) -> Any:
    if np.ndim(value) < 2:
        refuse(f"input must be at least 2-dim, received shape: {list(np.shape(value))}")
    return value.diagonal(axis1=-2, axis2=-1)


@_matrix_diag_part.gradient
def _matrix_diag_part_gradient(node: Operation, grad: Tensor) -> list[Any]:
    value = node.inputs[0]
    shape = value.raw_shape
    if shape is not None and len(shape) >= 2 and shape[-1] == shape[-2] is not None:
        return [_matrix_diag(grad)]
    return [_matrix_set_diag(raw_ops.ZerosLike(value), grad)]


@_matrix_set_diag.shape
def _matrix_set_diag_shape(node: Operation) -> list[RawShape]:
    raw, diagonal = at_least_rank(node.inputs[0].raw_shape, 2), at_least_rank(node.inputs[1].raw_shape, 1)
    if raw is not None and diagonal is not None:
        merge_raw((*raw[:-2], _shorter(*raw[-2:])), diagonal)
    return [raw]


@_matrix_set_diag.kernel("CPU")
def _matrix_set_diag_kernel(value: Array, diagonal: Array) -> Any:
    if np.ndim(value) < 2:
        refuse(f"input must be at least 2-dim, received shape: {list(np.shape(value))}")
    count = min(value.shape[-2:])
    if diagonal.shape != (*value.shape[:-2], count):
        refuse(f"must have diagonal.shape == input.shape[:-2] + min(input.shape[-2:]), but received {diagonal.shape}")
    result = value.copy()
    position = np.arange(count)
    result[..., position, position] = diagonal
    return result


@_matrix_set_diag.gradient
def _matrix_set_diag_gradient(node: Operation, grad: Tensor) -> list[Any]:
    inside = _matrix_set_diag(grad, raw_ops.ZerosLike(node.inputs[1]))
    return [inside, _matrix_diag_part(grad)]


@_band_part.kernel("CPU")
def _band_part_kernel(value: Array, num_lower: Array, num_upper: Array) -> Any:
    rows, columns = value.shape[-2:]
    lower, upper = int(num_lower), int(num_upper)
    if lower > rows:
        refuse(f"num_lower must be negative or less or equal to number of rows ({rows}) got: {lower}")
    if upper > columns:
        refuse(f"num_upper must be negative or less or equal to number of columns ({columns}) got: {upper}")
    offset = np.arange(columns) - np.arange(rows)[:, None]
    inside = np.ones((rows, columns), bool)
    if lower >= 0:
        inside &= offset >= -lower
    if upper >= 0:
        inside &= offset <= upper
    return np.where(inside, value, zero_of(value.dtype))


# ---- public functions ---------------------------------------------------------------------------


@export("tf.diag", "tf.linalg.tensor_diag")
def diag(diagonal: TensorLike, name: str | None = None) -> Tensor:
    """The tensor of shape ``s + s`` with ``diagonal`` (shape s) where both halves of the index agree (``tf.diag``)."""
    return _tensor_diag(diagonal, name=name)


@export("tf.diag_part", "tf.linalg.tensor_diag_part")
def diag_part(input: TensorLike, name: str | None = None) -> Tensor:
    """The diagonal of a tensor of shape ``s + s`` (``tf.diag_part``)."""
    return _diag_part(input, name=name)


def _is_main(k: Any) -> bool:
    """Whether ``k`` is the main diagonal, for which older and simpler ops exist."""
    return not isinstance(k, Tensor) and np.ndim(k) == 0 and int(k) == 0


@export("tf.matrix_diag", "tf.linalg.diag")
def matrix_diag(
    diagonal: TensorLike, name: str = "diag", k: TensorLike = 0, num_rows: int = -1, num_cols: int = -1,
    padding_value: TensorLike = 0,
) -> Tensor:  # fmt: skip
    """Matrices with given diagonals and ``padding_value`` elsewhere (``tf.matrix_diag``, ``tf.linalg.diag``).

    Args:
      diagonal: (…, length), or (…, count, length) for several, the uppermost first, each padded at its end.
      name: of the op.
      k: the diagonal (0: the main one, positive: above it), or the lowest and the highest of several.
      num_rows, num_cols: of the matrices; -1: as many as fit, square if both are -1.
      padding_value: of the other elements.
    """
    if _is_main(k) and num_rows == num_cols == -1 and not isinstance(padding_value, Tensor) and padding_value == 0:
        return _matrix_diag(diagonal, name=name)
    diagonal = convert_to_tensor(diagonal, name="diagonal")
    filler = convert_to_tensor(padding_value, dtype=diagonal.dtype.base_dtype)
    return diag_op(diagonal, k, num_rows, num_cols, filler, name=name)


@export("tf.matrix_diag_part", "tf.linalg.diag_part")
def matrix_diag_part(
    input: TensorLike, name: str = "diag_part", k: TensorLike = 0, padding_value: TensorLike = 0
) -> Tensor:
    """Diagonals of a batch of matrices (``tf.matrix_diag_part``, ``tf.linalg.diag_part``); see `matrix_diag`."""
    if _is_main(k):
        return _matrix_diag_part(input, name=name)
    input = convert_to_tensor(input, name="input")
    filler = convert_to_tensor(padding_value, dtype=input.dtype.base_dtype)
    return part_op(input, k, filler, name=name)


@export("tf.matrix_set_diag", "tf.linalg.set_diag")
def matrix_set_diag(input: TensorLike, diagonal: TensorLike, name: str = "set_diag", k: TensorLike = 0) -> Tensor:
    """Matrices with diagonals replaced (``tf.matrix_set_diag``, ``tf.linalg.set_diag``); see `matrix_diag`."""
    if _is_main(k):
        return _matrix_set_diag(input, diagonal, name=name)
    return set_op(input, diagonal, k, name=name)


@export("tf.matrix_band_part", "tf.linalg.band_part")
def matrix_band_part(
    input: TensorLike, num_lower: TensorLike, num_upper: TensorLike, name: str | None = None
) -> Tensor:
    """The matrices with everything outside a central band set to zero (``tf.matrix_band_part``).

    A negative number of diagonals keeps that whole triangle.
    """
    return _band_part(input, num_lower, num_upper, name=name)


@export("tf.eye", "tf.linalg.eye")
def eye(
    num_rows: Any, num_columns: Any = None, batch_shape: SizesLike | None = None, dtype: DTypeLike = dtypes.float32,
    name: str | None = None,
) -> Tensor:  # fmt: skip
    """Identity matrices (``tf.eye``).

    Args:
      num_rows: int or int32 scalar.
      num_columns: default ``num_rows``.
      batch_shape: leading dimensions.
      dtype: element type.
      name: of the scope.
    """
    with name_scope(name, "eye", [num_rows, num_columns, batch_shape]):
        columns = num_rows if num_columns is None else num_columns
        known = not isinstance(num_rows, Tensor) and not isinstance(columns, Tensor)
        length = min(num_rows, columns) if known else raw_ops.Minimum(num_rows, columns)
        head: Any = [] if batch_shape is None else batch_shape
        if isinstance(head, Tensor) or not known:
            head = convert_to_tensor(head, dtype=dtypes.int32, name="shape")
        square = num_rows == columns if known else num_columns is None
        diagonal_shape, shape = _after(head, [length]), None if square else _after(head, [num_rows, columns])
        diagonal = ones(diagonal_shape, dtype)
        return matrix_diag(diagonal) if shape is None else matrix_set_diag(zeros(shape, dtype), diagonal)


def _after(head: Any, sizes: list[Any]) -> Any:
    """The shape of matrices with leading dimensions: a list, or a tensor if those are one."""
    return concat([head, sizes], 0) if isinstance(head, Tensor) else [*head, *sizes]
