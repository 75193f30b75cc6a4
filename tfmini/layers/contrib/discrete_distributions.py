"""Distributions of ``tf.contrib.distributions`` of whole numbers, of one value and of vectors of classes."""

from __future__ import annotations

from typing import Any

from tfmini import dtypes
from tfmini.core_types import DTypeLike, TensorLike
from tfmini.export import export
from tfmini.graph.conversion import convert_to_tensor
from tfmini.graph.operation import Tensor
from tfmini.layers.contrib.distributions import tensor_of
from tfmini.layers.discrete_distributions import Categorical, Classes, Dirichlet, Multinomial, one_of
from tfmini.layers.distributions import (
    FULLY_REPARAMETERIZED,
    NOT_REPARAMETERIZED,
    Distribution,
    RegisterKL,
    ScalarDistribution,
    filled,
)
from tfmini.ops.array.diagonals import matrix_set_diag
from tfmini.ops.array.filling import ones_like, zeros, zeros_like
from tfmini.ops.array.identity import cast, identity
from tfmini.ops.array.joining import concat
from tfmini.ops.array.partition import one_hot, where
from tfmini.ops.array.shape import expand_dims, reshape
from tfmini.ops.array.shape import shape as shape_of
from tfmini.ops.math.comparison import equal, greater, greater_equal, less, less_equal
from tfmini.ops.math.matmul import matmul
from tfmini.ops.math.reductions import argmax, reduce_all, reduce_sum
from tfmini.ops.math.special import betainc, igammac, lbeta
from tfmini.ops.math.unary import (
    abs,
    exp,
    floor,
    lgamma,
    log,
    log1p,
    sigmoid,
)
from tfmini.ops.nn.activation import softplus
from tfmini.ops.nn.cross_entropy import log_softmax
from tfmini.ops.random_functions import gen_new_seed, random_gamma, random_poisson, random_uniform


def _logits_of(logits: TensorLike | None, probs: TensorLike | None) -> tuple[Tensor, Tensor]:
    """The log-odds and the probabilities, of which one is given."""
    one_of(logits, probs)
    if probs is None:
        found = tensor_of(logits, "logits")  # type: ignore[arg-type]  # one of the two is given
        return found, sigmoid(found)
    given = tensor_of(probs, "probs")
    return log(given) - log1p(-given), given


# ---- counts --------------------------------------------------------------------------------------------------------


class _Counts(ScalarDistribution):
    """Distributions of whole numbers, as floats."""

    def __init__(self, parameters: dict[str, Any], *tensors: Tensor) -> None:
        super().__init__(parameters, *tensors)
        self._reparameterization_type = NOT_REPARAMETERIZED


@export("tf.contrib.distributions.Poisson")
class Poisson(_Counts):
    """The Poisson distribution (``tf.contrib.distributions.Poisson``).

    Args:
      rate, log_rate: one of the two.
    """

    def __init__(
        self, rate: TensorLike | None = None, log_rate: TensorLike | None = None, validate_args: bool = False,
        allow_nan_stats: bool = True, name: str = "Poisson",
    ) -> None:  # fmt: skip
        parameters = dict(locals())
        if (rate is None) == (log_rate is None):
            raise ValueError("Must specify exactly one of `rate` and `log_rate`.")
        if rate is None:
            self.log_rate = tensor_of(log_rate, "log_rate")  # type: ignore[arg-type]  # one of the two is given
            self.rate = exp(self.log_rate)
        else:
            self.rate = tensor_of(rate, "rate")
            self.log_rate = log(self.rate)
        super().__init__(parameters, self.rate)

    def _sample_n(self, n: Tensor | int, seed: int | None = None) -> Any:
        return random_poisson(self.rate, [n], dtype=self.dtype, seed=seed)

    def _log_prob(self, x: Tensor) -> Any:
        return x * self.log_rate - lgamma(1.0 + x) - self.rate

    def _cdf(self, x: Tensor) -> Any:
        return igammac(filled(floor(x) + 1.0, self.rate), filled(self.rate, x))

    def _mean(self) -> Any:
        return identity(self.rate)

    _variance = _mean

    def _mode(self) -> Any:
        return floor(self.rate)


@export("tf.contrib.distributions.Geometric")
class Geometric(_Counts):
    """How often something fails before it succeeds (``tf.contrib.distributions.Geometric``).

    Args:
      logits, probs: one of the two: the log-odds or the probability of success.
    """

    def __init__(
        self, logits: TensorLike | None = None, probs: TensorLike | None = None, validate_args: bool = False,
        allow_nan_stats: bool = True, name: str = "Geometric",
    ) -> None:  # fmt: skip
        parameters = dict(locals())
        self.logits, self.probs = _logits_of(logits, probs)
        super().__init__(parameters, self.probs)

    def _sample_n(self, n: Tensor | int, seed: int | None = None) -> Any:
        u = random_uniform(self._sizes(n), 1e-37, 1.0, self.dtype, seed=seed)
        return floor(log(u) / log1p(-self.probs))

    def _log_prob(self, x: Tensor) -> Any:
        count = floor(x) + zeros_like(self.probs)
        failing = where(equal(count, 0.0), zeros_like(count), filled(log1p(-self.probs), x))
        return count * failing + log(self.probs)

    def _cdf(self, x: Tensor) -> Any:
        count = floor(x) + zeros_like(self.probs)
        found = 1.0 - (1.0 - self.probs) ** (1.0 + count)
        return where(less(filled(x, self.probs), 0.0), zeros_like(found), found)

    def _entropy(self) -> Any:
        p = self.probs
        return (-(1.0 - p) * log1p(-p) - p * log(p)) / p

    def _mean(self) -> Any:
        return exp(-self.logits)

    def _variance(self) -> Any:
        return self._mean() / self.probs

    def _mode(self) -> Any:
        return zeros_like(self.probs)


@export("tf.contrib.distributions.NegativeBinomial")
class NegativeBinomial(_Counts):
    """The successes before so many failures (``tf.contrib.distributions.NegativeBinomial``).

    Args:
      total_count: the number of failures, a float.
      logits, probs: one of the two: the log-odds or the probability of success.
    """

    def __init__(
        self, total_count: TensorLike, logits: TensorLike | None = None, probs: TensorLike | None = None,
        validate_args: bool = False, allow_nan_stats: bool = True, name: str = "NegativeBinomial",
    ) -> None:  # fmt: skip
        parameters = dict(locals())
        self.logits, self.probs = _logits_of(logits, probs)
        self.total_count = convert_to_tensor(total_count, self.logits.dtype, name="total_count")
        super().__init__(parameters, self.total_count, self.probs)

    def _sample_n(self, n: Tensor | int, seed: int | None = None) -> Any:
        count = filled(self.total_count, self.probs)
        rate = random_gamma([n], count, exp(-self.logits), self.dtype, seed)
        return random_poisson(rate, [], dtype=self.dtype, seed=gen_new_seed(seed, "negative_binom"))

    def _log_prob(self, x: Tensor) -> Any:
        n = self.total_count
        ways = lgamma(n + x) - lgamma(1.0 + x) - lgamma(n)
        return ways - n * softplus(self.logits) - x * softplus(-self.logits)

    def _cdf(self, x: Tensor) -> Any:
        n = filled(self.total_count, self.probs, x)
        return betainc(n, filled(1.0 + x, n), filled(sigmoid(-self.logits), n))

    def _mean(self) -> Any:
        return self.total_count * exp(self.logits)

    def _variance(self) -> Any:
        return self._mean() / sigmoid(-self.logits)

    def _mode(self) -> Any:
        count = filled(self.total_count, self.probs)
        return floor(where(greater(count, 1.0), (count - 1.0) * exp(self.logits), zeros_like(count)))


@export("tf.contrib.distributions.Binomial")
class Binomial(_Counts):
    """The successes in so many trials (``tf.contrib.distributions.Binomial``). As in TensorFlow, it has no samples.

    Args:
      total_count: the number of trials, a float.
      logits, probs: one of the two: the log-odds or the probability of success.
    """

    def __init__(
        self, total_count: TensorLike, logits: TensorLike | None = None, probs: TensorLike | None = None,
        validate_args: bool = False, allow_nan_stats: bool = True, name: str = "Binomial",
    ) -> None:  # fmt: skip
        parameters = dict(locals())
        self.logits, self.probs = _logits_of(logits, probs)
        self.total_count = convert_to_tensor(total_count, self.logits.dtype, name="total_count")
        super().__init__(parameters, self.total_count, self.probs)

    def _log_prob(self, counts: Tensor) -> Any:
        n = self.total_count
        ways = lgamma(1.0 + n) - lgamma(1.0 + n - counts) - lgamma(1.0 + counts)
        return counts * log(self.probs) + (n - counts) * log1p(-self.probs) + ways

    def _cdf(self, counts: Tensor) -> Any:
        n = filled(self.total_count, self.probs, counts)
        whole = filled(floor(counts), n)
        inside = where(less(whole, n), n - whole, ones_like(n))
        found = betainc(inside, whole + 1.0, filled(1.0 - self.probs, n))
        return where(less(whole, n), found, ones_like(n))

    def _mean(self) -> Any:
        return self.total_count * self.probs

    def _variance(self) -> Any:
        return self._mean() * (1.0 - self.probs)

    def _mode(self) -> Any:
        return floor((1.0 + self.total_count) * self.probs)


# ---- one value -----------------------------------------------------------------------------------------------------


@export("tf.contrib.distributions.Deterministic")
class Deterministic(Distribution):
    """Always the same number (``tf.contrib.distributions.Deterministic``).

    Args:
      loc: the number.
      atol, rtol: how far from it a value may be, absolutely and relatively; default 0.
    """

    _event_ndims = 0

    def __init__(
        self, loc: TensorLike, atol: TensorLike | None = None, rtol: TensorLike | None = None,
        validate_args: bool = False, allow_nan_stats: bool = True, name: str = "Deterministic",
    ) -> None:  # fmt: skip
        parameters = dict(locals())
        self.loc = convert_to_tensor(loc, name="loc")
        self.atol = convert_to_tensor(0 if atol is None else atol, self.loc.dtype, name="atol")
        self.rtol = convert_to_tensor(0 if rtol is None else rtol, self.loc.dtype, name="rtol")
        super().__init__(
            self.loc.dtype, NOT_REPARAMETERIZED, validate_args, allow_nan_stats, parameters,
            [self.loc, self.atol, self.rtol], name,
        )  # fmt: skip

    def _slack(self) -> Any:
        return self.atol + self.rtol * abs(self.loc)

    def _batch_shape(self) -> Any:
        return self.loc.shape[: self.loc.shape.ndims - self._event_ndims]  # type: ignore[operator]

    def _batch_shape_tensor(self) -> Any:
        sizes = shape_of(self.loc)
        return sizes[: -self._event_ndims] if self._event_ndims else sizes

    def _event_shape(self) -> Any:
        return self.loc.shape[self.loc.shape.ndims - self._event_ndims :]  # type: ignore[operator]

    def _event_shape_tensor(self) -> Any:
        return shape_of(self.loc)[-self._event_ndims :] if self._event_ndims else convert_to_tensor([], dtypes.int32)

    def _sample_n(self, n: Tensor | int, seed: int | None = None) -> Any:
        return self.loc + zeros(concat([[n], shape_of(self.loc)], 0), self.dtype)

    def _prob(self, x: Tensor) -> Any:
        return cast(self._is_near(x), dtypes.float32 if self.dtype.is_integer else self.dtype)

    def _is_near(self, x: Tensor) -> Any:
        return less_equal(abs(x - self.loc), self._slack())

    def _cdf(self, x: Tensor) -> Any:
        return cast(greater_equal(x, self.loc - self._slack()), self.dtype)

    def _entropy(self) -> Any:
        return zeros(self.batch_shape_tensor(), self.dtype)

    def _mean(self) -> Any:
        return identity(self.loc)

    _mode = _mean

    def _variance(self) -> Any:
        return zeros_like(self.loc)


@export("tf.contrib.distributions.VectorDeterministic")
class VectorDeterministic(Deterministic):
    """Always the same vector (``tf.contrib.distributions.VectorDeterministic``)."""

    _event_ndims = 1

    def __init__(
        self, loc: TensorLike, atol: TensorLike | None = None, rtol: TensorLike | None = None,
        validate_args: bool = False, allow_nan_stats: bool = True, name: str = "VectorDeterministic",
    ) -> None:  # fmt: skip
        super().__init__(loc, atol, rtol, validate_args, allow_nan_stats, name)

    def _is_near(self, x: Tensor) -> Any:
        return reduce_all(super()._is_near(x), -1)

    _cdf = None  # type: ignore[assignment]  # vectors have no order


# ---- vectors of classes --------------------------------------------------------------------------------------------


class _Vectors(Classes):
    """An element for each class."""

    def _event_shape(self) -> Any:
        return self.logits.shape[-1:]

    def _event_shape_tensor(self) -> Any:
        return shape_of(self.logits)[-1:]


@export("tf.contrib.distributions.OneHotCategorical")
class OneHotCategorical(_Vectors):
    """A class as a vector with one 1 (``tf.contrib.distributions.OneHotCategorical``).

    Args:
      logits, probs: one of the two, ``[…, classes]``.
      dtype: of the samples.
    """

    def __init__(
        self, logits: TensorLike | None = None, probs: TensorLike | None = None, dtype: DTypeLike = dtypes.int32,
        validate_args: bool = False, allow_nan_stats: bool = True, name: str = "OneHotCategorical",
    ) -> None:  # fmt: skip
        super().__init__(logits, probs, dtype, dict(locals()))

    def _sample_n(self, n: Tensor | int, seed: int | None = None) -> Any:
        drawn = Categorical(logits=self.logits).sample(reshape(n, [1]), seed)
        return one_hot(drawn, self.event_size, dtype=self.dtype)

    def _log_prob(self, x: Tensor) -> Any:
        return reduce_sum(cast(x, self.logits.dtype) * log_softmax(self.logits), -1)

    def _entropy(self) -> Any:
        return self._entropy_of_class()

    def _mode(self) -> Any:
        return one_hot(argmax(self.logits, -1), self.event_size, dtype=self.dtype)

    def _variance(self) -> Any:
        return self.probs * (1.0 - self.probs)

    def _covariance(self) -> Any:
        p = self.probs
        return matrix_set_diag(-matmul(expand_dims(p, -1), expand_dims(p, -2)), self._variance())


@export("tf.contrib.distributions.ExpRelaxedOneHotCategorical")
class ExpRelaxedOneHotCategorical(_Vectors):
    """The logarithm of `RelaxedOneHotCategorical` (``tf.contrib.distributions.ExpRelaxedOneHotCategorical``).

    Args:
      temperature: a scalar; the nearer to 0, the nearer samples are to one class.
      logits, probs: one of the two, ``[…, classes]``.
      dtype: of the samples; default: that of the logits.
    """

    def __init__(
        self, temperature: TensorLike, logits: TensorLike | None = None, probs: TensorLike | None = None,
        dtype: DTypeLike | None = None, validate_args: bool = False, allow_nan_stats: bool = True,
        name: str = "ExpRelaxedOneHotCategorical",
    ) -> None:  # fmt: skip
        super().__init__(logits, probs, dtype, dict(locals()))
        self.temperature = convert_to_tensor(temperature, self.logits.dtype, name="temperature")
        self._reparameterization_type = FULLY_REPARAMETERIZED

    def _by_class(self) -> Tensor:
        """The temperature, with an axis for the classes where it has a batch."""
        return expand_dims(self.temperature, -1) if self.temperature.shape.ndims else self.temperature

    def _sample_n(self, n: Tensor | int, seed: int | None = None) -> Any:
        least = float(self.logits.dtype.as_numpy_dtype(1e-37))
        u = random_uniform(concat([[n], shape_of(self.logits)], 0), least, 1.0, self.logits.dtype, seed=seed)
        return cast(log_softmax((self.logits - log(-log(u))) / self._by_class()), self.dtype)

    def _log_prob(self, x: Tensor) -> Any:
        size = cast(self.event_size, self.logits.dtype)
        norm = lgamma(size) + (size - 1.0) * log(self.temperature)
        return reduce_sum(log_softmax(self.logits - x * self._by_class()), -1) + norm


@export("tf.contrib.distributions.DirichletMultinomial", "tf.distributions.DirichletMultinomial")
class DirichletMultinomial(Distribution):
    """Counts of classes whose probabilities are drawn first (``tf.distributions.DirichletMultinomial``).

    Args:
      total_count: the number of draws, a float, ``[…]``.
      concentration: of the Dirichlet distribution, ``[…, classes]``.
    """

    def __init__(
        self, total_count: TensorLike, concentration: TensorLike, validate_args: bool = False,
        allow_nan_stats: bool = True, name: str = "DirichletMultinomial",
    ) -> None:  # fmt: skip
        parameters = dict(locals())
        self.concentration = tensor_of(concentration, "concentration")
        self.total_count = convert_to_tensor(total_count, self.concentration.dtype, name="total_count")
        self.total_concentration = reduce_sum(self.concentration, -1)
        super().__init__(
            self.concentration.dtype, NOT_REPARAMETERIZED, validate_args, allow_nan_stats, parameters,
            [self.total_count, self.concentration], name,
        )  # fmt: skip

    def _batch_shape(self) -> Any:
        return self._mean().shape[:-1]

    def _batch_shape_tensor(self) -> Any:
        return shape_of(self._mean())[:-1]

    def _event_shape(self) -> Any:
        return self.concentration.shape[-1:]

    def _event_shape_tensor(self) -> Any:
        return shape_of(self.concentration)[-1:]

    def _sample_n(self, n: Tensor | int, seed: int | None = None) -> Any:
        probs = Dirichlet(filled(self.concentration, self._mean())).sample(reshape(n, [1]), seed)
        return Multinomial(self.total_count, probs=probs).sample(seed=gen_new_seed(seed, "dirichlet_multinomial"))

    def _log_prob(self, counts: Tensor) -> Any:
        ways = lgamma(self.total_count + 1.0) - reduce_sum(lgamma(counts + 1.0), -1)
        return lbeta(self.concentration + counts) - lbeta(self.concentration) + ways

    def _mean(self) -> Any:
        return expand_dims(self.total_count, -1) * self._share()

    def _share(self) -> Tensor:
        return self.concentration / expand_dims(self.total_concentration, -1)

    def _spread(self) -> Tensor:
        total = self.total_concentration
        return expand_dims((self.total_count + total) / (1.0 + total), -1)

    def _variance(self) -> Any:
        return self._mean() * (1.0 - self._share()) * self._spread()

    def _covariance(self) -> Any:
        part = self._mean() * self._spread()
        share = self._share() * ones_like(part)
        return matrix_set_diag(-matmul(expand_dims(part, -1), expand_dims(share, -2)), self._variance())


@RegisterKL(OneHotCategorical, OneHotCategorical)
def _one_hot_divergence(a: OneHotCategorical, b: OneHotCategorical) -> Any:
    logs = log_softmax(a.logits)
    return reduce_sum(exp(logs) * (logs - log_softmax(b.logits)), -1)
