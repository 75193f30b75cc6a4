"""Functions of square matrices: square root, logarithm and exponential."""

from __future__ import annotations

from typing import Any

import numpy as np

from tfmini.export import export
from tfmini.graph.operation import Operation, Tensor
from tfmini.graph.registry import all_of, op
from tfmini.ops.array.kernel_arguments import at_least_rank, refuse
from tfmini.shapes import RawShape

Array = np.ndarray[Any, Any]

sqrt_op = op("MatrixSquareRoot(input: T) -> output: T; T: {double, float, half, complex64, complex128}")
log_op = op("MatrixLogarithm(input: T) -> output: T; T: {complex64, complex128}")
exp_op = op("MatrixExponential(input: T) -> output: T; T: {double, float, half, complex64, complex128}")
all_of(sqrt_op, log_op, exp_op).not_differentiable()

# Padé's approximant of degree 13 (Higham, 2005), good for norms up to 5.37.
_PADE = (
    64764752532480000.0, 32382376266240000.0, 7771770303897600.0, 1187353796428800.0, 129060195264000.0,
    10559470521600.0, 670442572800.0, 33522128640.0, 1323241920.0, 40840800.0, 960960.0, 16380.0, 182.0, 1.0,
)  # fmt: skip
_PADE_LIMIT = 5.37


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
    norms = np.abs(wide).sum(axis=-2).max(axis=-1, initial=0)
    largest = float(np.max(norms, initial=0))
    halvings = max(0, int(np.ceil(np.log2(largest / _PADE_LIMIT)))) if largest > _PADE_LIMIT else 0
    a = wide / 2**halvings
    powers = [np.broadcast_to(np.eye(a.shape[-1]), a.shape), a @ a]
    for _ in range(5):
        powers.append(powers[-1] @ powers[1])
    odd = a @ sum(c * p for c, p in zip(_PADE[1::2], powers))
    even = sum(c * p for c, p in zip(_PADE[0::2], powers))
    result = np.linalg.solve(even - odd, even + odd)
    for _ in range(halvings):
        result = result @ result
    return result.astype(matrix.dtype)


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
