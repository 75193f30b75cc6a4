"""Bijectors of ``tf.contrib.distributions`` of vectors and matrices, and those that are made of others."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tfmini import dtypes
from tfmini.core_types import TensorLike
from tfmini.export import export
from tfmini.graph.conversion import convert_to_tensor
from tfmini.graph.operation import Tensor
from tfmini.layers.contrib.bijectors import AffineScalar, Bijector, Softplus
from tfmini.layers.diagonal_operators import LinearOperatorDiag, LinearOperatorIdentity, LinearOperatorScaledIdentity
from tfmini.layers.linear_operators import LinearOperator, LinearOperatorLowerTriangular
from tfmini.layers.structured_operators import LinearOperatorLowRankUpdate
from tfmini.ops.array.diagonals import eye, matrix_band_part, matrix_diag_part, matrix_set_diag
from tfmini.ops.array.filling import range as number_range
from tfmini.ops.array.filling import zeros
from tfmini.ops.array.gather import gather
from tfmini.ops.array.identity import cast, identity
from tfmini.ops.array.joining import concat
from tfmini.ops.array.layout import pad
from tfmini.ops.array.partition import invert_permutation
from tfmini.ops.array.shape import reshape
from tfmini.ops.array.shape import shape as shape_of
from tfmini.ops.decompositions import cholesky
from tfmini.ops.linear_systems import matrix_triangular_solve
from tfmini.ops.math.matmul import matmul
from tfmini.ops.math.reductions import cumsum, reduce_sum
from tfmini.ops.math.unary import abs, exp, log, sqrt
from tfmini.ops.nn.cross_entropy import log_softmax, softmax
from tfmini.shapes import TensorShape

# ---- functions of vectors and matrices -----------------------------------------------------------------------------


@export("tf.contrib.distributions.bijectors.AffineLinearOperator")
class AffineLinearOperator(Bijector):
    """``scale @ x + shift`` with a linear operator (``tf.contrib.distributions.bijectors.AffineLinearOperator``)."""

    def __init__(
        self, shift: TensorLike | None = None, scale: LinearOperator | None = None, validate_args: bool = False,
        name: str = "affine_linear_operator",
    ) -> None:  # fmt: skip
        self._shift = None if shift is None else convert_to_tensor(shift, name="shift")
        if scale is not None and not isinstance(scale, LinearOperator):
            raise TypeError("scale is not an instance of tf.LinearOperator")
        if scale is not None and scale.is_non_singular is False:
            raise ValueError("Scale matrix must be non-singular.")
        self._scale = scale
        parents = [*([] if self._shift is None else [self._shift]), *(scale.graph_parents if scale else [])]
        super().__init__(parents, True, validate_args, scale.dtype if scale else None, 1, name=name)

    @property
    def shift(self) -> Any:
        """What is added, or None."""
        return self._shift

    @property
    def scale(self) -> Any:
        """The operator, or None."""
        return self._scale

    def _forward(self, x: Any) -> Any:
        y = identity(x) if self._scale is None else self._scale.matvec(x)
        return y if self._shift is None else y + self._shift

    def _inverse(self, y: Any) -> Any:
        x = identity(y) if self._shift is None else y - self._shift
        return x if self._scale is None else self._scale.solvevec(x)

    def _forward_log_det_jacobian(self, x: Any) -> Any:
        return zeros([], x.dtype) if self._scale is None else self._scale.log_abs_determinant()


@export("tf.contrib.distributions.bijectors.Affine")
class Affine(AffineLinearOperator):
    """``scale @ x + shift`` (``tf.contrib.distributions.bijectors.Affine``).

    Args:
      shift: what is added.
      scale_identity_multiplier, scale_diag, scale_tril: parts of the scale, which are added: a number times the
        identity, a diagonal, a lower triangle.
      scale_perturb_factor, scale_perturb_diag: ``V`` and ``D`` of the part ``V D V^T``.
    """

    def __init__(
        self, shift: TensorLike | None = None, scale_identity_multiplier: TensorLike | None = None,
        scale_diag: TensorLike | None = None, scale_tril: TensorLike | None = None,
        scale_perturb_factor: TensorLike | None = None, scale_perturb_diag: TensorLike | None = None,
        validate_args: bool = False, name: str = "affine",
    ) -> None:  # fmt: skip
        scale = scale_operator(
            shift, scale_identity_multiplier, scale_diag, scale_tril, scale_perturb_factor, scale_perturb_diag
        )
        super().__init__(shift, scale, validate_args, name)


def scale_operator(
    shift: TensorLike | None, multiplier: TensorLike | None = None, diag: TensorLike | None = None,
    tril: TensorLike | None = None, factor: TensorLike | None = None, factor_diag: TensorLike | None = None,
) -> LinearOperator | None:  # fmt: skip
    """The operator of parts that are added; None if there are none.

    Raises:
      ValueError: nothing says how large the matrix is.
    """
    base: LinearOperator | None = None
    if tril is not None:
        whole = matrix_band_part(convert_to_tensor(tril, preferred_dtype="float32", name="scale_tril"), -1, 0)
        more = _diagonal_of(diag, multiplier, matrix_diag_part(whole))
        base = LinearOperatorLowerTriangular(matrix_set_diag(whole, more), is_non_singular=True)
    elif diag is not None:
        given = convert_to_tensor(diag, preferred_dtype="float32", name="scale_diag")
        base = LinearOperatorDiag(_diagonal_of(None, multiplier, given), is_non_singular=True)
    elif multiplier is not None or factor is not None:
        size = next((_width(one, axis) for one, axis in ((factor, -2), (shift, -1)) if one is not None), None)
        if size is None and multiplier is not None:
            return _Scaling(convert_to_tensor(multiplier, preferred_dtype="float32", name="scale_identity_multiplier"))
        base = LinearOperatorIdentity(size if size is not None else 1)
        if multiplier is not None:
            given = convert_to_tensor(multiplier, preferred_dtype="float32", name="scale_identity_multiplier")
            base = LinearOperatorScaledIdentity(size if size is not None else 1, given, is_non_singular=True)
    if factor is None or base is None:
        return base
    return LinearOperatorLowRankUpdate(
        base, convert_to_tensor(factor, base.dtype, name="scale_perturb_factor"), factor_diag,
        is_diag_update_positive=factor_diag is None or None, is_non_singular=True, is_self_adjoint=tril is None or None,
        is_square=True,
    )  # fmt: skip


def _diagonal_of(diag: Any, multiplier: Any, found: Tensor) -> Tensor:
    if diag is not None:
        found = found + convert_to_tensor(diag, found.dtype)
    if multiplier is not None:
        found = found + convert_to_tensor(multiplier, found.dtype)[..., None]
    return found


def _width(one: Any, axis: int) -> Any:
    one = convert_to_tensor(one, preferred_dtype="float32")
    known = one.shape.as_list()[axis]
    return shape_of(one)[axis] if known is None else known


class _Scaling(LinearOperator):
    """A number times the identity of any size."""

    def __init__(self, multiplier: Tensor) -> None:
        super().__init__(multiplier.dtype, [multiplier], is_non_singular=True, is_square=True)
        self._multiplier = multiplier

    def _shape(self) -> Any:
        return self._multiplier.shape.concatenate([None, None])

    def _matvec(self, x: Tensor, adjoint: bool = False) -> Tensor:
        return x * self._multiplier[..., None]

    def _solvevec(self, rhs: Tensor, adjoint: bool = False) -> Tensor:
        return rhs / self._multiplier[..., None]


@export("tf.contrib.distributions.bijectors.SoftmaxCentered")
class SoftmaxCentered(Bijector):
    """The softmax of a vector with a 0 at its end (``tf.contrib.distributions.bijectors.SoftmaxCentered``)."""

    def __init__(self, validate_args: bool = False, name: str = "softmax_centered") -> None:
        super().__init__(validate_args=validate_args, forward_min_event_ndims=1, name=name)

    def _forward_event_shape(self, input_shape: TensorShape) -> Any:
        size = input_shape.as_list()[-1]
        return input_shape[:-1].concatenate([None if size is None else size + 1])

    def _inverse_event_shape(self, output_shape: TensorShape) -> Any:
        size = output_shape.as_list()[-1]
        return output_shape[:-1].concatenate([None if size is None else size - 1])

    def _forward_event_shape_tensor(self, input_shape: Tensor) -> Any:
        return concat([input_shape[:-1], [input_shape[-1] + 1]], 0)

    def _inverse_event_shape_tensor(self, output_shape: Tensor) -> Any:
        return concat([output_shape[:-1], [output_shape[-1] - 1]], 0)

    def _forward(self, x: Any) -> Any:
        return softmax(self._padded(x))

    @staticmethod
    def _padded(x: Any) -> Any:
        return pad(x, [*[[0, 0]] * (x.shape.ndims - 1), [0, 1]])

    def _inverse(self, y: Any) -> Any:
        logs = log(y)
        return logs[..., :-1] - logs[..., -1:]

    def _inverse_log_det_jacobian(self, y: Any) -> Any:
        return -reduce_sum(log(y), -1)

    def _forward_log_det_jacobian(self, x: Any) -> Any:
        return reduce_sum(log_softmax(self._padded(x)), -1)


@export("tf.contrib.distributions.bijectors.Ordered")
class Ordered(Bijector):
    """From increasing numbers to any (``tf.contrib.distributions.bijectors.Ordered``)."""

    def __init__(self, validate_args: bool = False, name: str = "ordered") -> None:
        super().__init__(validate_args=validate_args, forward_min_event_ndims=1, name=name)

    def _forward(self, x: Any) -> Any:
        return concat([x[..., :1], log(x[..., 1:] - x[..., :-1])], -1)

    def _inverse(self, y: Any) -> Any:
        return cumsum(concat([y[..., :1], exp(y[..., 1:])], -1), -1)

    def _inverse_log_det_jacobian(self, y: Any) -> Any:
        return reduce_sum(y[..., 1:], -1)

    def _forward_log_det_jacobian(self, x: Any) -> Any:
        return -reduce_sum(log(x[..., 1:] - x[..., :-1]), -1)


@export("tf.contrib.distributions.bijectors.Permute")
class Permute(Bijector):
    """Puts the elements of vectors into another order (``tf.contrib.distributions.bijectors.Permute``).

    Args:
      permutation: int32; element ``i`` of the image is element ``permutation[i]``.
    """

    def __init__(self, permutation: TensorLike, validate_args: bool = False, name: str | None = None) -> None:
        self._permutation = convert_to_tensor(permutation, name="permutation")
        if not self._permutation.dtype.is_integer:
            raise TypeError(f"permutation.dtype ({self._permutation.dtype.name}) should be `int`-like.")
        super().__init__([self._permutation], True, validate_args, None, 1, name=name or "permute")

    @property
    def permutation(self) -> Tensor:
        """Where the elements come from."""
        return self._permutation

    def _forward(self, x: Any) -> Any:
        return gather(x, self._permutation, axis=-1)

    def _inverse(self, y: Any) -> Any:
        return gather(y, invert_permutation(self._permutation), axis=-1)

    def _forward_log_det_jacobian(self, x: Any) -> Any:
        return zeros([], x.dtype)


@export("tf.contrib.distributions.bijectors.Reshape")
class Reshape(Bijector):
    """Another shape of the same elements (``tf.contrib.distributions.bijectors.Reshape``).

    Args:
      event_shape_out, event_shape_in: the shapes after and before; one size of each may be -1.
    """

    def __init__(
        self, event_shape_out: Any, event_shape_in: Any = (-1,), validate_args: bool = False, name: str | None = None
    ) -> None:
        self._out, self._in = [[int(size) for size in sizes] for sizes in (event_shape_out, event_shape_in)]
        super().__init__(
            None, True, validate_args, forward_min_event_ndims=len(self._in), inverse_min_event_ndims=len(self._out),
            name=name or "reshape",
        )  # fmt: skip

    def _changed(self, x: Any, before: list[int], after: list[int]) -> Any:
        lead = len(x.shape.as_list()) - len(before)
        found = reshape(x, concat([shape_of(x)[:lead], after], 0))
        known = self._sizes(TensorShape(x.shape[lead:]), after)
        found.set_shape(TensorShape(x.shape[:lead]).concatenate(known))
        return found

    @staticmethod
    def _sizes(before: TensorShape, after: list[int]) -> TensorShape:
        count = before.num_elements()
        rest = math.prod(size for size in after if size >= 0)
        return TensorShape([(None if count is None else count // rest) if size < 0 else size for size in after])

    def _forward(self, x: Any) -> Any:
        return self._changed(x, self._in, self._out)

    def _inverse(self, y: Any) -> Any:
        return self._changed(y, self._out, self._in)

    def _forward_log_det_jacobian(self, x: Any) -> Any:
        return zeros([], x.dtype)

    def _forward_event_shape(self, input_shape: TensorShape) -> Any:
        return self._sizes(input_shape, self._out)

    def _inverse_event_shape(self, output_shape: TensorShape) -> Any:
        return self._sizes(output_shape, self._in)

    def _forward_event_shape_tensor(self, input_shape: Tensor) -> Any:
        return shape_of(reshape(zeros(input_shape), self._out))

    def _inverse_event_shape_tensor(self, output_shape: Tensor) -> Any:
        return shape_of(reshape(zeros(output_shape), self._in))


# ---- matrices ------------------------------------------------------------------------------------------------------


@functools.cache
def _places(size: int, upper: bool) -> tuple[Any, Any]:
    """For a triangle of this size: the element of the vector at each place, and the place of each element."""
    count = size * (size + 1) // 2
    numbers = np.arange(count)
    both = np.concatenate([numbers, numbers[::-1]]) if upper else np.concatenate([numbers[size:], numbers[::-1]])
    square = both.reshape(-1)[: size * size].reshape(size, size)
    inside = np.triu(np.ones([size, size], bool)) if upper else np.tril(np.ones([size, size], bool))
    back = np.zeros(count, int)
    back[square[inside]] = np.arange(size * size).reshape(size, size)[inside]
    return square.reshape(-1), back


@export("tf.contrib.distributions.fill_triangular")
def fill_triangular(x: TensorLike, upper: bool = False, name: str | None = None) -> Tensor:
    """A triangular matrix of the elements of a vector (``tf.contrib.distributions.fill_triangular``).

    Args:
      x: ``[…, n (n + 1) / 2]``.

    Raises:
      ValueError: the length is of no triangle.
    """
    x = convert_to_tensor(x, name="x")
    count = int(x.shape.as_list()[-1] or 0)
    size = (math.isqrt(1 + 8 * count) - 1) // 2
    if size * (size + 1) // 2 != count:
        raise ValueError(f"Input right-most shape ({count}) does not correspond to a triangular matrix.")
    found = gather(x, _places(size, upper)[0], axis=-1)
    found = reshape(found, concat([shape_of(x)[:-1], [size, size]], 0))
    found.set_shape(TensorShape(x.shape[:-1]).concatenate([size, size]))
    return matrix_band_part(found, 0, -1) if upper else matrix_band_part(found, -1, 0)


@export("tf.contrib.distributions.fill_triangular_inverse")
def fill_triangular_inverse(x: TensorLike, upper: bool = False, name: str | None = None) -> Tensor:
    """The vector that `fill_triangular` makes a matrix of."""
    x = convert_to_tensor(x, name="x")
    size = int(x.shape.as_list()[-1] or 0)
    flat = reshape(x, concat([shape_of(x)[:-2], [size * size]], 0))
    found: Tensor = gather(flat, _places(size, upper)[1], axis=-1)
    return found


@export("tf.contrib.distributions.bijectors.FillTriangular")
class FillTriangular(Bijector):
    """Vectors as triangular matrices (``tf.contrib.distributions.bijectors.FillTriangular``)."""

    def __init__(self, upper: bool = False, validate_args: bool = False, name: str = "fill_triangular") -> None:
        self._upper = upper
        super().__init__(None, False, validate_args, forward_min_event_ndims=1, inverse_min_event_ndims=2, name=name)

    def _forward(self, x: Any) -> Any:
        return fill_triangular(x, self._upper)

    def _inverse(self, y: Any) -> Any:
        return fill_triangular_inverse(y, self._upper)

    def _forward_log_det_jacobian(self, x: Any) -> Any:
        return zeros(shape_of(x)[:-1], x.dtype)

    def _inverse_log_det_jacobian(self, y: Any) -> Any:
        return zeros(shape_of(y)[:-2], y.dtype)

    def _forward_event_shape(self, input_shape: TensorShape) -> Any:
        count = input_shape.as_list()[-1]
        size = None if count is None else (math.isqrt(1 + 8 * count) - 1) // 2
        return input_shape[:-1].concatenate([size, size])

    def _inverse_event_shape(self, output_shape: TensorShape) -> Any:
        size = output_shape.as_list()[-1]
        return output_shape[:-2].concatenate([None if size is None else size * (size + 1) // 2])

    def _forward_event_shape_tensor(self, input_shape: Tensor) -> Any:
        size = cast(sqrt(cast(2 * input_shape[-1], dtypes.float32) + 0.25) - 0.5 + 1e-3, dtypes.int32)
        return concat([input_shape[:-1], [size, size]], 0)

    def _inverse_event_shape_tensor(self, output_shape: Tensor) -> Any:
        size = output_shape[-1]
        return concat([output_shape[:-2], [size * (size + 1) // 2]], 0)


class _OfMatrices(Bijector):
    """A function of matrices."""

    def __init__(self, validate_args: bool, name: str) -> None:
        super().__init__(validate_args=validate_args, forward_min_event_ndims=2, name=name)


@export("tf.contrib.distributions.bijectors.CholeskyOuterProduct")
class CholeskyOuterProduct(_OfMatrices):
    """From a Cholesky factor to its matrix (``tf.contrib.distributions.bijectors.CholeskyOuterProduct``)."""

    def __init__(self, validate_args: bool = False, name: str = "cholesky_outer_product") -> None:
        super().__init__(validate_args, name)

    def _forward(self, x: Any) -> Any:
        lower = matrix_band_part(x, -1, 0)
        return matmul(lower, lower, adjoint_b=True)

    def _inverse(self, y: Any) -> Any:
        return cholesky(y)

    def _forward_log_det_jacobian(self, x: Any) -> Any:
        diag = matrix_diag_part(x)
        size = shape_of(x)[-1]
        exponents = cast(size - number_range(size), x.dtype)
        return reduce_sum(exponents * log(diag), -1) + cast(size, x.dtype) * math.log(2.0)

    def _inverse_log_det_jacobian(self, y: Any) -> Any:
        return -self._forward_log_det_jacobian(self.inverse(y))


@export("tf.contrib.distributions.bijectors.MatrixInverseTriL")
class MatrixInverseTriL(_OfMatrices):
    """The inverse of a lower triangular matrix (``tf.contrib.distributions.bijectors.MatrixInverseTriL``)."""

    def __init__(self, validate_args: bool = False, name: str = "matrix_inverse_tril") -> None:
        super().__init__(validate_args, name)

    def _forward(self, x: Any) -> Any:
        known = x.shape.as_list()
        size = shape_of(x)[-1] if known[-1] is None else known[-1]
        batch = shape_of(x)[:-2] if None in known[:-2] else known[:-2]
        return matrix_triangular_solve(x, eye(size, batch_shape=batch, dtype=x.dtype), lower=True)

    def _inverse(self, y: Any) -> Any:
        return self._forward(y)

    def _forward_log_det_jacobian(self, x: Any) -> Any:
        size = cast(shape_of(x)[-1], x.dtype)
        # The exact factor is n + 1; this is that of TensorFlow 1.15.
        return -2.0 * size * reduce_sum(log(abs(matrix_diag_part(x))), -1)

    def _inverse_log_det_jacobian(self, y: Any) -> Any:
        return self._forward_log_det_jacobian(y)


@export("tf.contrib.distributions.bijectors.TransformDiagonal")
class TransformDiagonal(_OfMatrices):
    """A bijector of the diagonals of matrices (``tf.contrib.distributions.bijectors.TransformDiagonal``)."""

    def __init__(self, diag_bijector: Bijector, validate_args: bool = False, name: str = "transform_diagonal") -> None:
        self._diag_bijector = diag_bijector
        super().__init__(validate_args, name)

    def _forward(self, x: Any) -> Any:
        return matrix_set_diag(x, self._diag_bijector.forward(matrix_diag_part(x)))

    def _inverse(self, y: Any) -> Any:
        return matrix_set_diag(y, self._diag_bijector.inverse(matrix_diag_part(y)))

    def _forward_log_det_jacobian(self, x: Any) -> Any:
        return self._diag_bijector.forward_log_det_jacobian(matrix_diag_part(x), 1)

    def _inverse_log_det_jacobian(self, y: Any) -> Any:
        return self._diag_bijector.inverse_log_det_jacobian(matrix_diag_part(y), 1)


# ---- bijectors of bijectors ----------------------------------------------------------------------------------------


@export("tf.contrib.distributions.bijectors.Invert")
class Invert(Bijector):
    """A bijector the other way round (``tf.contrib.distributions.bijectors.Invert``)."""

    def __init__(self, bijector: Bijector, validate_args: bool = False, name: str | None = None) -> None:
        self._bijector = bijector
        super().__init__(
            bijector.graph_parents, bijector.is_constant_jacobian, validate_args, bijector.dtype,
            bijector.inverse_min_event_ndims, bijector.forward_min_event_ndims, name or f"invert_{bijector.name}",
        )  # fmt: skip

    @property
    def bijector(self) -> Bijector:
        """The bijector before it was turned round."""
        return self._bijector

    def _forward(self, x: Any) -> Any:
        return self._bijector.inverse(x)

    def _inverse(self, y: Any) -> Any:
        return self._bijector.forward(y)

    def _forward_log_det_jacobian(self, x: Any) -> Any:
        return self._bijector.inverse_log_det_jacobian(x, self._forward_ndims)

    def _inverse_log_det_jacobian(self, y: Any) -> Any:
        return self._bijector.forward_log_det_jacobian(y, self._inverse_ndims)

    def _forward_event_shape(self, input_shape: TensorShape) -> Any:
        return self._bijector.inverse_event_shape(input_shape)

    def _inverse_event_shape(self, output_shape: TensorShape) -> Any:
        return self._bijector.forward_event_shape(output_shape)

    def _forward_event_shape_tensor(self, input_shape: Tensor) -> Any:
        return self._bijector.inverse_event_shape_tensor(input_shape)

    def _inverse_event_shape_tensor(self, output_shape: Tensor) -> Any:
        return self._bijector.forward_event_shape_tensor(output_shape)


@export("tf.contrib.distributions.bijectors.Chain")
class Chain(Bijector):
    """Bijectors one after the other, the last one first (``tf.contrib.distributions.bijectors.Chain``)."""

    def __init__(
        self, bijectors: Sequence[Bijector] | None = None, validate_args: bool = False, name: str | None = None
    ) -> None:
        self._bijectors = list(bijectors or ())
        ranks = self._ranks(self._bijectors, lambda one: (one.forward_min_event_ndims, one.inverse_min_event_ndims))
        back = list(reversed(self._bijectors))
        inverse_ranks = self._ranks(back, lambda one: (one.inverse_min_event_ndims, one.forward_min_event_ndims))
        super().__init__(
            [t for one in self._bijectors for t in one.graph_parents],
            all(one.is_constant_jacobian for one in self._bijectors), validate_args,
            next((one.dtype for one in self._bijectors if one.dtype is not None), None), ranks, inverse_ranks,
            name or "_of_".join(["chain", *(one.name for one in self._bijectors)][: 1 + len(self._bijectors)])
            if self._bijectors else "identity",
        )  # fmt: skip

    @staticmethod
    def _ranks(bijectors: list[Bijector], ranks: Callable[[Bijector], tuple[int, int]]) -> int:
        """The least rank of what the last one may be given, so that each gets as much as it needs."""
        least = 0
        for one in bijectors:
            before, after = ranks(one)
            least = before + max(least - after, 0) if before >= after else max(before, least + before - after)
        return least

    @property
    def bijectors(self) -> list[Bijector]:
        """The bijectors; the last one is applied first."""
        return self._bijectors

    def _forward(self, x: Any) -> Any:
        for one in reversed(self._bijectors):
            x = one.forward(x)
        return x

    def _inverse(self, y: Any) -> Any:
        for one in self._bijectors:
            y = one.inverse(y)
        return y

    def _forward_log_det_jacobian(self, x: Any) -> Any:
        found, rank = zeros([], x.dtype), self._forward_ndims
        for one in reversed(self._bijectors):
            found = found + one.forward_log_det_jacobian(x, rank)
            rank += one.inverse_min_event_ndims - one.forward_min_event_ndims
            x = one.forward(x)
        return found

    def _inverse_log_det_jacobian(self, y: Any) -> Any:
        found, rank = zeros([], y.dtype), self._inverse_ndims
        for one in self._bijectors:
            found = found + one.inverse_log_det_jacobian(y, rank)
            rank += one.forward_min_event_ndims - one.inverse_min_event_ndims
            y = one.inverse(y)
        return found

    def _forward_event_shape(self, input_shape: TensorShape) -> Any:
        return functools.reduce(lambda s, one: one.forward_event_shape(s), reversed(self._bijectors), input_shape)

    def _inverse_event_shape(self, output_shape: TensorShape) -> Any:
        return functools.reduce(lambda s, one: one.inverse_event_shape(s), self._bijectors, output_shape)

    def _forward_event_shape_tensor(self, input_shape: Tensor) -> Any:
        return functools.reduce(
            lambda s, one: one.forward_event_shape_tensor(s), reversed(self._bijectors), input_shape
        )

    def _inverse_event_shape_tensor(self, output_shape: Tensor) -> Any:
        return functools.reduce(lambda s, one: one.inverse_event_shape_tensor(s), self._bijectors, output_shape)


@export("tf.contrib.distributions.bijectors.ScaleTriL")
class ScaleTriL(Chain):
    """From vectors to lower triangles with a positive diagonal (``tf.contrib.distributions.bijectors.ScaleTriL``).

    Args:
      diag_bijector: of the diagonal; default `Softplus`.
      diag_shift: what is added to the diagonal.
    """

    def __init__(
        self, diag_bijector: Bijector | None = None, diag_shift: float | None = 1e-5, validate_args: bool = False,
        name: str = "scale_tril",
    ) -> None:  # fmt: skip
        diagonal = diag_bijector or Softplus()
        if diag_shift is not None:
            diagonal = Chain([AffineScalar(shift=diag_shift), diagonal])
        super().__init__([TransformDiagonal(diagonal), FillTriangular()], validate_args, name)


@export("tf.contrib.distributions.bijectors.Inline")
class Inline(Bijector):
    """A bijector of functions (``tf.contrib.distributions.bijectors.Inline``).

    Args:
      forward_fn, inverse_fn: the maps.
      inverse_log_det_jacobian_fn, forward_log_det_jacobian_fn: the logarithms of how they stretch space.
      forward_event_shape_fn, forward_event_shape_tensor_fn, inverse_event_shape_fn, inverse_event_shape_tensor_fn: of
        shapes; default: unchanged. The others are those of `Bijector`.
    """

    def __init__(
        self, forward_fn: Callable[..., Any] | None = None, inverse_fn: Callable[..., Any] | None = None,
        inverse_log_det_jacobian_fn: Callable[..., Any] | None = None,
        forward_log_det_jacobian_fn: Callable[..., Any] | None = None,
        forward_event_shape_fn: Callable[..., Any] | None = None,
        forward_event_shape_tensor_fn: Callable[..., Any] | None = None,
        inverse_event_shape_fn: Callable[..., Any] | None = None,
        inverse_event_shape_tensor_fn: Callable[..., Any] | None = None, is_constant_jacobian: bool = False,
        validate_args: bool = False, forward_min_event_ndims: int | None = None,
        inverse_min_event_ndims: int | None = None, name: str = "inline",
    ) -> None:  # fmt: skip
        given = locals()
        for key in [key for key in given if key.endswith("_fn") and given[key] is not None]:
            setattr(self, "_" + key.removesuffix("_fn"), given[key])
        super().__init__(
            None, is_constant_jacobian, validate_args, None, forward_min_event_ndims, inverse_min_event_ndims, name
        )

    def _overrides(self, name: str) -> bool:
        return name in vars(self)
