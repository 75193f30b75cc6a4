"""Discrete distributions of ``tf.distributions``, and the two over their probabilities."""

from __future__ import annotations

import math
from typing import Any

from tfmini import dtypes
from tfmini.core_types import DTypeLike, TensorLike
from tfmini.export import export
from tfmini.graph.conversion import convert_to_tensor
from tfmini.graph.operation import Tensor
from tfmini.graph.scoping import count_ops, counted_as
from tfmini.layers.distributions import (
    FULLY_REPARAMETERIZED,
    NOT_REPARAMETERIZED,
    Distribution,
    RegisterKL,
    ScalarDistribution,
    filled,
    pair,
)
from tfmini.ops.array.diagonals import matrix_set_diag
from tfmini.ops.array.filling import ones_like, zeros
from tfmini.ops.array.identity import cast, identity
from tfmini.ops.array.joining import concat, stack
from tfmini.ops.array.layout import transpose
from tfmini.ops.array.partition import one_hot, sequence_mask, where
from tfmini.ops.array.shape import expand_dims, reshape
from tfmini.ops.array.shape import shape as shape_of
from tfmini.ops.math.comparison import less
from tfmini.ops.math.elementwise import minimum
from tfmini.ops.math.matmul import matmul
from tfmini.ops.math.reductions import argmax, reduce_max, reduce_min, reduce_sum
from tfmini.ops.math.special import betainc, lbeta
from tfmini.ops.math.unary import digamma, exp, lgamma, log, log1p, rsqrt, sigmoid
from tfmini.ops.nn.activation import softplus
from tfmini.ops.nn.cross_entropy import log_softmax, sigmoid_cross_entropy_with_logits, softmax
from tfmini.ops.random_functions import gen_new_seed, multinomial, random_gamma, random_uniform


def one_of(logits: TensorLike | None, probs: TensorLike | None) -> None:
    if (logits is None) == (probs is None):
        raise ValueError("Must pass probs or logits, but not both.")


@export("tf.distributions.Bernoulli", "tf.contrib.distributions.Bernoulli")
class Bernoulli(Distribution):
    """0 or 1 (``tf.distributions.Bernoulli``).

    Args:
      logits, probs: one of the two: the log-odds or the probability of 1.
      dtype: of the samples.
    """

    _shaped = ("logits",)

    def __init__(
        self, logits: TensorLike | None = None, probs: TensorLike | None = None, dtype: DTypeLike = dtypes.int32,
        validate_args: bool = False, allow_nan_stats: bool = True, name: str = "Bernoulli",
    ) -> None:  # fmt: skip
        parameters = dict(locals())
        one_of(logits, probs)
        if probs is None:
            self.logits = convert_to_tensor(logits, preferred_dtype=dtypes.float32, name="logits")
            self.probs = sigmoid(self.logits)
        else:
            self.probs = convert_to_tensor(probs, preferred_dtype=dtypes.float32, name="probs")
            self.logits = log(self.probs) - log1p(-self.probs)
            count_ops(1)
        super().__init__(
            dtype, NOT_REPARAMETERIZED, validate_args, allow_nan_stats, parameters, [self.logits, self.probs], name
        )

    def _batch_shape(self) -> Any:
        return self.logits.shape

    def _batch_shape_tensor(self) -> Any:
        return shape_of(self.logits)

    def _sample_n(self, n: Tensor | int, seed: int | None = None) -> Any:
        sizes = concat([[n], self.batch_shape_tensor()], 0)
        return cast(less(random_uniform(sizes, dtype=self.probs.dtype, seed=seed), self.probs), self.dtype)

    def _log_prob(self, event: Tensor) -> Any:
        event = cast(event, self.logits.dtype)
        labels, logits = event * ones_like(self.logits), self.logits * ones_like(event)
        return -sigmoid_cross_entropy_with_logits(labels=labels, logits=logits)

    def _entropy(self) -> Any:
        return -self.logits * (sigmoid(self.logits) - 1.0) + softplus(-self.logits)

    def _mean(self) -> Any:
        return self.probs + 0.0

    def _variance(self) -> Any:
        return self._mean() * (1.0 - self.probs)

    def _mode(self) -> Any:
        return cast(less(0.5, self.probs), self.dtype)


class Classes(Distribution):
    def __init__(
        self, logits: TensorLike | None, probs: TensorLike | None, dtype: DTypeLike | None, parameters: dict[str, Any]
    ) -> None:
        one_of(logits, probs)
        if probs is None:
            self.logits = convert_to_tensor(logits, preferred_dtype=dtypes.float32, name="logits")
            self.probs = softmax(self.logits)
        else:
            self.probs = convert_to_tensor(probs, preferred_dtype=dtypes.float32, name="probs")
            self.logits = log(self.probs)
        super().__init__(
            dtype or self.logits.dtype, NOT_REPARAMETERIZED, parameters["validate_args"],
            parameters["allow_nan_stats"], parameters, [self.logits, self.probs], parameters["name"],
        )  # fmt: skip

    @property
    def event_size(self) -> Any:
        """The number of classes, a scalar tensor."""
        known = self.logits.shape.as_list()[-1]
        return shape_of(self.logits)[-1] if known is None else convert_to_tensor(known)

    def _batch_shape(self) -> Any:
        return self.logits.shape[:-1]

    def _batch_shape_tensor(self) -> Any:
        return shape_of(self.logits)[:-1]

    def _entropy_of_class(self) -> Any:
        return -reduce_sum(log_softmax(self.logits) * softmax(self.logits), -1)


@export("tf.distributions.Categorical", "tf.contrib.distributions.Categorical")
class Categorical(Classes):
    """A class number (``tf.distributions.Categorical``).

    Args:
      logits, probs: one of the two, ``[…, classes]``: unnormalised log-probabilities, or probabilities.
      dtype: of the samples.
    """

    def __init__(
        self, logits: TensorLike | None = None, probs: TensorLike | None = None, dtype: DTypeLike = dtypes.int32,
        validate_args: bool = False, allow_nan_stats: bool = True, name: str = "Categorical",
    ) -> None:  # fmt: skip
        super().__init__(logits, probs, dtype, dict(locals()))
        classes = self.logits.shape.as_list()[-1]
        with counted_as((3 if classes else 8) + (1 if self.batch_shape.is_fully_defined() else 4)):
            self._event_size, self._batch = super().event_size, super()._batch_shape_tensor()

    @property
    def event_size(self) -> Any:
        """The number of classes, a scalar tensor."""
        return self._event_size

    def _batch_shape_tensor(self) -> Any:
        return identity(self._batch)

    def _sample_n(self, n: Tensor | int, seed: int | None = None) -> Any:
        flat = self.logits if self.logits.shape.ndims == 2 else reshape(self.logits, [-1, self.event_size])
        drawn = transpose(multinomial(flat, n, seed=seed, output_dtype=dtypes.int32), [1, 0])
        return cast(reshape(drawn, concat([[n], self.batch_shape_tensor()], 0)), self.dtype)

    def _log_prob(self, k: Tensor) -> Any:
        chosen = one_hot(cast(k, dtypes.int32), self.event_size, dtype=self.logits.dtype)
        return reduce_sum(log_softmax(self.logits) * chosen, -1)

    def _cdf(self, k: Tensor) -> Any:
        below = sequence_mask(cast(k, dtypes.int32), self.event_size, dtype=self.probs.dtype)
        return reduce_sum(self.probs * below, -1)

    def _entropy(self) -> Any:
        return self._entropy_of_class()

    def _mode(self) -> Any:
        return cast(argmax(self.logits, -1), self.dtype)


@export("tf.distributions.Multinomial", "tf.contrib.distributions.Multinomial")
class Multinomial(Classes):
    """The counts of classes in several draws (``tf.distributions.Multinomial``).

    Args:
      total_count: the number of draws, of any shape that broadcasts with the batch of ``logits``.
      logits, probs: as in `Categorical`.
    """

    def __init__(
        self, total_count: TensorLike, logits: TensorLike | None = None, probs: TensorLike | None = None,
        validate_args: bool = False, allow_nan_stats: bool = True, name: str = "Multinomial",
    ) -> None:  # fmt: skip
        super().__init__(logits, probs, None, dict(locals()))
        self.total_count = convert_to_tensor(total_count, self.logits.dtype, name="total_count")

    def _batch_shape(self) -> Any:
        return self._mean().shape[:-1]

    def _batch_shape_tensor(self) -> Any:
        return shape_of(self._mean())[:-1]

    def _event_shape(self) -> Any:
        return self.logits.shape[-1:]

    def _event_shape_tensor(self) -> Any:
        return shape_of(self.logits)[-1:]

    def _sample_n(self, n: Tensor | int, seed: int | None = None) -> Any:
        """Draws as many classes for each distribution as the one with the most draws needs, and counts its own."""
        whole = shape_of(self._mean())
        logits = reshape(self.logits + zeros(whole, self.dtype), [-1, self.event_size])
        own = cast(reshape(self.total_count + zeros(whole[:-1], self.dtype), [-1]), dtypes.int32)
        most = reduce_max(own)
        drawn = multinomial(logits, n * most, seed=seed, output_dtype=dtypes.int32)
        chosen = one_hot(reshape(drawn, stack([-1, n, most])), self.event_size, dtype=self.dtype)
        counted = sequence_mask(own, most, dtype=self.dtype)
        counts = reduce_sum(chosen * expand_dims(expand_dims(counted, 1), -1), 2)
        return reshape(transpose(counts, [1, 0, 2]), concat([[n], whole], 0))

    def _log_prob(self, counts: Tensor) -> Any:
        ways = lgamma(self.total_count + 1.0) - reduce_sum(lgamma(counts + 1.0), -1)
        return reduce_sum(counts * log_softmax(self.logits), -1) + ways

    def _mean(self) -> Any:
        return expand_dims(self.total_count, -1) * self.probs

    def _variance(self) -> Any:
        return self._mean() * (1.0 - self.probs)

    def _covariance(self) -> Any:
        probs = self.probs * ones_like(expand_dims(self.total_count, -1))
        return matrix_set_diag(-matmul(expand_dims(self._mean(), -1), expand_dims(probs, -2)), self._variance())


@RegisterKL(Bernoulli, Bernoulli)
def _bernoulli_divergence(a: Bernoulli, b: Bernoulli) -> Any:
    zero = softplus(-b.logits) - softplus(-a.logits)
    one = softplus(b.logits) - softplus(a.logits)
    return sigmoid(a.logits) * zero + sigmoid(-a.logits) * one


@RegisterKL(Categorical, Categorical)
def _categorical_divergence(a: Categorical, b: Categorical) -> Any:
    return reduce_sum(softmax(a.logits) * (log_softmax(a.logits) - log_softmax(b.logits)), -1)


# ---- The beta and the Dirichlet distribution of ``tf.distributions`` -----------------------------------------------


@export("tf.distributions.Beta", "tf.contrib.distributions.Beta")
class Beta(ScalarDistribution):
    """The beta distribution (``tf.distributions.Beta``)."""

    _shaped = ("concentration1", "concentration0")

    def __init__(
        self, concentration1: Any = None, concentration0: Any = None, validate_args: bool = False,
        allow_nan_stats: bool = True, name: str = "Beta",
    ) -> None:  # fmt: skip
        parameters = dict(locals())
        self.concentration1, self.concentration0 = pair(concentration1, concentration0, ("a", "b"))
        self.total_concentration = self.concentration1 + self.concentration0
        super().__init__(parameters, self.concentration1, self.concentration0)

    def _sample_n(self, n: Tensor | int, seed: int | None = None) -> Any:
        a = random_gamma([n], filled(self.concentration1, self.concentration0), dtype=self.dtype, seed=seed)
        other = gen_new_seed(seed, "beta")
        b = random_gamma([n], filled(self.concentration0, self.concentration1), dtype=self.dtype, seed=other)
        return a / (a + b)

    def _log_norm(self) -> Any:
        return lgamma(self.concentration1) + lgamma(self.concentration0) - lgamma(self.total_concentration)

    def _log_prob(self, x: Tensor) -> Any:
        return (self.concentration1 - 1.0) * log(x) + (self.concentration0 - 1.0) * log1p(-x) - self._log_norm()

    def _cdf(self, x: Tensor) -> Any:
        a, b = filled(self.concentration1, self.concentration0, x), filled(self.concentration0, self.concentration1, x)
        return betainc(a, b, x * ones_like(a))

    def _entropy(self) -> Any:
        a, b, total = self.concentration1, self.concentration0, self.total_concentration
        return self._log_norm() - (a - 1.0) * digamma(a) - (b - 1.0) * digamma(b) + (total - 2.0) * digamma(total)

    def _mean(self) -> Any:
        return self.concentration1 / self.total_concentration

    def _variance(self) -> Any:
        return self._mean() * (1.0 - self._mean()) / (1.0 + self.total_concentration)

    def _mode(self) -> Any:
        found = (self.concentration1 - 1.0) / (self.total_concentration - 2.0)
        least = minimum(self.concentration1, self.concentration0)
        return where(less(1.0, least), found, math.nan * ones_like(found))


@export("tf.distributions.Dirichlet", "tf.contrib.distributions.Dirichlet")
class Dirichlet(Distribution):
    """The Dirichlet distribution (``tf.distributions.Dirichlet``).

    Args:
      concentration: ``[…, classes]``.
    """

    def __init__(
        self,
        concentration: TensorLike,
        validate_args: bool = False,
        allow_nan_stats: bool = True,
        name: str = "Dirichlet",
    ) -> None:
        parameters = dict(locals())
        self.concentration = convert_to_tensor(concentration, preferred_dtype="float32", name="concentration")
        self.total_concentration = reduce_sum(self.concentration, -1)
        super().__init__(
            self.concentration.dtype, FULLY_REPARAMETERIZED, validate_args, allow_nan_stats, parameters,
            [self.concentration], name,
        )  # fmt: skip

    def _batch_shape(self) -> Any:
        return self.total_concentration.shape

    def _event_shape(self) -> Any:
        return self.concentration.shape[-1:]

    def _batch_shape_tensor(self) -> Any:
        return shape_of(self.total_concentration)

    def _event_shape_tensor(self) -> Any:
        return shape_of(self.concentration)[-1:]

    def _sample_n(self, n: Tensor | int, seed: int | None = None) -> Any:
        drawn = random_gamma([n], self.concentration, dtype=self.dtype, seed=seed)
        return drawn / reduce_sum(drawn, -1, keepdims=True)

    def _log_prob(self, x: Tensor) -> Any:
        return reduce_sum((self.concentration - 1.0) * log(x), -1) - lbeta(self.concentration)

    def _entropy(self) -> Any:
        a, total = self.concentration, self.total_concentration
        count = exp(0.0 * total) * float(self.concentration.shape.as_list()[-1] or 0)
        return lbeta(a) + (total - count) * digamma(total) - reduce_sum((a - 1.0) * digamma(a), -1)

    def _mean(self) -> Any:
        return self.concentration / reduce_sum(self.concentration, -1, keepdims=True)

    def _variance(self) -> Any:
        total = reduce_sum(self.concentration, -1, keepdims=True)
        return self._mean() * (1.0 - self._mean()) / (1.0 + total)

    def _covariance(self) -> Any:
        part = self._mean() * rsqrt(1.0 + reduce_sum(self.concentration, -1, keepdims=True))
        return matrix_set_diag(-matmul(expand_dims(part, -1), expand_dims(part, -2)), self._variance())

    def _mode(self) -> Any:
        rest = self.concentration - 1.0
        found = rest / reduce_sum(rest, -1, keepdims=True)
        least = reduce_min(self.concentration, -1, keepdims=True) * ones_like(found)
        return where(less(1.0, least), found, math.nan * ones_like(found))


@RegisterKL(Dirichlet, Dirichlet)
def _dirichlet_divergence(a: Dirichlet, b: Dirichlet) -> Any:
    total = reduce_sum(a.concentration, -1, keepdims=True)
    slopes = digamma(a.concentration) - digamma(total)
    norms = lbeta(b.concentration) - lbeta(a.concentration)
    return reduce_sum((a.concentration - b.concentration) * slopes, -1) + norms


@RegisterKL(Beta, Beta)
def _beta_divergence(a: Beta, b: Beta) -> Any:
    return (
        b._log_norm() - a._log_norm()
        + (a.concentration1 - b.concentration1) * digamma(a.concentration1)
        + (a.concentration0 - b.concentration0) * digamma(a.concentration0)
        + (b.total_concentration - a.total_concentration) * digamma(a.total_concentration)
    )  # fmt: skip
