"""``tf.layers``: batch normalisation, with moving averages that UPDATE_OPS keep."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tfmini import dtypes
from tfmini.graph.conversion import convert_to_tensor
from tfmini.layers.base import Layer
from tfmini.layers.input_spec import InputSpec
from tfmini.ops.array_shape import reshape
from tfmini.ops.casting import cast
from tfmini.ops.cond import smart_cond, smart_constant_value
from tfmini.ops.constant import constant
from tfmini.ops.initializers import Ones, Zeros
from tfmini.ops.math_elementwise import multiply, subtract
from tfmini.ops.nn_batch_norm import fused_batch_norm
from tfmini.ops.nn_norm import batch_normalization as normalize
from tfmini.ops.nn_norm import moments
from tfmini.ops.scoping import colocate_with, name_scope
from tfmini.ops.state_functions import assign_sub
from tfmini.shapes import TensorShape

__all__ = ["BatchNormalization", "batch_normalization"]

_ZEROS, _ONES = Zeros(), Ones()


class BatchNormalization(Layer):
    """Subtracts the mean and divides by the deviation of each channel (``tf.layers.BatchNormalization``).

    In training those are the batch's, and ops in UPDATE_OPS move the averages that are used otherwise.

    Args:
      axis: the channels' axis, or a list of axes.
      momentum: the weight of the old value in the moving averages.
      epsilon: added to the variance.
      center, scale: whether to add ``beta`` and multiply by ``gamma``.
      beta_initializer, gamma_initializer, moving_mean_initializer, moving_variance_initializer,
        beta_regularizer, gamma_regularizer, beta_constraint, gamma_constraint: for the variables.
      renorm, virtual_batch_size, adjustment: not supported.
      fused: whether to use the fused op; None: for images with channels in axis 1 or 3.

    Raises:
      NotImplementedError: for renorm, virtual_batch_size or adjustment.
      ValueError: for axes that cannot be.
    """

    def __init__(
        self,
        axis: Any = -1,
        momentum: float = 0.99,
        epsilon: float = 1e-3,
        center: bool = True,
        scale: bool = True,
        beta_initializer: Any = _ZEROS,
        gamma_initializer: Any = _ONES,
        moving_mean_initializer: Any = _ZEROS,
        moving_variance_initializer: Any = _ONES,
        beta_regularizer: Any = None,
        gamma_regularizer: Any = None,
        beta_constraint: Any = None,
        gamma_constraint: Any = None,
        renorm: bool = False,
        renorm_clipping: Any = None,
        renorm_momentum: float = 0.99,
        fused: bool | None = None,
        trainable: bool = True,
        virtual_batch_size: int | None = None,
        adjustment: Any = None,
        name: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(trainable, name, **kwargs)
        refused = {"renorm": renorm, "virtual_batch_size": virtual_batch_size, "adjustment": adjustment}
        for unsupported, given in refused.items():
            if given:
                raise NotImplementedError(f"tfmini's batch normalization has no `{unsupported}`; leave it out.")
        self.axis = list(axis) if isinstance(axis, (list, tuple)) else [axis]
        self.momentum, self.epsilon, self.center, self.scale = momentum, epsilon, center, scale
        self.beta_initializer, self.gamma_initializer = beta_initializer, gamma_initializer
        self.moving_mean_initializer = moving_mean_initializer
        self.moving_variance_initializer = moving_variance_initializer
        self.beta_regularizer, self.gamma_regularizer = beta_regularizer, gamma_regularizer
        self.beta_constraint, self.gamma_constraint = beta_constraint, gamma_constraint
        self.fused = fused

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
        lengths = {a: sizes[a] for a in axes}
        if None in lengths.values():
            raise ValueError(f"Input has undefined `axis` dimension. Input shape: {input_shape}")
        self.axis = axes
        self.input_spec = InputSpec(ndim=rank, axes=lengths)
        fits = rank == 4 and axes in ([1], [3])
        self.fused = fits if self.fused is None else bool(self.fused) and fits
        several = [size if i in axes else 1 for i, size in enumerate(sizes)]
        self._build_weights(several if len(axes) > 1 else [lengths[axes[0]]])

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
        # The averages are never cut in parts: their updates are made of whole values.
        partitioner = self._scope.partitioner if self._scope else None
        if self._scope:
            self._scope.set_partitioner(None)
        self.moving_mean = self.add_weight(
            "moving_mean", shape, dtype, self.moving_mean_initializer, trainable=False
        )
        self.moving_variance = self.add_weight(
            "moving_variance", shape, dtype, self.moving_variance_initializer, trainable=False
        )
        if self._scope:
            self._scope.set_partitioner(partitioner)

    def call(self, inputs: Any, training: Any = False) -> Any:
        """Normalises by the batch when ``training``, a bool or a bool tensor; by the averages otherwise."""
        if training is None:
            training = False
        outputs, mean, variance = (self._fused if self.fused else self._plain)(inputs, training)
        known = smart_constant_value(training)
        if known is not False:
            # Where training is known only in the running graph, a decay of 0 leaves the averages alone.
            momentum = (
                constant(self.momentum)
                if known
                else smart_cond(training, lambda: constant(self.momentum), lambda: constant(1.0))
            )
            self.add_update(self._moved(self.moving_mean, mean, momentum))
            self.add_update(self._moved(self.moving_variance, variance, momentum))
        return outputs

    def _moved(self, variable: Any, value: Any, momentum: Any) -> Any:
        with name_scope("AssignMovingAvg") as scope, colocate_with(variable.op):
            decay = cast(subtract(1.0, momentum), variable.dtype.base_dtype)
            delta = multiply(subtract(variable, cast(value, variable.dtype.base_dtype)), decay)
            return assign_sub(variable, delta, name=scope)

    def _fused(self, inputs: Any, training: Any) -> tuple[Any, Any, Any]:
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
        return outputs, mean, variance

    def _plain(self, inputs: Any, training: Any) -> tuple[Any, Any, Any]:
        rank = inputs.shape.ndims
        reduced = [i for i in range(rank) if i not in self.axis]
        known = smart_constant_value(training)
        mean, variance = convert_to_tensor(self.moving_mean), convert_to_tensor(self.moving_variance)
        batch = (mean, variance)
        if known is not False:
            batch = moments(inputs, reduced, keep_dims=len(self.axis) > 1)
            mean = smart_cond(training, _constantly(batch[0]), _constantly(mean))
            variance = smart_cond(training, _constantly(batch[1]), _constantly(variance))
        shaped = self._broadcaster(inputs, reduced)
        outputs = normalize(
            inputs, shaped(mean), shaped(variance), shaped(self.beta), shaped(self.gamma), self.epsilon
        )
        outputs.set_shape(inputs.shape)
        return outputs, *batch

    def _broadcaster(self, inputs: Any, reduced: list[int]) -> Callable[[Any], Any]:
        """Shapes a per-channel value so that it meets its axis; nothing to do where that is the last one."""
        rank = inputs.shape.ndims
        if len(self.axis) > 1 or reduced == list(range(rank - 1)):
            return lambda value: value
        shape = [inputs.shape.as_list()[i] if i in self.axis else 1 for i in range(rank)]
        return lambda value: None if value is None else reshape(value, shape)

    def compute_output_shape(self, input_shape: Any) -> TensorShape:
        return TensorShape(input_shape)


def _constantly(value: Any) -> Callable[[], Any]:
    return lambda: value


def batch_normalization(
    inputs: Any,
    axis: Any = -1,
    momentum: float = 0.99,
    epsilon: float = 1e-3,
    center: bool = True,
    scale: bool = True,
    beta_initializer: Any = _ZEROS,
    gamma_initializer: Any = _ONES,
    moving_mean_initializer: Any = _ZEROS,
    moving_variance_initializer: Any = _ONES,
    beta_regularizer: Any = None,
    gamma_regularizer: Any = None,
    beta_constraint: Any = None,
    gamma_constraint: Any = None,
    training: Any = False,
    trainable: bool = True,
    name: str | None = None,
    reuse: Any = None,
    renorm: bool = False,
    renorm_clipping: Any = None,
    renorm_momentum: float = 0.99,
    fused: bool | None = None,
    virtual_batch_size: int | None = None,
    adjustment: Any = None,
) -> Any:
    """A `BatchNormalization` layer, applied (``tf.layers.batch_normalization``).

    The training step must run the ops of the collection UPDATE_OPS, or the averages stay as they are.
    """
    layer = BatchNormalization(
        axis, momentum, epsilon, center, scale, beta_initializer, gamma_initializer, moving_mean_initializer,
        moving_variance_initializer, beta_regularizer, gamma_regularizer, beta_constraint, gamma_constraint, renorm,
        renorm_clipping, renorm_momentum, fused, trainable, virtual_batch_size, adjustment, name, _reuse=reuse,
        _scope=name,
    )  # fmt: skip
    return layer(inputs, training=training)
