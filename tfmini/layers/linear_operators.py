"""Linear operators of ``tf.linalg``: matrices by what they do, of which only the numbers that make them are kept."""

from __future__ import annotations

import functools
import operator as python_operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from tfmini.core_types import DTypeLike, TensorLike
from tfmini.export import export
from tfmini.graph.conversion import convert_to_tensor
from tfmini.graph.operation import Tensor
from tfmini.layers.operator_facts import OperatorFacts
from tfmini.ops.array.diagonals import eye, matrix_band_part, matrix_diag_part
from tfmini.ops.array.filling import zeros
from tfmini.ops.array.identity import cast
from tfmini.ops.array.joining import concat
from tfmini.ops.array.shape import broadcast_dynamic_shape, broadcast_static_shape, broadcast_to, expand_dims, squeeze
from tfmini.ops.array.shape import shape as shape_of
from tfmini.ops.checks import assert_less, assert_none_equal, assert_positive
from tfmini.ops.decompositions import cholesky, cholesky_solve, svd
from tfmini.ops.linalg import adjoint as adjoint_of
from tfmini.ops.linear_systems import matrix_determinant, matrix_solve, matrix_triangular_solve, slogdet
from tfmini.ops.math.elementwise import conj
from tfmini.ops.math.matmul import matmul
from tfmini.ops.math.reductions import reduce_max, reduce_min, reduce_prod, reduce_sum
from tfmini.ops.math.unary import abs, exp, log, real
from tfmini.shapes import Dimension, TensorShape


def same_batch(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """Two matrices, each repeated to the batch that they have together."""
    if a.shape[:-2].is_fully_defined() and b.shape[:-2].is_fully_defined() and a.shape[:-2] == b.shape[:-2]:
        return a, b
    batch = broadcast_dynamic_shape(shape_of(a)[:-2], shape_of(b)[:-2])
    return in_batch(a, batch), in_batch(b, batch)


def in_batch(matrix: Tensor, batch: Any) -> Tensor:
    """A matrix repeated to a batch."""
    return broadcast_to(matrix, concat([batch, shape_of(matrix)[-2:]], 0))


def matrix_solve_with_broadcast(matrix: TensorLike, rhs: TensorLike, adjoint: bool = False) -> Tensor:
    """``tf.linalg.solve`` of matrices whose batches broadcast."""
    return matrix_solve(*same_batch(convert_to_tensor(matrix), convert_to_tensor(rhs)), adjoint=adjoint)


def cholesky_solve_with_broadcast(chol: TensorLike, rhs: TensorLike) -> Tensor:
    """``tf.cholesky_solve`` of matrices whose batches broadcast."""
    return cholesky_solve(*same_batch(convert_to_tensor(chol), convert_to_tensor(rhs)))


def matrix_triangular_solve_with_broadcast(
    matrix: TensorLike, rhs: TensorLike, lower: bool = True, adjoint: bool = False
) -> Tensor:
    """``tf.linalg.triangular_solve`` of matrices whose batches broadcast."""
    both = same_batch(convert_to_tensor(matrix), convert_to_tensor(rhs))
    return matrix_triangular_solve(*both, lower=lower, adjoint=adjoint)


@export("tf.linalg.LinearOperator")
class LinearOperator(OperatorFacts):
    """A batch of matrices ``[…, m, n]`` (``tf.linalg.LinearOperator``).

    A subclass defines `_shape`, `_shape_tensor`, `_matmul`, and of `_solve`, `_determinant`, `_log_abs_determinant`,
    `_diag_part`, `_trace` and `_to_dense` those that it does better than the dense matrix.

    Args:
      dtype: of the matrix, of arguments and of results.
      graph_parents: the tensors that make the operator.
      is_non_singular, is_self_adjoint, is_positive_definite, is_square: what is known of the matrix, which may choose
        a better method; None: nothing.

    Raises:
      ValueError: what is said of the matrix contradicts itself.
    """

    # ---- what a subclass defines ----------------------------------------------------------------

    def _matmul(self, x: Tensor, adjoint: bool = False, adjoint_arg: bool = False) -> Tensor:
        raise NotImplementedError("_matmul is not implemented.")

    def _matvec(self, x: Tensor, adjoint: bool = False) -> Tensor:
        return squeeze(self.matmul(expand_dims(x, -1), adjoint=adjoint), [-1])

    def _solve(self, rhs: Tensor, adjoint: bool = False, adjoint_arg: bool = False) -> Tensor:
        if self.is_square is False:
            raise NotImplementedError("Solve is not yet implemented for non-square operators.")
        rhs = adjoint_of(rhs) if adjoint_arg else rhs
        dense = self.to_dense()
        if self._can_use_cholesky():
            return cholesky_solve_with_broadcast(cholesky(dense), rhs)
        return matrix_solve_with_broadcast(dense, rhs, adjoint)

    def _solvevec(self, rhs: Tensor, adjoint: bool = False) -> Tensor:
        return squeeze(self.solve(expand_dims(rhs, -1), adjoint=adjoint), [-1])

    def _determinant(self) -> Tensor:
        return exp(self.log_abs_determinant()) if self._can_use_cholesky() else matrix_determinant(self.to_dense())

    def _log_abs_determinant(self) -> Tensor:
        if self._can_use_cholesky():
            return 2.0 * reduce_sum(log(matrix_diag_part(cholesky(self.to_dense()))), -1)
        return slogdet(self.to_dense())[1]  # type: ignore[no-any-return]

    def _diag_part(self) -> Tensor:
        return matrix_diag_part(self.to_dense())

    def _trace(self) -> Tensor:
        return reduce_sum(self.diag_part(), -1)

    def _to_dense(self) -> Tensor:
        batch = self.batch_shape.as_list() if self.batch_shape.is_fully_defined() else self.batch_shape_tensor()
        known = self.domain_dimension.value
        size: Any = self.domain_dimension_tensor() if known is None else known
        return self._matmul(eye(size, batch_shape=batch, dtype=self.dtype))

    def _add_to_tensor(self, x: Tensor) -> Tensor:
        return self.to_dense() + x

    def _can_use_cholesky(self) -> bool:
        return bool(self.is_self_adjoint and self.is_positive_definite)

    def _assert_non_singular(self) -> Any:
        if self._can_use_cholesky():
            return self.assert_positive_definite()
        values = svd(self.to_dense(), compute_uv=False)
        most = 1.0 / float(np.finfo(values.dtype.as_numpy_dtype).eps)
        condition = reduce_max(values, -1) / reduce_min(values, -1)
        return assert_less(condition, cast(most, values.dtype), message="Singular matrix up to precision epsilon.")

    def _assert_positive_definite(self) -> Any:
        return assert_positive(real(matrix_diag_part(cholesky(self.to_dense()))), message="Not positive definite.")

    def _assert_self_adjoint(self) -> Any:
        dense = self.to_dense()
        return assert_less(
            reduce_max(abs(dense - adjoint_of(dense))), cast(1e-5, dense.dtype.real_dtype),
            message="Matrix was not equal to its adjoint.",
        )  # fmt: skip

    # Which operators others are: a subclass may know a better one.

    def _hints(self, **changes: Any) -> dict[str, Any]:
        names = ("is_non_singular", "is_self_adjoint", "is_positive_definite", "is_square")
        return {**{name: getattr(self, name) for name in names}, **changes}

    def _adjoint(self) -> LinearOperator:
        return LinearOperatorAdjoint(self, **self._hints())

    def _inverse(self) -> LinearOperator:
        return LinearOperatorInversion(self, **self._hints())

    def _cholesky(self) -> LinearOperator:
        return LinearOperatorLowerTriangular(cholesky(self.to_dense()), is_non_singular=True, is_self_adjoint=False)

    def _diagonal(self) -> Tensor | None:
        """The diagonal of a diagonal matrix; None for another."""
        return None

    def _times_operator(self, other: LinearOperator) -> LinearOperator | None:
        """The operator of this matrix times another; None: nothing simpler than both."""
        return None

    def _after_operator(self, other: LinearOperator) -> LinearOperator | None:
        """The operator of another matrix times this one; None: nothing simpler than both."""
        return None

    # ---- what a user calls ----------------------------------------------------------------------

    def _given(self, x: TensorLike, rows: Dimension, axis: int) -> Tensor:
        x = convert_to_tensor(x, self.dtype if not isinstance(x, Tensor) else None, name="x")
        self._check_input_dtype(x)
        if x.shape.ndims is not None:
            rows.assert_is_compatible_with(x.shape[axis])
        return x

    def _check_input_dtype(self, arg: Tensor) -> None:
        """TypeError for a tensor of another dtype; subclasses of programs call it."""
        if arg.dtype.base_dtype != self.dtype:
            raise TypeError(f"Expected argument to have dtype {self.dtype}. Found: {arg.dtype} in tensor {arg}")

    def matmul(self, x: Any, adjoint: bool = False, adjoint_arg: bool = False, name: str = "matmul") -> Any:
        """The product with ``x``, ``[…, n, k]`` or another operator, which makes an operator.

        Args:
          adjoint: whether the conjugate transpose of this matrix is meant; ``adjoint_arg``: of ``x``.

        Raises:
          ValueError: the shapes do not fit.
          TypeError: ``x`` has another dtype.
        """
        if isinstance(x, LinearOperator):
            return _multiplied(self.adjoint() if adjoint else self, x.adjoint() if adjoint_arg else x)
        with self._name_scope(name):
            rows = self.range_dimension if adjoint else self.domain_dimension
            x = self._given(x, rows, -1 if adjoint_arg else -2)
            return self._matmul(x, adjoint=adjoint, adjoint_arg=adjoint_arg)

    def matvec(self, x: TensorLike, adjoint: bool = False, name: str = "matvec") -> Tensor:
        """The product with vectors ``[…, n]``."""
        with self._name_scope(name):
            return self._matvec(self._given(x, self.range_dimension if adjoint else self.domain_dimension, -1), adjoint)

    def solve(self, rhs: Any, adjoint: bool = False, adjoint_arg: bool = False, name: str = "solve") -> Any:
        """The ``x`` whose product is ``rhs``, ``[…, m, k]`` or an operator.

        Raises:
          NotImplementedError: the matrix is singular, or is not square.
        """
        if self.is_non_singular is False:
            raise NotImplementedError("Exact solve not implemented for an operator that is expected to be singular.")
        if self.is_square is False:
            raise NotImplementedError("Exact solve not implemented for an operator that is expected to not be square.")
        if isinstance(rhs, LinearOperator):
            inverse = self.adjoint().inverse() if adjoint else self.inverse()
            return _multiplied(inverse, rhs.adjoint() if adjoint_arg else rhs)
        with self._name_scope(name):
            rows = self.domain_dimension if adjoint else self.range_dimension
            rhs = self._given(rhs, rows, -1 if adjoint_arg else -2)
            return self._solve(rhs, adjoint=adjoint, adjoint_arg=adjoint_arg)

    def solvevec(self, rhs: TensorLike, adjoint: bool = False, name: str = "solve") -> Tensor:
        """The vectors ``[…, n]`` whose products are ``rhs``, ``[…, m]``."""
        with self._name_scope(name):
            return self._solvevec(
                self._given(rhs, self.domain_dimension if adjoint else self.range_dimension, -1), adjoint
            )

    def _of_square(self, what: str) -> None:
        if self.is_square is False:
            raise NotImplementedError(f"{what} not implemented for an operator that is expected to not be square.")

    def determinant(self, name: str = "det") -> Tensor:
        """The determinants ``[…]``."""
        self._of_square("Determinant")
        with self._name_scope(name):
            return self._determinant()

    def log_abs_determinant(self, name: str = "log_abs_det") -> Tensor:
        """The logarithms of the absolute determinants ``[…]``."""
        self._of_square("Determinant")
        with self._name_scope(name):
            return self._log_abs_determinant()

    def to_dense(self, name: str = "to_dense") -> Tensor:
        """The matrices ``[…, m, n]``."""
        with self._name_scope(name):
            return self._to_dense()

    def diag_part(self, name: str = "diag_part") -> Tensor:
        """The diagonals ``[…, min(m, n)]``."""
        with self._name_scope(name):
            return self._diag_part()

    def trace(self, name: str = "trace") -> Tensor:
        """The sums of the diagonals ``[…]``."""
        with self._name_scope(name):
            return self._trace()

    def add_to_tensor(self, x: TensorLike, name: str = "add_to_tensor") -> Tensor:
        """The matrices plus ``x``, ``[…, m, n]``."""
        with self._name_scope(name):
            return self._add_to_tensor(convert_to_tensor(x, self.dtype, name="x"))

    def assert_non_singular(self, name: str = "assert_non_singular") -> Any:
        """An op that fails where the matrix is singular."""
        with self._name_scope(name):
            return self._assert_non_singular()

    def assert_positive_definite(self, name: str = "assert_positive_definite") -> Any:
        """An op that fails where the matrix is not positive definite."""
        with self._name_scope(name):
            return self._assert_positive_definite()

    def assert_self_adjoint(self, name: str = "assert_self_adjoint") -> Any:
        """An op that fails where the matrix is not its own adjoint."""
        with self._name_scope(name):
            return self._assert_self_adjoint()

    def adjoint(self, name: str = "adjoint") -> Any:
        """The operator of the conjugate transpose."""
        return self if self.is_self_adjoint else self._adjoint()

    H = property(adjoint)

    def inverse(self, name: str = "inverse") -> Any:
        """The operator of the inverse.

        Raises:
          ValueError: the matrix is singular, or is not square.
        """
        if self.is_square is False:
            raise ValueError("Cannot take the Inverse: This operator represents a non square matrix.")
        if self.is_non_singular is False:
            raise ValueError("Cannot take the Inverse: This operator represents a singular matrix.")
        return self._inverse()

    def cholesky(self, name: str = "cholesky") -> Any:
        """The operator of the Cholesky factor.

        Raises:
          ValueError: the operator is not known to be positive definite and self-adjoint.
        """
        if not self._can_use_cholesky():
            raise ValueError("Cannot take the Cholesky decomposition: Not a positive definite self adjoint matrix.")
        return self._cholesky()


# ---- operators of one tensor ---------------------------------------------------------------------------------------


class LibraryOperator(LinearOperator):
    """Base class of tfmini's operators: their `_times` and `_into` need not know of adjoint arguments.

    Args:
      tensors: those that it is made of.
      hints: the ``locals()`` of the subclass's ``__init__``. What it assigns to ``is_square`` or another hint counts.
    """

    def __init__(self, tensors: Sequence[Any], dtype: DTypeLike, hints: dict[str, Any]) -> None:
        given = {key: hints[key] for key in _HINTS if key in hints}
        super().__init__(dtype, tensors, **given)

    def _times(self, x: Tensor, adjoint: bool) -> Tensor:
        raise NotImplementedError

    def _into(self, rhs: Tensor, adjoint: bool) -> Tensor:
        """The ``x`` whose product is ``rhs``."""
        return super()._solve(rhs, adjoint)

    def _matmul(self, x: Tensor, adjoint: bool = False, adjoint_arg: bool = False) -> Tensor:
        return self._times(adjoint_of(x) if adjoint_arg else x, adjoint)

    def _solve(self, rhs: Tensor, adjoint: bool = False, adjoint_arg: bool = False) -> Tensor:
        return self._into(adjoint_of(rhs) if adjoint_arg else rhs, adjoint)


_HINTS = ("is_non_singular", "is_self_adjoint", "is_positive_definite", "is_square", "name")


def given(tensor: TensorLike, name: str) -> Tensor:
    """A tensor of an operator.

    Raises:
      TypeError: its dtype is none of floats or complex numbers.
    """
    found = convert_to_tensor(tensor, name=name)
    if not (found.dtype.is_floating or found.dtype.is_complex):
        raise TypeError(f"Argument {name} must have dtype float or complex. Found: {found.dtype}")
    return found


@export("tf.linalg.LinearOperatorFullMatrix")
class LinearOperatorFullMatrix(LibraryOperator):
    """The operator of a matrix (``tf.linalg.LinearOperatorFullMatrix``).

    Args:
      matrix: ``[…, m, n]``. The others are those of `LinearOperator`.
    """

    def __init__(
        self, matrix: TensorLike, is_non_singular: bool | None = None, is_self_adjoint: bool | None = None,
        is_positive_definite: bool | None = None, is_square: bool | None = None, name: str = "LinearOperatorFullMatrix",
    ) -> None:  # fmt: skip
        self._matrix = given(matrix, "matrix")
        super().__init__([self._matrix], self._matrix.dtype, locals())

    def _shape(self) -> Any:
        return self._matrix.shape

    def _shape_tensor(self) -> Tensor:
        return shape_of(self._matrix)

    def _times(self, x: Tensor, adjoint: bool) -> Tensor:
        return matmul(self._matrix, x, adjoint_a=adjoint)

    def _to_dense(self) -> Tensor:
        return self._matrix


@export("tf.linalg.LinearOperatorLowerTriangular")
class LinearOperatorLowerTriangular(LibraryOperator):
    """The operator of a triangular matrix (``tf.linalg.LinearOperatorLowerTriangular``).

    Args:
      tril: ``[…, n, n]``; what lies above the diagonal does not count. The others are those of `LinearOperator`.
    """

    def __init__(
        self, tril: TensorLike, is_non_singular: bool | None = None, is_self_adjoint: bool | None = None,
        is_positive_definite: bool | None = None, is_square: bool | None = None,
        name: str = "LinearOperatorLowerTriangular",
    ) -> None:  # fmt: skip
        if is_square is False:
            raise ValueError("Only square lower triangular operators supported at this time.")
        is_square = True
        whole = given(tril, "tril")
        self._tril = matrix_band_part(whole, -1, 0)
        self._diag = matrix_diag_part(self._tril)
        super().__init__([whole], whole.dtype, locals())

    def _shape(self) -> Any:
        return self._tril.shape

    def _shape_tensor(self) -> Tensor:
        return shape_of(self._tril)

    def _times(self, x: Tensor, adjoint: bool) -> Tensor:
        return matmul(self._tril, x, adjoint_a=adjoint)

    def _into(self, rhs: Tensor, adjoint: bool) -> Tensor:
        return matrix_triangular_solve_with_broadcast(self._tril, rhs, adjoint=adjoint)

    def _determinant(self) -> Tensor:
        return reduce_prod(self._diag, -1)

    def _log_abs_determinant(self) -> Tensor:
        return reduce_sum(log(abs(self._diag)), -1)

    def _diag_part(self) -> Tensor:
        return self._diag

    def _to_dense(self) -> Tensor:
        return self._tril

    def _assert_non_singular(self) -> Any:
        return assert_none_equal(self._diag, zeros([], self.dtype), message="Singular operator: zeros on the diagonal.")

    def _times_operator(self, other: LinearOperator) -> LinearOperator | None:
        diagonal = other._diagonal()
        return None if diagonal is None else self._rescaled(self._tril * expand_dims(diagonal, -2), other)

    def _after_operator(self, other: LinearOperator) -> LinearOperator | None:
        diagonal = other._diagonal()
        return None if diagonal is None else self._rescaled(self._tril * expand_dims(diagonal, -1), other)

    def _rescaled(self, tril: Tensor, other: LinearOperator) -> LinearOperator:
        return LinearOperatorLowerTriangular(tril, **both_hints(self, other, "is_non_singular"))


# ---- operators made of others -----------------------------------------------------------------------------------


def product_of(values: Sequence[Any]) -> Any:
    """The product of numbers or tensors."""
    return functools.reduce(python_operator.mul, values)


def sum_of(values: Sequence[Any]) -> Any:
    """The sum of numbers or tensors."""
    return functools.reduce(python_operator.add, values)


def static_batch(operators: Sequence[LinearOperator]) -> TensorShape:
    """The batch shape of operators, as far as it is known."""
    return functools.reduce(broadcast_static_shape, [one.batch_shape for one in operators])


def batch_of(operators: Sequence[LinearOperator]) -> Tensor:
    """The batch shape of operators."""
    return functools.reduce(broadcast_dynamic_shape, [one.batch_shape_tensor() for one in operators])


class OfSeveral(LibraryOperator):
    """An operator made of a list of operators; what holds of all of them holds of it, as `_kept` says."""

    _sign = ""
    _kept: tuple[str, ...] = ("is_non_singular", "is_self_adjoint", "is_positive_definite")

    def __init__(self, operators: Sequence[LinearOperator], hints: dict[str, Any]) -> None:
        if not operators:
            raise ValueError(f"Expected a non-empty list of operators. Found: {operators}")
        self._operators = list(operators)
        kinds = {one.dtype for one in operators}
        if len(kinds) > 1:
            listed = [(one.name, one.dtype.name) for one in operators]
            raise TypeError(f"Expected all operators to have the same dtype. Found: {listed}")
        for hint in self._kept:
            if all(getattr(one, hint) for one in operators):
                if hints[hint] is False:
                    kind = hint.removeprefix("is_").replace("_", "-")
                    raise ValueError(f"The {type(self).__name__} of {kind} operators is always {kind}.")
                hints[hint] = True
        name = hints["name"] or self._sign.join(one.name for one in operators)
        super().__init__([t for one in operators for t in one.graph_parents], kinds.pop(), {**hints, "name": name})

    @property
    def operators(self) -> list[LinearOperator]:
        """The operators that make this one."""
        return self._operators


@export("tf.linalg.LinearOperatorComposition")
class LinearOperatorComposition(OfSeveral):
    """The product of operators (``tf.linalg.LinearOperatorComposition``).

    Args:
      operators: from left to right. The others are those of `LinearOperator`.
    """

    _sign = "_o_"
    _kept = ("is_non_singular",)

    def __init__(
        self, operators: Sequence[LinearOperator], is_non_singular: bool | None = None,
        is_self_adjoint: bool | None = None, is_positive_definite: bool | None = None, is_square: bool | None = None,
        name: str | None = None,
    ) -> None:  # fmt: skip
        super().__init__(operators, locals())

    def _shape(self) -> Any:
        first, last = self._operators[0], self._operators[-1]
        for left, right in zip(self._operators, self._operators[1:]):
            left.domain_dimension.assert_is_compatible_with(right.range_dimension)
        sizes = [first.range_dimension.value, last.domain_dimension.value]
        return static_batch(self._operators).concatenate(sizes)

    def _shape_tensor(self) -> Tensor:
        first, last = self._operators[0], self._operators[-1]
        sizes = [[first.range_dimension_tensor()], [last.domain_dimension_tensor()]]
        return concat([batch_of(self._operators), *sizes], 0)

    def _times(self, x: Tensor, adjoint: bool) -> Tensor:
        for one in self._operators if adjoint else reversed(self._operators):
            x = one.matmul(x, adjoint=adjoint)
        return x

    def _into(self, rhs: Tensor, adjoint: bool) -> Tensor:
        for one in reversed(self._operators) if adjoint else self._operators:
            rhs = one.solve(rhs, adjoint=adjoint)
        return rhs

    def _determinant(self) -> Tensor:
        return product_of([one.determinant() for one in self._operators])  # type: ignore[no-any-return]

    def _log_abs_determinant(self) -> Tensor:
        return sum_of([one.log_abs_determinant() for one in self._operators])  # type: ignore[no-any-return]

    def _to_dense(self) -> Tensor:
        *left, last = self._operators
        found = last.to_dense()
        for one in reversed(left):
            found = one.matmul(found)
        return found


class _OfOne(LibraryOperator):
    """An operator made of one other."""

    def __init__(self, operator: LinearOperator, suffix: str, hints: dict[str, Any]) -> None:
        self._operator = operator
        combined = {}
        for hint in ("is_non_singular", "is_self_adjoint", "is_positive_definite", "is_square"):
            known = getattr(operator, hint)
            if None not in (known, hints[hint]) and known != hints[hint]:
                raise ValueError(f"Operator {operator.name} has {hint} {known}, which contradicts {hints[hint]}.")
            combined[hint] = known if hints[hint] is None else hints[hint]
        super().__init__(operator.graph_parents, operator.dtype, {**combined, "name": hints["name"] or suffix})

    @property
    def operator(self) -> LinearOperator:
        """The operator before the change."""
        return self._operator


@export("tf.linalg.LinearOperatorAdjoint")
class LinearOperatorAdjoint(_OfOne):
    """The conjugate transpose of an operator (``tf.linalg.LinearOperatorAdjoint``)."""

    def __init__(
        self, operator: LinearOperator, is_non_singular: bool | None = None, is_self_adjoint: bool | None = None,
        is_positive_definite: bool | None = None, is_square: bool | None = None, name: str | None = None,
    ) -> None:  # fmt: skip
        super().__init__(operator, operator.name + "_adjoint", locals())

    def _shape(self) -> Any:
        one = self._operator
        return one.batch_shape.concatenate([one.domain_dimension.value, one.range_dimension.value])

    def _shape_tensor(self) -> Tensor:
        sizes = self._operator.shape_tensor()
        return concat([sizes[:-2], [sizes[-1]], [sizes[-2]]], 0)

    def _times(self, x: Tensor, adjoint: bool) -> Tensor:
        return self._operator.matmul(x, adjoint=not adjoint)  # type: ignore[no-any-return]

    def _into(self, rhs: Tensor, adjoint: bool) -> Tensor:
        return self._operator.solve(rhs, adjoint=not adjoint)  # type: ignore[no-any-return]

    def _determinant(self) -> Tensor:
        return conj(self._operator.determinant())

    def _log_abs_determinant(self) -> Tensor:
        return self._operator.log_abs_determinant()

    def _adjoint(self) -> LinearOperator:
        return self._operator

    def _diag_part(self) -> Tensor:
        return conj(self._operator.diag_part())

    def _trace(self) -> Tensor:
        return conj(self._operator.trace())

    def _to_dense(self) -> Tensor:
        return adjoint_of(self._operator.to_dense())


@export("tf.linalg.LinearOperatorInversion")
class LinearOperatorInversion(_OfOne):
    """The inverse of an operator (``tf.linalg.LinearOperatorInversion``)."""

    def __init__(
        self, operator: LinearOperator, is_non_singular: bool | None = None, is_self_adjoint: bool | None = None,
        is_positive_definite: bool | None = None, is_square: bool | None = None, name: str | None = None,
    ) -> None:  # fmt: skip
        if operator.is_square is False or is_square is False:
            raise ValueError(f"Operator {operator.name} is not square, so it has no inverse.")
        if operator.is_non_singular is False or is_non_singular is False:
            raise ValueError(f"operator and supplied hints must have is_non_singular=True or None: {operator.name}")
        super().__init__(operator, operator.name + "_inv", locals())

    def _shape(self) -> Any:
        return self._operator.shape

    def _shape_tensor(self) -> Tensor:
        return self._operator.shape_tensor()

    def _times(self, x: Tensor, adjoint: bool) -> Tensor:
        return self._operator.solve(x, adjoint=adjoint)  # type: ignore[no-any-return]

    def _into(self, rhs: Tensor, adjoint: bool) -> Tensor:
        return self._operator.matmul(rhs, adjoint=adjoint)  # type: ignore[no-any-return]

    def _determinant(self) -> Tensor:
        return 1.0 / self._operator.determinant()

    def _log_abs_determinant(self) -> Tensor:
        return -self._operator.log_abs_determinant()

    def _inverse(self) -> LinearOperator:
        return self._operator


def both_hints(a: LinearOperator, b: LinearOperator, *hints: str) -> dict[str, Any]:
    """What two operators have in common, of a product with both."""
    found: dict[str, Any] = {}
    for hint in hints:
        known = getattr(a, hint), getattr(b, hint)
        found[hint] = True if all(known) else False if hint == "is_non_singular" and False in known else None
    return found


def _multiplied(a: LinearOperator, b: LinearOperator) -> LinearOperator:
    """The operator of a product.

    Raises:
      ValueError: the sizes do not fit.
    """
    columns, rows = a.domain_dimension.value, b.range_dimension.value
    if None not in (columns, rows) and columns != rows:
        raise ValueError(f"Operators are incompatible. Expected `x` to have dimension {columns} but got {rows}.")
    simpler = a._times_operator(b) or b._after_operator(a)
    return simpler or LinearOperatorComposition([a, b], **both_hints(a, b, "is_non_singular"))
