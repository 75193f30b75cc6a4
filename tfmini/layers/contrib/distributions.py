"""Distributions of ``tf.contrib.distributions`` that ``tf.distributions`` lacks, by formulas of their parameters."""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable
from typing import Any

from tfmini import dtypes
from tfmini.core_types import TensorLike
from tfmini.export import export, export_names
from tfmini.graph.conversion import convert_to_tensor
from tfmini.graph.operation import Tensor
from tfmini.layers.discrete_distributions import Beta
from tfmini.layers.distributions import (
    NOT_REPARAMETERIZED,
    Exponential,
    Gamma,
    Laplace,
    Normal,
    ScalarDistribution,
    StudentT,
    filled,
    keeps_arguments,
    pair,
)
from tfmini.ops.array.diagonals import matrix_diag, matrix_diag_part, matrix_set_diag
from tfmini.ops.array.filling import ones_like, zeros_like
from tfmini.ops.array.gather import gather
from tfmini.ops.array.identity import cast, stop_gradient
from tfmini.ops.array.joining import concat
from tfmini.ops.array.layout import pad, transpose
from tfmini.ops.array.partition import where
from tfmini.ops.array.shape import reshape, squeeze
from tfmini.ops.array.shape import shape as shape_of
from tfmini.ops.math.comparison import greater, greater_equal, less
from tfmini.ops.math.reductions import reduce_logsumexp, reduce_max, reduce_sum
from tfmini.ops.math.search import sort
from tfmini.ops.math.special import igammac
from tfmini.ops.math.unary import (
    abs,
    atan,
    ceil,
    digamma,
    erf,
    exp,
    floor,
    lgamma,
    log,
    log1p,
    sigmoid,
    sign,
    square,
    tan,
)
from tfmini.ops.math.unary import round as rounded
from tfmini.ops.nn.activation import softplus
from tfmini.ops.random_functions import random_gamma, random_normal, random_uniform
from tfmini.shapes import known_rank


def tensor_of(value: TensorLike, name: str) -> Tensor:
    """A parameter, float32 where it says no dtype."""
    return convert_to_tensor(value, preferred_dtype="float32", name=name)


def _or_nan(holds: Tensor, value: Tensor) -> Tensor:
    return where(holds, value, math.nan * ones_like(value))


# ---- continuous distributions of scalars ---------------------------------------------------------------------------


class _LocationScale(ScalarDistribution):
    """``loc`` plus ``scale`` times a distribution without parameters."""

    _shaped: tuple[str, ...] = ("loc", "scale")

    def __init__(self, parameters: dict[str, Any]) -> None:
        self.loc, self.scale = pair(parameters["loc"], parameters["scale"], ("loc", "scale"))
        super().__init__(parameters, self.loc, self.scale)

    def _z(self, x: Tensor) -> Any:
        return (x - self.loc) / self.scale

    def _uniform(self, n: Tensor | int, seed: int | None) -> Any:
        least = float(self.dtype.as_numpy_dtype(1e-37 if self.dtype.size == 4 else 1e-300))
        return random_uniform(self._sizes(n), least, 1.0, self.dtype, seed=seed)


@export("tf.contrib.distributions.Cauchy")
class Cauchy(_LocationScale):
    """The Cauchy distribution (``tf.contrib.distributions.Cauchy``)."""

    def __init__(
        self, loc: TensorLike, scale: TensorLike, validate_args: bool = False, allow_nan_stats: bool = True,
        name: str = "Cauchy",
    ) -> None:  # fmt: skip
        super().__init__(dict(locals()))

    def _sample_n(self, n: Tensor | int, seed: int | None = None) -> Any:
        return self._quantile(self._uniform(n, seed))

    def _log_prob(self, x: Tensor) -> Any:
        return -log1p(square(self._z(x))) - (math.log(math.pi) + log(self.scale))

    def _cdf(self, x: Tensor) -> Any:
        return atan(self._z(x)) / math.pi + 0.5

    def _log_cdf(self, x: Tensor) -> Any:
        return log1p(2.0 / math.pi * atan(self._z(x))) - math.log(2.0)

    def _entropy(self) -> Any:
        return filled(math.log(4.0 * math.pi) + log(self.scale), self.loc)

    def _quantile(self, p: Tensor) -> Any:
        return self.loc + self.scale * tan(math.pi * (p - 0.5))

    def _mode(self) -> Any:
        return filled(self.loc, self.scale)

    def _mean(self) -> Any:
        if not self.allow_nan_stats:
            raise ValueError("`mean` is undefined for Cauchy distribution.")
        return math.nan * ones_like(self._mode())

    def _stddev(self) -> Any:
        if not self.allow_nan_stats:
            raise ValueError("`stddev` is undefined for Cauchy distribution.")
        return math.nan * ones_like(self._mode())


@export("tf.contrib.distributions.Logistic")
class Logistic(_LocationScale):
    """The logistic distribution (``tf.contrib.distributions.Logistic``)."""

    def __init__(
        self, loc: TensorLike, scale: TensorLike, validate_args: bool = False, allow_nan_stats: bool = True,
        name: str = "Logistic",
    ) -> None:  # fmt: skip
        super().__init__(dict(locals()))

    def _sample_n(self, n: Tensor | int, seed: int | None = None) -> Any:
        u = self._uniform(n, seed)
        return (log(u) - log1p(-u)) * self.scale + self.loc

    def _log_prob(self, x: Tensor) -> Any:
        z = self._z(x)
        return -z - 2.0 * softplus(-z) - log(self.scale)

    def _cdf(self, x: Tensor) -> Any:
        return sigmoid(self._z(x))

    def _log_cdf(self, x: Tensor) -> Any:
        return -softplus(-self._z(x))

    def _survival_function(self, x: Tensor) -> Any:
        return sigmoid(-self._z(x))

    def _log_survival_function(self, x: Tensor) -> Any:
        return -softplus(self._z(x))

    def _entropy(self) -> Any:
        return 2.0 + log(filled(self.scale, self.loc))

    def _mean(self) -> Any:
        return filled(self.loc, self.scale)

    _mode = _mean

    def _stddev(self) -> Any:
        return filled(self.scale, self.loc) * math.pi / math.sqrt(3.0)


@export("tf.contrib.distributions.HalfNormal")
class HalfNormal(ScalarDistribution):
    """The absolute value of a normal variable (``tf.contrib.distributions.HalfNormal``)."""

    _shaped: tuple[str, ...] = ("scale",)

    def __init__(
        self, scale: TensorLike, validate_args: bool = False, allow_nan_stats: bool = True, name: str = "HalfNormal"
    ) -> None:
        parameters = dict(locals())
        self.scale = tensor_of(scale, "scale")
        super().__init__(parameters, self.scale)

    def _sample_n(self, n: Tensor | int, seed: int | None = None) -> Any:
        return abs(random_normal(self._sizes(n), dtype=self.dtype, seed=seed) * self.scale)

    def _prob(self, x: Tensor) -> Any:
        density = math.sqrt(2.0 / math.pi) / self.scale * exp(-0.5 * square(x / self.scale))
        return density * cast(greater_equal(x, 0.0), self.dtype)

    def _cdf(self, x: Tensor) -> Any:
        positive = where(less(x, 0.0), zeros_like(x), x)
        return erf(positive / self.scale / math.sqrt(2.0))

    def _entropy(self) -> Any:
        return 0.5 * log(math.pi * square(self.scale) / 2.0) + 0.5

    def _mean(self) -> Any:
        return self.scale * math.sqrt(2.0 / math.pi)

    def _mode(self) -> Any:
        return zeros_like(self.scale)

    def _variance(self) -> Any:
        return square(self.scale) * (1.0 - 2.0 / math.pi)


@export("tf.contrib.distributions.Chi2")
class Chi2(Gamma):
    """The chi-squared distribution (``tf.contrib.distributions.Chi2``).

    Args:
      df: the degrees of freedom.
    """

    _shaped: tuple[str, ...] = ("df",)

    @keeps_arguments
    def __init__(
        self, df: TensorLike, validate_args: bool = False, allow_nan_stats: bool = True, name: str = "Chi2"
    ) -> None:
        self.df = tensor_of(df, "df")
        super().__init__(0.5 * self.df, convert_to_tensor(0.5, self.df.dtype), validate_args, allow_nan_stats, name)


@export("tf.contrib.distributions.InverseGamma")
class InverseGamma(ScalarDistribution):
    """The reciprocal of a gamma variable (``tf.contrib.distributions.InverseGamma``)."""

    _shaped: tuple[str, ...] = ("concentration", "rate")

    def __init__(
        self, concentration: TensorLike, rate: TensorLike, validate_args: bool = False, allow_nan_stats: bool = True,
        name: str = "InverseGamma",
    ) -> None:  # fmt: skip
        parameters = dict(locals())
        self.concentration, self.rate = pair(concentration, rate, ("concentration", "rate"))
        super().__init__(parameters, self.concentration, self.rate)
        self._reparameterization_type = NOT_REPARAMETERIZED  # as TensorFlow says; gradients flow all the same

    def _sample_n(self, n: Tensor | int, seed: int | None = None) -> Any:
        return 1.0 / random_gamma([n], filled(self.concentration, self.rate), self.rate, self.dtype, seed)

    def _log_prob(self, x: Tensor) -> Any:
        a = self.concentration
        return -(1.0 + a) * log(x) - self.rate / x - (lgamma(a) - a * log(self.rate))

    def _cdf(self, x: Tensor) -> Any:
        return igammac(filled(self.concentration, self.rate, x), filled(self.rate, self.concentration) / x)

    def _entropy(self) -> Any:
        a = self.concentration
        return a + log(self.rate) + lgamma(a) - (1.0 + a) * digamma(a)

    def _mean(self) -> Any:
        a = filled(self.concentration, self.rate)
        return _or_nan(greater(a, 1.0), self.rate / (a - 1.0))

    def _variance(self) -> Any:
        a = filled(self.concentration, self.rate)
        return _or_nan(greater(a, 2.0), square(self.rate) / square(a - 1.0) / (a - 2.0))

    def _mode(self) -> Any:
        return self.rate / (1.0 + self.concentration)


# ---- distributions whose parameters are functions of others ---------------------------------------------------------


def _with(base: Any, name: str, **changes: Callable[[Any], Any]) -> Any:
    """The class of a distribution whose arguments go through functions first."""

    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        order = list(changes)
        given = {**dict(zip(_ORDER[base], args)), **kwargs}
        own = dict(given)
        for key in order:
            given[key] = changes[key](tensor_of(given[key], key))
        base.__init__(self, **{"name": name, **given})
        self._parameters = {"validate_args": False, "allow_nan_stats": True, "name": name, **own}

    doc = f"`{base.__name__}` with {', '.join(changes)} made positive (``tf.contrib.distributions.{name}``)."
    return type(name, (base,), {"__init__": __init__, "__doc__": doc, "__module__": __name__})


_REST = ("validate_args", "allow_nan_stats", "name")
_ORDER = {
    Beta: ("concentration1", "concentration0", *_REST), Chi2: ("df", *_REST), Exponential: ("rate", *_REST),
    Gamma: ("concentration", "rate", *_REST), InverseGamma: ("concentration", "rate", *_REST),
    Laplace: ("loc", "scale", *_REST), Normal: ("loc", "scale", *_REST), StudentT: ("df", "loc", "scale", *_REST),
}  # fmt: skip


def _absolute_floor(df: Tensor) -> Tensor:
    return floor(abs(df))


BetaWithSoftplusConcentration = _with(
    Beta, "BetaWithSoftplusConcentration", concentration1=softplus, concentration0=softplus
)
Chi2WithAbsDf = _with(Chi2, "Chi2WithAbsDf", df=_absolute_floor)
ExponentialWithSoftplusRate = _with(Exponential, "ExponentialWithSoftplusRate", rate=softplus)
GammaWithSoftplusConcentrationRate = _with(
    Gamma, "GammaWithSoftplusConcentrationRate", concentration=softplus, rate=softplus
)
InverseGammaWithSoftplusConcentrationRate = _with(
    InverseGamma, "InverseGammaWithSoftplusConcentrationRate", concentration=softplus, rate=softplus
)
LaplaceWithSoftplusScale = _with(Laplace, "LaplaceWithSoftplusScale", scale=softplus)
NormalWithSoftplusScale = _with(Normal, "NormalWithSoftplusScale", scale=softplus)
StudentTWithAbsDfSoftplusScale = _with(StudentT, "StudentTWithAbsDfSoftplusScale", df=_absolute_floor, scale=softplus)
export_names(
    "tf.contrib.distributions",
    "BetaWithSoftplusConcentration Chi2WithAbsDf ExponentialWithSoftplusRate GammaWithSoftplusConcentrationRate"
    " InverseGammaWithSoftplusConcentrationRate LaplaceWithSoftplusScale NormalWithSoftplusScale"
    " StudentTWithAbsDfSoftplusScale",
)


# ---- functions -----------------------------------------------------------------------------------------------------


@export("tf.contrib.distributions.reduce_weighted_logsumexp")
def reduce_weighted_logsumexp(
    logx: TensorLike, w: TensorLike | None = None, axis: Any = None, keep_dims: bool = False,
    return_sign: bool = False, name: str | None = None,
) -> Any:  # fmt: skip
    """``log(abs(sum(w * exp(logx))))`` (``tf.contrib.distributions.reduce_weighted_logsumexp``).

    Args:
      w: weights of any sign; None: ones.
      return_sign: whether the sign of the sum is returned, too.
    """
    logx = tensor_of(logx, "logx")
    if w is None:
        found = reduce_logsumexp(logx, axis=axis, keepdims=keep_dims)
        return (found, ones_like(found)) if return_sign else found
    w = convert_to_tensor(w, logx.dtype, name="w")
    most = stop_gradient(reduce_max(logx + log(abs(w)), axis=axis, keepdims=True))
    total = reduce_sum(w * exp(logx - most), axis=axis, keepdims=keep_dims)
    most = most if keep_dims else squeeze(most, axis)
    found = log(abs(total)) + most
    return (found, sign(total)) if return_sign else found


@export("tf.contrib.distributions.tridiag")
def tridiag(below: Any = None, diag: Any = None, above: Any = None, name: str | None = None) -> Tensor:
    """The matrices of three diagonals (``tf.contrib.distributions.tridiag``).

    Args:
      below, above: ``[…, n - 1]``; ``diag``: ``[…, n]``. Those that are None are zeros.

    Raises:
      ValueError: all are None.
    """
    parts = []
    for part, before, after in ((below, [1, 0], [0, 1]), (diag, [0, 0], [0, 0]), (above, [0, 1], [1, 0])):
        if part is not None:
            part = convert_to_tensor(part)
            lead = [[0, 0]] * (len(part.shape.as_list()) - 1)
            parts.append(pad(matrix_diag(part), [*lead, before, after]))
    if not parts:
        raise ValueError("Must specify at least one of `below`, `diag`, `above`.")
    return functools.reduce(operator.add, parts)


@export("tf.contrib.distributions.matrix_diag_transform")
def matrix_diag_transform(
    matrix: TensorLike, transform: Callable[[Any], Any] | None = None, name: str | None = None
) -> Tensor:
    """The matrices with a function applied to their diagonals (``tf.contrib.distributions.matrix_diag_transform``)."""
    matrix = convert_to_tensor(matrix, name="matrix")
    return matrix if transform is None else matrix_set_diag(matrix, transform(matrix_diag_part(matrix)))


@export("tf.contrib.distributions.percentile")
def percentile(
    x: TensorLike, q: float, axis: Any = None, interpolation: str | None = None, keep_dims: bool = False,
    validate_args: bool = False, name: str | None = None,
) -> Tensor:  # fmt: skip
    """The element below which ``q`` percent of the elements are (``tf.contrib.distributions.percentile``).

    Args:
      axis: one or several, whose elements are sorted together; None: all.
      interpolation: "lower", "higher" or "nearest" (the default): which of two elements.

    Raises:
      ValueError: ``interpolation`` is another.
    """
    interpolation = interpolation or "nearest"
    if interpolation not in ("lower", "higher", "nearest"):
        raise ValueError(f"Argument 'interpolation' must be in ('lower', 'higher', 'nearest'). Found {interpolation}")
    x = convert_to_tensor(x, name="x")
    rank = known_rank(x.shape, "the values")
    axes = list(range(rank)) if axis is None else [a % rank for a in ([axis] if isinstance(axis, int) else axis)]
    rest = [a for a in range(rank) if a not in axes]
    sizes = shape_of(x)
    flat = reshape(transpose(x, rest + axes), concat([gather(sizes, rest), [-1]], 0) if rest else [-1])
    place = cast(shape_of(flat)[-1] - 1, dtypes.float64) * (1.0 - cast(q, dtypes.float64) / 100.0)
    place = {"lower": ceil, "higher": floor, "nearest": rounded}[interpolation](place)
    found: Tensor = gather(sort(flat, -1, "DESCENDING"), cast(place, dtypes.int32), axis=-1)
    return reshape(found, [1 if a in axes else sizes[a] for a in range(rank)]) if keep_dims else found
