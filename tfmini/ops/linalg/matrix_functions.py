"""Functions of square matrices: square root, logarithm and exponential."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np

from tfmini.export import export
from tfmini.graph.families import Operation, Tensor, all_of, op
from tfmini.ops.array.kernel_arguments import at_least_rank, refuse
from tfmini.shapes import RawShape

Array = np.ndarray[Any, Any]

sqrt_op = op("MatrixSquareRoot(input: T) -> output: T; T: {double, float, half, complex64, complex128}")
log_op = op("MatrixLogarithm(input: T) -> output: T; T: {complex64, complex128}")
exp_op = op("MatrixExponential(input: T) -> output: T; T: {double, float, half, complex64, complex128}")
all_of(sqrt_op, log_op, exp_op).not_differentiable()


@all_of(sqrt_op, log_op, exp_op).shape
def _square(node: Operation) -> list[RawShape]:
    raw = at_least_rank(node.inputs[0].raw_shape, 2)
    if raw is not None and None not in raw[-2:] and raw[-1] != raw[-2]:
        raise ValueError(f"Dimensions must be equal, but are {raw[-2]} and {raw[-1]}")
    return [raw]


def _check(matrix: Array) -> None:
    if matrix.ndim < 2 or matrix.shape[-1] != matrix.shape[-2]:
        refuse(f"Input matrix must be square, got shape {list(matrix.shape)}")


def _by_eigenvalues(matrix: Array, function: Any) -> Array:
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


@export("tf.matrix_square_root", "tf.linalg.sqrtm")
def sqrtm(input: Any, name: str | None = None) -> Tensor:
    """The square roots of matrices (``tf.linalg.sqrtm``, ``tf.matrix_square_root``).

    Args:
      input: (…, n, n), with a full set of eigenvectors.
    """
    return sqrt_op(input, name=name)


@export("tf.linalg.logm")
def logm(input: Any, name: str | None = None) -> Tensor:
    """The logarithms of complex matrices (``tf.linalg.logm``)."""
    return log_op(input, name=name)


@export("tf.linalg.expm")
def expm(input: Any, name: str | None = None) -> Tensor:
    """The exponentials of matrices (``tf.linalg.expm``). tfmini has no gradient of it."""
    return exp_op(input, name=name)
