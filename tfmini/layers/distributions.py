"""The base class of distributions, and the registry of Kullback-Leibler divergences."""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from tfmini import dtypes
from tfmini.core_types import DTypeLike, TensorLike
from tfmini.export import export, export_names
from tfmini.graph.conversion import convert_to_tensor
from tfmini.graph.operation import Tensor
from tfmini.graph.scoping import count_ops, counted_as, name_scope
from tfmini.ops.array.constant_value import constant_value
from tfmini.ops.array.filling import ones, ones_like, zeros_like
from tfmini.ops.array.joining import concat
from tfmini.ops.array.partition import where
from tfmini.ops.array.shape import broadcast_dynamic_shape, broadcast_static_shape, reshape
from tfmini.ops.array.shape import shape as shape_of
from tfmini.ops.math.comparison import greater_equal, less, less_equal, logical_or
from tfmini.ops.math.elementwise import maximum, minimum
from tfmini.ops.math.reductions import reduce_prod
from tfmini.ops.math.special import betainc, igamma
from tfmini.ops.math.unary import abs, digamma, erfc, exp, expm1, lgamma, log, log1p, sign, sqrt, square
from tfmini.ops.random_functions import gen_new_seed, random_gamma, random_normal, random_uniform
from tfmini.shapes import TensorShape


@export("tf.distributions.ReparameterizationType", "tf.contrib.distributions.ReparameterizationType")
class ReparameterizationType:
    """Whether gradients flow through samples (``tf.distributions.ReparameterizationType``)."""

    def __init__(self, rep_type: str) -> None:
        self._rep_type = rep_type

    def __repr__(self) -> str:
        return f"<Reparameteriation Type: {self._rep_type}>"


FULLY_REPARAMETERIZED = ReparameterizationType("FULLY_REPARAMETERIZED")
NOT_REPARAMETERIZED = ReparameterizationType("NOT_REPARAMETERIZED")


def keeps_arguments(init: Callable[..., None]) -> Any:
    """The constructor of a distribution that is made of another one: its own arguments are the ``parameters``."""

    @functools.wraps(init)
    def kept(self: Distribution, *args: Any, **kwargs: Any) -> None:
        given = inspect.signature(init).bind(self, *args, **kwargs)
        given.apply_defaults()
        init(self, *args, **kwargs)
        self._parameters = dict(list(given.arguments.items())[1:])

    return kept


@export("tf.distributions.Distribution", "tf.contrib.distributions.Distribution")
class Distribution:
    """A batch of distributions (``tf.distributions.Distribution``).

    A subclass defines `_batch_shape`, `_event_shape`, `_sample_n` and those of `_log_prob`, `_prob`, `_cdf`, `_mean`,
    `_variance`, `_mode` and `_entropy` that it has.

    Args:
      dtype: of the samples.
      reparameterization_type: whether gradients flow through samples.
      validate_args, allow_nan_stats: kept as attributes; arguments are not checked.
      parameters: the arguments of the constructor, for `copy`.
    """

    def __init__(
        self, dtype: DTypeLike, reparameterization_type: ReparameterizationType, validate_args: bool = False,
        allow_nan_stats: bool = True, parameters: dict[str, Any] | None = None,
        graph_parents: Sequence[Any] | None = None, name: str | None = None,
    ) -> None:  # fmt: skip
        self._dtype = dtypes.as_dtype(dtype)
        self._reparameterization_type = reparameterization_type
        self._validate_args, self._allow_nan_stats = validate_args, allow_nan_stats
        self._parameters = {k: v for k, v in (parameters or {}).items() if k not in ("self", "__class__")}
        self._graph_parents = list(graph_parents or ())
        with name_scope(name or type(self).__name__) as scope:
            self._name = scope

    def __repr__(self) -> str:
        return (
            f"<tf.distributions.{type(self).__name__} '{self.name}' batch_shape={self.batch_shape}"
            f" event_shape={self.event_shape} dtype={self.dtype.name}>"
        )

    # ---- facts ----------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        """The name scope of the distribution's ops, with its final ``/``."""
        return self._name

    @property
    def dtype(self) -> dtypes.DType:
        return self._dtype

    @property
    def parameters(self) -> dict[str, Any]:
        """The arguments of the constructor."""
        return dict(self._parameters)

    @property
    def reparameterization_type(self) -> ReparameterizationType:
        return self._reparameterization_type

    @property
    def validate_args(self) -> bool:
        return self._validate_args

    @property
    def allow_nan_stats(self) -> bool:
        return self._allow_nan_stats

    @property
    def batch_shape(self) -> TensorShape:
        """The shape of the batch, as far as it is known."""
        return TensorShape(self._batch_shape())

    @property
    def event_shape(self) -> TensorShape:
        """The shape of one sample of one distribution, as far as it is known."""
        return TensorShape(self._event_shape())

    def batch_shape_tensor(self, name: str = "batch_shape_tensor") -> Any:
        """The shape of the batch, an int32 vector."""
        return self._known(self.batch_shape, self._batch_shape_tensor)

    def event_shape_tensor(self, name: str = "event_shape_tensor") -> Any:
        """The shape of one sample of one distribution, an int32 vector."""
        return self._known(self.event_shape, self._event_shape_tensor)

    @staticmethod
    def _known(shape: TensorShape, otherwise: Callable[[], Any]) -> Any:
        if shape.is_fully_defined():
            return convert_to_tensor(shape.as_list(), dtypes.int32)
        return otherwise()

    def _batch_shape(self) -> Any:
        return TensorShape(None)

    def _event_shape(self) -> Any:
        return TensorShape([])

    def _batch_shape_tensor(self) -> Any:
        raise NotImplementedError("batch_shape_tensor is not implemented")

    def _event_shape_tensor(self) -> Any:
        raise NotImplementedError("event_shape_tensor is not implemented")

    def is_scalar_event(self, name: str = "is_scalar_event") -> Any:
        """Whether a sample of one distribution is a scalar."""
        return convert_to_tensor(self.event_shape.ndims == 0)

    def is_scalar_batch(self, name: str = "is_scalar_batch") -> Any:
        """Whether this is a single distribution."""
        return convert_to_tensor(self.batch_shape.ndims == 0)

    def copy(self, **override_parameters_kwargs: Any) -> Distribution:
        """A distribution of the same class with other arguments."""
        return type(self)(**{**self._parameters, **override_parameters_kwargs})

    # The parameters whose shape is that of the samples, for `param_shapes`; none where TensorFlow does not tell.
    _shaped: tuple[str, ...] = ()

    @classmethod
    def param_shapes(cls, sample_shape: Any, name: str = "DistributionParamShapes") -> dict[str, Tensor]:
        """The shapes, int32 vectors, of parameters with which `sample` gives ``sample_shape``."""
        with name_scope(name, values=[sample_shape]):
            return cls._param_shapes(sample_shape)

    @classmethod
    def param_static_shapes(cls, sample_shape: Any) -> dict[str, TensorShape]:
        """Like `param_shapes`, of a shape that is known; ValueError for another one."""
        if isinstance(sample_shape, TensorShape):
            if not sample_shape.is_fully_defined():
                raise ValueError("TensorShape sample_shape must be fully defined")
            sample_shape = sample_shape.as_list()
        found = {}
        for name, shape in cls.param_shapes(sample_shape).items():
            sizes = constant_value(shape)
            if sizes is None:
                raise ValueError("sample_shape must be a fully-defined TensorShape or list/tuple")
            found[name] = TensorShape(np.ravel(sizes).tolist())
        return found

    @classmethod
    def _param_shapes(cls, sample_shape: Any) -> dict[str, Tensor]:
        if not cls._shaped:
            raise NotImplementedError("_param_shapes not implemented")
        return dict.fromkeys(cls._shaped, convert_to_tensor(sample_shape, dtypes.int32))

    # ---- samples and values ---------------------------------------------------------------------

    def sample(self, sample_shape: TensorLike | TensorShape = (), seed: int | None = None, name: str = "sample") -> Any:
        """Samples of shape ``sample_shape + batch_shape + event_shape``."""
        with self._scope(name):
            given = convert_to_tensor(sample_shape, dtypes.int32)
            known, scalar = constant_value(given), int(given.shape.ndims == 0)
            with counted_as(2 + 2 * scalar if known is None else scalar):
                sizes = reshape(given, [-1])
                # Subclasses of programs compare the number with others, so it is one where it is known.
                number = reduce_prod(sizes) if known is None else int(np.prod(known))
            flat = self._sample_n(number, seed)
            found = reshape(flat, concat([sizes, shape_of(flat)[1:]], 0))
            if known is not None:
                found.set_shape(
                    TensorShape(known.reshape(-1).tolist()).concatenate(self.batch_shape).concatenate(self.event_shape)
                )
            return found

    def _sample_n(self, n: Tensor | int, seed: int | None = None) -> Any:
        raise NotImplementedError("sample_n is not implemented")

    @contextmanager
    def _scope(self, name: str) -> Iterator[None]:
        with name_scope(self._name), name_scope(name):
            yield

    def _call(
        self, name: str, value: Any = None, other: str = "", from_other: Callable[[Any], Any] | None = None
    ) -> Any:
        """The result of a method of the subclass, or ``from_other`` of that of another method."""
        own = getattr(self, f"_{name}", None)
        base = getattr(self, f"_{other}", None) if other else None
        if own is None and base is None:
            raise NotImplementedError(f"{name} is not implemented: {type(self).__name__}")
        with self._scope(name):
            given = [] if value is None else [convert_to_tensor(value, dtype_hint(value, self.dtype), name="value")]
            if own is not None:
                return own(*given)
            assert base is not None and from_other is not None
            return from_other(base(*given))

    def log_prob(self, value: TensorLike, name: str = "log_prob") -> Any:
        """The logarithm of the density or the mass at ``value``."""
        return self._call("log_prob", value, "prob", log)

    def prob(self, value: TensorLike, name: str = "prob") -> Any:
        """The density or the mass at ``value``."""
        return self._call("prob", value, "log_prob", exp)

    def cdf(self, value: TensorLike, name: str = "cdf") -> Any:
        """The probability of at most ``value``."""
        return self._call("cdf", value, "log_cdf", exp)

    def log_cdf(self, value: TensorLike, name: str = "log_cdf") -> Any:
        """The logarithm of `cdf`."""
        return self._call("log_cdf", value, "cdf", log)

    def survival_function(self, value: TensorLike, name: str = "survival_function") -> Any:
        """The probability of more than ``value``."""
        return self._call("survival_function", value, "cdf", lambda below: 1.0 - below)

    def log_survival_function(self, value: TensorLike, name: str = "log_survival_function") -> Any:
        """The logarithm of `survival_function`."""
        return self._call("log_survival_function", value, "cdf", lambda below: log1p(-below))

    def entropy(self, name: str = "entropy") -> Any:
        """Shannon's entropy, in nats."""
        return self._call("entropy")

    def mean(self, name: str = "mean") -> Any:
        """The mean."""
        return self._call("mean")

    def mode(self, name: str = "mode") -> Any:
        """The most likely value."""
        return self._call("mode")

    def variance(self, name: str = "variance") -> Any:
        """The variance of each element."""
        return self._call("variance", None, "stddev", square)

    def stddev(self, name: str = "stddev") -> Any:
        """The standard deviation of each element."""
        return self._call("stddev", None, "variance", sqrt)

    def covariance(self, name: str = "covariance") -> Any:
        """The covariance of the elements of a vector."""
        return self._call("covariance")

    def quantile(self, value: TensorLike, name: str = "quantile") -> Any:
        """The value below which the probability is ``value``."""
        return self._call("quantile", value)

    def kl_divergence(self, other: Distribution, name: str = "kl_divergence") -> Any:
        """The Kullback-Leibler divergence from this distribution to another one."""
        return kl_divergence(self, other, name=name)

    def cross_entropy(self, other: Distribution, name: str = "cross_entropy") -> Any:
        """The cross-entropy of this distribution and another one."""
        return self.entropy() + kl_divergence(self, other)


def dtype_hint(value: Tensor, dtype: dtypes.DType) -> dtypes.DType | None:
    """The type for a value that is no tensor yet."""
    return None if hasattr(value, "dtype") else dtype


def broadcast_of(*parameters: Any) -> Any:
    """The static shape of parameters that broadcast."""
    found = TensorShape([])
    for one in parameters:
        found = broadcast_static_shape(found, one.shape)
    return found


def filled(value: Any, *parameters: TensorLike) -> Any:
    """``value`` in the shape that it has with the parameters."""
    for one in parameters:
        value = value * ones(shape_of(one), value.dtype)
    return value


# ---- divergences --------------------------------------------------------------------------------

_divergences: dict[tuple[type, type], Callable[..., Any]] = {}


@export("tf.distributions.RegisterKL", "tf.contrib.distributions.RegisterKL")
class RegisterKL:
    """Decorates the function of the divergence between two classes (``tf.distributions.RegisterKL``)."""

    def __init__(self, dist_cls_a: type, dist_cls_b: type) -> None:
        self._key = dist_cls_a, dist_cls_b

    def __call__(self, kl_fn: Callable[..., Any]) -> Callable[..., Any]:
        if not callable(kl_fn):
            raise TypeError(f"kl_fn must be callable, received: {kl_fn}")
        if self._key in _divergences:
            names = ", ".join(cls.__name__ for cls in self._key)
            raise ValueError(f"KL({names}) has already been registered to: {_divergences[self._key]}")
        _divergences[self._key] = kl_fn
        return kl_fn


@export("tf.distributions.kl_divergence", "tf.contrib.distributions.kl_divergence")
def kl_divergence(
    distribution_a: Distribution, distribution_b: Distribution, allow_nan_stats: bool = True, name: str | None = None
) -> Any:
    """The Kullback-Leibler divergence from one distribution to another (``tf.distributions.kl_divergence``).

    Raises:
      NotImplementedError: no function is registered for the two classes or their bases.
    """
    for a in type(distribution_a).__mro__:
        for b in type(distribution_b).__mro__:
            if (a, b) in _divergences:
                with name_scope(name or "KullbackLeibler"):
                    return _divergences[a, b](distribution_a, distribution_b)
    raise NotImplementedError(
        f"No KL(distribution_a || distribution_b) registered for distribution_a type {type(distribution_a).__name__}"
        f" and distribution_b type {type(distribution_b).__name__}. tf.distributions.RegisterKL registers one."
    )


export_names("tf.distributions tf.contrib.distributions", "FULLY_REPARAMETERIZED NOT_REPARAMETERIZED")


# ---- Continuous distributions of scalars of ``tf.distributions`` ---------------------------------------------------


class ScalarDistribution(Distribution):
    """Distributions of scalars with parameters that broadcast."""

    def __init__(self, parameters: dict[str, Any], *tensors: Tensor) -> None:
        super().__init__(
            tensors[0].dtype, FULLY_REPARAMETERIZED, parameters["validate_args"], parameters["allow_nan_stats"],
            parameters, tensors, parameters["name"],
        )  # fmt: skip
        self._tensors = tensors

    def _batch_shape(self) -> Any:
        return broadcast_of(*self._tensors)

    def _batch_shape_tensor(self) -> Any:
        found = shape_of(self._tensors[0])
        for one in self._tensors[1:]:
            found = broadcast_dynamic_shape(found, shape_of(one))
        return found

    def _event_shape_tensor(self) -> Any:
        return convert_to_tensor([], dtype="int32")

    def _sizes(self, n: Tensor | int) -> Any:
        count_ops(2)  # the shape of each parameter
        return concat([[n], self.batch_shape_tensor()], 0)


def pair(first: TensorLike, second: TensorLike, names: tuple[str, str]) -> tuple[Any, Any]:
    one = convert_to_tensor(first, preferred_dtype="float32", name=names[0])
    return one, convert_to_tensor(second, one.dtype, name=names[1])


def _normal_cdf(z: Tensor) -> Any:
    return 0.5 * erfc(-z / math.sqrt(2.0))


def _log_normal_cdf(z: Tensor) -> Any:
    """The logarithm of the cdf, by an asymptotic series where the cdf underflows and by ``log(1 - p) = -p`` above."""
    low, high = (-20.0, 8.0) if z.dtype == dtypes.float64 else (-10.0, 5.0)
    far = minimum(z, low)
    inverse = 1.0 / square(far)
    series = log1p(inverse * (-1.0 + inverse * (3.0 - 15.0 * inverse)))
    tail = -0.5 * square(far) - log(-far) - 0.5 * math.log(2.0 * math.pi) + series
    middle = log(_normal_cdf(maximum(z, low)))
    return where(less(z, low), tail, where(less(z, high), middle, -_normal_cdf(-z)))


@export("tf.distributions.Normal", "tf.contrib.distributions.Normal")
class Normal(ScalarDistribution):
    """The normal distribution (``tf.distributions.Normal``).

    Args:
      loc, scale: mean and standard deviation, which broadcast.
    """

    _shaped: tuple[str, ...] = ("loc", "scale")

    def __init__(
        self,
        loc: TensorLike,
        scale: TensorLike,
        validate_args: bool = False,
        allow_nan_stats: bool = True,
        name: str = "Normal",
    ) -> None:
        parameters = dict(locals())
        self.loc, self.scale = pair(loc, scale, ("loc", "scale"))
        super().__init__(parameters, self.loc, self.scale)

    def _z(self, x: Tensor) -> Any:
        return (x - self.loc) / self.scale

    def _sample_n(self, n: Tensor | int, seed: int | None = None) -> Any:
        return random_normal(self._sizes(n), dtype=self.dtype, seed=seed) * self.scale + self.loc

    def _log_prob(self, x: Tensor) -> Any:
        return -0.5 * square(self._z(x)) - (0.5 * math.log(2.0 * math.pi) + log(self.scale))

    def _cdf(self, x: Tensor) -> Any:
        return _normal_cdf(self._z(x))

    def _log_cdf(self, x: Tensor) -> Any:
        return _log_normal_cdf(self._z(x))

    def _entropy(self) -> Any:
        return 0.5 * math.log(2.0 * math.pi * math.e) + log(filled(self.scale, self.loc))

    def _mean(self) -> Any:
        return filled(self.loc, self.scale)

    _mode = _mean

    def _stddev(self) -> Any:
        return filled(self.scale, self.loc)


@export("tf.distributions.Uniform", "tf.contrib.distributions.Uniform")
class Uniform(ScalarDistribution):
    """The uniform distribution in ``[low, high)`` (``tf.distributions.Uniform``)."""

    _shaped: tuple[str, ...] = ("low", "high")

    def __init__(
        self, low: TensorLike = 0.0, high: TensorLike = 1.0, validate_args: bool = False, allow_nan_stats: bool = True,
        name: str = "Uniform",
    ) -> None:  # fmt: skip
        parameters = dict(locals())
        self.low, self.high = pair(low, high, ("low", "high"))
        super().__init__(parameters, self.low, self.high)

    def range(self, name: str = "range") -> Any:
        """``high - low``."""
        return self.high - self.low

    def _sample_n(self, n: Tensor | int, seed: int | None = None) -> Any:
        share = random_uniform(self._sizes(n), dtype=self.dtype, seed=seed)
        return self.low + self.range() * share

    def _prob(self, x: Tensor) -> Any:
        inside = ones_like(x) / self.range()
        outside = logical_or(less(x * ones_like(inside), self.low), greater_equal(x * ones_like(inside), self.high))
        return where(outside, zeros_like(inside), inside)

    def _cdf(self, x: Tensor) -> Any:
        share = (x - self.low) / self.range()
        return where(less(share, 0.0), zeros_like(share), where(greater_equal(share, 1.0), ones_like(share), share))

    def _entropy(self) -> Any:
        return log(self.range())

    def _mean(self) -> Any:
        return (self.low + self.high) / 2.0

    def _variance(self) -> Any:
        return square(self.range()) / 12.0


@export("tf.distributions.Laplace", "tf.contrib.distributions.Laplace")
class Laplace(ScalarDistribution):
    """The Laplace distribution (``tf.distributions.Laplace``)."""

    _shaped: tuple[str, ...] = ("loc", "scale")

    def __init__(
        self,
        loc: TensorLike,
        scale: TensorLike,
        validate_args: bool = False,
        allow_nan_stats: bool = True,
        name: str = "Laplace",
    ) -> None:
        parameters = dict(locals())
        self.loc, self.scale = pair(loc, scale, ("loc", "scale"))
        super().__init__(parameters, self.loc, self.scale)

    def _sample_n(self, n: Tensor | int, seed: int | None = None) -> Any:
        u = random_uniform(self._sizes(n), -1.0, 1.0, self.dtype, seed=seed)
        return self.loc - self.scale * sign(u) * log1p(-abs(u) * (1.0 - 1e-7))

    def _log_prob(self, x: Tensor) -> Any:
        return -abs(self._z(x)) - math.log(2.0) - log(self.scale)

    def _z(self, x: Tensor) -> Any:
        return (x - self.loc) / self.scale

    def _cdf(self, x: Tensor) -> Any:
        z = self._z(x)
        return 0.5 - 0.5 * sign(z) * expm1(-abs(z))

    def _log_cdf(self, x: Tensor) -> Any:
        return _log_laplace_cdf(self._z(x))

    def _log_survival_function(self, x: Tensor) -> Any:
        return _log_laplace_cdf(-self._z(x))

    def _entropy(self) -> Any:
        return math.log(2.0) + 1.0 + log(filled(self.scale, self.loc))

    def _mean(self) -> Any:
        return filled(self.loc, self.scale)

    _mode = _mean

    def _stddev(self) -> Any:
        return math.sqrt(2.0) * filled(self.scale, self.loc)


def _log_laplace_cdf(z: Tensor) -> Any:
    return where(less(z, 0.0), z - math.log(2.0), log1p(-0.5 * exp(-abs(z))))


@export("tf.distributions.Gamma", "tf.contrib.distributions.Gamma")
class Gamma(ScalarDistribution):
    """The gamma distribution (``tf.distributions.Gamma``)."""

    _shaped: tuple[str, ...] = ("concentration", "rate")

    def __init__(
        self, concentration: TensorLike, rate: TensorLike, validate_args: bool = False, allow_nan_stats: bool = True,
        name: str = "Gamma",
    ) -> None:  # fmt: skip
        parameters = dict(locals())
        self.concentration, self.rate = pair(concentration, rate, ("concentration", "rate"))
        super().__init__(parameters, self.concentration, self.rate)

    def _sample_n(self, n: Tensor | int, seed: int | None = None) -> Any:
        return random_gamma([n], filled(self.concentration, self.rate), self.rate, self.dtype, seed)

    def _log_prob(self, x: Tensor) -> Any:
        a = self.concentration
        return (a - 1.0) * log(x) - self.rate * x - (lgamma(a) - a * log(self.rate))

    def _cdf(self, x: Tensor) -> Any:
        return igamma(filled(self.concentration, x * self.rate), self.rate * x)

    def _entropy(self) -> Any:
        a = self.concentration
        return a - log(self.rate) + lgamma(a) + (1.0 - a) * digamma(a)

    def _mean(self) -> Any:
        return self.concentration / self.rate

    def _variance(self) -> Any:
        return self.concentration / square(self.rate)

    def _mode(self) -> Any:
        found = (self.concentration - 1.0) / self.rate
        return where(less(0.0, found), found, math.nan * ones_like(found))


@export("tf.distributions.Exponential", "tf.contrib.distributions.Exponential")
class Exponential(Gamma):
    """The exponential distribution (``tf.distributions.Exponential``)."""

    _shaped: tuple[str, ...] = ("rate",)

    @keeps_arguments
    def __init__(
        self, rate: TensorLike, validate_args: bool = False, allow_nan_stats: bool = True, name: str = "Exponential"
    ) -> None:
        rate = convert_to_tensor(rate, preferred_dtype="float32", name="rate")
        super().__init__(ones_like(rate), rate, validate_args, allow_nan_stats, name)

    def _sample_n(self, n: Tensor | int, seed: int | None = None) -> Any:
        u = random_uniform(self._sizes(n), 1e-37, 1.0, self.dtype, seed=seed)
        return -log(u) / self.rate


@export("tf.distributions.StudentT", "tf.contrib.distributions.StudentT")
class StudentT(ScalarDistribution):
    """Student's t distribution (``tf.distributions.StudentT``)."""

    _shaped: tuple[str, ...] = ("df", "loc", "scale")

    def __init__(
        self, df: TensorLike, loc: TensorLike, scale: TensorLike, validate_args: bool = False,
        allow_nan_stats: bool = True, name: str = "StudentT",
    ) -> None:  # fmt: skip
        parameters = dict(locals())
        self.df = convert_to_tensor(df, preferred_dtype="float32", name="df")
        self.loc = convert_to_tensor(loc, self.df.dtype, name="loc")
        self.scale = convert_to_tensor(scale, self.df.dtype, name="scale")
        super().__init__(parameters, self.df, self.loc, self.scale)

    def _sample_n(self, n: Tensor | int, seed: int | None = None) -> Any:
        z = random_normal(self._sizes(n), dtype=self.dtype, seed=seed)
        df = filled(self.df, self.loc, self.scale)
        chi2 = random_gamma([n], 0.5 * df, 0.5, self.dtype, gen_new_seed(seed, "student_t"))
        return z / sqrt(chi2 / df) * self.scale + self.loc

    def _log_prob(self, x: Tensor) -> Any:
        y = (x - self.loc) / self.scale
        norm = log(abs(self.scale)) + 0.5 * log(self.df) + 0.5 * math.log(math.pi) + lgamma(0.5 * self.df)
        return -0.5 * (self.df + 1.0) * log1p(square(y) / self.df) - (norm - lgamma(0.5 * (self.df + 1.0)))

    def _cdf(self, x: Tensor) -> Any:
        y = (x - self.loc) / abs(self.scale) * ones_like(self.df)
        half_df = 0.5 * self.df * ones_like(y)
        outer = 0.5 * betainc(half_df, 0.5 * ones_like(y), self.df / (square(y) + self.df))
        return where(less(y, 0.0), outer, 1.0 - outer)

    def _mean(self) -> Any:
        found = filled(self.loc, self.df, self.scale)
        return where(less(1.0, filled(self.df, found)), found, math.nan * ones_like(found))

    def _mode(self) -> Any:
        return self.loc + 0.0

    def _variance(self) -> Any:
        df = filled(self.df, self.loc, self.scale)
        heavy = less_equal(df, 2.0)
        found = square(self.scale) * df / where(heavy, ones_like(df), df - 2.0)
        found = where(heavy, math.inf * ones_like(df), found)
        return where(less_equal(df, 1.0), math.nan * ones_like(df), found)

    def _entropy(self) -> Any:
        df = filled(self.df, self.loc, self.scale)
        half, more = 0.5 * df, 0.5 * (df + 1.0)
        norm = 0.5 * log(df) + 0.5 * math.log(math.pi) + lgamma(half) - lgamma(more)
        return log(abs(self.scale)) + norm + more * (digamma(more) - digamma(half))


@RegisterKL(Normal, Normal)
def _normal_divergence(a: Normal, b: Normal) -> Any:
    ratio = square(a.scale / b.scale)
    return square(a.loc - b.loc) / (2.0 * square(b.scale)) + 0.5 * (ratio - 1.0 - log(ratio))


@RegisterKL(Gamma, Gamma)
def _gamma_divergence(a: Gamma, b: Gamma) -> Any:
    return (
        (a.concentration - b.concentration) * digamma(a.concentration) + lgamma(b.concentration)
        - lgamma(a.concentration) + b.concentration * (log(a.rate) - log(b.rate))
        + a.concentration * (b.rate / a.rate - 1.0)
    )  # fmt: skip
