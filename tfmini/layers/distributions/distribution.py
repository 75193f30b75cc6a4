"""The base class of distributions, and the registry of Kullback-Leibler divergences."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from tfmini import dtypes
from tfmini.export import export, export_names
from tfmini.graph.conversion import convert_to_tensor
from tfmini.graph.scoping import name_scope
from tfmini.ops.array.constant_value import constant_value
from tfmini.ops.array.filling import ones
from tfmini.ops.array.joining import concat
from tfmini.ops.array.shape import broadcast_static_shape, reshape
from tfmini.ops.array.shape import shape as shape_of
from tfmini.ops.math.reduce_functions import reduce_prod
from tfmini.ops.math.unary import exp, log, log1p, sqrt, square
from tfmini.shapes import TensorShape


@export("tf.distributions.ReparameterizationType")
class ReparameterizationType:
    """Whether gradients flow through samples (``tf.distributions.ReparameterizationType``)."""

    def __init__(self, rep_type: str) -> None:
        self._rep_type = rep_type

    def __repr__(self) -> str:
        return f"<Reparameteriation Type: {self._rep_type}>"


FULLY_REPARAMETERIZED = ReparameterizationType("FULLY_REPARAMETERIZED")
NOT_REPARAMETERIZED = ReparameterizationType("NOT_REPARAMETERIZED")


@export("tf.distributions.Distribution")
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
        self, dtype: Any, reparameterization_type: ReparameterizationType, validate_args: bool = False,
        allow_nan_stats: bool = True, parameters: dict[str, Any] | None = None, graph_parents: Any = None,
        name: str | None = None,
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

    # ---- samples and values ---------------------------------------------------------------------

    def sample(self, sample_shape: Any = (), seed: int | None = None, name: str = "sample") -> Any:
        """Samples of shape ``sample_shape + batch_shape + event_shape``."""
        with self._scope(name):
            sizes = reshape(convert_to_tensor(sample_shape, dtypes.int32), [-1])
            flat = self._sample_n(reduce_prod(sizes), seed)
            found = reshape(flat, concat([sizes, shape_of(flat)[1:]], 0))
            known = constant_value(sizes)
            if known is not None:
                found.set_shape(TensorShape(known.tolist()).concatenate(self.batch_shape).concatenate(self.event_shape))
            return found

    def _sample_n(self, n: Any, seed: int | None = None) -> Any:
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

    def log_prob(self, value: Any, name: str = "log_prob") -> Any:
        """The logarithm of the density or the mass at ``value``."""
        return self._call("log_prob", value, "prob", log)

    def prob(self, value: Any, name: str = "prob") -> Any:
        """The density or the mass at ``value``."""
        return self._call("prob", value, "log_prob", exp)

    def cdf(self, value: Any, name: str = "cdf") -> Any:
        """The probability of at most ``value``."""
        return self._call("cdf", value, "log_cdf", exp)

    def log_cdf(self, value: Any, name: str = "log_cdf") -> Any:
        """The logarithm of `cdf`."""
        return self._call("log_cdf", value, "cdf", log)

    def survival_function(self, value: Any, name: str = "survival_function") -> Any:
        """The probability of more than ``value``."""
        return self._call("survival_function", value, "cdf", lambda below: 1.0 - below)

    def log_survival_function(self, value: Any, name: str = "log_survival_function") -> Any:
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

    def quantile(self, value: Any, name: str = "quantile") -> Any:
        """The value below which the probability is ``value``."""
        return self._call("quantile", value)

    def kl_divergence(self, other: Distribution, name: str = "kl_divergence") -> Any:
        """The Kullback-Leibler divergence from this distribution to another one."""
        return kl_divergence(self, other, name=name)

    def cross_entropy(self, other: Distribution, name: str = "cross_entropy") -> Any:
        """The cross-entropy of this distribution and another one."""
        return self.entropy() + kl_divergence(self, other)


def dtype_hint(value: Any, dtype: dtypes.DType) -> dtypes.DType | None:
    """The type for a value that is no tensor yet."""
    return None if hasattr(value, "dtype") else dtype


def broadcast_of(*parameters: Any) -> Any:
    """The static shape of parameters that broadcast."""
    found = TensorShape([])
    for one in parameters:
        found = broadcast_static_shape(found, one.shape)
    return found


def filled(value: Any, *parameters: Any) -> Any:
    """``value`` in the shape that it has with the parameters."""
    for one in parameters:
        value = value * ones(shape_of(one), value.dtype)
    return value


# ---- divergences --------------------------------------------------------------------------------

_divergences: dict[tuple[type, type], Callable[..., Any]] = {}


@export("tf.distributions.RegisterKL")
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


@export("tf.distributions.kl_divergence")
def kl_divergence(
    distribution_a: Any, distribution_b: Any, allow_nan_stats: bool = True, name: str | None = None
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


export_names("tf.distributions", "FULLY_REPARAMETERIZED NOT_REPARAMETERIZED")
