"""Linear operators of ``tf.linalg`` that are made of others, or by Fourier transforms."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from tfmini import dtypes
from tfmini.core_types import DTypeLike, TensorLike
from tfmini.export import export
from tfmini.graph.operation import Tensor
from tfmini.layers.diagonal_operators import LinearOperatorDiag, LinearOperatorIdentity
from tfmini.layers.linear_operators import (
    LibraryOperator,
    LinearOperator,
    OfSeveral,
    batch_of,
    cholesky_solve_with_broadcast,
    given,
    matrix_solve_with_broadcast,
    product_of,
    static_batch,
    sum_of,
)
from tfmini.ops.array.filling import ones
from tfmini.ops.array.filling import range as number_range
from tfmini.ops.array.gather import gather
from tfmini.ops.array.identity import cast
from tfmini.ops.array.joining import concat, split
from tfmini.ops.array.layout import pad, reverse, transpose
from tfmini.ops.array.shape import (
    broadcast_dynamic_shape,
    broadcast_static_shape,
    broadcast_to,
    expand_dims,
    reshape,
)
from tfmini.ops.array.shape import shape as shape_of
from tfmini.ops.checks import assert_positive
from tfmini.ops.decompositions import cholesky
from tfmini.ops.linear_systems import matrix_determinant, slogdet
from tfmini.ops.math.elementwise import conj
from tfmini.ops.math.matmul import matmul
from tfmini.ops.math.reductions import reduce_mean, reduce_prod, reduce_sum
from tfmini.ops.math.special import fft, fft2d, fft3d, ifft, ifft2d, ifft3d
from tfmini.ops.math.unary import abs, log, real
from tfmini.shapes import TensorShape, known_rank


@export("tf.linalg.LinearOperatorBlockDiag")
class LinearOperatorBlockDiag(OfSeveral):
    """Square operators along a diagonal (``tf.linalg.LinearOperatorBlockDiag``).

    Args:
      operators: from the first block to the last. The others are those of `LinearOperator`.
    """

    _sign = "_ds_"

    def __init__(
        self, operators: Sequence[LinearOperator], is_non_singular: bool | None = None,
        is_self_adjoint: bool | None = None, is_positive_definite: bool | None = None, is_square: bool = True,
        name: str | None = None,
    ) -> None:  # fmt: skip
        for one in operators:
            if one.is_square is False:
                raise ValueError(f"Can only represent a block diagonal of square matrices. Found: {one.name}")
        super().__init__(operators, locals())

    def _shape(self) -> Any:
        sizes = [one.domain_dimension.value for one in self._operators]
        size = None if None in sizes else sum(sizes)  # type: ignore[arg-type]  # None was asked for
        return static_batch(self._operators).concatenate([size, size])

    def _shape_tensor(self) -> Tensor:
        size = [sum_of([one.domain_dimension_tensor() for one in self._operators])]
        return concat([batch_of(self._operators), size, size], 0)

    def _by_block(self, function: Callable[[LinearOperator, Tensor], Tensor], x: Tensor) -> Tensor:
        known = [one.domain_dimension.value for one in self._operators]
        sizes: Any = [one.domain_dimension_tensor() for one in self._operators] if None in known else known
        parts = split(x, sizes, axis=-2)
        for part, size in zip(parts, known):
            if part.shape.ndims is not None:
                part.set_shape([*part.shape.as_list()[:-2], size, part.shape.as_list()[-1]])
        found = [function(one, part) for one, part in zip(self._operators, parts)]
        batches = [one.shape[:-2] for one in found]
        if not all(one.is_fully_defined() and one.as_list() == batches[0].as_list() for one in batches):
            batch = functools.reduce(broadcast_dynamic_shape, [shape_of(one)[:-2] for one in found])
            found = [broadcast_to(one, concat([batch, shape_of(one)[-2:]], 0)) for one in found]
        return concat(found, -2)

    def _times(self, x: Tensor, adjoint: bool) -> Tensor:
        return self._by_block(lambda one, part: one.matmul(part, adjoint=adjoint), x)

    def _into(self, rhs: Tensor, adjoint: bool) -> Tensor:
        return self._by_block(lambda one, part: one.solve(part, adjoint=adjoint), rhs)

    def _determinant(self) -> Tensor:
        return product_of([one.determinant() for one in self._operators])  # type: ignore[no-any-return]

    def _log_abs_determinant(self) -> Tensor:
        return sum_of([one.log_abs_determinant() for one in self._operators])  # type: ignore[no-any-return]

    def _diag_part(self) -> Tensor:
        return self._by_block(lambda one, _: expand_dims(one.diag_part(), -1), self._column())[..., 0]

    def _column(self) -> Tensor:
        return ones(concat([self.shape_tensor()[:-1], [1]], 0), self.dtype)

    def _trace(self) -> Tensor:
        return sum_of([one.trace() for one in self._operators])  # type: ignore[no-any-return]

    def _adjoint(self) -> LinearOperator:
        return LinearOperatorBlockDiag([one.adjoint() for one in self._operators], **self._hints())

    def _inverse(self) -> LinearOperator:
        return LinearOperatorBlockDiag([one.inverse() for one in self._operators], **self._hints())

    def _cholesky(self) -> LinearOperator:
        return LinearOperatorBlockDiag(
            [one.cholesky() for one in self._operators], is_non_singular=True, is_square=True
        )


@export("tf.linalg.LinearOperatorKronecker")
class LinearOperatorKronecker(OfSeveral):
    """The Kronecker product of operators (``tf.linalg.LinearOperatorKronecker``).

    Args:
      operators: from left to right. The others are those of `LinearOperator`.
    """

    _sign = "_x_"

    def __init__(
        self, operators: Sequence[LinearOperator], is_non_singular: bool | None = None,
        is_self_adjoint: bool | None = None, is_positive_definite: bool | None = None, is_square: bool | None = None,
        name: str | None = None,
    ) -> None:  # fmt: skip
        super().__init__(operators, locals())
        if is_square is None and all(one.is_square for one in operators):
            self._is_square = True

    def _shape(self) -> Any:
        def size(sizes: list[int | None]) -> int | None:
            return None if None in sizes else product_of(sizes)

        rows = size([one.range_dimension.value for one in self._operators])
        columns = size([one.domain_dimension.value for one in self._operators])
        return static_batch(self._operators).concatenate([rows, columns])

    def _shape_tensor(self) -> Tensor:
        rows = product_of([one.range_dimension_tensor() for one in self._operators])
        columns = product_of([one.domain_dimension_tensor() for one in self._operators])
        return concat([batch_of(self._operators), [rows], [columns]], 0)

    def _by_factor(self, function: Callable[[LinearOperator, Tensor], Tensor], x: Tensor, rows: bool) -> Tensor:
        """Applies each factor to its part of the rows, which count as digits of a number with one digit per factor."""
        batch = broadcast_dynamic_shape(shape_of(x)[:-2], self.batch_shape_tensor())
        x = broadcast_to(x, concat([batch, shape_of(x)[-2:]], 0))
        lead, width, static = x.shape.ndims, shape_of(x)[-1], x.shape
        assert lead is not None
        axes = list(range(lead - 2))
        digits = [one.range_dimension_tensor() if rows else one.domain_dimension_tensor() for one in self._operators]
        after = [one.domain_dimension_tensor() if rows else one.range_dimension_tensor() for one in self._operators]
        for i, one in enumerate(self._operators):
            left, right = product_of([*after[:i], 1]), product_of([*digits[i + 1 :], 1])
            x = reshape(x, concat([batch, [left, digits[i], right * width]], 0))
            n = len(axes)
            x = reshape(transpose(x, [*axes, n + 1, n, n + 2]), concat([batch, [digits[i], left * right * width]], 0))
            x = reshape(function(one, x), concat([batch, [after[i], left, right * width]], 0))
            x = transpose(x, [*axes, n + 1, n, n + 2])
        found = reshape(x, concat([batch, [product_of(after), width]], 0))
        size = self.domain_dimension if rows else self.range_dimension
        known = broadcast_static_shape(static[:-2], self.batch_shape)
        found.set_shape(known.concatenate([size.value, static.as_list()[-1]]))
        return found

    def _times(self, x: Tensor, adjoint: bool) -> Tensor:
        return self._by_factor(lambda one, part: one.matmul(part, adjoint=adjoint), x, adjoint)

    def _into(self, rhs: Tensor, adjoint: bool) -> Tensor:
        return self._by_factor(lambda one, part: one.solve(part, adjoint=adjoint), rhs, not adjoint)

    def _exponents(self, dtype: DTypeLike) -> list[Any]:
        size = self.domain_dimension_tensor()
        return [cast(size // one.domain_dimension_tensor(), dtype) for one in self._operators]

    def _determinant(self) -> Tensor:
        powers = self._exponents(self.dtype)
        return product_of([one.determinant() ** n for one, n in zip(self._operators, powers)])  # type: ignore[no-any-return]

    def _log_abs_determinant(self) -> Tensor:
        logs = [one.log_abs_determinant() for one in self._operators]
        return sum_of([one * n for one, n in zip(logs, self._exponents(logs[0].dtype))])  # type: ignore[no-any-return]

    def _diag_part(self) -> Tensor:
        found = self._operators[0].diag_part()
        for one in self._operators[1:]:
            found = expand_dims(found, -1) * expand_dims(one.diag_part(), -2)
            found = reshape(found, concat([shape_of(found)[:-2], [-1]], 0))
        return found

    def _trace(self) -> Tensor:
        return product_of([one.trace() for one in self._operators])  # type: ignore[no-any-return]

    def _adjoint(self) -> LinearOperator:
        return LinearOperatorKronecker([one.adjoint() for one in self._operators], **self._hints())

    def _inverse(self) -> LinearOperator:
        return LinearOperatorKronecker([one.inverse() for one in self._operators], **self._hints())

    def _cholesky(self) -> LinearOperator:
        return LinearOperatorKronecker(
            [one.cholesky() for one in self._operators], is_non_singular=True, is_square=True
        )


@export("tf.linalg.LinearOperatorLowRankUpdate")
class LinearOperatorLowRankUpdate(LibraryOperator):
    """``L + U D V^H``, an operator and a matrix of low rank (``tf.linalg.LinearOperatorLowRankUpdate``).

    Args:
      base_operator: ``L``, ``[…, m, n]``.
      u: ``[…, m, k]``; ``v``: ``[…, n, k]``, default ``u``.
      diag_update: ``[…, k]``, the diagonal of ``D``, default ones.
      is_diag_update_positive: whether it is known to be positive. The others are those of `LinearOperator`.
    """

    def __init__(
        self, base_operator: LinearOperator, u: TensorLike, diag_update: TensorLike | None = None,
        v: TensorLike | None = None, is_diag_update_positive: bool | None = None, is_non_singular: bool | None = None,
        is_self_adjoint: bool | None = None, is_positive_definite: bool | None = None, is_square: bool | None = None,
        name: str = "LinearOperatorLowRankUpdate",
    ) -> None:  # fmt: skip
        if diag_update is None:
            if is_diag_update_positive is False:
                raise ValueError("Default diagonal is the identity, which is positive. However, user set False.")
            is_diag_update_positive = True
        self._base_operator, self._is_positive = base_operator, is_diag_update_positive
        self._u = given(u, "u")
        self._v = self._u if v is None else given(v, "v")
        self._diag_update = None if diag_update is None else given(diag_update, "diag_update")
        # 1.15's private name, which its tests read. It is set before the hints, which follow from it.
        self._use_cholesky = bool(
            base_operator.is_positive_definite
            and base_operator.is_self_adjoint
            and is_diag_update_positive
            and v is None
        )
        hints = dict(locals())
        if base_operator.is_self_adjoint and v is None and not base_operator.dtype.is_complex:
            if is_self_adjoint is False:
                raise ValueError("is_self_adjoint is False, but L and U D U^H are self-adjoint.")
            hints["is_self_adjoint"] = True
        if self._use_cholesky:
            if False in (is_positive_definite, is_self_adjoint, is_non_singular):
                raise ValueError("A hint is False, but L and U D U^H are self-adjoint and positive definite.")
            hints["is_self_adjoint"] = hints["is_positive_definite"] = True
        parents = [*base_operator.graph_parents, self._u, *([] if diag_update is None else [self._diag_update])]
        super().__init__([*parents, *([] if v is None else [self._v])], base_operator.dtype, hints)

    @property
    def base_operator(self) -> LinearOperator:
        """``L``."""
        return self._base_operator

    @property
    def u(self) -> Tensor:
        """``U``, ``[…, m, k]``."""
        return self._u

    @property
    def v(self) -> Tensor:
        """``V``, ``[…, n, k]``."""
        return self._v

    @property
    def is_diag_update_positive(self) -> bool | None:
        """Whether the diagonal of ``D`` is known to be positive."""
        return self._is_positive

    @property
    def diag_update(self) -> Any:
        """The diagonal of ``D``, or None."""
        return self._diag_update

    @functools.cached_property
    def diag_operator(self) -> LinearOperator:
        """The operator of ``D``."""
        if self._diag_update is not None:
            return LinearOperatorDiag(self._diag_update, is_positive_definite=self._is_positive)
        known = None if self._u.shape.rank is None else self._u.shape.as_list()[-1]
        return LinearOperatorIdentity(shape_of(self._u)[-1] if known is None else known, dtype=self.dtype)

    def _shape(self) -> Any:
        batch = broadcast_static_shape(self._base_operator.batch_shape, self._u.shape[:-2])
        return broadcast_static_shape(batch, self._v.shape[:-2]).concatenate(self._base_operator.shape[-2:])

    def _shape_tensor(self) -> Tensor:
        batch = broadcast_dynamic_shape(self._base_operator.batch_shape_tensor(), shape_of(self._u)[:-2])
        batch = broadcast_dynamic_shape(batch, shape_of(self._v)[:-2])
        return concat([batch, self._base_operator.shape_tensor()[-2:]], 0)

    def _times(self, x: Tensor, adjoint: bool) -> Tensor:
        left, right = (self._v, self._u) if adjoint else (self._u, self._v)
        inner = self.diag_operator.matmul(matmul(right, x, adjoint_a=True), adjoint=adjoint)
        return self._base_operator.matmul(x, adjoint=adjoint) + matmul(left, inner)  # type: ignore[no-any-return]

    @functools.cached_property
    def _capacitance(self) -> Tensor:
        """``C = D^-1 + V^H L^-1 U`` of Woodbury's formula."""
        inner = matmul(self._v, self._base_operator.solve(self._u), adjoint_a=True)
        return self.diag_operator.inverse().add_to_tensor(inner)  # type: ignore[no-any-return]

    def _into(self, rhs: Tensor, adjoint: bool) -> Tensor:
        left, right = (self._v, self._u) if adjoint else (self._u, self._v)
        base = self._base_operator.solve(rhs, adjoint=adjoint)
        inner = matmul(right, base, adjoint_a=True)
        if self._use_cholesky:
            inner = cholesky_solve_with_broadcast(cholesky(self._capacitance), inner)
        else:
            inner = matrix_solve_with_broadcast(self._capacitance, inner, adjoint)
        return base - self._base_operator.solve(matmul(left, inner), adjoint=adjoint)  # type: ignore[no-any-return]

    def _determinant(self) -> Tensor:
        base = self._base_operator.determinant() * self.diag_operator.determinant()
        return matrix_determinant(self._capacitance) * base

    def _log_abs_determinant(self) -> Tensor:
        base = self._base_operator.log_abs_determinant() + self.diag_operator.log_abs_determinant()
        return slogdet(self._capacitance)[1] + base  # type: ignore[no-any-return]

    def _diag_part(self) -> Tensor:
        scaled = self._u if self._diag_update is None else self._u * expand_dims(self._diag_update, -2)
        return self._base_operator.diag_part() + reduce_sum(scaled * conj(self._v), -1)

    def _to_dense(self) -> Tensor:
        scaled = self._u if self._diag_update is None else self._u * expand_dims(self._diag_update, -2)
        return self._base_operator.to_dense() + matmul(scaled, self._v, adjoint_b=True)


# ---- circulant matrices and their kin ------------------------------------------------------------------------------

_TRANSFORMS = {1: (fft, ifft), 2: (fft2d, ifft2d), 3: (fft3d, ifft3d)}


class _Circulant(LibraryOperator):
    """Matrices that the Fourier transform makes diagonal: convolutions of ``block_depth`` dimensions."""

    _depth = 1

    def __init__(self, spectrum: TensorLike, dtype: DTypeLike, hints: dict[str, Any]) -> None:
        self._spectrum = given(spectrum, "spectrum")
        if not self._spectrum.dtype.is_complex:
            if hints["is_self_adjoint"] is False:
                raise ValueError("A real spectrum always corresponds to a self-adjoint operator.")
            hints["is_self_adjoint"] = True
        if hints["is_square"] is False:
            raise ValueError("A circulant operator is always square.")
        hints["is_square"] = True
        if self._spectrum.shape.ndims is not None and self._spectrum.shape.ndims < self._depth:
            raise ValueError(
                f"Argument spectrum must have at least {self._depth} dimensions. Found: {self._spectrum.shape}"
            )
        super().__init__([self._spectrum], dtype, hints)

    @property
    def spectrum(self) -> Tensor:
        """The eigenvalues, ``[…, *block_shape]``."""
        return self._spectrum

    @property
    def block_depth(self) -> int:
        """The number of dimensions of the convolution."""
        return self._depth

    @property
    def block_shape(self) -> TensorShape:
        """The sizes of the convolution."""
        return TensorShape(self._spectrum.shape[-self._depth :])

    def block_shape_tensor(self) -> Tensor:
        """The sizes of the convolution, an int32 vector."""
        return shape_of(self._spectrum)[-self._depth :]

    def convolution_kernel(self, name: str = "convolution_kernel") -> Tensor:
        """The first column of the matrix, ``[…, *block_shape]``."""
        with self._name_scope(name):
            return cast(self._transformed(_complex(self._spectrum), inverse=True), self.dtype)

    def assert_hermitian_spectrum(self, name: str = "assert_hermitian_spectrum") -> Any:
        """An op that fails where the matrix is not real."""
        with self._name_scope(name):
            kernel = self._transformed(_complex(self._spectrum), inverse=True)
            size = abs(kernel - conj(kernel))
            return assert_positive(1e-5 - size, message="Spectrum was not Hermitian.")

    def _transformed(self, x: Tensor, inverse: bool = False) -> Tensor:
        return _TRANSFORMS[self._depth][inverse](x)

    def _shape(self) -> Any:
        sizes = self.block_shape.as_list()
        size = None if None in sizes else product_of(sizes)
        return self._spectrum.shape[: -self._depth].concatenate([size, size])

    def _shape_tensor(self) -> Tensor:
        size = [reduce_prod(self.block_shape_tensor())]
        return concat([shape_of(self._spectrum)[: -self._depth], size, size], 0)

    def _in_blocks(self, x: Tensor, change: Callable[[Tensor], Tensor]) -> Tensor:
        """Applies a function of Fourier transforms to the columns of ``x``."""
        static = x.shape
        rank = known_rank(static, "the matrices")
        swap = [*range(rank - 2), rank - 1, rank - 2]
        columns = transpose(_complex(x), swap)
        blocks = reshape(columns, concat([shape_of(columns)[:-1], self.block_shape_tensor()], 0))
        found = self._transformed(change(self._transformed(blocks)), inverse=True)
        lead = shape_of(found)[: -self._depth]
        flat = reshape(found, concat([lead, [-1]], 0))
        n = known_rank(flat.shape, "the matrices")
        result = cast(transpose(flat, [*range(n - 2), n - 1, n - 2]), self.dtype)
        batch = broadcast_static_shape(static[:-2], self.batch_shape)
        result.set_shape(batch.concatenate([self.range_dimension.value, static.as_list()[-1]]))
        return result

    def _eigenvalues(self, adjoint: bool) -> Tensor:
        """The eigenvalues, with an axis for the columns."""
        values = _complex(self._spectrum)
        return expand_dims(conj(values) if adjoint else values, -1 - self._depth)

    def _times(self, x: Tensor, adjoint: bool) -> Tensor:
        return self._in_blocks(x, lambda blocks: blocks * self._eigenvalues(adjoint))

    def _into(self, rhs: Tensor, adjoint: bool) -> Tensor:
        return self._in_blocks(rhs, lambda blocks: blocks / self._eigenvalues(adjoint))

    @property
    def _axes(self) -> list[int]:
        return list(range(-self._depth, 0))

    def _determinant(self) -> Tensor:
        return cast(reduce_prod(self._spectrum, self._axes), self.dtype)

    def _log_abs_determinant(self) -> Tensor:
        return cast(reduce_sum(log(abs(self._spectrum)), self._axes), self.dtype)

    def _diag_part(self) -> Tensor:
        mean = cast(reduce_mean(self._spectrum, self._axes), self.dtype)
        found = expand_dims(mean, -1) * ones([self.domain_dimension_tensor()], self.dtype)
        found.set_shape(self.shape[:-1])
        return found

    def _trace(self) -> Tensor:
        return cast(reduce_sum(self._spectrum, self._axes), self.dtype)

    def _assert_non_singular(self) -> Any:
        return assert_positive(abs(self._spectrum), message="Singular operator: zeros in the spectrum.")

    def _assert_positive_definite(self) -> Any:
        return assert_positive(real(self._spectrum), message="Not positive definite: real part of spectrum was not.")


def _complex(x: Tensor) -> Tensor:
    if x.dtype.is_complex:
        return x
    return cast(x, dtypes.complex128 if x.dtype == dtypes.float64 else dtypes.complex64)


@export("tf.linalg.LinearOperatorCirculant")
class LinearOperatorCirculant(_Circulant):
    """Circulant matrices (``tf.linalg.LinearOperatorCirculant``).

    Args:
      spectrum: the eigenvalues ``[…, n]``, the Fourier transform of the matrix's first column.
      input_output_dtype: of arguments and results. The others are those of `LinearOperator`.
    """

    def __init__(
        self, spectrum: TensorLike, input_output_dtype: DTypeLike = dtypes.complex64,
        is_non_singular: bool | None = None, is_self_adjoint: bool | None = None,
        is_positive_definite: bool | None = None, is_square: bool = True, name: str = "LinearOperatorCirculant",
    ) -> None:  # fmt: skip
        super().__init__(spectrum, input_output_dtype, locals())

    def _adjoint(self) -> LinearOperator:
        return LinearOperatorCirculant(conj(self._spectrum), self.dtype, **self._hints())

    def _inverse(self) -> LinearOperator:
        return LinearOperatorCirculant(1.0 / self._spectrum, self.dtype, **self._hints())


@export("tf.linalg.LinearOperatorCirculant2D")
class LinearOperatorCirculant2D(_Circulant):
    """Block-circulant matrices of images (``tf.linalg.LinearOperatorCirculant2D``).

    Args:
      spectrum: the eigenvalues ``[…, rows, columns]``. The others are those of `LinearOperatorCirculant`.
    """

    _depth = 2

    def __init__(
        self, spectrum: TensorLike, input_output_dtype: DTypeLike = dtypes.complex64,
        is_non_singular: bool | None = None, is_self_adjoint: bool | None = None,
        is_positive_definite: bool | None = None, is_square: bool = True, name: str = "LinearOperatorCirculant2D",
    ) -> None:  # fmt: skip
        super().__init__(spectrum, input_output_dtype, locals())


@export("tf.linalg.LinearOperatorCirculant3D")
class LinearOperatorCirculant3D(_Circulant):
    """Block-circulant matrices of volumes (``tf.linalg.LinearOperatorCirculant3D``).

    Args:
      spectrum: the eigenvalues ``[…, x, y, z]``. The others are those of `LinearOperatorCirculant`.
    """

    _depth = 3

    def __init__(
        self, spectrum: TensorLike, input_output_dtype: DTypeLike = dtypes.complex64,
        is_non_singular: bool | None = None, is_self_adjoint: bool | None = None,
        is_positive_definite: bool | None = None, is_square: bool = True, name: str = "LinearOperatorCirculant3D",
    ) -> None:  # fmt: skip
        super().__init__(spectrum, input_output_dtype, locals())


@export("tf.linalg.LinearOperatorToeplitz")
class LinearOperatorToeplitz(LibraryOperator):
    """Matrices with constant diagonals (``tf.linalg.LinearOperatorToeplitz``).

    Args:
      col, row: ``[…, n]``, the first column and the first row. The others are those of `LinearOperator`.
    """

    def __init__(
        self, col: TensorLike, row: TensorLike, is_non_singular: bool | None = None,
        is_self_adjoint: bool | None = None, is_positive_definite: bool | None = None, is_square: bool | None = None,
        name: str = "LinearOperatorToeplitz",
    ) -> None:  # fmt: skip
        self._col, self._row = given(col, "col"), given(row, "row")
        if is_square is False:
            raise ValueError("Only square Toeplitz operators currently supported.")
        is_square = True
        super().__init__([self._row, self._col], self._row.dtype, locals())

    @property
    def col(self) -> Tensor:
        """The first column ``[…, n]``."""
        return self._col

    @property
    def row(self) -> Tensor:
        """The first row ``[…, n]``."""
        return self._row

    def _shape(self) -> Any:
        sizes = broadcast_static_shape(self._row.shape, self._col.shape)
        return sizes.concatenate(sizes[-1:])

    def _shape_tensor(self) -> Tensor:
        sizes = broadcast_dynamic_shape(shape_of(self._row), shape_of(self._col))
        return concat([sizes, sizes[-1:]], 0)

    def _both(self) -> tuple[Tensor, Tensor]:
        sizes = self.shape_tensor()[:-1]
        return broadcast_to(self._row, sizes), broadcast_to(self._col, sizes)

    def _times(self, x: Tensor, adjoint: bool) -> Tensor:
        row, col = self._both()
        if adjoint:
            row, col = conj(col), conj(row)
        size = self.domain_dimension_tensor()
        # A part of a circulant matrix of twice the size, less one.
        spectrum = fft(_complex(concat([col, reverse(row[..., 1:], [-1])], -1)))
        wide = pad(x, [*[[0, 0]] * (known_rank(x.shape, "the matrices") - 2), [0, size - 1], [0, 0]])
        found = LinearOperatorCirculant(spectrum, spectrum.dtype).matmul(_complex(wide))[..., :size, :]
        found.set_shape(found.shape[:-2].concatenate([self.range_dimension.value, x.shape.as_list()[-1]]))
        result: Tensor = cast(found, self.dtype)
        return result

    def _diag_part(self) -> Tensor:
        row, col = self._both()
        return row[..., :1] * ones([self.domain_dimension_tensor()], self.dtype) + 0.0 * col

    def _trace(self) -> Tensor:
        row, _ = self._both()
        found: Tensor = cast(self.domain_dimension_tensor(), self.dtype) * row[..., 0]
        return found

    def _to_dense(self) -> Tensor:
        row, col = self._both()
        size = self.domain_dimension_tensor()
        diagonals = concat([reverse(row, [-1]), col[..., 1:]], -1)
        places = expand_dims(number_range(size), 1) - number_range(size) + size - 1
        found: Tensor = gather(diagonals, places, axis=-1)
        found.set_shape(self.shape)
        return found
