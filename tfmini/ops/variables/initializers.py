"""Initializers: objects that make an initial value of a given shape (``tf.initializers``).

Called with ``(shape, dtype=None, partition_info=None)``. ``partition_info`` describes the whole
variable of which this is a part; initializers that depend on the size use that of the whole.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from tfmini import dtypes
from tfmini.core_types import DTypeLike, ShapeLike, TensorLike
from tfmini.export import export, export_names
from tfmini.graph import raw_ops
from tfmini.graph.operation import Tensor
from tfmini.ops import random_functions as random_values
from tfmini.ops.array import filling as array_filling
from tfmini.ops.array.constant import constant as make_constant
from tfmini.ops.array.diagonals import eye

# The standard deviation of a standard normal distribution truncated at two deviations.
_TRUNCATED_STDDEV = 0.87962566103423978


def _float_type(dtype: DTypeLike) -> dtypes.DType:
    found = dtypes.as_dtype(dtype)
    if not found.is_floating:
        raise ValueError(f"Expected floating point type, got {found}.")
    return found


class PartOf(Protocol):
    """What initializers read of a `PartitionInfo`."""

    @property
    def full_shape(self) -> Any: ...


class Initializer:
    """Base of initializers: subclasses name their settings in ``_SETTINGS``, which `get_config` returns."""

    _SETTINGS: tuple[str, ...] = ()
    dtype: dtypes.DType

    def __call__(self, shape: Any, dtype: DTypeLike | None = None, partition_info: PartOf | None = None) -> Tensor:
        """Returns a tensor of the given shape."""
        raise NotImplementedError

    def get_config(self) -> dict[str, Any]:
        """The settings, in the form of `from_config`."""
        config = {name: getattr(self, name) for name in self._SETTINGS}
        return {**config, "dtype": self.dtype.name}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Any:
        """Makes an initializer with these settings."""
        return cls(**config)

    def _type(self, dtype: DTypeLike | None) -> dtypes.DType:
        return self.dtype if dtype is None else dtypes.as_dtype(dtype)


class Zeros(Initializer):
    """All zeros (``tf.zeros_initializer``)."""

    def __init__(self, dtype: DTypeLike | None = dtypes.float32) -> None:
        self.dtype = dtypes.as_dtype(dtype)

    def __call__(
        self, shape: ShapeLike | TensorLike, dtype: DTypeLike | None = None, partition_info: PartOf | None = None
    ) -> Tensor:
        return array_filling.zeros(shape, self._type(dtype))


class Ones(Initializer):
    """All ones (``tf.ones_initializer``)."""

    def __init__(self, dtype: DTypeLike | None = dtypes.float32) -> None:
        self.dtype = dtypes.as_dtype(dtype)

    def __call__(
        self, shape: ShapeLike | TensorLike, dtype: DTypeLike | None = None, partition_info: PartOf | None = None
    ) -> Tensor:
        return array_filling.ones(shape, self._type(dtype))


class Constant(Initializer):
    """A given value, extended by its last element (``tf.constant_initializer``).

    Args:
      value: a number, a list or an array. A list may be shorter than the variable: its last element fills the
        rest.
      dtype: of the values, unless the variable has one.
      verify_shape: whether the value must have the variable's shape.

    Raises:
      TypeError: when the value is not a scalar, list or array.
    """

    _SETTINGS = ("value",)

    def __init__(
        self, value: TensorLike = 0, dtype: DTypeLike | None = dtypes.float32, verify_shape: bool = False
    ) -> None:
        if not (np.isscalar(value) or isinstance(value, (list, tuple, np.ndarray))):
            raise TypeError(
                f"Invalid type for initial value: {type(value)} (expected Python scalar, list or tuple of values, or"
                " numpy.ndarray)."
            )
        self.value = value
        self.dtype = dtypes.as_dtype(dtype)
        self._verify_shape = verify_shape

    def __call__(
        self, shape: ShapeLike, dtype: DTypeLike | None = None, partition_info: PartOf | None = None,
        verify_shape: bool | None = None,
    ) -> Tensor:  # fmt: skip
        verify = self._verify_shape if verify_shape is None else verify_shape
        return make_constant(self.value, dtype=self._type(dtype), shape=shape, verify_shape=verify)


Distribution = tuple[str, Any, Any]
_DRAWS: dict[str, Callable[..., Tensor]] = {
    "uniform": random_values.random_uniform,
    "normal": random_values.random_normal,
    "truncated_normal": random_values.truncated_normal,
}


class RandomInitializer(Initializer):
    """Base of the initializers that draw each number from one distribution."""

    seed: int | None

    def drawn_from(self, shape: Any) -> Distribution:
        """The distribution for a variable of this shape: ``uniform`` with its bounds, or ``normal`` or
        ``truncated_normal`` with mean and standard deviation."""
        raise NotImplementedError

    def __call__(self, shape: Any, dtype: DTypeLike | None = None, partition_info: PartOf | None = None) -> Tensor:
        name, first, second = self.drawn_from(shape if partition_info is None else partition_info.full_shape)
        return _DRAWS[name](shape, first, second, self._type(dtype), seed=self.seed)


class RandomUniform(RandomInitializer):
    """Uniform in ``[minval, maxval)`` (``tf.random_uniform_initializer``)."""

    _SETTINGS = ("minval", "maxval", "seed")

    def __init__(
        self, minval: TensorLike = 0, maxval: TensorLike | None = None, seed: int | None = None,
        dtype: DTypeLike = dtypes.float32,
    ) -> None:  # fmt: skip
        self.minval, self.maxval, self.seed = minval, maxval, seed
        self.dtype = dtypes.as_dtype(dtype)

    def drawn_from(self, shape: Any) -> Distribution:
        return "uniform", self.minval, self.maxval


class RandomNormal(RandomInitializer):
    """Normal (``tf.random_normal_initializer``).

    Args:
      mean, stddev: numbers or scalar tensors.
      seed: an int, for the same numbers in each run.
      dtype: a float type, unless the variable has one.
    """

    _SETTINGS = ("mean", "stddev", "seed")

    def __init__(
        self, mean: TensorLike = 0.0, stddev: TensorLike = 1.0, seed: int | None = None,
        dtype: DTypeLike = dtypes.float32,
    ) -> None:  # fmt: skip
        self.mean, self.stddev, self.seed = mean, stddev, seed
        self.dtype = _float_type(dtype)

    def drawn_from(self, shape: Any) -> Distribution:
        return "normal", self.mean, self.stddev


class TruncatedNormal(RandomNormal):
    """Normal; values beyond two standard deviations are redrawn (``tf.truncated_normal_initializer``).

    Args:
      mean, stddev: numbers or scalar tensors.
      seed: an int, for the same numbers in each run.
      dtype: a float type, unless the variable has one.
    """

    def drawn_from(self, shape: Any) -> Distribution:
        return "truncated_normal", self.mean, self.stddev


class UniformUnitScaling(RandomInitializer):
    """Uniform, with the width that preserves the scale of a layer's input (``tf.uniform_unit_scaling_initializer``)."""

    _SETTINGS = ("factor", "seed")

    def __init__(self, factor: float = 1.0, seed: int | None = None, dtype: DTypeLike = dtypes.float32) -> None:
        self.factor, self.seed = factor, seed
        self.dtype = _float_type(dtype)

    def drawn_from(self, shape: Any) -> Distribution:
        inputs = max(1.0, math.prod(float(d) for d in shape[:-1]))
        limit = math.sqrt(3 / inputs) * self.factor
        return "uniform", -limit, limit


class VarianceScaling(RandomInitializer):
    """Random, with variance ``scale / n``, where n is the layer's fan (``tf.variance_scaling_initializer``).

    Args:
      scale: positive factor.
      mode: ``fan_in``, ``fan_out`` or ``fan_avg``.
      distribution: ``truncated_normal`` (or ``normal``), ``untruncated_normal`` or ``uniform``.
      seed: of the op.
      dtype: floating.

    Raises:
      ValueError: for invalid settings.
    """

    _SETTINGS: tuple[str, ...] = ("scale", "mode", "distribution", "seed")

    def __init__(
        self,
        scale: float = 1.0,
        mode: str = "fan_in",
        distribution: str = "truncated_normal",
        seed: int | None = None,
        dtype: DTypeLike = dtypes.float32,
    ) -> None:
        if scale <= 0.0:
            raise ValueError("`scale` must be positive float.")
        if mode not in ("fan_in", "fan_out", "fan_avg"):
            raise ValueError("Invalid `mode` argument:", mode)
        distribution = distribution.lower()
        if distribution not in ("normal", "uniform", "truncated_normal", "untruncated_normal"):
            raise ValueError("Invalid `distribution` argument:", distribution)
        self.scale, self.mode, self.distribution, self.seed = scale, mode, distribution, seed
        self.dtype = _float_type(dtype)

    def drawn_from(self, shape: Any) -> Distribution:
        fan_in, fan_out = fans(shape)
        fan = {"fan_in": fan_in, "fan_out": fan_out, "fan_avg": (fan_in + fan_out) / 2.0}[self.mode]
        variance = self.scale / max(1.0, fan)
        if self.distribution == "uniform":
            limit = math.sqrt(3.0 * variance)
            return "uniform", -limit, limit
        if self.distribution == "untruncated_normal":
            return "normal", 0.0, math.sqrt(variance)
        return "truncated_normal", 0.0, math.sqrt(variance) / _TRUNCATED_STDDEV


def fans(shape: Any) -> tuple[float, float]:
    """The number of inputs and outputs of a unit, for the weights of a dense or convolution layer."""
    if len(shape) < 1:
        return 1, 1
    if len(shape) == 1:
        return shape[0], shape[0]
    field = math.prod(int(d) for d in shape[:-2])
    return int(shape[-2]) * field, int(shape[-1]) * field


class GlorotUniform(VarianceScaling):
    """Glorot's uniform initializer, the default of `get_variable` (``tf.glorot_uniform_initializer``)."""

    _SETTINGS = ("seed",)

    def __init__(self, seed: int | None = None, dtype: DTypeLike = dtypes.float32) -> None:
        super().__init__(scale=1.0, mode="fan_avg", distribution="uniform", seed=seed, dtype=dtype)


class GlorotNormal(VarianceScaling):
    """Glorot's normal initializer (``tf.glorot_normal_initializer``)."""

    _SETTINGS = ("seed",)

    def __init__(self, seed: int | None = None, dtype: DTypeLike = dtypes.float32) -> None:
        super().__init__(scale=1.0, mode="fan_avg", distribution="truncated_normal", seed=seed, dtype=dtype)


class Orthogonal(Initializer):
    """An orthogonal matrix; other shapes are flattened to their last axis (``tf.orthogonal_initializer``).

    Raises (when called):
      ValueError: for fewer than two axes.
    """

    _SETTINGS = ("gain", "seed")

    def __init__(self, gain: float = 1.0, seed: int | None = None, dtype: DTypeLike = dtypes.float32) -> None:
        self.gain, self.seed = gain, seed
        self.dtype = _float_type(dtype)

    def __call__(self, shape: Any, dtype: DTypeLike | None = None, partition_info: PartOf | None = None) -> Tensor:
        if len(shape) < 2:
            raise ValueError("The tensor to initialize must be at least two-dimensional")
        rows, columns = math.prod(int(d) for d in shape[:-1]), int(shape[-1])
        tall = (max(rows, columns), min(rows, columns))
        noise = random_values.random_normal(tall, dtype=self._type(dtype), seed=self.seed)
        q, r = raw_ops.Qr(noise, full_matrices=False)
        # The signs of the diagonal make the distribution uniform over orthogonal matrices.
        q = raw_ops.Mul(q, raw_ops.Sign(raw_ops.DiagPart(r)), name="mul")
        if rows < columns:
            q = raw_ops.Transpose(q, [1, 0])
        # The tensor is the first operand, because its type decides that of the product.
        return self.gain * raw_ops.Reshape(q, shape)


class Identity(Initializer):
    """An identity matrix, possibly not square (``tf.initializers.identity``).

    Raises (when called):
      ValueError: for a shape that is not that of a matrix.
    """

    _SETTINGS = ("gain",)

    def __init__(self, gain: float = 1.0, dtype: DTypeLike = dtypes.float32) -> None:
        self.gain = gain
        self.dtype = _float_type(dtype)

    def __call__(self, shape: Any, dtype: DTypeLike | None = None, partition_info: Any = None) -> Tensor:
        whole = list(shape if partition_info is None else partition_info.full_shape)
        if len(whole) != 2:
            raise ValueError("Identity matrix initializer can only be used for 2D matrices.")
        matrix = eye(whole[0], whole[1], dtype=self._type(dtype))
        if partition_info is not None:
            matrix = raw_ops.Slice(matrix, list(partition_info.var_offset), list(shape))
        return self.gain * matrix


@export("tf.initializers.he_normal")
def he_normal(seed: int | None = None) -> VarianceScaling:
    """He's normal initializer (``tf.initializers.he_normal``)."""
    return VarianceScaling(scale=2.0, mode="fan_in", distribution="truncated_normal", seed=seed)


@export("tf.initializers.he_uniform")
def he_uniform(seed: int | None = None) -> VarianceScaling:
    """He's uniform initializer (``tf.initializers.he_uniform``)."""
    return VarianceScaling(scale=2.0, mode="fan_in", distribution="uniform", seed=seed)


@export("tf.initializers.lecun_normal")
def lecun_normal(seed: int | None = None) -> VarianceScaling:
    """LeCun's normal initializer (``tf.initializers.lecun_normal``)."""
    return VarianceScaling(scale=1.0, mode="fan_in", distribution="truncated_normal", seed=seed)


@export("tf.initializers.lecun_uniform")
def lecun_uniform(seed: int | None = None) -> VarianceScaling:
    """LeCun's uniform initializer (``tf.initializers.lecun_uniform``)."""
    return VarianceScaling(scale=1.0, mode="fan_in", distribution="uniform", seed=seed)


zeros = zeros_initializer = Zeros
ones = ones_initializer = Ones
constant = constant_initializer = Constant
random_uniform = random_uniform_initializer = RandomUniform
random_normal = random_normal_initializer = RandomNormal
truncated_normal = truncated_normal_initializer = TruncatedNormal
uniform_unit_scaling = uniform_unit_scaling_initializer = UniformUnitScaling
variance_scaling = variance_scaling_initializer = VarianceScaling
glorot_uniform = glorot_uniform_initializer = GlorotUniform
glorot_normal = glorot_normal_initializer = GlorotNormal
orthogonal = orthogonal_initializer = Orthogonal
identity = Identity

export_names(
    "tf",
    "constant_initializer glorot_normal_initializer glorot_uniform_initializer ones_initializer "
    "orthogonal_initializer random_normal_initializer random_uniform_initializer truncated_normal_initializer "
    "uniform_unit_scaling_initializer variance_scaling_initializer zeros_initializer",
)
export_names(
    "tf.initializers",
    "constant glorot_normal glorot_uniform identity ones orthogonal random_normal random_uniform truncated_normal "
    "uniform_unit_scaling variance_scaling zeros",
)


# ---- Initializers by the names that Keras gives them, which layers take ----------------------------------------------

INITIALIZERS: dict[str, Callable[..., Initializer]] = {
    name: make
    for names, make in (
        ("zeros zero Zeros", Zeros), ("ones one Ones", Ones), ("constant Constant", Constant),
        ("uniform random_uniform RandomUniform", functools.partial(RandomUniform, minval=-0.05, maxval=0.05)),
        ("normal random_normal RandomNormal", functools.partial(RandomNormal, stddev=0.05)),
        ("truncated_normal TruncatedNormal", functools.partial(TruncatedNormal, stddev=0.05)),
        ("VarianceScaling", VarianceScaling), ("orthogonal Orthogonal", Orthogonal), ("identity Identity", Identity),
        ("glorot_uniform GlorotUniform", GlorotUniform), ("glorot_normal GlorotNormal", GlorotNormal),
        ("he_normal", he_normal), ("he_uniform", he_uniform),
        ("lecun_normal", lecun_normal), ("lecun_uniform", lecun_uniform),
    )
    for name in names.split()
}  # fmt: skip
