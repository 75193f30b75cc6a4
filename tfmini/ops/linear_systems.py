"""Determinants, inverses and linear systems of batches of matrices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tfmini import dtypes
from tfmini.core_types import Array, TensorLike
from tfmini.errors import InvalidArgumentError
from tfmini.export import export
from tfmini.graph.families import Operation, OpHandle, Tensor, all_of, convert_to_tensor, name_scope, op
from tfmini.ops.array import shape as array_shape
from tfmini.ops.array.diagonals import eye, matrix_band_part
from tfmini.ops.array.identity import cast
from tfmini.ops.array.kernel_arguments import as_ndarray, refuse
from tfmini.ops.array.layout import matrix_transpose
from tfmini.ops.math import elementwise as math_elementwise
from tfmini.ops.math.matmul import adjoint_of, matmul
from tfmini.shapes import RawShape, at_least_rank, format_raw, merge_dims, merge_raw

# ---- Shapes of matrices, and LAPACK calls with TensorFlow's errors -------------------------------------------------

FLOATS = "{double, float, half, complex64, complex128}"


def matrix_parts(shape: RawShape) -> tuple[tuple[int | None, ...], int | None, int | None] | None:
    """(batch, rows, columns) of a static shape, None for an unknown rank.

    Raises:
      ValueError: when the rank is less than two.
    """
    if shape is None:
        return None
    at_least_rank(shape, 2)
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


def check_square(value: Array) -> Any:
    """The array, refused at run time unless it holds square matrices."""
    value = as_ndarray(value)
    if value.ndim < 2:
        refuse(f"Input tensor 0 must have rank >= 2, got {value.ndim}")
    if value.shape[-1] != value.shape[-2]:
        refuse(f"Input matrix must be square. Got shape {format_raw(value.shape)}")
    return value


def iterated(function: Callable[..., Any], message: str, value: Array, **options: object) -> Any:
    """`lapack` for what is found by iteration, which may not end where an element is infinite.

    Raises:
      InvalidArgumentError: as `lapack`; for elements that are not finite.
    """
    if not np.isfinite(value).all():
        refuse(f"{message} The input has elements that are infinite or NaN.")
    return lapack(function, message, value, **options)


def lapack(function: Callable[..., Any], message: str, *values: Any, **options: object) -> Any:
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


# ---- solving ------------------------------------------------------------

inverse_op = op(f"MatrixInverse(input: T) -> output: T; adjoint: bool = false; T: {FLOATS}")
inverse_op.shape(lambda node: [square(node.inputs[0].raw_shape)])
determinant_op = op(f"MatrixDeterminant(input: T) -> output: T; T: {FLOATS}")
determinant_op.kernel("CPU")(lambda value: lapack(np.linalg.det, _SINGULAR, check_square(value)))
log_determinant_op: OpHandle[Any] = op(
    f"LogMatrixDeterminant(input: T) -> sign: T, log_abs_determinant: T; T: {FLOATS}"
)
log_determinant_op.gradient(lambda node, _, grad: [_as_factor(grad) * inverse_op(node.inputs[0], adjoint=True)])
solve_op = op(f"MatrixSolve(matrix: T, rhs: T) -> output: T; adjoint: bool = false; T: {FLOATS}")
triangular_solve_op = op(
    f"MatrixTriangularSolve(matrix: T, rhs: T) -> output: T; lower: bool = true; adjoint: bool = false; T: {FLOATS}"
)
solve_ls_op = op(
    "MatrixSolveLs(matrix: T, rhs: T, l2_regularizer: double) -> output: T; T: {double, float, complex64, complex128};"
    " fast: bool = true"
)

_SINGULAR = "Input is not invertible."


# ---- inverse and determinant ----------------------------------------------------------------


@inverse_op.kernel("CPU")
def _inverse_kernel(value: Array, *, adjoint: bool) -> Any:
    value = check_square(value)
    return lapack(np.linalg.inv, _SINGULAR, adjoint_of(value) if adjoint else value)


@inverse_op.gradient
def _inverse_gradient(node: Operation, grad: Tensor) -> list[Any]:
    found = node.outputs[0]
    inner = matmul(found, matmul(grad, found, adjoint_b=True), adjoint_a=True)
    return [-(matrix_transpose(inner, conjugate=True) if node.attrs["adjoint"] else inner)]


@all_of(determinant_op, log_determinant_op).shape
def _determinant_shape(node: Operation) -> list[RawShape]:
    shape = square(node.inputs[0].raw_shape)
    return [None if shape is None else shape[:-2]] * len(node.handle.op_def.outputs)


@log_determinant_op.kernel("CPU")
def _log_determinant_kernel(value: Array) -> tuple[Any, Any]:
    value = check_square(value)
    sign, logarithm = lapack(lambda v: tuple(np.linalg.slogdet(v)), _SINGULAR, value)
    return sign, logarithm.astype(value.dtype, copy=False)


def _as_factor(scalars: Tensor) -> Tensor:
    """One number per matrix, with two axes of size 1 for broadcasting over the matrix."""
    return array_shape.expand_dims(array_shape.expand_dims(scalars, -1), -1)


@determinant_op.gradient
def _determinant_gradient(node: Operation, grad: Tensor) -> list[Any]:
    inverse = inverse_op(node.inputs[0], adjoint=True)
    return [_as_factor(grad * node.outputs[0]) * inverse]


# ---- systems of equations -------------------------------------------------------------------


@all_of(solve_op, triangular_solve_op).shape
def _solve_shape(node: Operation) -> list[RawShape]:
    matrix, rhs = square(node.inputs[0].raw_shape), node.inputs[1].raw_shape
    parts = matrix_parts(rhs)
    if matrix is None or parts is None:
        return [None]
    batch, rows, columns = parts
    merged = merge_raw(matrix[:-2], batch)
    return [(*(merged or ()), merge_dims(matrix[-1], rows), columns)]


def _check_system(matrix: Array, rhs: Array) -> None:
    if matrix.shape[:-2] != rhs.shape[:-2]:
        refuse(
            f"In[0] and In[1] must have the same batch sizes: {format_raw(matrix.shape)} vs. {format_raw(rhs.shape)}"
        )
    if matrix.shape[-2] != rhs.shape[-2]:
        refuse(f"Input matrix and rhs are incompatible: {format_raw(matrix.shape)} vs. {format_raw(rhs.shape)}")


@solve_op.kernel("CPU")
def _solve_kernel(matrix: Array, rhs: Array, *, adjoint: bool) -> Any:
    check_square(matrix)
    _check_system(matrix, rhs)
    return lapack(np.linalg.solve, "Input matrix is not invertible.", adjoint_of(matrix) if adjoint else matrix, rhs)


@triangular_solve_op.kernel("CPU")
def _triangular_solve_kernel(matrix: Array, rhs: Array, *, lower: bool, adjoint: bool) -> Any:
    check_square(matrix)
    _check_system(matrix, rhs)
    triangle = np.tril(matrix) if lower else np.triu(matrix)
    triangle = adjoint_of(triangle) if adjoint else triangle
    if lower == adjoint:
        return _solve_upper(triangle, rhs)
    return _solve_upper(triangle[..., ::-1, ::-1], rhs[..., ::-1, :])[..., ::-1, :]


def _solve_upper(triangle: Array, rhs: Array) -> Any:
    """Solves by LAPACK's LU decomposition, which exchanges no rows of an upper triangle: zeros stay exact."""
    return lapack(np.linalg.solve, "Input matrix is not invertible.", triangle, rhs)


def _system_gradients(node: Operation, rhs_grad: Tensor) -> Tensor:
    found = node.outputs[0]
    if node.attrs["adjoint"]:
        return -matmul(found, rhs_grad, adjoint_b=True)
    return -matmul(rhs_grad, found, adjoint_b=True)


@solve_op.gradient
def _solve_gradient(node: Operation, grad: Tensor) -> list[Any]:
    rhs_grad = solve_op(node.inputs[0], grad, adjoint=not node.attrs["adjoint"])
    return [_system_gradients(node, rhs_grad), rhs_grad]


@triangular_solve_op.gradient
def _triangular_solve_gradient(node: Operation, grad: Tensor) -> list[Any]:
    lower, adjoint = node.attrs["lower"], node.attrs["adjoint"]
    rhs_grad = triangular_solve_op(node.inputs[0], grad, lower=lower, adjoint=not adjoint)
    matrix_grad = _system_gradients(node, rhs_grad)
    kept = matrix_band_part(matrix_grad, -1, 0) if lower else matrix_band_part(matrix_grad, 0, -1)
    return [kept, rhs_grad]


# ---- least squares --------------------------------------------------------------------------


@solve_ls_op.shape
def _solve_ls_shape(node: Operation) -> list[RawShape]:
    matrix, rhs = matrix_parts(node.inputs[0].raw_shape), matrix_parts(node.inputs[1].raw_shape)
    if matrix is None or rhs is None:
        return [None]
    merge_dims(matrix[1], rhs[1])
    return [(*(merge_raw(matrix[0], rhs[0]) or ()), matrix[2], rhs[2])]


def _normal_equations(matrix: Array, rhs: Array, l2: float) -> Any:
    """Solves by the smaller of the two Gram matrices, like TensorFlow's fast path."""
    rows, columns = matrix.shape[-2:]
    turned = adjoint_of(matrix)
    if rows >= columns:
        gram = turned @ matrix + l2 * np.eye(columns, dtype=matrix.dtype)
        return np.linalg.solve(gram, turned @ rhs)
    gram = matrix @ turned + l2 * np.eye(rows, dtype=matrix.dtype)
    return turned @ np.linalg.solve(gram, rhs)


@solve_ls_op.kernel("CPU")
def _solve_ls_kernel(matrix: Array, rhs: Array, l2_regularizer: Array, *, fast: bool) -> Any:
    if matrix.shape[-2] != rhs.shape[-2]:
        _check_system(matrix, rhs)
    if 0 in matrix.shape or 0 in rhs.shape:
        return np.zeros((*matrix.shape[:-2], matrix.shape[-1], rhs.shape[-1]), matrix.dtype)
    if fast:
        l2 = matrix.real.dtype.type(l2_regularizer)
        message = "Input matrix was rank deficient or ill-conditioned. Try setting fast=False or provide a larger"
        return lapack(lambda a, b: _normal_equations(a, b, l2), f"{message} l2_regularizer > 0.", matrix, rhs)
    return iterated(np.linalg.pinv, "Pseudo-inverse was not successful.", matrix) @ rhs


@solve_ls_op.gradient
def _solve_ls_gradient(node: Operation, grad: Tensor) -> list[Any]:
    """Differentiates the normal equations: those of an over- or an underdetermined system."""
    matrix, rhs, l2 = node.inputs
    found = node.outputs[0]
    shape = matrix.raw_shape
    if shape is None or None in shape[-2:]:
        raise ValueError("The gradient of matrix_solve_ls needs the static sizes of the matrix.")
    rows, columns = shape[-2:]
    size = min(rows, columns)  # type: ignore[type-var]
    damp = cast(l2, matrix.dtype) * eye(size, dtype=matrix.dtype)
    if rows >= columns:  # type: ignore[operator]
        gram = matmul(matrix, matrix, adjoint_a=True) + damp
        z = solve_op(gram, grad)
        residual = rhs - matmul(matrix, found)
        matrix_grad = matmul(residual, z, adjoint_b=True) - matmul(matmul(matrix, z), found, adjoint_b=True)
        return [matrix_grad, matmul(matrix, z), None]
    gram = matmul(matrix, matrix, adjoint_b=True) + damp
    rhs_grad = solve_op(gram, matmul(matrix, grad))
    dual = solve_op(gram, rhs)
    inner = grad - matmul(matrix, rhs_grad, adjoint_a=True)
    return [matmul(dual, inner, adjoint_b=True) - matmul(rhs_grad, found, adjoint_b=True), rhs_grad, None]


# ---- public functions -----------------------------------------------------------------------


@export("tf.matrix_inverse", "tf.linalg.inv")
def matrix_inverse(input: TensorLike, adjoint: bool = False, name: str | None = None) -> Tensor:
    """The inverse of each square matrix, or of its adjoint (``tf.matrix_inverse``).

    Raises (when run):
      InvalidArgumentError: for a singular matrix.
    """
    return inverse_op(input, adjoint=adjoint, name=name)


@export("tf.matrix_determinant", "tf.linalg.det")
def matrix_determinant(input: TensorLike, name: str | None = None) -> Tensor:
    """The determinant of each square matrix (``tf.matrix_determinant``)."""
    return determinant_op(input, name=name)


@export("tf.linalg.slogdet")
def slogdet(input: TensorLike, name: str | None = None) -> Any:
    """Sign and logarithm of the absolute value of each determinant (``tf.linalg.slogdet``)."""
    return log_determinant_op(input, name=name)


@export("tf.matrix_solve", "tf.linalg.solve")
def matrix_solve(matrix: TensorLike, rhs: TensorLike, adjoint: bool = False, name: str | None = None) -> Tensor:
    """``x`` with ``matrix @ x = rhs``, or with the adjoint of the matrix (``tf.matrix_solve``)."""
    return solve_op(matrix, rhs, adjoint=adjoint, name=name)


@export("tf.matrix_triangular_solve", "tf.linalg.triangular_solve")
def matrix_triangular_solve(
    matrix: TensorLike, rhs: TensorLike, lower: bool = True, adjoint: bool = False, name: str | None = None
) -> Tensor:
    """`matrix_solve` for a triangular matrix; the other triangle is not read (``tf.matrix_triangular_solve``)."""
    return triangular_solve_op(matrix, rhs, lower=lower, adjoint=adjoint, name=name)


@export("tf.matrix_solve_ls", "tf.linalg.lstsq")
def matrix_solve_ls(
    matrix: TensorLike, rhs: TensorLike, l2_regularizer: TensorLike = 0.0, fast: bool = True, name: str | None = None
) -> Tensor:
    """The least squares solution, of least norm or with Tikhonov regularization (``tf.matrix_solve_ls``).

    Args:
      matrix: [..., M, N].
      rhs: [..., M, K].
      l2_regularizer: a number >= 0, used by the fast path only.
      fast: solve the normal equations instead of using the pseudo-inverse.
      name: of the op.
    """
    with name_scope(name, "matrix_solve_ls", [matrix, rhs]) as scope:
        matrix = convert_to_tensor(matrix, name="matrix")
        l2 = convert_to_tensor(l2_regularizer, dtypes.float64, name="l2_regularizer")
        return solve_ls_op(matrix, rhs, l2, fast=fast, name=scope)


@export("tf.math.reciprocal_no_nan")
def reciprocal_no_nan(x: TensorLike, name: str | None = None) -> Tensor:
    """``1 / x``, and 0 where ``x`` is 0 (``tf.math.reciprocal_no_nan``)."""
    with name_scope(name, "reciprocal_no_nan", [x]) as scope:
        x = convert_to_tensor(x, name="x")
        one = convert_to_tensor(1, x.dtype.base_dtype, name="one")
        return math_elementwise.div_no_nan(one, x, name=scope)
