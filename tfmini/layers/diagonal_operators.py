"""Linear operators of ``tf.linalg`` that a diagonal, a number or a vector makes."""

from __future__ import annotations

from typing import Any

from tfmini import dtypes
from tfmini.core_types import DTypeLike, TensorLike
from tfmini.export import export
from tfmini.graph.conversion import convert_to_tensor
from tfmini.graph.operation import Tensor
from tfmini.layers.linear_operators import LibraryOperator, LinearOperator, both_hints, given, in_batch
from tfmini.ops.array.constant_value import constant_value
from tfmini.ops.array.diagonals import matrix_diag, matrix_diag_part, matrix_set_diag
from tfmini.ops.array.filling import ones, zeros
from tfmini.ops.array.identity import cast
from tfmini.ops.array.joining import concat
from tfmini.ops.array.shape import broadcast_dynamic_shape, broadcast_static_shape, expand_dims
from tfmini.ops.array.shape import shape as shape_of
from tfmini.ops.checks import assert_none_equal, assert_positive
from tfmini.ops.math.elementwise import conj
from tfmini.ops.math.matmul import matmul
from tfmini.ops.math.reductions import reduce_min, reduce_prod, reduce_sum
from tfmini.ops.math.unary import abs, log, real, sqrt
from tfmini.shapes import TensorShape


@export("tf.linalg.LinearOperatorDiag")
class LinearOperatorDiag(LibraryOperator):
    """The operator of a diagonal matrix (``tf.linalg.LinearOperatorDiag``).

    Args:
      diag: ``[…, n]``. The others are those of `LinearOperator`.
    """

    def __init__(
        self, diag: TensorLike, is_non_singular: bool | None = None, is_self_adjoint: bool | None = None,
        is_positive_definite: bool | None = None, is_square: bool | None = None, name: str = "LinearOperatorDiag",
    ) -> None:  # fmt: skip
        self._diag = given(diag, "diag")
        if self._diag.shape.ndims == 0:
            raise ValueError(f"Argument diag must have at least 1 dimension. Found: {self._diag}")
        if not self._diag.dtype.is_complex:
            if is_self_adjoint is False:
                raise ValueError("A real diagonal operator is always self adjoint.")
            is_self_adjoint = True
        if is_square is False:
            raise ValueError("Only square diagonal operators currently supported.")
        is_square = True
        super().__init__([self._diag], self._diag.dtype, locals())

    @property
    def diag(self) -> Tensor:
        """The diagonals ``[…, n]``."""
        return self._diag

    def _shape(self) -> Any:
        return self._diag.shape.concatenate(self._diag.shape[-1:])

    def _shape_tensor(self) -> Tensor:
        sizes = shape_of(self._diag)
        return concat([sizes, sizes[-1:]], 0)

    def _times(self, x: Tensor, adjoint: bool) -> Tensor:
        return expand_dims(conj(self._diag) if adjoint else self._diag, -1) * x

    def _into(self, rhs: Tensor, adjoint: bool) -> Tensor:
        return rhs / expand_dims(conj(self._diag) if adjoint else self._diag, -1)

    def _determinant(self) -> Tensor:
        return reduce_prod(self._diag, -1)

    def _log_abs_determinant(self) -> Tensor:
        found = reduce_sum(log(abs(self._diag)), -1)
        return cast(found, self.dtype)

    def _diag_part(self) -> Tensor:
        return self._diag

    def _to_dense(self) -> Tensor:
        return matrix_diag(self._diag)

    def _adjoint(self) -> LinearOperator:
        return LinearOperatorDiag(conj(self._diag), **self._hints())

    def _inverse(self) -> LinearOperator:
        return LinearOperatorDiag(1.0 / self._diag, **self._hints())

    def _cholesky(self) -> LinearOperator:
        return LinearOperatorDiag(
            sqrt(self._diag), is_non_singular=True, is_self_adjoint=True, is_positive_definite=True
        )

    def _diagonal(self) -> Tensor | None:
        return self._diag

    def _times_operator(self, other: LinearOperator) -> LinearOperator | None:
        return _diagonal_product(self, other)

    def _add_to_tensor(self, x: Tensor) -> Tensor:
        return matrix_set_diag(x, matrix_diag_part(x) + self._diag)

    def _assert_non_singular(self) -> Any:
        return assert_none_equal(self._diag, zeros([], self.dtype), message="Singular operator: zeros on the diagonal.")

    def _assert_positive_definite(self) -> Any:
        return assert_positive(real(self._diag), message="Real part of diagonal entries was not positive.")


# ---- operators of a size -------------------------------------------------------------------------------------------


class _OfSize(LibraryOperator):
    """An operator of which the sizes are given."""

    def __init__(self, rows: Any, columns: Any, batch: Any, tensors: Any, dtype: Any, hints: dict[str, Any]) -> None:
        self._sizes = [convert_to_tensor(size, dtypes.int32, name="size") for size in (rows, columns)]
        if any(size.shape.ndims not in (0, None) for size in self._sizes):
            raise ValueError(f"Argument num_rows must be a 0-D Tensor. Found: {rows}")
        self._batch = convert_to_tensor([] if batch is None else batch, dtypes.int32, name="batch_shape")
        if self._batch.shape.ndims not in (1, None):
            raise ValueError(f"Argument batch_shape must be a 1-D Tensor. Found: {batch}")
        super().__init__(tensors, dtype, hints)

    def _shape(self) -> Any:
        batch, sizes = constant_value(self._batch), [constant_value(size) for size in self._sizes]
        rank = self._batch.shape.with_rank(1)[0].value
        known = TensorShape((None if rank is None else [None] * rank) if batch is None else batch.tolist())
        return known.concatenate([None if size is None else int(size) for size in sizes])

    def _shape_tensor(self) -> Tensor:
        return concat([self._batch, [self._sizes[0]], [self._sizes[1]]], 0)

    @property
    def _rows(self) -> Any:
        known = constant_value(self._sizes[0])
        return self._sizes[0] if known is None else int(known)

    def _scalars(self, value: float) -> Tensor:
        """``value`` for each matrix of the batch."""
        return value * ones(self.batch_shape_tensor(), self.dtype)

    def _smaller(self) -> Any:
        known = [self.range_dimension.value, self.domain_dimension.value]
        return min(known) if None not in known else reduce_min(self._sizes)  # type: ignore[type-var]


@export("tf.linalg.LinearOperatorIdentity")
class LinearOperatorIdentity(_OfSize):
    """The operator of the identity matrix (``tf.linalg.LinearOperatorIdentity``).

    Args:
      num_rows: the size, an int or an int32 scalar tensor.
      batch_shape: an int32 vector; None: one matrix.
      dtype: float32 by default.
      assert_proper_shapes: whether shapes that are known later are checked then. The others are those of
        `LinearOperator`.
    """

    def __init__(
        self, num_rows: TensorLike, batch_shape: TensorLike | None = None, dtype: DTypeLike | None = None,
        is_non_singular: bool = True, is_self_adjoint: bool = True, is_positive_definite: bool = True,
        is_square: bool = True, assert_proper_shapes: bool = False, name: str = "LinearOperatorIdentity",
    ) -> None:  # fmt: skip
        for holds, kind in ((is_self_adjoint, "self adjoint"), (is_non_singular, "non-singular"),
                            (is_positive_definite, "positive-definite")):  # fmt: skip
            if not holds:
                raise ValueError(f"An identity operator is always {kind}.")
        super().__init__(num_rows, num_rows, batch_shape, [], dtype or dtypes.float32, locals())

    def _times(self, x: Tensor, adjoint: bool) -> Tensor:
        if self.batch_shape.ndims == 0:
            return x
        return in_batch(x, broadcast_dynamic_shape(shape_of(x)[:-2], self.batch_shape_tensor()))

    def _into(self, rhs: Tensor, adjoint: bool) -> Tensor:
        return self._times(rhs, adjoint)

    def _determinant(self) -> Tensor:
        return self._scalars(1.0)

    def _log_abs_determinant(self) -> Tensor:
        return self._scalars(0.0)

    def _diag_part(self) -> Tensor:
        return ones(self.shape_tensor()[:-1], self.dtype)

    def _trace(self) -> Tensor:
        return cast(self._sizes[0], self.dtype) * self._scalars(1.0)

    def _add_to_tensor(self, x: Tensor) -> Tensor:
        if self.batch_shape.ndims:
            x = self._times(x, False)
        return matrix_set_diag(x, matrix_diag_part(x) + ones([], self.dtype))

    def _adjoint(self) -> LinearOperator:
        return self

    def _inverse(self) -> LinearOperator:
        return self

    def _cholesky(self) -> LinearOperator:
        return self

    def _times_operator(self, other: LinearOperator) -> LinearOperator | None:
        return other

    def _after_operator(self, other: LinearOperator) -> LinearOperator | None:
        return other


@export("tf.linalg.LinearOperatorScaledIdentity")
class LinearOperatorScaledIdentity(_OfSize):
    """The operator of a number times the identity matrix (``tf.linalg.LinearOperatorScaledIdentity``).

    Args:
      num_rows: the size, an int or an int32 scalar tensor.
      multiplier: the numbers ``[…]``. The others are those of `LinearOperatorIdentity`.
    """

    def __init__(
        self, num_rows: TensorLike, multiplier: TensorLike, is_non_singular: bool | None = None,
        is_self_adjoint: bool | None = None, is_positive_definite: bool | None = None, is_square: bool = True,
        assert_proper_shapes: bool = False, name: str = "LinearOperatorScaledIdentity",
    ) -> None:  # fmt: skip
        self._multiplier = given(multiplier, "multiplier")
        if not self._multiplier.dtype.is_complex:
            if is_self_adjoint is False:
                raise ValueError("A real diagonal operator is always self adjoint.")
            is_self_adjoint = True
        if not is_square:
            raise ValueError("A ScaledIdentity operator is always square.")
        batch = shape_of(self._multiplier)
        super().__init__(num_rows, num_rows, batch, [self._multiplier], self._multiplier.dtype, locals())

    @property
    def multiplier(self) -> Tensor:
        """The numbers ``[…]``."""
        return self._multiplier

    def _factor(self, adjoint: bool) -> Tensor:
        return expand_dims(expand_dims(conj(self._multiplier) if adjoint else self._multiplier, -1), -1)

    def _times(self, x: Tensor, adjoint: bool) -> Tensor:
        return x * self._factor(adjoint)

    def _into(self, rhs: Tensor, adjoint: bool) -> Tensor:
        return rhs / self._factor(adjoint)

    def _determinant(self) -> Tensor:
        return self._multiplier ** cast(self._sizes[0], self.dtype)

    def _log_abs_determinant(self) -> Tensor:
        return cast(self._sizes[0], self.dtype.real_dtype) * log(abs(self._multiplier))

    def _diag_part(self) -> Tensor:
        return expand_dims(self._multiplier, -1) * ones(self._sizes[:1], self.dtype)

    def _trace(self) -> Tensor:
        return cast(self._sizes[0], self.dtype) * self._multiplier

    def _add_to_tensor(self, x: Tensor) -> Tensor:
        x = x + zeros(self.shape_tensor(), self.dtype) if self.batch_shape.ndims else x
        return matrix_set_diag(x, matrix_diag_part(x) + expand_dims(self._multiplier, -1))

    def _assert_positive_definite(self) -> Any:
        return assert_positive(real(self._multiplier), message="LinearOperator was not positive definite.")

    def _adjoint(self) -> LinearOperator:
        return LinearOperatorScaledIdentity(self._rows, conj(self._multiplier), **self._hints())

    def _inverse(self) -> LinearOperator:
        return LinearOperatorScaledIdentity(self._rows, 1.0 / self._multiplier, **self._hints())

    def _cholesky(self) -> LinearOperator:
        return LinearOperatorScaledIdentity(
            self._rows, sqrt(self._multiplier), is_non_singular=True, is_self_adjoint=True, is_positive_definite=True
        )

    def _diagonal(self) -> Tensor | None:
        return self.diag_part()

    def _times_operator(self, other: LinearOperator) -> LinearOperator | None:
        if isinstance(other, LinearOperatorScaledIdentity):
            factors = self._multiplier * other.multiplier
            return LinearOperatorScaledIdentity(self._rows, factors, **both_hints(self, other, *_COMMON))
        return _diagonal_product(self, other)


@export("tf.linalg.LinearOperatorZeros")
class LinearOperatorZeros(_OfSize):
    """The operator of a matrix of zeros (``tf.linalg.LinearOperatorZeros``).

    Args:
      num_rows, num_columns: the sizes; without the second, the matrix is square. The others are those of
        `LinearOperatorIdentity`.
    """

    def __init__(
        self, num_rows: TensorLike, num_columns: TensorLike | None = None, batch_shape: TensorLike | None = None,
        dtype: DTypeLike | None = None, is_non_singular: bool = False, is_self_adjoint: bool = True,
        is_positive_definite: bool = False, is_square: bool = True, assert_proper_shapes: bool = False,
        name: str = "LinearOperatorZeros",
    ) -> None:  # fmt: skip
        if not is_self_adjoint and is_square:
            raise ValueError("A zero operator is always self adjoint.")
        for holds, kind in ((is_non_singular, "non-singular"), (is_positive_definite, "positive-definite")):
            if holds:
                raise ValueError(f"A zero operator is always not {kind}.")
        columns = num_rows if num_columns is None else num_columns
        super().__init__(num_rows, columns, batch_shape, [], dtype or dtypes.float32, locals())

    def _times(self, x: Tensor, adjoint: bool) -> Tensor:
        rows = self.domain_dimension_tensor() if adjoint else self.range_dimension_tensor()
        batch = broadcast_dynamic_shape(shape_of(x)[:-2], self.batch_shape_tensor())
        found = zeros(concat([batch, [rows], shape_of(x)[-1:]], 0), self.dtype)
        known = broadcast_static_shape(x.shape[:-2], self.batch_shape)
        rows_known = self.domain_dimension if adjoint else self.range_dimension
        found.set_shape(known.concatenate([rows_known.value, x.shape[-1]]))
        return found

    def _into(self, rhs: Tensor, adjoint: bool) -> Tensor:
        raise NotImplementedError("A zero operator is singular.")

    def _determinant(self) -> Tensor:
        return self._scalars(0.0)

    def _trace(self) -> Tensor:
        return self._scalars(0.0)

    def _diag_part(self) -> Tensor:
        return zeros(concat([self.batch_shape_tensor(), [self._smaller()]], 0), self.dtype)

    def _add_to_tensor(self, x: Tensor) -> Tensor:
        return x + zeros(self.shape_tensor(), self.dtype) if self.batch_shape.ndims else x

    def _times_operator(self, other: LinearOperator) -> LinearOperator | None:
        return self if self.is_square and other.is_square else None

    _after_operator = _times_operator


@export("tf.linalg.LinearOperatorHouseholder")
class LinearOperatorHouseholder(LibraryOperator):
    """The operator of reflections (``tf.linalg.LinearOperatorHouseholder``).

    Args:
      reflection_axis: ``[…, n]``, the vectors that are turned round. The others are those of `LinearOperator`.
    """

    def __init__(
        self, reflection_axis: TensorLike, is_non_singular: bool | None = None, is_self_adjoint: bool | None = None,
        is_positive_definite: bool | None = None, is_square: bool | None = None,
        name: str = "LinearOperatorHouseholder",
    ) -> None:  # fmt: skip
        self._axis = given(reflection_axis, "reflection_axis")
        if is_self_adjoint is False:
            raise ValueError("A Householder operator is always self adjoint.")
        if is_positive_definite is True:
            raise ValueError("A Householder operator is always non-positive definite.")
        if is_square is False:
            raise ValueError("A Householder operator is always square.")
        is_self_adjoint, is_positive_definite, is_square = True, False, True
        super().__init__([self._axis], self._axis.dtype, locals())

    @property
    def reflection_axis(self) -> Tensor:
        """The vectors that are turned round, ``[…, n]``."""
        return self._axis

    def _shape(self) -> Any:
        return self._axis.shape.concatenate(self._axis.shape[-1:])

    def _shape_tensor(self) -> Tensor:
        sizes = shape_of(self._axis)
        return concat([sizes, sizes[-1:]], 0)

    def _unit(self) -> Tensor:
        length = sqrt(cast(reduce_sum(real(self._axis * conj(self._axis)), -1, keepdims=True), self.dtype))
        return self._axis / length

    def _times(self, x: Tensor, adjoint: bool) -> Tensor:
        unit = expand_dims(self._unit(), -1)
        return x - 2.0 * unit * matmul(unit, x, adjoint_a=True)

    def _into(self, rhs: Tensor, adjoint: bool) -> Tensor:
        return self._times(rhs, adjoint)

    def _determinant(self) -> Tensor:
        return -ones(self.batch_shape_tensor(), self.dtype)

    def _log_abs_determinant(self) -> Tensor:
        return zeros(self.batch_shape_tensor(), self.dtype)

    def _diag_part(self) -> Tensor:
        unit = self._unit()
        return 1.0 - 2.0 * unit * conj(unit)

    def _trace(self) -> Tensor:
        return (cast(self.domain_dimension_tensor(), self.dtype) - 2.0) * ones(self.batch_shape_tensor(), self.dtype)

    def _inverse(self) -> LinearOperator:
        return self


_COMMON = ("is_non_singular", "is_self_adjoint", "is_positive_definite")


def _diagonal_product(a: LinearOperator, b: LinearOperator) -> LinearOperator | None:
    """The operator of the product of two diagonal matrices; None for others."""
    left, right = a._diagonal(), b._diagonal()
    return None if left is None or right is None else LinearOperatorDiag(left * right, **both_hints(a, b, *_COMMON))
