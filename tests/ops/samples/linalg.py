"""Samples of the ops in tfmini/ops/linalg."""

from typing import Any

from tests.ops.samples.notation import each


def gram(x: Any, op: Any) -> Any:
    """A symmetric (Hermitian), positive definite matrix: x times its adjoint."""
    return op.BatchMatMulV2(x=x, y=x, adj_y=True)


# Eigenvectors and the like are fixed up to a sign or a phase: their magnitudes are compared.
SAMPLES = (
    each("Cholesky", "input=gram(f32(3, 3), op)", "input=gram(c64(2, 2, 3), op)", "input=gram(f64(2, 0, 3), op)")
    + each("Qr", "input=f32(3, 3)", "input=f32(4, 2)", "input=f32(2, 3, 3), full_matrices=True")
    + each("MatrixInverse", "input=f32(2, 3, 3)", "input=f64(2, 2), adjoint=True", "input=c64(2, 2), adjoint=True")
    + each("MatrixDeterminant", "input=f32(2, 3, 3)", "input=f32(2, 0, 0)")
    + each("LogMatrixDeterminant", "input=f32(2, 3, 3)")
    + each("MatrixSolve", "matrix=f32(2, 3, 3), rhs=f32(2, 3, 1)", "matrix=c64(2, 2), rhs=c64(2, 3), adjoint=True")
    + each("MatrixTriangularSolve", "matrix=f32(2, 3, 3, low=0.5), rhs=f32(2, 3, 1)",
           "matrix=f32(3, 3, low=0.5), rhs=f32(3, 2), lower=False, adjoint=True")
    + each("MatrixSolveLs", "matrix=f32(4, 2), rhs=f32(4, 1), l2_regularizer=0.0",
           "matrix=f32(2, 2, 3), rhs=f32(2, 2, 1), l2_regularizer=0.5",
           "matrix=f64(4, 2), rhs=f64(4, 3), l2_regularizer=0.1", "matrix=c64(3, 2), rhs=c64(3, 1), l2_regularizer=0.1",
           "matrix=c64(2, 3), rhs=c64(2, 1), l2_regularizer=0.1")
    + each("MatrixSquareRoot", "input=gram(f32(3, 3), op)", "input=c64(2, 2)")
    + r"""
CholeskyGrad(l=(l := Cholesky(input=gram(f64(3, 3), op))), grad=f64(3, 3))
CholeskyGrad(l=Cholesky(input=gram(f32(2, 2, 2), op)), grad=f32(2, 2, 2))
Svd(input=f32(2, 3, 2))[0]
Svd(input=f32(2, 3), compute_uv=False)[0]
[Abs(x=part) for part in Svd(input=f32(3, 3))]
[Abs(x=part) for part in Svd(input=f32(4, 2))]
[Abs(x=part) for part in Svd(input=f64(2, 4), full_matrices=True)[:2]]
SelfAdjointEigV2(input=gram(f32(2, 3, 3), op), compute_v=False)[0]
[Abs(x=part) for part in SelfAdjointEigV2(input=gram(f32(3, 3), op))]
SelfAdjointEigV2(input=gram(c64(3, 3), op))[0]
Lu(input=f32(2, 3, 3))
Lu(input=c64(3, 3), output_idx_type=int64)
MatrixLogarithm(input=gram(c64(3, 3), op))
TridiagonalSolve(diagonals=f64(2, 3, 4), rhs=f64(2, 4, 2))
TridiagonalSolve(diagonals=f32([[1, 1, 0], [4, 5, 6], [0, 1, 1]]), rhs=f32(3, 2), partial_pivoting=False)
TridiagonalMatMul(superdiag=f64(2, 1, 4), maindiag=f64(2, 1, 4), subdiag=f64(2, 1, 4), rhs=f64(2, 4, 3))
TridiagonalMatMul(superdiag=c64(1, 3), maindiag=c64(1, 3), subdiag=c64(1, 3), rhs=c64(3, 2))
"""
)  # fmt: skip

NO_SLOPE = r"""
# The gradients of complex determinants miss a conjugate and the sign's share.
MatrixDeterminant(input=c64(2, 2))
gradients(MatrixDeterminant, input=c64(2, 2))
LogMatrixDeterminant(input=c64(3, 3))
gradients(LogMatrixDeterminant, input=c64(3, 3))
TridiagonalSolve(diagonals=c64(3, 3), rhs=c64(3, 2))
"""

OURS = """
# Removed from TensorFlow's graphs in version 27 of their format.
MatrixExponential(input=f64(2, 3, 3))
"""
