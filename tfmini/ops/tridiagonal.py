"""Tridiagonal matrices, given by their three diagonals: products and linear systems (``tf.linalg``)."""

from __future__ import annotations

from typing import Any

import numpy as np

from tfmini.core_types import Array, TensorLike
from tfmini.export import export
from tfmini.graph.families import Operation, Tensor, convert_to_tensor, name_scope, op
from tfmini.ops.array.diagonals import matrix_diag_part
from tfmini.ops.array.filling import zeros_like
from tfmini.ops.array.joining import concat, stack
from tfmini.ops.array.kernel_arguments import as_ndarray, refuse
from tfmini.ops.array.layout import matrix_transpose, pad
from tfmini.ops.array.shape import expand_dims, squeeze
from tfmini.ops.math.elementwise import conj
from tfmini.ops.math.reductions import reduce_sum
from tfmini.shapes import RawShape, compatible_raw, format_raw

_T = "T: {double, float, complex64, complex128}"
_solve = op(f"TridiagonalSolve(diagonals: T, rhs: T) -> output: T; partial_pivoting: bool = true; {_T}")
_product = op(f"TridiagonalMatMul(superdiag: T, maindiag: T, subdiag: T, rhs: T) -> output: T; {_T}")
_solve.shape(lambda node: [node.inputs[1].raw_shape])
_product.shape(lambda node: [node.inputs[3].raw_shape])


def _up(rows: Tensor, axis: int) -> Tensor:
    """Each place has what stands after it, the last zero."""
    return concat([_part(rows, axis, slice(1, None)), zeros_like(_part(rows, axis, slice(1)))], axis)


def _down(rows: Tensor, axis: int) -> Tensor:
    """Each place has what stands before it, the first zero."""
    return concat([zeros_like(_part(rows, axis, slice(1))), _part(rows, axis, slice(None, -1))], axis)


def _part(rows: Tensor, axis: int, kept: slice) -> Tensor:
    return rows[(..., kept) if axis == -1 else (..., kept, slice(None))]


# ---- kernels and gradients ------------------------------------------------------------------


@_product.kernel("CPU")
def _product_kernel(superdiag: Array, maindiag: Array, subdiag: Array, rhs: Array) -> Any:
    above, main, below = (np.swapaxes(d, -1, -2) for d in (superdiag, maindiag, subdiag))
    if main.shape[-2] != rhs.shape[-2]:
        refuse(f"The diagonals have length {main.shape[-2]}, but rhs has {rhs.shape[-2]} rows.")
    result = main * rhs
    result[..., :-1, :] += above[..., :-1, :] * rhs[..., 1:, :]
    result[..., 1:, :] += below[..., 1:, :] * rhs[..., :-1, :]
    return result


@_product.gradient
def _product_gradient(node: Operation, grad: Tensor) -> list[Any]:
    above, main, below = (matrix_transpose(d, conjugate=True) for d in node.inputs[:3])
    right = conj(node.inputs[3])
    diagonals = [expand_dims(reduce_sum(r * grad, -1), -2) for r in (_up(right, -2), right, _down(right, -2))]
    return [*diagonals, _down(above * grad, -2) + main * grad + _up(below * grad, -2)]


@_solve.kernel("CPU")
def _solve_kernel(diagonals: Array, rhs: Array, *, partial_pivoting: bool) -> Any:
    diagonals, rhs = as_ndarray(diagonals), as_ndarray(rhs)
    size = rhs.shape[-2]
    if diagonals.shape != (*rhs.shape[:-2], 3, size):
        refuse(f"Diagonals of shape {list(diagonals.shape)} do not fit right-hand sides of shape {list(rhs.shape)}.")
    above, main, below = (diagonals[..., i, :] for i in range(3))
    nothing = np.zeros_like(above[..., :1])
    rows = np.stack([main, np.concatenate([above[..., :-1], nothing], -1)[..., :size], np.zeros_like(main)], -1)
    found = rhs.copy()
    for i in range(size):
        if i:
            below_it = np.stack([below[..., i], rows[..., i, 0], rows[..., i, 1]], -1)
            _eliminate(rows, found, below_it, i, partial_pivoting)
        if not rows[..., i, 0].all() and (i == size - 1 or not partial_pivoting):
            refuse("The matrix is not invertible, or needs partial pivoting.")
    for i in reversed(range(size)):
        for ahead in range(1, min(3, size - i)):
            found[..., i, :] -= rows[..., i, ahead, None] * found[..., i + ahead, :]
        found[..., i, :] /= rows[..., i, 0, None]
    return found


def _eliminate(rows: Array, found: Array, second: Array, i: int, pivoting: bool) -> None:
    """Subtracts row ``i - 1`` from row ``i``, which is ``second`` from the same column on, after a swap if need be."""
    first, swapped = rows[..., i - 1, :].copy(), np.abs(second[..., :1]) > np.abs(rows[..., i - 1, :1])
    if pivoting:
        first, second = np.where(swapped, second, first), np.where(swapped, first, second)
        pair = found[..., i - 1, :].copy(), found[..., i, :].copy()
        for row, (own, other) in ((i - 1, pair), (i, pair[::-1])):
            found[..., row, :] = np.where(swapped, other, own)
    if not first[..., 0].all():
        refuse("The matrix is not invertible.")
    factor = second[..., :1] / first[..., :1]
    rows[..., i - 1, :] = first
    rows[..., i, :2] = (second - factor * first)[..., 1:]
    found[..., i, :] -= factor * found[..., i - 1, :]


@_solve.gradient
def _solve_gradient(node: Operation, grad: Tensor) -> list[Any]:
    # As in TensorFlow, without the conjugates that complex numbers need.
    above, main, below = (node.inputs[0][..., i, :] for i in range(3))
    transposed = stack([_up(below, -1), main, _down(above, -1)], axis=-2)
    of_rhs = _solve(transposed, grad, partial_pivoting=node.attrs["partial_pivoting"])
    x = node.outputs[0]
    products = [reduce_sum(of_rhs * y, -1) for y in (_up(x, -2), x, _down(x, -2))]
    return [-stack(products, axis=-2), of_rhs]


# ---- public functions -----------------------------------------------------------------------


@export("tf.linalg.tridiagonal_solve")
def tridiagonal_solve(
    diagonals: Any, rhs: TensorLike, diagonals_format: str = "compact", transpose_rhs: bool = False,
    conjugate_rhs: bool = False, name: str | None = None, partial_pivoting: bool = True,
) -> Tensor:  # fmt: skip
    """Solves linear systems with tridiagonal matrices (``tf.linalg.tridiagonal_solve``).

    Args:
      diagonals: those above, on and below the main one: ``[..., 3, M]`` ("compact"; the last of the first and the first
        of the last are ignored), three tensors ("sequence"), or whole matrices ``[..., M, M]`` ("matrix").
      rhs: ``[..., M]`` or ``[..., M, K]``, with ``transpose_rhs`` ``[..., K, M]``.
      partial_pivoting: exchange rows for exactness.

    Returns:
      The solutions, in the shape of ``rhs``.

    Raises:
      ValueError: for another format or shapes that do not fit.

    Raises (when run):
      InvalidArgumentError: when a matrix is singular.
    """
    with name_scope(name, "tridiagonal_solve", [diagonals, rhs]) as scope:
        compact = stack(_three(diagonals, diagonals_format), axis=-2)
        rhs = convert_to_tensor(rhs)
        vector = len(rhs.shape) == len(compact.shape) - 1
        rhs = conj(rhs) if conjugate_rhs else rhs
        rhs = expand_dims(rhs, -1) if vector else matrix_transpose(rhs) if transpose_rhs else rhs
        _check_systems(compact.raw_shape, rhs.raw_shape)
        found = _solve(compact, rhs, partial_pivoting=partial_pivoting, name=scope)
        return squeeze(found, -1) if vector else matrix_transpose(found) if transpose_rhs else found


def _check_systems(compact: RawShape, rhs: RawShape) -> None:
    if compact is None or rhs is None or compatible_raw((*compact[:-2], compact[-1]), rhs[:-1]):
        return
    raise ValueError(f"Diagonals {format_raw(compact)} and right-hand sides {format_raw(rhs)} do not fit each other.")


@export("tf.linalg.tridiagonal_matmul")
def tridiagonal_matmul(
    diagonals: Any, rhs: TensorLike, diagonals_format: str = "compact", name: str | None = None
) -> Tensor:
    """The product of tridiagonal matrices and ``rhs``, ``[..., M, N]`` (``tf.linalg.tridiagonal_matmul``).

    Args:
      diagonals, diagonals_format: see `tridiagonal_solve`.

    Raises:
      ValueError: for another format or shapes that do not fit.
    """
    with name_scope(name, "tridiagonal_matmul", [diagonals, rhs]) as scope:
        rows = [expand_dims(diagonal, -2) for diagonal in _three(diagonals, diagonals_format)]
        return _product(*rows, rhs, name=scope)


def _three(diagonals: Any, form: str) -> list[Tensor]:
    """The diagonals above, on and below the main one, all of its length."""
    if form == "sequence":
        if not isinstance(diagonals, (tuple, list)) or len(diagonals) != 3:
            raise ValueError("Expected diagonals to be a sequence of length 3.")
        return _of_one_length(*map(convert_to_tensor, diagonals))
    diagonals = convert_to_tensor(diagonals)
    shape = diagonals.raw_shape
    if form == "compact":
        if shape is not None and (len(shape) < 2 or shape[-2] not in (None, 3)):
            raise ValueError(f"Expected 3 diagonals, [..., 3, M], but got the shape {format_raw(shape)}")
        return [diagonals[..., i, :] for i in range(3)]
    if form != "matrix":
        raise ValueError(f"Unrecognized diagonals_format: {form}")
    if shape is None or shape[-2:] == (None, None):
        raise ValueError('The size of the matrix needs to be known for diagonals_format="matrix"')
    if None not in shape[-2:] and shape[-1] != shape[-2]:
        raise ValueError(f"Expected last two dimensions of diagonals to be same, got {shape[-2]} and {shape[-1]}")
    above, below = matrix_diag_part(diagonals[..., :, 1:]), matrix_diag_part(diagonals[..., 1:, :])
    ends = [[0, 0]] * (len(shape) - 2)
    return [pad(above, [*ends, [0, 1]]), matrix_diag_part(diagonals), pad(below, [*ends, [1, 0]])]


def _of_one_length(above: Tensor, main: Tensor, below: Tensor) -> list[Tensor]:
    shapes: list[Any] = [d.raw_shape for d in (above, main, below)]
    if None in shapes:
        raise ValueError("The rank of the diagonals must be known.")
    batch, length = shapes[1][:-1], shapes[1][-1]
    for role, shape in zip(("superdiagonal", "diagonal", "subdiagonal"), shapes):
        if not compatible_raw(shape[:-1], batch):
            text = ", ".join(map(format_raw, shapes))
            raise ValueError(f"The three diagonals must have the same shape except for the last dimension, got {text}")
        if None not in (shape[-1], length) and not length - 1 <= shape[-1] <= length:
            raise ValueError(f"Expected {role} to have length {length} or {length - 1}, got {shape[-1]}.")
    ends = [[0, 0]] * len(batch)
    above, below = (
        pad(diagonal, [*ends, end]) if None not in (shape[-1], length) and shape[-1] < length else diagonal
        for diagonal, shape, end in ((above, shapes[0], [0, 1]), (below, shapes[2], [1, 0]))
    )
    return [above, main, below]
