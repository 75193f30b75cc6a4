"""Batch normalization (``tf.layers``); ops in UPDATE_OPS update its moving averages."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tfmini import dtypes
from tfmini.core_types import ShapeLike, TensorLike
from tfmini.export import export, export_names
from tfmini.graph.conversion import convert_to_tensor
from tfmini.graph.operation import Tensor
from tfmini.graph.scoping import colocate_with, control_dependencies, count_ops, name_scope
from tfmini.layers.base import InputSpec, Layer
from tfmini.layers.core import as_function
from tfmini.ops.array.constant import constant
from tfmini.ops.array.filling import ones_like, zeros_like
from tfmini.ops.array.identity import cast, identity, stop_gradient
from tfmini.ops.array.shape import reshape, size
from tfmini.ops.array.shape import shape as shape_of
from tfmini.ops.flow.cond import smart_cond, smart_constant_value
from tfmini.ops.math.elementwise import divide, maximum, minimum, subtract
from tfmini.ops.math.reductions import reduce_mean
from tfmini.ops.math.unary import sqrt
from tfmini.ops.nn.activation import relu
from tfmini.ops.nn.batch_norm import fused_batch_norm
from tfmini.ops.nn.normalization import batch_normalization as normalize
from tfmini.ops.nn.normalization import moments
from tfmini.ops.variables.assignment import assign, assign_sub
from tfmini.ops.variables.base import Variable, VariableAggregation, VariableSynchronization
from tfmini.ops.variables.initializers import Ones, Zeros
from tfmini.shapes import TensorShape

_ZEROS, _ONES = Zeros(), Ones()


class BatchNormalizer:
    """What batch normalization computes, for layers of any kind.

    A layer has the attributes of `BatchNormalization`, and makes its weights with ``add_weight``.
    """

    axis: Any
    momentum: float
    epsilon: float
    center: bool
    scale: bool
    beta_initializer: Any
    gamma_initializer: Any
    moving_mean_initializer: Any
    moving_variance_initializer: Any
    beta_regularizer: Any
    gamma_regularizer: Any
    beta_constraint: Any
    gamma_constraint: Any
    fused: bool | None
    virtual_batch_size: int | None
    adjustment: Callable[..., Any] | None
    renorm: bool
    _renorm: Renorm | None
    input_spec: Any
    _dtype: Any
    _scope: Any = None
    add_weight: Callable[..., Any]
    # The fused op's variance has Bessel's correction, n / (n - 1). If False, the moving average is without it.
    _bessels_correction_test_only = True

    def build(self, input_shape: TensorShape) -> None:
        if input_shape.ndims is None:
            raise ValueError(f"Input has undefined rank: {input_shape}")
        sizes = input_shape.as_list()
        rank = len(sizes)
        axes = [a + rank if a < 0 else a for a in self.axis]
        if any(a < 0 or a >= rank for a in axes):
            raise ValueError(f"Invalid axis: {self.axis}")
        if len(set(axes)) != len(axes):
            raise ValueError(f"Duplicate axis: {self.axis}")
        self._check_virtual_batches(axes)
        lengths = {a: sizes[a] for a in axes}
        if None in lengths.values():
            raise ValueError(f"Input has undefined `axis` dimension. Input shape: {input_shape}")
        self.axis = axes
        self.input_spec = InputSpec(ndim=rank, axes=lengths)
        self.fused = self._fuses(rank, axes)
        several = [size if i in axes else 1 for i, size in enumerate(sizes)]
        if self.virtual_batch_size is not None:
            several.insert(1, 1)
            self.axis = [a + 1 for a in axes]  # axis 1 numbers the virtual batches
        self._build_weights(several if len(self.axis) > 1 or len(several) > rank else [lengths[axes[0]]])

    def _fuses(self, rank: int, axes: list[int]) -> bool:
        """Whether to use the fused op."""
        special = self._renorm is not None or self.virtual_batch_size is not None or self.adjustment is not None
        return self.fused is not False and rank == 4 and axes in ([1], [3]) and not special

    def _check_virtual_batches(self, axes: list[int]) -> None:
        if self.virtual_batch_size is None:
            return
        if self.virtual_batch_size <= 0:
            raise ValueError(
                "virtual_batch_size must be a positive integer that divides the true batch size of the input Tensor"
            )
        if 0 in axes:
            raise ValueError(
                "When using virtual_batch_size, the batch dimension must be 0 and thus axis cannot include 0"
            )
        if self.adjustment is not None:
            raise ValueError("When using virtual_batch_size, adjustment cannot be specified")

    def _build_weights(self, shape: list[Any]) -> None:
        dtype = dtypes.float32 if self._dtype in (dtypes.float16, dtypes.bfloat16, None) else self._dtype
        self.gamma = self.beta = None
        if self.scale:
            self.gamma = self.add_weight(
                "gamma", shape, dtype, self.gamma_initializer, self.gamma_regularizer, True, self.gamma_constraint
            )
        if self.center:
            self.beta = self.add_weight(
                "beta", shape, dtype, self.beta_initializer, self.beta_regularizer, True, self.beta_constraint
            )
        # The averages are never partitioned, since their updates assign whole values.
        partitioner = self._scope.partitioner if self._scope else None
        if self._scope:
            self._scope.set_partitioner(None)
        replicas: dict[str, Any] = {}
        if self._renorm is None:  # else each replica corrects by averages of its own, which no strategy keeps
            replicas = {"synchronization": VariableSynchronization.ON_READ, "aggregation": VariableAggregation.MEAN}
        self.moving_mean, self.moving_variance = (
            self.add_weight(name, shape, dtype, initializer, trainable=False, **replicas)
            for name, initializer in (
                ("moving_mean", self.moving_mean_initializer), ("moving_variance", self.moving_variance_initializer)
            )
        )  # fmt: skip
        if self._renorm is not None:
            self._renorm.build(
                lambda name, initializer: self.add_weight(name, shape, dtype, initializer, trainable=False),
                self.moving_mean_initializer, self.moving_variance_initializer,
            )  # fmt: skip
        if self._scope:
            self._scope.set_partitioner(partitioner)

    def _in_batches(self, inputs: Tensor, training: TensorLike) -> tuple[Any, list[Any]]:
        """(The outputs for a batch, or for virtual ones of it, and the updates of the averages)."""
        if self.virtual_batch_size is None:
            return self._normalized(inputs, training)
        sizes = [-1, *inputs.shape.as_list()[1:]]
        parts = reshape(inputs, [self.virtual_batch_size, -1, *sizes[1:]])
        normalized, updates = self._normalized(parts, training)
        outputs = reshape(normalized, sizes)
        outputs.set_shape(inputs.shape)
        return outputs, updates

    def _normalized(self, inputs: Tensor, training: TensorLike) -> tuple[Any, list[Any]]:
        outputs, mean, variance = (self._fused if self.fused else self._plain)(inputs, training)
        known = smart_constant_value(training)
        momentum: Any = constant(self.momentum) if self.fused and known is not None else self.momentum
        if known is False:
            return outputs, []
        if not known:  # only in the step: a momentum of 1 keeps the averages unchanged
            momentum = smart_cond(training, lambda: constant(self.momentum), lambda: constant(1.0))
        moved_mean = moved(self.moving_mean, mean, momentum)
        if self._renorm is None:
            return outputs, [moved_mean, moved(self.moving_variance, variance, momentum)]
        return outputs, [
            moved_mean, self._renorm.variance_update(self.moving_variance, variance, self.momentum, training)
        ]  # fmt: skip

    def _fused(self, inputs: Tensor, training: TensorLike) -> tuple[Any, Any, Any]:
        channels = inputs.shape.as_list()[self.axis[0]]
        gamma = constant(1.0, shape=[channels]) if self.gamma is None else self.gamma
        beta = constant(0.0, shape=[channels]) if self.beta is None else self.beta
        data_format = "NCHW" if self.axis == [1] else "NHWC"

        def by_batch() -> list[Any]:
            return list(fused_batch_norm(inputs, gamma, beta, epsilon=self.epsilon, data_format=data_format))

        def by_averages() -> list[Any]:
            return list(
                fused_batch_norm(
                    inputs, gamma, beta, self.moving_mean, self.moving_variance, self.epsilon, data_format, False
                )
            )

        outputs, mean, variance = smart_cond(training, by_batch, by_averages)
        if not self._bessels_correction_test_only:
            count = cast(divide(size(inputs), size(variance)), variance.dtype)
            variance = variance * ((count - 1.0) / count)
        return outputs, mean, variance

    def _plain(self, inputs: Any, training: TensorLike) -> tuple[Any, Any, Any]:
        reduced = [i for i in range(inputs.shape.ndims) if i not in self.axis]
        if self.virtual_batch_size is not None:
            del reduced[1]  # normalize each virtual batch separately
        shaped = self._broadcaster(inputs, reduced)
        mean: Any = convert_to_tensor(self.moving_mean)
        variance: Any = convert_to_tensor(self.moving_variance)
        gamma, beta = shaped(self.gamma), shaped(self.beta)
        batch: Any = (mean, variance)
        if smart_constant_value(training) is not False:
            gamma, beta = self._adjusted(inputs, gamma, beta, training)
            several = len(self.axis) > 1 or self.virtual_batch_size is not None
            batch = moments(cast(inputs, mean.dtype), reduced, keep_dims=several)
            mean = smart_cond(training, _constantly(batch[0]), _constantly(mean))
            variance = smart_cond(training, _constantly(batch[1]), _constantly(variance))
            if self.virtual_batch_size is not None:
                batch = tuple(reduce_mean(moment, axis=1, keepdims=True) for moment in (mean, variance))
            if self._renorm is not None:
                if self.virtual_batch_size is None:
                    batch = (mean, variance)
                r, d, *batch = self._renorm.corrections(batch[0], batch[1], training)
                gamma, beta = _composed(shaped(r), shaped(d), gamma, beta)
        kind = inputs.dtype.base_dtype
        mean, variance, beta, gamma = (
            None if v is None else cast(v, kind) for v in (shaped(mean), shaped(variance), beta, gamma)
        )
        outputs = normalize(inputs, mean, variance, beta, gamma, self.epsilon)
        if smart_constant_value(training) is None:
            count_ops(9)  # TensorFlow updates the averages in conditionals
        outputs.set_shape(inputs.shape)
        return outputs, *batch

    def _adjusted(self, inputs: Tensor, gamma: Tensor, beta: Tensor, training: TensorLike) -> tuple[Any, Any]:
        """Gamma and beta combined with the factor and offset of ``adjustment``, which only training uses."""
        if self.adjustment is None:
            return gamma, beta
        factor, offset = self.adjustment(shape_of(inputs))
        factor = smart_cond(training, _constantly(factor), lambda: ones_like(factor))
        offset = smart_cond(training, _constantly(offset), lambda: zeros_like(offset))
        return _composed(factor, offset, gamma, beta)

    def _broadcaster(self, inputs: Any, reduced: list[int]) -> Callable[[Any], Any]:
        """A function that reshapes a per-channel value to broadcast along the channel axis."""
        rank = inputs.shape.ndims
        if len(self.axis) > 1 or self.virtual_batch_size is not None or reduced == list(range(rank - 1)):
            return lambda value: value
        shape = [inputs.shape.as_list()[i] if i in self.axis else 1 for i in range(rank)]
        return lambda value: None if value is None else reshape(value, shape)


@export("tf.layers.BatchNormalization")
class BatchNormalization(BatchNormalizer, Layer):
    """Subtracts the mean of each channel and divides by its standard deviation (``tf.layers.BatchNormalization``).

    Training uses the batch's moments, and ops in UPDATE_OPS update the moving averages. Inference uses the
    averages.

    Args:
      axis: the axis of the channels, or a list of axes.
      momentum: the weight of the old value in the moving averages.
      epsilon: added to the variance.
      center, scale: whether to add ``beta`` and multiply by ``gamma``.
      beta_initializer, gamma_initializer, moving_mean_initializer, moving_variance_initializer,
        beta_regularizer, gamma_regularizer, beta_constraint, gamma_constraint: arguments of the variables.
      renorm, renorm_clipping, renorm_momentum: batch renormalization (see `Renorm`).
      fused: whether to use the fused op; None uses it for images with channels in axis 1 or 3, unless
        another argument excludes it.
      virtual_batch_size: normalize groups of that many examples separately.
      adjustment: a function from the input's shape to a factor and an offset, which training applies.

    Raises:
      ValueError: when an axis is invalid or arguments contradict each other.
    """

    def __init__(
        self,
        axis: Any = -1,
        momentum: float = 0.99,
        epsilon: float = 1e-3,
        center: bool = True,
        scale: bool = True,
        beta_initializer: Callable[..., Any] = _ZEROS,
        gamma_initializer: Callable[..., Any] = _ONES,
        moving_mean_initializer: Callable[..., Any] = _ZEROS,
        moving_variance_initializer: Callable[..., Any] = _ONES,
        beta_regularizer: Callable[..., Any] | None = None,
        gamma_regularizer: Callable[..., Any] | None = None,
        beta_constraint: Callable[..., Any] | None = None,
        gamma_constraint: Callable[..., Any] | None = None,
        renorm: bool = False,
        renorm_clipping: Any = None,
        renorm_momentum: float = 0.99,
        fused: bool | None = None,
        trainable: bool = True,
        virtual_batch_size: int | None = None,
        adjustment: Callable[..., Any] | None = None,
        name: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(trainable, name, **kwargs)
        self.axis = list(axis) if isinstance(axis, (list, tuple)) else [axis]
        self.momentum, self.epsilon, self.center, self.scale = momentum, epsilon, center, scale
        self.beta_initializer, self.gamma_initializer = beta_initializer, gamma_initializer
        self.moving_mean_initializer = moving_mean_initializer
        self.moving_variance_initializer = moving_variance_initializer
        self.beta_regularizer, self.gamma_regularizer = beta_regularizer, gamma_regularizer
        self.beta_constraint, self.gamma_constraint = beta_constraint, gamma_constraint
        self.fused = fused
        self.virtual_batch_size, self.adjustment = virtual_batch_size, adjustment
        self.renorm = renorm
        self._renorm = Renorm(renorm_clipping, renorm_momentum, epsilon) if renorm else None

    def call(self, inputs: Tensor, training: TensorLike = False) -> Any:
        """Normalizes with the batch's moments if ``training`` (a bool or bool tensor), else with the averages."""
        if training is None:
            training = False
        outputs, updates = self._in_batches(inputs, training)
        for update in updates:
            self.add_update(update)
        return outputs

    def compute_output_shape(self, input_shape: ShapeLike) -> TensorShape:
        return TensorShape(input_shape)


def _composed(scale: Tensor, offset: Tensor, gamma: Tensor, beta: Tensor) -> tuple[Any, Any]:
    """Combines ``(x * scale + offset) * gamma + beta`` into one scale and one offset."""
    if gamma is not None:
        scale, offset = scale * gamma, offset * gamma
    return scale, offset if beta is None else offset + beta


def _constantly(value: TensorLike) -> Callable[[], Any]:
    return lambda: value


batch_normalization = as_function(
    BatchNormalization, at_call=["training"], training=False,
    order="training trainable name reuse renorm renorm_clipping renorm_momentum fused virtual_batch_size adjustment",
)  # fmt: skip
_UPDATES = "The training step must run the ops of the collection UPDATE_OPS, which update the averages."
batch_normalization.__doc__ = f"{batch_normalization.__doc__}\n{_UPDATES}\n"


export_names("tf.layers", "batch_normalization")


# ---- Batch renormalization (Ioffe, 2017): batch statistics corrected towards their moving averages -----------------

_KEYS = ("rmax", "rmin", "dmax")


def moved(variable: Any, value: TensorLike, momentum: Any) -> Any:
    """An op that updates a moving average with a value."""
    with name_scope("AssignMovingAvg") as scope, colocate_with(variable.op):
        decay = cast(convert_to_tensor(1.0 - momentum, name="decay"), variable.dtype.base_dtype)
        delta = (variable - cast(value, variable.dtype.base_dtype)) * decay
        return assign_sub(variable, delta, name=scope)


class Renorm:
    """The moving averages of batch renormalization and the corrections derived from them.

    Args:
      clipping: the bounds "rmin", "rmax" and "dmax" of the corrections; all optional.
      momentum: momentum of the averages.
      epsilon: added to variances.

    Raises:
      ValueError: when ``clipping`` has other keys.
    """

    def __init__(self, clipping: dict[str, Any] | None, momentum: float, epsilon: float) -> None:
        self.clipping = clipping or {}
        if set(self.clipping) - set(_KEYS):
            raise ValueError(f"renorm_clipping {self.clipping} contains keys not in {list(_KEYS)}")
        self.momentum = momentum
        self.epsilon = epsilon

    def build(
        self,
        add: Callable[[str, Any], Any],
        mean_initializer: Callable[..., Any],
        variance_initializer: Callable[..., Any],
    ) -> None:
        """Makes the variables, each with ``add(name, initializer)``."""

        def deviation(*args: Any, **kwargs: Any) -> Any:
            return sqrt(variance_initializer(*args, **kwargs))

        self.moving_stddev = add("moving_stddev", deviation)
        self.mean = add("renorm_mean", mean_initializer)
        self.stddev = add("renorm_stddev", deviation)

    def corrections(self, mean: Tensor, variance: Tensor, training: TensorLike) -> tuple[Any, Any, Any, Any]:
        """The factor r and offset d of the correction, and the moments with a dependency on the updates."""
        stddev = sqrt(variance + self.epsilon)
        floor = maximum(self.stddev, sqrt(self.epsilon))
        r, d = divide(stddev, floor), divide(subtract(mean, self.mean), floor)
        with control_dependencies([r, d]):  # r and d read the averages before the update
            mean, stddev = identity(mean), identity(stddev)
        if "rmin" in self.clipping:
            r = maximum(r, self.clipping["rmin"])
        if "rmax" in self.clipping:
            r = minimum(r, self.clipping["rmax"])
        if "dmax" in self.clipping:
            d = minimum(maximum(d, -self.clipping["dmax"]), self.clipping["dmax"])
        r_used = smart_cond(training, lambda: r, lambda: ones_like(r))
        d_used = smart_cond(training, lambda: d, lambda: zeros_like(d))
        updates = [self._updated(self.mean, mean, training), self._updated(self.stddev, stddev, training)]
        with control_dependencies(updates):
            mean, variance = identity(mean), identity(variance)
        return stop_gradient(r_used, name="renorm_r"), stop_gradient(d_used, name="renorm_d"), mean, variance

    def _updated(self, variable: Variable, value: TensorLike, training: TensorLike) -> Any:
        return smart_cond(training, lambda: identity(moved(variable, value, self.momentum)), lambda: identity(variable))

    def variance_update(
        self, moving_variance: Tensor, variance: Tensor, momentum: TensorLike, training: TensorLike
    ) -> Any:
        """An op that updates the moving variance from the moving standard deviation."""

        def update() -> Any:
            stddev = moved(self.moving_stddev, sqrt(variance + self.epsilon), momentum)
            with name_scope("AssignNewValue") as scope, colocate_with(moving_variance.op):
                return identity(assign(moving_variance, relu(stddev * stddev - self.epsilon), name=scope))

        return smart_cond(training, update, lambda: identity(moving_variance))
