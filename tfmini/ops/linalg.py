"""Norms, traces and other functions of linear algebra that are made of several ops."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np

from tfmini import dtypes
from tfmini.core_types import Array, AxisLike, TensorLike
from tfmini.export import export
from tfmini.graph.families import Operation, Tensor, all_of, convert_to_tensor, name_scope, op
from tfmini.ops.array import shape as array_shape
from tfmini.ops.array.diagonals import eye, matrix_diag_part
from tfmini.ops.array.filling import ones_like, zeros_like
from tfmini.ops.array.filling import range as range_tensor
from tfmini.ops.array.identity import cast
from tfmini.ops.array.joining import concat
from tfmini.ops.array.kernel_arguments import refuse
from tfmini.ops.array.layout import matrix_transpose, transpose
from tfmini.ops.array.partition import invert_permutation, setdiff1d
from tfmini.ops.decompositions import cholesky, svd
from tfmini.ops.linear_systems import matrix_solve, square
from tfmini.ops.math.comparison import greater, where_v2
from tfmini.ops.math.elementwise import conj
from tfmini.ops.math.matmul import matmul
from tfmini.ops.math.reductions import reduce_max, reduce_sum
from tfmini.ops.math.unary import abs as absolute
from tfmini.ops.math.unary import log, real, sqrt
from tfmini.ops.math.unary import pow as power
from tfmini.shapes import RawShape

_MATRIX_NORMS = ("euclidean", "fro", 1, 2, np.inf)
_VECTOR_NORMS = ("euclidean", 1, 2, np.inf)
_BAD_AXIS = "'axis' must be None, an integer, or a tuple of 2 unique integers"


def _checked_axis(ord: Any, axis: object) -> tuple[Any, bool]:
    """The axis as a tuple or None, and whether it names matrices.

    Raises:
      ValueError: for an unknown axis or order.
    """
    if isinstance(axis, (tuple, list)) and len(axis) == 2:
        axis = tuple(axis)
        if not all(isinstance(a, (int, np.integer)) for a in axis) or axis[0] == axis[1]:
            raise ValueError(f"{_BAD_AXIS}, got {axis}")
        if ord not in _MATRIX_NORMS:
            raise ValueError(f"'ord' must be a supported matrix norm in {list(_MATRIX_NORMS)}, got {ord}")
        return axis, True
    if not (axis is None or isinstance(axis, (int, np.integer))):
        raise ValueError(f"{_BAD_AXIS}, got {axis}")
    if ord not in _VECTOR_NORMS and (not np.isreal(ord) or ord <= 0):
        raise ValueError(f"'ord' must be a supported vector norm, got {ord}")
    return (None if axis is None else (int(axis),)), False


@export("tf.norm", "tf.linalg.norm")
def norm(
    tensor: TensorLike, ord: str | float = "euclidean", axis: AxisLike | None = None, keepdims: bool | None = None,
    name: str | None = None, keep_dims: bool | None = None,
) -> Tensor:  # fmt: skip
    """The norm of vectors, matrices, or of all elements (``tf.norm``).

    Args:
      tensor: float or complex.
      ord: ``"euclidean"``, 1, 2, ``np.inf``, another positive number (vectors), ``"fro"`` (matrices).
      axis: None for the tensor as one vector, an int for vectors, a pair for matrices.
      keepdims: keep the reduced axes with size 1.
      name: of the scope.
      keep_dims: the old name of ``keepdims``.

    Raises:
      ValueError: for an unsupported ``ord`` or ``axis``.
    """
    if keepdims is not None and keep_dims is not None:
        raise ValueError("Cannot specify both 'keep_dims' and 'keepdims'")
    keep = bool(keepdims if keepdims is not None else keep_dims)
    axes, of_matrices = _checked_axis(ord, axis)
    with name_scope(name, "norm", [tensor]):
        tensor = convert_to_tensor(tensor, name="tensor")
        if of_matrices and ord == 2:
            found = _largest_singular_value(tensor, axes)
        elif ord in ("fro", "euclidean", 2):
            found = sqrt(reduce_sum(absolute_square(tensor), axes, keepdims=True))
        else:
            found = _absolute_norm(absolute(tensor), ord, axes, of_matrices)
        return found if keep else array_shape.squeeze(found, axes)


def absolute_square(tensor: Tensor) -> Tensor:
    """The squared absolute value, of the type of its argument."""
    return tensor * (conj(tensor) if tensor.dtype.is_complex else tensor)


def _absolute_norm(sizes: Tensor, ord: Any, axes: Any, of_matrices: bool) -> Tensor:
    if not of_matrices:
        if ord == 1:
            return reduce_sum(sizes, axes, keepdims=True)
        if ord == np.inf:
            return reduce_max(sizes, axes, keepdims=True)
        return power(reduce_sum(power(sizes, ord), axes, keepdims=True), 1.0 / ord)
    summed, compared = (axes[0], axes[1]) if ord == 1 else (axes[1], axes[0])
    return reduce_max(reduce_sum(sizes, summed, keepdims=True), compared, keepdims=True)


def _largest_singular_value(tensor: Tensor, axes: tuple[int, int]) -> Tensor:
    before, after = _matrix_axes_last(tensor, axes)
    largest = reduce_max(absolute(svd(transpose(tensor, before), compute_uv=False)), -1, keepdims=True)
    return transpose(array_shape.expand_dims(largest, -1), after)


def _matrix_axes_last(tensor: Tensor, axes: tuple[int, int]) -> tuple[Any, Any]:
    """The permutation that moves ``axes`` to the end, and its inverse."""
    if tensor.raw_shape is not None:
        rank = len(tensor.raw_shape)
        last = [a % rank for a in axes]
        order = [a for a in range(rank) if a not in last] + last
        return order, np.argsort(order).astype(np.int32).tolist()
    rank_tensor = array_shape.rank(tensor)
    wanted = convert_to_tensor(list(axes), dtypes.int32) % rank_tensor
    order_tensor = concat([setdiff1d(range_tensor(rank_tensor), wanted)[0], wanted], 0)
    return order_tensor, invert_permutation(order_tensor)


@export("tf.linalg.normalize")
def normalize(
    tensor: TensorLike, ord: str | float = "euclidean", axis: AxisLike | None = None, name: str | None = None
) -> tuple[Tensor, Tensor]:
    """``tensor`` divided by its `norm`, and the norm with the reduced axes kept (``tf.linalg.normalize``)."""
    with name_scope(name, "normalize", [tensor]):
        tensor = convert_to_tensor(tensor)
        length = cast(norm(tensor, ord, axis, keepdims=True), tensor.dtype.base_dtype)
        return tensor / length, length


@export("tf.trace", "tf.linalg.trace")
def trace(x: TensorLike, name: str | None = None) -> Tensor:
    """The sum of each matrix's main diagonal (``tf.trace``)."""
    with name_scope(name, "Trace", [x]) as scope:
        x = convert_to_tensor(x, name="x")
        return reduce_sum(matrix_diag_part(x), [-1], name=scope)


@export("tf.linalg.adjoint")
def adjoint(matrix: TensorLike, name: str | None = None) -> Tensor:
    """The conjugate transpose of the last two axes (``tf.linalg.adjoint``)."""
    with name_scope(name, "adjoint", [matrix]):
        return matrix_transpose(convert_to_tensor(matrix, name="matrix"), conjugate=True)


@export("tf.linalg.logdet")
def logdet(matrix: TensorLike, name: str | None = None) -> Tensor:
    """The logarithm of the determinant of hermitian positive definite matrices (``tf.linalg.logdet``)."""
    with name_scope(name, "logdet", [matrix]):
        return 2.0 * reduce_sum(log(real(matrix_diag_part(cholesky(matrix)))), [-1])


def _cutoff(s: Tensor, rows: Any, columns: Any, tolerance: Any) -> Tensor:
    eps = float(np.finfo(s.dtype.numpy).eps)
    if tolerance is None:
        tolerance = eps * max(rows, columns)
    tolerance = convert_to_tensor(tolerance, s.dtype.base_dtype)
    return tolerance * reduce_max(s, -1, keepdims=True)  # type: ignore[no-any-return]


@export("tf.linalg.matrix_rank")
def matrix_rank(
    a: TensorLike, tol: TensorLike | None = None, validate_args: bool = False, name: str | None = None
) -> Tensor:
    """How many singular values exceed the tolerance, int32 (``tf.linalg.matrix_rank``)."""
    with name_scope(name, "matrix_rank", [a, tol]):
        a = convert_to_tensor(a, name="a")
        s = svd(a, compute_uv=False)
        if tol is None:
            tol = _cutoff(s, *_matrix_sizes(a), None)
        return reduce_sum(cast(greater(s, tol), dtypes.int32), -1)


def _matrix_sizes(a: Tensor) -> tuple[int, int]:
    shape = a.raw_shape
    if shape is None or shape[-1] is None or shape[-2] is None:
        raise ValueError("The default tolerance needs the static sizes of the matrices; pass the tolerance.")
    return shape[-2], shape[-1]


@export("tf.linalg.pinv")
def pinv(
    a: TensorLike, rcond: TensorLike | None = None, validate_args: bool = False, name: str | None = None
) -> Tensor:
    """The Moore-Penrose pseudo-inverse (``tf.linalg.pinv``).

    Args:
      a: real matrices [..., M, N].
      rcond: singular values below ``rcond`` times the largest count as zero; default 10 max(M, N) eps.
      validate_args: accepted and unused.
      name: of the scope.
    """
    with name_scope(name, "pinv", [a, rcond]):
        a = convert_to_tensor(a, name="a")
        s, u, v = svd(a)
        if rcond is None:
            rcond = 10.0 * max(_matrix_sizes(a)) * float(np.finfo(a.dtype.numpy).eps)
        kept = greater(s, _cutoff(s, 0, 0, rcond))
        inverted = where_v2(kept, 1.0 / where_v2(kept, s, ones_like(s)), zeros_like(s))
        return matmul(v * array_shape.expand_dims(inverted, -2), u, adjoint_b=True)


# ---- Functions of square matrices: square root, logarithm and exponential ------------------------------------------

sqrt_op = op("MatrixSquareRoot(input: T) -> output: T; T: {double, float, half, complex64, complex128}")
log_op = op("MatrixLogarithm(input: T) -> output: T; T: {complex64, complex128}")
exp_op = op("MatrixExponential(input: T) -> output: T; T: {double, float, half, complex64, complex128}")
log_op.without_gradient()


@all_of(sqrt_op, log_op, exp_op).shape
def _square(node: Operation) -> list[RawShape]:
    return [square(node.inputs[0].raw_shape)]


def _check(matrix: Array) -> None:
    if matrix.ndim < 2 or matrix.shape[-1] != matrix.shape[-2]:
        refuse(f"Input matrix must be square, got shape {list(matrix.shape)}")


def _by_eigenvalues(matrix: Array, function: Callable[..., Any]) -> Array:
    values, vectors = np.linalg.eig(matrix.astype(np.complex128))
    found: Array = (vectors * function(values)[..., None, :]) @ np.linalg.inv(vectors)
    return found


@sqrt_op.kernel("CPU")
def _sqrt(matrix: Array) -> Array:
    _check(matrix)
    found = _by_eigenvalues(matrix, np.sqrt)
    return (found if np.iscomplexobj(matrix) else found.real).astype(matrix.dtype)


@log_op.kernel("CPU")
def _log(matrix: Array) -> Array:
    _check(matrix)
    return _by_eigenvalues(matrix, np.log).astype(matrix.dtype)


@exp_op.kernel("CPU")
def _exp(matrix: Array) -> Array:
    _check(matrix)
    wide = matrix.astype(np.complex128 if np.iscomplexobj(matrix) else np.float64)
    found: Array = import_module("scipy.linalg").expm(wide) if wide.size else wide  # scipy is slow to import
    return found.astype(matrix.dtype)


@exp_op.gradient
def _exp_gradient(node: Operation, grad: Tensor) -> list[Any]:
    """The exponential of a matrix of four blocks has the derivative of the exponential in its upper right one."""
    matrix = matrix_transpose(node.inputs[0], conjugate=True)
    upper, lower = concat([matrix, grad], -1), concat([zeros_like(matrix), matrix], -1)
    size = array_shape.shape(matrix)[-1]
    return [exp_op(concat([upper, lower], -2))[..., :size, size:]]


@sqrt_op.gradient
def _sqrt_gradient(node: Operation, grad: Tensor) -> list[Any]:
    """The X with S* X + X S* = grad, where S* is the adjoint of the root: a linear system for the numbers of X."""
    adjoint = matrix_transpose(node.outputs[0], conjugate=True)
    sizes = array_shape.shape(adjoint)
    count = sizes[-1] * sizes[-1]
    one = eye(sizes[-1], dtype=adjoint.dtype)
    system = _kronecker(adjoint, one) + _kronecker(one, matrix_transpose(adjoint))
    system = array_shape.reshape(system, concat([sizes[:-2], [count, count]], 0))
    column = array_shape.reshape(grad, concat([sizes[:-2], [count, 1]], 0))
    return [array_shape.reshape(matrix_solve(system, column), sizes)]


def _kronecker(a: Tensor, b: Tensor) -> Tensor:
    """The products of all numbers of two matrices: (…, i, k, j, l) has a[i, j] · b[k, l]."""
    return a[..., :, None, :, None] * b[..., None, :, None, :]


@export("tf.matrix_square_root", "tf.linalg.sqrtm")
def sqrtm(input: TensorLike, name: str | None = None) -> Tensor:
    """The square roots of matrices (``tf.linalg.sqrtm``, ``tf.matrix_square_root``).

    Args:
      input: (…, n, n), with a full set of eigenvectors.
    """
    return sqrt_op(input, name=name)


@export("tf.linalg.logm")
def logm(input: TensorLike, name: str | None = None) -> Tensor:
    """The logarithms of complex matrices (``tf.linalg.logm``)."""
    return log_op(input, name=name)


@export("tf.linalg.expm")
def expm(input: TensorLike, name: str | None = None) -> Tensor:
    """The exponentials of matrices (``tf.linalg.expm``)."""
    return exp_op(input, name=name)
