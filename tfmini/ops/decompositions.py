"""Cholesky, QR, singular value, eigenvalue and LU decompositions of batches of matrices."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tfmini import dtypes
from tfmini.core_types import Array, DTypeLike, TensorLike
from tfmini.export import export
from tfmini.graph.families import Operation, OpHandle, Tensor, all_of, name_scope, op
from tfmini.ops.array import shape as array_shape
from tfmini.ops.array.diagonals import eye, matrix_band_part, matrix_diag, matrix_diag_part, matrix_set_diag
from tfmini.ops.array.filling import ones_like, zeros_like
from tfmini.ops.array.identity import cast
from tfmini.ops.array.kernel_arguments import refuse
from tfmini.ops.array.layout import matrix_transpose
from tfmini.ops.array.slicing import getitem
from tfmini.ops.linear_systems import (
    FLOATS,
    check_square,
    iterated,
    lapack,
    matrix_parts,
    matrix_triangular_solve,
    square,
)
from tfmini.ops.math.elementwise import div_no_nan
from tfmini.ops.math.matmul import adjoint_of, matmul
from tfmini.shapes import RawShape

cholesky_op = op(f"Cholesky(input: T) -> output: T; T: {FLOATS}")
cholesky_grad_op = op("CholeskyGrad(l: T, grad: T) -> output: T; T: {half, float, double}", differentiable=None)
qr_op: OpHandle[Any] = op(f"Qr(input: T) -> q: T, r: T; full_matrices: bool = false; T: {FLOATS}")
svd_op: OpHandle[Any] = op(
    f"Svd(input: T) -> s: T, u: T, v: T; compute_uv: bool = true; full_matrices: bool = false; T: {FLOATS}"
)
eigh_op: OpHandle[Any] = op(f"SelfAdjointEigV2(input: T) -> e: T, v: T; compute_v: bool = true; T: {FLOATS}")
lu_op: OpHandle[Any] = op(
    f"Lu(input: T) -> lu: T, p: output_idx_type; output_idx_type: {{int32, int64}} = DT_INT32; T: {FLOATS}",
    differentiable=None,
)

_NO_CONVERGENCE = "The decomposition did not converge. The input might contain inf or nan."


def _adjoint(matrix: Tensor) -> Tensor:
    return matrix_transpose(matrix, conjugate=True)


# ---- Cholesky -------------------------------------------------------------------------------


@all_of(cholesky_op, cholesky_grad_op).shape
def _cholesky_shape(node: Operation) -> list[RawShape]:
    return [square(node.inputs[0].raw_shape)]


@cholesky_op.kernel("CPU")
def _cholesky_kernel(value: np.ndarray) -> Any:
    message = "Cholesky decomposition was not successful. The input might not be valid."
    return lapack(np.linalg.cholesky, message, check_square(value))


@cholesky_grad_op.kernel("CPU")
def _cholesky_grad_kernel(lower: Array, grad: np.ndarray) -> Any:
    def compute(factor: Array, g: Array) -> Any:
        inverse, half = np.linalg.inv(factor), factor.dtype.type(0.5)
        middle = np.tril(adjoint_of(factor) @ np.tril(g))
        position = np.arange(factor.shape[-1])
        middle[..., position, position] *= half
        found = adjoint_of(inverse) @ middle @ inverse
        return (found + adjoint_of(found)) * half

    return lapack(compute, "Input is not invertible.", lower, grad)


@cholesky_op.gradient
def _cholesky_gradient(node: Operation, grad: Tensor) -> list[Any]:
    lower = node.outputs[0]
    sizes = array_shape.shape(lower)
    identity = eye(getitem(sizes, -1), batch_shape=getitem(sizes, slice(None, -2)), dtype=lower.dtype.base_dtype)
    inverse = matrix_triangular_solve(lower, identity)
    middle = matmul(lower, grad, adjoint_a=True)
    middle = matrix_band_part(matrix_set_diag(middle, 0.5 * matrix_diag_part(middle)), -1, 0)
    found = matmul(matmul(inverse, middle, adjoint_a=True), inverse)
    return [(found + _adjoint(found)) * 0.5]


# ---- QR -------------------------------------------------------------------------------------


def _shorter(rows: int | None, columns: int | None) -> int | None:
    return None if rows is None or columns is None else min(rows, columns)


@qr_op.shape
def _qr_shape(node: Operation) -> list[RawShape]:
    parts = matrix_parts(node.inputs[0].raw_shape)
    if parts is None:
        return [None, None]
    batch, rows, columns = parts
    inner = rows if node.attrs["full_matrices"] else _shorter(rows, columns)
    return [(*batch, rows, inner), (*batch, inner, columns)]


@qr_op.kernel("CPU")
def _qr_kernel(value: np.ndarray, *, full_matrices: bool) -> tuple[Any, Any]:
    mode = "complete" if full_matrices else "reduced"
    shape = value.shape
    flat = value.reshape(-1, *shape[-2:]) if value.ndim > 2 else value[None]
    decompose: Any = np.linalg.qr
    pairs = [lapack(lambda v: tuple(decompose(v, mode)), _NO_CONVERGENCE, matrix) for matrix in flat]
    if not pairs:
        inner = shape[-2] if full_matrices else min(shape[-2:])
        return np.empty((*shape[:-1], inner), value.dtype), np.empty((*shape[:-2], inner, shape[-1]), value.dtype)
    q, r = (np.stack(part) for part in zip(*pairs))
    return q.reshape(*shape[:-2], *q.shape[1:]), r.reshape(*shape[:-2], *r.shape[1:])


@qr_op.gradient
def _qr_gradient(node: Operation, dq: Tensor, dr: Tensor) -> list[Any]:
    q, r = node.outputs
    shape = node.inputs[0].raw_shape
    if shape is None or None in shape[-2:]:
        raise NotImplementedError("QrGrad not implemented with dynamic shapes: give the input one by set_shape.")
    wide, tall = shape[-2] < shape[-1], shape[-2] > shape[-1]  # type: ignore[operator]
    if wide or tall and node.attrs["full_matrices"]:
        raise NotImplementedError(
            "QrGrad not implemented when ncols > nrows or full_matrices is true and ncols != nrows."
        )
    qdq = matmul(q, dq, adjoint_a=True)
    rdr = matmul(r, dr, adjoint_b=True)
    lower = matrix_band_part(qdq - _adjoint(qdq) + rdr - _adjoint(rdr), -1, 0)

    def right_solve(x: Tensor) -> Tensor:
        return _adjoint(matrix_triangular_solve(r, _adjoint(x), lower=False, adjoint=False))

    return [matmul(q, dr + right_solve(lower)) + right_solve(dq - matmul(q, qdq))]


# ---- singular values ------------------------------------------------------------------------


@svd_op.shape
def _svd_shape(node: Operation) -> list[RawShape]:
    parts = matrix_parts(node.inputs[0].raw_shape)
    if parts is None:
        return [None, None, None]
    batch, rows, columns = parts
    short = _shorter(rows, columns)
    if not node.attrs["compute_uv"]:
        return [(*batch, short), (0,), (0,)]
    full = node.attrs["full_matrices"]
    return [(*batch, short), (*batch, rows, rows if full else short), (*batch, columns, columns if full else short)]


@svd_op.kernel("CPU")
def _svd_kernel(value: np.ndarray, *, compute_uv: bool, full_matrices: bool) -> tuple[Any, Any, Any]:
    if not compute_uv:
        s = iterated(np.linalg.svd, _NO_CONVERGENCE, value, compute_uv=False).astype(value.dtype, copy=False)
        return s, np.empty(0, value.dtype), np.empty(0, value.dtype)
    u, s, vh = iterated(lambda v: tuple(np.linalg.svd(v, full_matrices)), _NO_CONVERGENCE, value)
    return s.astype(value.dtype, copy=False), u, adjoint_of(vh)


@svd_op.gradient
def _svd_gradient(node: Operation, grad_s: Tensor, grad_u: Tensor, grad_v: Tensor) -> list[Any]:
    if not node.attrs["compute_uv"]:
        _, u, v = svd_op(node.inputs[0], compute_uv=True)
        return [matmul(u, matmul(matrix_diag(grad_s), v, adjoint_b=True))]
    s, u, v = node.outputs
    count = s.raw_shape[-1] if s.raw_shape is not None else None
    if count is None:
        raise NotImplementedError(
            "SVD gradient has not been implemented for input with unknown inner matrix shape: give it one by set_shape."
        )
    u, v, grad_u, grad_v = (getitem(t, (Ellipsis, slice(None, count))) for t in (u, v, grad_u, grad_v))
    gaps = _gaps(s * s)
    diagonal = matrix_diag(s)
    inverse = matrix_diag(div_no_nan(ones_like(s), s))
    udu, vdv = matmul(u, grad_u, adjoint_a=True), matmul(v, grad_v, adjoint_a=True)
    middle = matmul(gaps * (udu - _adjoint(udu)), diagonal) + matmul(diagonal, gaps * (vdv - _adjoint(vdv)))
    found = matmul(matmul(u, middle + matrix_diag(grad_s)), v, adjoint_b=True)
    beside_u = matmul(grad_u - matmul(u, udu), inverse)
    beside_v = matmul(grad_v - matmul(v, vdv), inverse)
    return [found + matmul(beside_u, v, adjoint_b=True) + matmul(u, beside_v, adjoint_b=True)]


def _gaps(values: Tensor) -> Tensor:
    """F[i, j] = 1 / (values[j] - values[i]), and 0 on the diagonal."""
    difference = array_shape.expand_dims(values, -2) - array_shape.expand_dims(values, -1)
    return matrix_set_diag(1.0 / matrix_set_diag(difference, values * values + 1.0), zeros_like(values))


# ---- eigenvalues ----------------------------------------------------------------------------


@eigh_op.shape
def _eigh_shape(node: Operation) -> list[RawShape]:
    shape = square(node.inputs[0].raw_shape)
    if shape is None:
        return [None, None]
    return [shape[:-1], shape if node.attrs["compute_v"] else (0,)]


@eigh_op.kernel("CPU")
def _eigh_kernel(value: np.ndarray, *, compute_v: bool) -> tuple[Any, Any]:
    check_square(value)
    if not compute_v:
        e = iterated(np.linalg.eigvalsh, _NO_CONVERGENCE, value)
        return e.astype(value.dtype, copy=False), np.empty(0, value.dtype)
    e, v = iterated(lambda x: tuple(np.linalg.eigh(x)), _NO_CONVERGENCE, value)
    return e.astype(value.dtype, copy=False), v


@eigh_op.gradient
def _eigh_gradient(node: Operation, grad_e: Tensor, grad_v: Tensor) -> list[Any]:
    middle = matrix_diag(grad_e)
    if node.attrs["compute_v"]:
        e, v = node.outputs
        middle = middle + _gaps(e) * matmul(v, grad_v, adjoint_a=True)
    else:
        _, v = eigh_op(node.inputs[0])
    found = matmul(v, matmul(middle, v, adjoint_b=True))
    # The op reads the lower triangle only.
    found = matrix_band_part(found + _adjoint(found), -1, 0)
    return [matrix_set_diag(found, 0.5 * matrix_diag_part(found))]


# ---- LU -------------------------------------------------------------------------------------


@lu_op.shape
def _lu_shape(node: Operation) -> list[RawShape]:
    shape = square(node.inputs[0].raw_shape)
    return [None, None] if shape is None else [shape, shape[:-1]]


@lu_op.kernel("CPU")
def _lu_kernel(value: np.ndarray, *, output_idx_type: dtypes.DType) -> tuple[Any, Any]:
    value = check_square(value)
    size = value.shape[-1]
    lu = value.reshape(math.prod(value.shape[:-2]), size, size).copy()
    order = np.tile(np.arange(size), (lu.shape[0], 1))
    batch = np.arange(lu.shape[0])
    for k in range(size):
        pivot = k + np.abs(lu[:, k:, k]).argmax(axis=1)
        lu[batch, k], lu[batch, pivot] = lu[batch, pivot], lu[batch, k].copy()
        order[batch, k], order[batch, pivot] = order[batch, pivot], order[batch, k].copy()
        if not lu[:, k, k].all():
            refuse("Input is not invertible.")
        lu[:, k + 1 :, k] /= lu[:, k : k + 1, k]
        lu[:, k + 1 :, k + 1 :] -= lu[:, k + 1 :, k, None] * lu[:, k, None, k + 1 :]
    return lu.reshape(value.shape), order.reshape(value.shape[:-1]).astype(output_idx_type.numpy)


# ---- public functions -----------------------------------------------------------------------


@export("tf.cholesky", "tf.linalg.cholesky")
def cholesky(input: TensorLike, name: str | None = None) -> Tensor:
    """The lower triangular factor of each hermitian positive definite matrix (``tf.cholesky``).

    Raises (when run):
      InvalidArgumentError: when a matrix is not positive definite.
    """
    return cholesky_op(input, name=name)


@export("tf.cholesky_solve", "tf.linalg.cholesky_solve")
def cholesky_solve(chol: TensorLike, rhs: TensorLike, name: str | None = None) -> Tensor:
    """Solves ``A x = rhs`` given ``chol = tf.cholesky(A)`` (``tf.cholesky_solve``)."""
    with name_scope(name, "cholesky_solve", [chol, rhs]):
        halfway = matrix_triangular_solve(chol, rhs, adjoint=False, lower=True)
        return matrix_triangular_solve(chol, halfway, adjoint=True, lower=True)


@export("tf.qr", "tf.linalg.qr")
def qr(input: TensorLike, full_matrices: bool = False, name: str | None = None) -> Any:
    """``input = q @ r`` with orthonormal columns in ``q``: (q, r) (``tf.qr``)."""
    return qr_op(input, full_matrices=full_matrices, name=name)


@export("tf.svd", "tf.linalg.svd")
def svd(tensor: TensorLike, full_matrices: bool = False, compute_uv: bool = True, name: str | None = None) -> Any:
    """Singular values (largest first) and vectors: (s, u, v), or s alone (``tf.svd``).

    Here ``v`` is not conjugate-transposed: ``tensor = u @ diag(s) @ adjoint(v)``.
    """
    s, u, v = svd_op(tensor, compute_uv=compute_uv, full_matrices=full_matrices, name=name)
    real = _real_part(s)
    return (real, u, v) if compute_uv else real


def _real_part(values: Tensor) -> Tensor:
    if not values.dtype.is_complex:
        return values
    return cast(values, values.dtype.real_dtype)


@export("tf.self_adjoint_eig", "tf.linalg.eigh")
def self_adjoint_eig(tensor: TensorLike, name: str | None = None) -> Any:
    """Eigenvalues (ascending) and eigenvectors of hermitian matrices: (e, v) (``tf.self_adjoint_eig``)."""
    return eigh_op(tensor, compute_v=True, name=name)


@export("tf.self_adjoint_eigvals", "tf.linalg.eigvalsh")
def self_adjoint_eigvals(tensor: TensorLike, name: str | None = None) -> Tensor:
    """The eigenvalues of hermitian matrices, ascending (``tf.self_adjoint_eigvals``)."""
    return eigh_op(tensor, compute_v=False, name=name)[0]  # type: ignore[no-any-return]


@export("tf.linalg.lu")
def lu(input: TensorLike, output_idx_type: DTypeLike = dtypes.int32, name: str | None = None) -> Any:
    """LU decomposition with partial pivoting: both triangles in one matrix, and the row order (``tf.linalg.lu``)."""
    return lu_op(input, output_idx_type=dtypes.as_dtype(output_idx_type), name=name)
