"""Bijectors of ``tf.contrib.distributions``: the base class, and invertible functions of numbers."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from tfmini import dtypes
from tfmini.core_types import DTypeLike, TensorLike
from tfmini.export import export, export_names
from tfmini.graph.conversion import convert_to_tensor
from tfmini.graph.operation import Tensor
from tfmini.graph.scoping import name_scope
from tfmini.ops.array.filling import ones, zeros
from tfmini.ops.array.identity import cast, identity
from tfmini.ops.array.shape import shape as shape_of
from tfmini.ops.math.reductions import reduce_sum
from tfmini.ops.math.unary import abs, asinh, cosh, exp, expm1, log, log1p, sigmoid, sinh, sqrt, square
from tfmini.ops.nn.activation import softplus
from tfmini.shapes import TensorShape


@export("tf.contrib.distributions.bijectors.Bijector")
class Bijector:
    """An invertible function of tensors (``tf.contrib.distributions.bijectors.Bijector``).

    A subclass defines `_forward`, `_inverse` and one of `_forward_log_det_jacobian` and `_inverse_log_det_jacobian`.

    Args:
      graph_parents: the tensors that make it.
      is_constant_jacobian: whether it stretches all points alike.
      dtype: of its arguments; None: any.
      forward_min_event_ndims, inverse_min_event_ndims: the rank of what it maps as one thing: 0 for numbers, 1 for
        vectors. One of the two stands for both.

    Raises:
      ValueError: no rank is given.
    """

    def __init__(
        self, graph_parents: Sequence[Any] | None = None, is_constant_jacobian: bool = False,
        validate_args: bool = False, dtype: DTypeLike | None = None, forward_min_event_ndims: int | None = None,
        inverse_min_event_ndims: int | None = None, name: str | None = None,
    ) -> None:  # fmt: skip
        if forward_min_event_ndims is None and inverse_min_event_ndims is None:
            raise ValueError("Must specify at least one of `forward_min_event_ndims` and `inverse_min_event_ndims`.")
        if forward_min_event_ndims is None:
            forward_min_event_ndims = inverse_min_event_ndims
        self._forward_ndims = int(forward_min_event_ndims or 0)
        self._inverse_ndims = self._forward_ndims if inverse_min_event_ndims is None else int(inverse_min_event_ndims)
        self._graph_parents, self._validate_args = list(graph_parents or ()), validate_args
        self._is_constant = is_constant_jacobian
        self._dtype = None if dtype is None else dtypes.as_dtype(dtype)
        self._name = name or re.sub(r"(?<=[a-z])(?=[A-Z])", "_", type(self).__name__).lower()
        # What forward has made, so that the inverse of a sample is the very point it came from.
        self._points: dict[Tensor, Tensor] = {}

    @property
    def graph_parents(self) -> list[Any]:
        """The tensors that make the bijector."""
        return self._graph_parents

    @property
    def forward_min_event_ndims(self) -> int:
        """The rank of what is mapped as one thing."""
        return self._forward_ndims

    @property
    def inverse_min_event_ndims(self) -> int:
        """The rank of what one thing is mapped to."""
        return self._inverse_ndims

    @property
    def is_constant_jacobian(self) -> bool:
        """Whether all points are stretched alike."""
        return self._is_constant

    @property
    def validate_args(self) -> bool:
        return self._validate_args

    @property
    def dtype(self) -> dtypes.DType | None:
        return self._dtype

    @property
    def name(self) -> str:
        return self._name

    @contextmanager
    def _scope(self, name: str) -> Iterator[None]:
        with name_scope(self._name), name_scope(name):
            yield

    # ---- what a subclass defines ----------------------------------------------------------------

    def _forward(self, x: Tensor) -> Any:
        raise NotImplementedError("forward not implemented.")

    def _inverse(self, y: Tensor) -> Any:
        raise NotImplementedError("inverse not implemented.")

    def _forward_log_det_jacobian(self, x: Tensor) -> Any:
        raise NotImplementedError("forward_log_det_jacobian not implemented.")

    def _inverse_log_det_jacobian(self, y: Tensor) -> Any:
        raise NotImplementedError("inverse_log_det_jacobian not implemented.")

    def _forward_event_shape(self, input_shape: TensorShape) -> Any:
        return input_shape

    def _inverse_event_shape(self, output_shape: TensorShape) -> Any:
        return output_shape

    def _forward_event_shape_tensor(self, input_shape: Tensor) -> Any:
        return input_shape

    def _inverse_event_shape_tensor(self, output_shape: Tensor) -> Any:
        return output_shape

    # ---- what a user calls ----------------------------------------------------------------------

    def forward_event_shape(self, input_shape: Any) -> TensorShape:
        """The shape of one thing after the map, as far as it is known."""
        return TensorShape(self._forward_event_shape(TensorShape(input_shape)))

    def inverse_event_shape(self, output_shape: Any) -> TensorShape:
        """The shape of one thing before the map, as far as it is known."""
        return TensorShape(self._inverse_event_shape(TensorShape(output_shape)))

    def forward_event_shape_tensor(self, input_shape: TensorLike, name: str = "forward_event_shape_tensor") -> Any:
        """The shape of one thing after the map, an int32 vector."""
        return self._forward_event_shape_tensor(convert_to_tensor(input_shape, dtypes.int32))

    def inverse_event_shape_tensor(self, output_shape: TensorLike, name: str = "inverse_event_shape_tensor") -> Any:
        """The shape of one thing before the map, an int32 vector."""
        return self._inverse_event_shape_tensor(convert_to_tensor(output_shape, dtypes.int32))

    def _given(self, x: TensorLike, name: str) -> Tensor:
        return convert_to_tensor(x, self._dtype if not isinstance(x, Tensor) else None, name=name)

    def forward(self, x: TensorLike, name: str = "forward", **condition: Any) -> Any:
        """The images of the points ``x``."""
        with self._scope(name):
            x = self._given(x, "x")
            y = self._forward(x, **condition)
            if isinstance(y, Tensor) and not condition:
                self._points[y] = x
            return y

    def inverse(self, y: TensorLike, name: str = "inverse", **condition: Any) -> Any:
        """The points whose images are ``y``."""
        with self._scope(name):
            y = self._given(y, "y")
            known = None if condition else self._points.get(y)
            return self._inverse(y, **condition) if known is None else known

    def _overrides(self, name: str) -> bool:
        return getattr(type(self), name) is not getattr(Bijector, name)

    def inverse_log_det_jacobian(
        self, y: TensorLike, event_ndims: int, name: str = "inverse_log_det_jacobian", **condition: Any
    ) -> Any:
        """The logarithm of how much the inverse stretches space at ``y``.

        Args:
          event_ndims: the rank of one thing, over which the logarithms are summed.

        Raises:
          ValueError: the rank is smaller than the bijector's.
        """
        with self._scope(name):
            y = self._given(y, "y")
            if self._overrides("_inverse_log_det_jacobian"):
                found, sign, at, least = self._inverse_log_det_jacobian(y, **condition), 1, y, self._inverse_ndims
            else:
                x = self.inverse(y, **condition)
                found, sign, at = self._forward_log_det_jacobian(x, **condition), -1, x
                event_ndims += self._forward_ndims - self._inverse_ndims
                least = self._forward_ndims
            return self._of_events(found, sign, at, least, event_ndims)

    def forward_log_det_jacobian(
        self, x: TensorLike, event_ndims: int, name: str = "forward_log_det_jacobian", **condition: Any
    ) -> Any:
        """The logarithm of how much space is stretched at ``x``; see `inverse_log_det_jacobian`."""
        with self._scope(name):
            x = self._given(x, "x")
            if self._overrides("_forward_log_det_jacobian"):
                found, sign, at, least = self._forward_log_det_jacobian(x, **condition), 1, x, self._forward_ndims
            else:
                y = self.forward(x, **condition)
                found, sign, at = self._inverse_log_det_jacobian(y, **condition), -1, y
                event_ndims += self._inverse_ndims - self._forward_ndims
                least = self._inverse_ndims
            return self._of_events(found, sign, at, least, event_ndims)

    def _of_events(self, found: Any, sign: int, at: Any, least: int, event_ndims: int) -> Any:
        if isinstance(found, tuple):  # of a function that is not injective
            return tuple(self._of_events(part, sign, at[i], least, event_ndims) for i, part in enumerate(found))
        if event_ndims < least:
            raise ValueError(f"event_ndims ({event_ndims}) must be larger than min_event_ndims ({least})")
        found = convert_to_tensor(found, at.dtype) if sign > 0 else -convert_to_tensor(found, at.dtype)
        axes = [-1 - i for i in range(event_ndims - least)]
        if self._is_constant:
            rank = shape_of(shape_of(at))[0] if at.shape.ndims is None else at.shape.ndims
            found = found * ones(shape_of(at)[rank - event_ndims : rank - least], found.dtype)
        return reduce_sum(found, axes) if axes else found


@export("tf.contrib.distributions.bijectors.ConditionalBijector")
class ConditionalBijector(Bijector):
    """A bijector whose methods take further arguments (``tf.contrib.distributions.bijectors.ConditionalBijector``)."""


# ---- functions of numbers ------------------------------------------------------------------------------------------


class _OfNumbers(Bijector):
    """A function of each element."""

    def __init__(self, validate_args: bool, name: str, parents: Sequence[Any] = (), constant: bool = False) -> None:
        super().__init__(parents, constant, validate_args, forward_min_event_ndims=0, name=name)


class _Row:
    """The formulas of a bijector without parameters: the map, its inverse, the logarithms of both slopes."""

    def __init__(self, forward: Any, inverse: Any, forward_slope: Any = None, inverse_slope: Any = None) -> None:
        self.methods = {
            "_forward": forward, "_inverse": inverse, "_forward_log_det_jacobian": forward_slope,
            "_inverse_log_det_jacobian": inverse_slope,
        }  # fmt: skip


@export("tf.contrib.distributions.softplus_inverse")
def softplus_inverse(x: TensorLike, name: str | None = None) -> Tensor:
    """The number whose softplus is ``x`` (``tf.contrib.distributions.softplus_inverse``)."""
    x = convert_to_tensor(x, preferred_dtype="float32", name="x")
    return x + log(-expm1(-x))


_ROWS = {
    "Sigmoid": _Row(
        sigmoid, lambda y: log(y) - log1p(-y), lambda x: -softplus(-x) - softplus(x), lambda y: -log(y) - log1p(-y)
    ),
    "Softsign": _Row(
        lambda x: x / (1.0 + abs(x)), lambda y: y / (1.0 - abs(y)), lambda x: -2.0 * log1p(abs(x)),
        lambda y: -2.0 * log1p(-abs(y)),
    ),
    "Square": _Row(
        square, sqrt, lambda x: math.log(2.0) + log(x), lambda y: -math.log(2.0) - 0.5 * log(y)
    ),
    "AbsoluteValue": _Row(
        abs, lambda y: (-y, y), None, lambda y: (0.0 * y, 0.0 * y)
    ),
}  # fmt: skip


def _made(name: str, row: _Row) -> Any:
    """The class of a row."""
    lower = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()

    def __init__(self: Any, validate_args: bool = False, name: str = lower) -> None:
        _OfNumbers.__init__(self, validate_args, name)

    def method(function: Callable[[Any], Any]) -> Callable[[Any, Any], Any]:
        return lambda self, value: function(value)

    methods = {key: method(function) for key, function in row.methods.items() if function is not None}
    doc = f"See ``tf.contrib.distributions.bijectors.{name}``."
    return type(name, (_OfNumbers,), {**methods, "__init__": __init__, "__doc__": doc, "__module__": __name__})


AbsoluteValue, Sigmoid, Softsign, Square = (
    _made(n, _ROWS[n]) for n in ("AbsoluteValue", "Sigmoid", "Softsign", "Square")
)
export_names("tf.contrib.distributions.bijectors", "AbsoluteValue Sigmoid Softsign Square")


@export("tf.contrib.distributions.bijectors.Identity")
class IdentityMap(_OfNumbers):
    """The map of each point to itself (``tf.contrib.distributions.bijectors.Identity``)."""

    def __init__(self, validate_args: bool = False, name: str = "identity") -> None:
        super().__init__(validate_args, name, constant=True)

    def _forward(self, x: Tensor) -> Any:
        return x

    def _inverse(self, y: Tensor) -> Any:
        return y

    def _forward_log_det_jacobian(self, x: Tensor) -> Any:
        return zeros([], x.dtype)

    def _inverse_log_det_jacobian(self, y: Tensor) -> Any:
        return zeros([], y.dtype)


@export("tf.contrib.distributions.bijectors.PowerTransform")
class PowerTransform(_OfNumbers):
    """``(1 + x * power) ** (1 / power)``, or ``exp(x)`` (``tf.contrib.distributions.bijectors.PowerTransform``).

    Args:
      power: a number of at least 0; 0: the exponential function.
    """

    def __init__(self, power: float = 0.0, validate_args: bool = False, name: str = "power_transform") -> None:
        super().__init__(validate_args, name)
        if power < 0:
            raise ValueError("`power` must be a non-negative TF tensor.")
        self._power = power

    @property
    def power(self) -> float:
        """The exponent's reciprocal."""
        return self._power

    def _forward(self, x: Tensor) -> Any:
        return exp(log1p(x * self._power) / self._power) if self._power else exp(x)

    def _inverse(self, y: Tensor) -> Any:
        return expm1(log(y) * self._power) / self._power if self._power else log(y)

    def _inverse_log_det_jacobian(self, y: Tensor) -> Any:
        return (self._power - 1.0) * log(y)

    def _forward_log_det_jacobian(self, x: Tensor) -> Any:
        return (1.0 / self._power - 1.0) * log1p(x * self._power) if self._power else identity(x)


@export("tf.contrib.distributions.bijectors.Exp")
class Exp(PowerTransform):
    """The exponential function (``tf.contrib.distributions.bijectors.Exp``)."""

    def __init__(self, validate_args: bool = False, name: str = "exp") -> None:
        super().__init__(0.0, validate_args, name)


@export("tf.contrib.distributions.bijectors.Softplus")
class Softplus(_OfNumbers):
    """``log(1 + exp(x))`` (``tf.contrib.distributions.bijectors.Softplus``).

    Args:
      hinge_softness: how wide the bend is; default 1.
    """

    def __init__(
        self, hinge_softness: TensorLike | None = None, validate_args: bool = False, name: str = "softplus"
    ) -> None:
        super().__init__(validate_args, name)
        self._softness = None if hinge_softness is None else convert_to_tensor(hinge_softness, name="hinge_softness")

    @property
    def hinge_softness(self) -> Any:
        """How wide the bend is, or None."""
        return self._softness

    def _part(self, x: Tensor) -> Any:
        return x if self._softness is None else x / cast(self._softness, x.dtype)

    def _whole(self, x: Tensor) -> Any:
        return x if self._softness is None else x * cast(self._softness, x.dtype)

    def _forward(self, x: Tensor) -> Any:
        return self._whole(softplus(self._part(x)))

    def _inverse(self, y: Tensor) -> Any:
        return self._whole(softplus_inverse(self._part(y)))

    def _inverse_log_det_jacobian(self, y: Tensor) -> Any:
        return -log(-expm1(-self._part(y)))

    def _forward_log_det_jacobian(self, x: Tensor) -> Any:
        return -softplus(-self._part(x))


@export("tf.contrib.distributions.bijectors.AffineScalar")
class AffineScalar(_OfNumbers):
    """``scale * x + shift`` (``tf.contrib.distributions.bijectors.AffineScalar``)."""

    def __init__(
        self, shift: TensorLike | None = None, scale: TensorLike | None = None, validate_args: bool = False,
        name: str = "affine_scalar",
    ) -> None:  # fmt: skip
        super().__init__(validate_args, name, constant=True)
        self._shift = None if shift is None else convert_to_tensor(shift, name="shift")
        self._scale = None if scale is None else convert_to_tensor(scale, name="scale")

    @property
    def shift(self) -> Any:
        """What is added, or None."""
        return self._shift

    @property
    def scale(self) -> Any:
        """The factor, or None."""
        return self._scale

    def _forward(self, x: Tensor) -> Any:
        y = identity(x) if self._scale is None else x * self._scale
        return y if self._shift is None else y + self._shift

    def _inverse(self, y: Tensor) -> Any:
        x = identity(y) if self._shift is None else y - self._shift
        return x if self._scale is None else x / self._scale

    def _forward_log_det_jacobian(self, x: Tensor) -> Any:
        return zeros([], x.dtype) if self._scale is None else log(abs(self._scale))


class _OfTwo(_OfNumbers):
    """A function of numbers with two parameters."""

    def __init__(self, parameters: dict[str, Any], validate_args: bool, name: str) -> None:
        tensors = {
            key: convert_to_tensor(value, preferred_dtype="float32", name=key) for key, value in parameters.items()
        }
        vars(self).update(tensors)
        super().__init__(validate_args, name, list(tensors.values()))


@export("tf.contrib.distributions.bijectors.Gumbel")
class Gumbel(_OfTwo):
    """``exp(-exp(-(x - loc) / scale))`` (``tf.contrib.distributions.bijectors.Gumbel``)."""

    loc: Any
    scale: Any

    def __init__(
        self, loc: TensorLike = 0.0, scale: TensorLike = 1.0, validate_args: bool = False, name: str = "gumbel"
    ) -> None:
        super().__init__({"loc": loc, "scale": scale}, validate_args, name)

    def _forward(self, x: Tensor) -> Any:
        return exp(-exp(-(x - self.loc) / self.scale))

    def _inverse(self, y: Tensor) -> Any:
        return self.loc - self.scale * log(-log(y))

    def _inverse_log_det_jacobian(self, y: Tensor) -> Any:
        return log(self.scale / (-log(y) * y))

    def _forward_log_det_jacobian(self, x: Tensor) -> Any:
        z = (x - self.loc) / self.scale
        return -z - exp(-z) - log(self.scale)


@export("tf.contrib.distributions.bijectors.Kumaraswamy")
class KumaraswamyMap(_OfTwo):
    """``(1 - (1 - x) ** (1 / b)) ** (1 / a)`` (``tf.contrib.distributions.bijectors.Kumaraswamy``)."""

    concentration1: Any
    concentration0: Any

    def __init__(
        self, concentration1: TensorLike | None = None, concentration0: TensorLike | None = None,
        validate_args: bool = False, name: str = "kumaraswamy",
    ) -> None:  # fmt: skip
        super().__init__({"concentration1": concentration1, "concentration0": concentration0}, validate_args, name)

    def _forward(self, x: Tensor) -> Any:
        return exp(log1p(-exp(log1p(-x) / self.concentration0)) / self.concentration1)

    def _inverse(self, y: Tensor) -> Any:
        return 1.0 - (1.0 - y**self.concentration1) ** self.concentration0

    def _inverse_log_det_jacobian(self, y: Tensor) -> Any:
        a, b = self.concentration1, self.concentration0
        return log(a) + log(b) + (a - 1.0) * log(y) + (b - 1.0) * log1p(-(y**a))


@export("tf.contrib.distributions.bijectors.SinhArcsinh")
class SinhArcsinhMap(_OfTwo):
    """``sinh((arcsinh(x) + skewness) * tailweight)`` (``tf.contrib.distributions.bijectors.SinhArcsinh``)."""

    skewness: Any
    tailweight: Any

    def __init__(
        self, skewness: TensorLike | None = None, tailweight: TensorLike | None = None, validate_args: bool = False,
        name: str = "SinhArcsinh",
    ) -> None:  # fmt: skip
        tail = 1.0 if tailweight is None else tailweight
        super().__init__({"skewness": 0.0 if skewness is None else skewness, "tailweight": tail}, validate_args, name)

    def _forward(self, x: Tensor) -> Any:
        return sinh((asinh(x) + self.skewness) * self.tailweight)

    def _inverse(self, y: Tensor) -> Any:
        return sinh(asinh(y) / self.tailweight - self.skewness)

    def _inverse_log_det_jacobian(self, y: Tensor) -> Any:
        turned = asinh(y) / self.tailweight - self.skewness
        return log(cosh(turned) / self.tailweight / sqrt(square(y) + 1.0))

    def _forward_log_det_jacobian(self, x: Tensor) -> Any:
        turned = (asinh(x) + self.skewness) * self.tailweight
        return log(cosh(turned) * self.tailweight / sqrt(square(x) + 1.0))
