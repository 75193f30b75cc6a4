"""Distributions of ``tf.contrib.distributions`` that bijectors make of others, and multivariate normal ones."""

from __future__ import annotations

import functools
import math
import operator
from typing import Any

from tfmini import dtypes
from tfmini.core_types import DTypeLike, TensorLike
from tfmini.export import export
from tfmini.graph.conversion import convert_to_tensor
from tfmini.graph.operation import Tensor
from tfmini.layers.contrib import bijectors as bijectors_of_numbers
from tfmini.layers.contrib.discrete_distributions import ExpRelaxedOneHotCategorical
from tfmini.layers.contrib.distributions import Logistic
from tfmini.layers.contrib.vector_bijectors import AffineLinearOperator, Chain, scale_operator
from tfmini.layers.discrete_distributions import one_of
from tfmini.layers.distributions import (
    Distribution,
    Exponential,
    Laplace,
    Normal,
    RegisterKL,
    Uniform,
    filled,
    keeps_arguments,
    pair,
)
from tfmini.layers.linear_operators import LinearOperator
from tfmini.ops.array.constant_value import constant_value_as_shape
from tfmini.ops.array.filling import ones, ones_like, zeros
from tfmini.ops.array.identity import cast
from tfmini.ops.array.joining import concat, stack
from tfmini.ops.array.partition import where
from tfmini.ops.array.shape import broadcast_dynamic_shape, broadcast_static_shape, expand_dims, reshape
from tfmini.ops.array.shape import shape as shape_of
from tfmini.ops.decompositions import cholesky
from tfmini.ops.math.comparison import less
from tfmini.ops.math.elementwise import minimum
from tfmini.ops.math.matmul import matmul
from tfmini.ops.math.reductions import reduce_logsumexp, reduce_prod, reduce_sum
from tfmini.ops.math.unary import digamma, exp, lgamma, log, log1p, sigmoid, square
from tfmini.ops.nn.activation import softplus
from tfmini.shapes import TensorShape, known_rank


@export("tf.contrib.distributions.TransformedDistribution")
class TransformedDistribution(Distribution):
    """The images of samples by a bijector (``tf.contrib.distributions.TransformedDistribution``).

    Args:
      distribution: of the samples.
      bijector: the map; None: the identity.
      batch_shape, event_shape: take the place of those of a distribution of one number.
    """

    def __init__(
        self, distribution: Distribution, bijector: Any = None, batch_shape: TensorLike | None = None,
        event_shape: TensorLike | None = None, validate_args: bool = False, name: str | None = None,
    ) -> None:  # fmt: skip
        parameters = dict(locals())
        self._distribution = distribution
        self._bijector = bijector or bijectors_of_numbers.IdentityMap()
        self._own_batch = None if batch_shape is None else convert_to_tensor(batch_shape, dtypes.int32)
        self._own_event = None if event_shape is None else convert_to_tensor(event_shape, dtypes.int32)
        self._static = [
            self._known_sizes(batch_shape, self._own_batch),
            self._known_sizes(event_shape, self._own_event),
        ]
        super().__init__(
            distribution.dtype, distribution.reparameterization_type, validate_args, distribution.allow_nan_stats,
            parameters, [*distribution._graph_parents, *self._bijector.graph_parents],
            name or self._bijector.name + distribution.name.rstrip("/"),
        )  # fmt: skip

    @staticmethod
    def _known_sizes(sizes: Any, tensor: Tensor | None) -> TensorShape:
        if tensor is None or isinstance(sizes, TensorShape):
            return TensorShape(sizes)
        return TensorShape(constant_value_as_shape(tensor))

    @property
    def distribution(self) -> Distribution:
        """The distribution before the map."""
        return self._distribution

    @property
    def bijector(self) -> Any:
        """The map."""
        return self._bijector

    def _batch_shape(self) -> Any:
        return self._distribution.batch_shape if self._own_batch is None else self._static[0]

    def _batch_shape_tensor(self) -> Any:
        return self._distribution.batch_shape_tensor() if self._own_batch is None else self._own_batch

    def _base_event(self) -> Any:
        return self._distribution.event_shape if self._own_event is None else self._static[1]

    def _event_shape(self) -> Any:
        return self._bijector.forward_event_shape(self._base_event())

    def _event_shape_tensor(self) -> Any:
        own = self._own_event
        return self._bijector.forward_event_shape_tensor(
            self._distribution.event_shape_tensor() if own is None else own
        )

    @property
    def _rank(self) -> int:
        return known_rank(self.event_shape, f"an event of {self.name}")

    def _sample_n(self, n: Tensor | int, seed: int | None = None) -> Any:
        more = [part for part in (self._own_batch, self._own_event) if part is not None]
        x = self._distribution.sample(concat([reshape(n, [1]), *more], 0), seed)
        known = TensorShape([None]).concatenate(self.batch_shape).concatenate(self._base_event())
        if self._own_batch is not None or self._own_event is not None:
            x.set_shape(known)
        return self._bijector.forward(x)

    def _of_point(self, density: Any, x: Any) -> Any:
        """The logarithm of the density of a point before the map, of whole events."""
        found = density(x)
        if self._own_event is None:
            return found
        return reduce_sum(
            found, [-1 - i for i in range(known_rank(self._base_event(), f"an event of {self._distribution.name}"))]
        )

    def _log_prob(self, y: Tensor) -> Any:
        x = self._bijector.inverse(y)
        slope = self._bijector.inverse_log_det_jacobian(y, event_ndims=self._rank)
        if not isinstance(x, tuple):
            found = self._of_point(self._distribution.log_prob, x) + slope
            if y.shape.ndims is not None:
                found.set_shape(broadcast_static_shape(y.shape[: y.shape.ndims - self._rank], self.batch_shape))
            return found
        parts = [self._of_point(self._distribution.log_prob, one) + more for one, more in zip(x, slope)]
        return reduce_logsumexp(stack(parts), axis=0)

    def _cdf(self, y: Tensor) -> Any:
        self._needs_numbers("cdf")
        return self._distribution.cdf(self._bijector.inverse(y))

    def _log_cdf(self, y: Tensor) -> Any:
        self._needs_numbers("log_cdf")
        return self._distribution.log_cdf(self._bijector.inverse(y))

    def _survival_function(self, y: Tensor) -> Any:
        self._needs_numbers("survival_function")
        return self._distribution.survival_function(self._bijector.inverse(y))

    def _log_survival_function(self, y: Tensor) -> Any:
        self._needs_numbers("log_survival_function")
        return self._distribution.log_survival_function(self._bijector.inverse(y))

    def _quantile(self, value: Tensor) -> Any:
        self._needs_numbers("quantile")
        return self._bijector.forward(self._distribution.quantile(value))

    def _needs_numbers(self, what: str) -> None:
        if self._own_event is not None:
            raise NotImplementedError(f"{what} is not implemented when overriding event_shape")

    def _mean(self) -> Any:
        if not self._bijector.is_constant_jacobian:
            raise NotImplementedError("mean is not implemented for non-affine bijectors")
        return self._bijector.forward(self._widened(self._distribution.mean()))

    def _widened(self, x: Any) -> Any:
        for own in (self._own_event, self._own_batch):
            if own is not None:
                x = x * ones(concat([own, shape_of(x)], 0) if x.shape.ndims else own, x.dtype)
        return x

    def _entropy(self) -> Any:
        if not self._bijector.is_constant_jacobian:
            raise NotImplementedError("entropy is not implemented")
        found = self._distribution.entropy()
        if self._own_event is not None:
            found = found * cast(reduce_prod(self._own_event), found.dtype)
        if self._own_batch is not None:
            found = found * ones(self._own_batch, found.dtype)
        point = zeros(concat([self.batch_shape_tensor(), self.event_shape_tensor()], 0), self.dtype)
        point.set_shape(self.batch_shape.concatenate(self.event_shape))
        return found - self._bijector.inverse_log_det_jacobian(point, event_ndims=self._rank)


@export("tf.contrib.distributions.RelaxedOneHotCategorical")
class RelaxedOneHotCategorical(TransformedDistribution):
    """Vectors near those of one class (``tf.contrib.distributions.RelaxedOneHotCategorical``).

    Args:
      temperature: a scalar; the nearer to 0, the nearer samples are to one class.
      logits, probs: one of the two, ``[…, classes]``.
    """

    @keeps_arguments
    def __init__(
        self, temperature: TensorLike, logits: TensorLike | None = None, probs: TensorLike | None = None,
        dtype: DTypeLike | None = None, validate_args: bool = False, allow_nan_stats: bool = True,
        name: str = "RelaxedOneHotCategorical",
    ) -> None:  # fmt: skip
        base = ExpRelaxedOneHotCategorical(temperature, logits, probs, dtype, validate_args, allow_nan_stats)
        super().__init__(base, bijectors_of_numbers.Exp(), validate_args=validate_args, name=name)


@export("tf.contrib.distributions.RelaxedBernoulli")
class RelaxedBernoulli(TransformedDistribution):
    """Numbers near 0 or 1 (``tf.contrib.distributions.RelaxedBernoulli``).

    Args:
      temperature: the nearer to 0, the nearer samples are to 0 or 1.
      logits, probs: one of the two: the log-odds or the probability of 1.
    """

    _shaped = ("logits",)

    @keeps_arguments
    def __init__(
        self, temperature: TensorLike, logits: TensorLike | None = None, probs: TensorLike | None = None,
        validate_args: bool = False, allow_nan_stats: bool = True, name: str = "RelaxedBernoulli",
    ) -> None:  # fmt: skip
        one_of(logits, probs)
        given: Any = convert_to_tensor(
            logits if probs is None else probs, preferred_dtype="float32", name="logits" if probs is None else "probs"
        )
        self.logits = given if probs is None else log(given) - log1p(-given)
        self.probs = sigmoid(given) if probs is None else given
        self.temperature = convert_to_tensor(temperature, self.logits.dtype, name="temperature")
        base = Logistic(self.logits / self.temperature, 1.0 / self.temperature)
        super().__init__(base, bijectors_of_numbers.Sigmoid(), validate_args=validate_args, name=name)


@export("tf.contrib.distributions.Kumaraswamy")
class Kumaraswamy(TransformedDistribution):
    """Kumaraswamy's distribution on [0, 1] (``tf.contrib.distributions.Kumaraswamy``)."""

    @keeps_arguments
    def __init__(
        self, concentration1: Any = None, concentration0: Any = None,
        validate_args: bool = False, allow_nan_stats: bool = True, name: str = "Kumaraswamy",
    ) -> None:  # fmt: skip
        self.concentration1, self.concentration0 = pair(
            concentration1, concentration0, ("concentration1", "concentration0")
        )
        shape = self.concentration1 + self.concentration0
        zero = 0.0 * shape
        bijector = bijectors_of_numbers.KumaraswamyMap(self.concentration1, self.concentration0, validate_args)
        super().__init__(Uniform(zero, zero + 1.0), bijector, validate_args=validate_args, name=name)

    def _moment(self, n: int) -> Any:
        a, b = self.concentration1, self.concentration0
        return exp(log(b) + lgamma(1.0 + n / a) + lgamma(b) - lgamma(1.0 + n / a + b))

    def _mean(self) -> Any:
        return self._moment(1)

    def _variance(self) -> Any:
        return self._moment(2) - square(self._moment(1))

    def _entropy(self) -> Any:
        a, b = self.concentration1, self.concentration0
        harmonic = digamma(b + 1.0) - digamma(ones_like(b))
        # TensorFlow adds the logarithms, which the entropy of the literature subtracts.
        return (1.0 - 1.0 / a) + (1.0 - 1.0 / b) * harmonic + log(a) + log(b)

    def _mode(self) -> Any:
        a, b = filled(self.concentration1, self.concentration0), filled(self.concentration0, self.concentration1)
        found = ((a - 1.0) / (a * b - 1.0)) ** (1.0 / a)
        return where(less(1.0, minimum(a, b)), found, math.nan * ones_like(found))


@export("tf.contrib.distributions.SinhArcsinh")
class SinhArcsinh(TransformedDistribution):
    """A normal variable with skewness and tails (``tf.contrib.distributions.SinhArcsinh``).

    Args:
      loc, scale: of the result.
      skewness: 0: symmetric; ``tailweight``: 1: as the normal distribution.
      distribution: instead of the normal one.
    """

    @keeps_arguments
    def __init__(
        self, loc: TensorLike, scale: TensorLike, skewness: TensorLike | None = None,
        tailweight: TensorLike | None = None, distribution: Distribution | None = None, validate_args: bool = False,
        allow_nan_stats: bool = True, name: str = "SinhArcsinh",
    ) -> None:  # fmt: skip
        self.loc, self.scale = pair(loc, scale, ("loc", "scale"))
        self.skewness = convert_to_tensor(0.0 if skewness is None else skewness, self.loc.dtype, name="skewness")
        self.tailweight = convert_to_tensor(
            1.0 if tailweight is None else tailweight, self.loc.dtype, name="tailweight"
        )
        whole = functools.reduce(operator.add, (self.loc, self.scale, self.skewness, self.tailweight))
        base = distribution or Normal(0.0 * whole, 1.0 + 0.0 * whole)
        plain = bijectors_of_numbers.SinhArcsinhMap(0.0, self.tailweight)
        skewed = bijectors_of_numbers.SinhArcsinhMap(self.skewness, self.tailweight)
        factor = 2.0 * self.scale / plain.forward(convert_to_tensor(2.0, self.loc.dtype))
        affine = bijectors_of_numbers.AffineScalar(self.loc, factor)
        super().__init__(base, Chain([affine, skewed]), validate_args=validate_args, name=name)


# ---- vectors with a location and a matrix of scales ----------------------------------------------------------------


class _Affine(TransformedDistribution):
    """``loc + scale @ z`` with independent numbers ``z``."""

    _variance_of_number = 1.0
    _mean_of_number = 0.0

    def __init__(
        self, base: Distribution, loc: TensorLike | None, scale: LinearOperator, validate_args: bool, name: str
    ) -> None:
        given = None if loc is None else convert_to_tensor(loc, scale.dtype, name="loc")
        self._loc, self._scale = given, scale
        known: Any = scale.batch_shape
        if given is not None:
            known = broadcast_static_shape(known, given.shape[:-1])
        batch: Any = known
        event: Any = [scale.domain_dimension.value]
        known_event = TensorShape(event)
        if not batch.is_fully_defined() or event == [None]:
            batch = scale.batch_shape_tensor()
            batch = batch if given is None else broadcast_dynamic_shape(batch, shape_of(given)[:-1])
            event = scale.range_dimension_tensor()[None]
        else:
            batch = batch.as_list()
        bijector = AffineLinearOperator(given, scale, validate_args)
        super().__init__(base, bijector, batch, event, validate_args, name)
        self._static = [known, known_event]

    @property
    def loc(self) -> Any:
        """The location, or None."""
        return self._loc

    @property
    def scale(self) -> Any:
        """The operator of the scales."""
        return self._scale

    def _everywhere(self, x: Any) -> Any:
        sizes = concat([self.batch_shape_tensor(), self.event_shape_tensor()], 0)
        found = x + zeros(sizes, self.dtype)
        found.set_shape(self.batch_shape.concatenate(self.event_shape))
        return found

    def _mean(self) -> Any:
        if self._mean_of_number:
            unit = self._everywhere(zeros([], self.dtype)) + self._mean_of_number
            return self._bijector.forward(unit)
        return self._everywhere(zeros([], self.dtype) if self._loc is None else self._loc)

    def _mode(self) -> Any:
        return self._everywhere(zeros([], self.dtype) if self._loc is None else self._loc)

    def _covariance(self) -> Any:
        dense = self._scale.to_dense()
        return self._variance_of_number * matmul(dense, dense, adjoint_b=True)

    def _variance(self) -> Any:
        dense = self._scale.to_dense()
        return self._variance_of_number * reduce_sum(square(dense), -1)


class _MultivariateNormal(_Affine):
    """A normal distribution of vectors."""

    def __init__(self, loc: TensorLike | None, scale: LinearOperator, validate_args: bool, name: str) -> None:
        zero = zeros([], scale.dtype)
        super().__init__(Normal(zero, zero + 1.0), loc, scale, validate_args, name)


def _scale(loc: TensorLike | None, *parts: Any) -> LinearOperator:
    found = scale_operator(loc, *parts)
    if found is None:
        found = scale_operator(loc, 1.0)
    assert found is not None
    return found


@export("tf.contrib.distributions.MultivariateNormalDiag")
class MultivariateNormalDiag(_MultivariateNormal):
    """Independent normal variables (``tf.contrib.distributions.MultivariateNormalDiag``).

    Args:
      loc: the means ``[…, n]``.
      scale_diag: the deviations ``[…, n]``.
      scale_identity_multiplier: ``[…]``, is added to them.
    """

    @keeps_arguments
    def __init__(
        self, loc: TensorLike | None = None, scale_diag: TensorLike | None = None,
        scale_identity_multiplier: TensorLike | None = None, validate_args: bool = False, allow_nan_stats: bool = True,
        name: str = "MultivariateNormalDiag",
    ) -> None:  # fmt: skip
        super().__init__(loc, _scale(loc, scale_identity_multiplier, scale_diag), validate_args, name)


@export("tf.contrib.distributions.MultivariateNormalDiagWithSoftplusScale")
class MultivariateNormalDiagWithSoftplusScale(MultivariateNormalDiag):
    """`MultivariateNormalDiag` with ``softplus(scale_diag)``."""

    @keeps_arguments
    def __init__(
        self, loc: TensorLike, scale_diag: TensorLike, validate_args: bool = False, allow_nan_stats: bool = True,
        name: str = "MultivariateNormalDiagWithSoftplusScale",
    ) -> None:  # fmt: skip
        positive = softplus(convert_to_tensor(scale_diag, preferred_dtype="float32", name="scale_diag"))
        super().__init__(loc, positive, validate_args=validate_args, name=name)


@export("tf.contrib.distributions.MultivariateNormalDiagPlusLowRank")
class MultivariateNormalDiagPlusLowRank(_MultivariateNormal):
    """A normal distribution whose scale is a diagonal and a matrix of low rank.

    Args:
      loc, scale_diag, scale_identity_multiplier: as of `MultivariateNormalDiag`.
      scale_perturb_factor, scale_perturb_diag: ``V`` and ``D`` of ``V D V^T``, which is added to the scale.
    """

    @keeps_arguments
    def __init__(
        self, loc: TensorLike | None = None, scale_diag: TensorLike | None = None,
        scale_identity_multiplier: TensorLike | None = None, scale_perturb_factor: TensorLike | None = None,
        scale_perturb_diag: TensorLike | None = None, validate_args: bool = False, allow_nan_stats: bool = True,
        name: str = "MultivariateNormalDiagPlusLowRank",
    ) -> None:  # fmt: skip
        parts = (scale_identity_multiplier, scale_diag, None, scale_perturb_factor, scale_perturb_diag)
        super().__init__(loc, _scale(loc, *parts), validate_args, name)


@export("tf.contrib.distributions.MultivariateNormalTriL")
class MultivariateNormalTriL(_MultivariateNormal):
    """A normal distribution by a Cholesky factor (``tf.contrib.distributions.MultivariateNormalTriL``).

    Args:
      loc: the means ``[…, n]``.
      scale_tril: ``[…, n, n]``, lower triangular, with a diagonal without zeros.
    """

    @keeps_arguments
    def __init__(
        self, loc: TensorLike | None = None, scale_tril: TensorLike | None = None, validate_args: bool = False,
        allow_nan_stats: bool = True, name: str = "MultivariateNormalTriL",
    ) -> None:  # fmt: skip
        if loc is None and scale_tril is None:
            raise ValueError("Must specify one or both of `loc`, `scale_tril`.")
        super().__init__(loc, _scale(loc, None, None, scale_tril), validate_args, name)


@export("tf.contrib.distributions.MultivariateNormalFullCovariance")
class MultivariateNormalFullCovariance(MultivariateNormalTriL):
    """A normal distribution by its covariance (``tf.contrib.distributions.MultivariateNormalFullCovariance``).

    Args:
      loc: the means ``[…, n]``.
      covariance_matrix: ``[…, n, n]``.
    """

    @keeps_arguments
    def __init__(
        self, loc: TensorLike | None = None, covariance_matrix: TensorLike | None = None, validate_args: bool = False,
        allow_nan_stats: bool = True, name: str = "MultivariateNormalFullCovariance",
    ) -> None:  # fmt: skip
        tril = None
        if covariance_matrix is not None:
            tril = cholesky(convert_to_tensor(covariance_matrix, preferred_dtype="float32", name="covariance_matrix"))
        super().__init__(loc, tril, validate_args, name=name)


@export("tf.contrib.distributions.VectorExponentialDiag")
class VectorExponentialDiag(_Affine):
    """``loc + scale @ z`` with exponential variables (``tf.contrib.distributions.VectorExponentialDiag``)."""

    _mean_of_number = 1.0

    @keeps_arguments
    def __init__(
        self, loc: TensorLike | None = None, scale_diag: TensorLike | None = None,
        scale_identity_multiplier: TensorLike | None = None, validate_args: bool = False, allow_nan_stats: bool = True,
        name: str = "VectorExponentialDiag",
    ) -> None:  # fmt: skip
        scale = _scale(loc, scale_identity_multiplier, scale_diag)
        super().__init__(Exponential(ones([], scale.dtype)), loc, scale, validate_args, name)


@export("tf.contrib.distributions.VectorLaplaceDiag")
class VectorLaplaceDiag(_Affine):
    """``loc + scale @ z`` with Laplace's variables (``tf.contrib.distributions.VectorLaplaceDiag``)."""

    _variance_of_number = 2.0

    @keeps_arguments
    def __init__(
        self, loc: TensorLike | None = None, scale_diag: TensorLike | None = None,
        scale_identity_multiplier: TensorLike | None = None, validate_args: bool = False, allow_nan_stats: bool = True,
        name: str = "VectorLaplaceDiag",
    ) -> None:  # fmt: skip
        scale = _scale(loc, scale_identity_multiplier, scale_diag)
        zero = zeros([], scale.dtype)
        super().__init__(Laplace(zero, zero + 1.0), loc, scale, validate_args, name)


@RegisterKL(_MultivariateNormal, _MultivariateNormal)
def _normal_divergence(a: Any, b: Any) -> Any:
    size = cast(b.scale.domain_dimension_tensor(), b.dtype)
    ratio = b.scale.solve(a.scale.to_dense())
    distance = b.scale.solve(expand_dims(b.mean() - a.mean(), -1))
    squares = reduce_sum(square(ratio), [-2, -1]) + reduce_sum(square(distance), [-2, -1])
    return b.scale.log_abs_determinant() - a.scale.log_abs_determinant() + 0.5 * (squares - size)
