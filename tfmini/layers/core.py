"""Dense, dropout and flatten layers (``tf.layers``)."""

from __future__ import annotations

import math
from typing import Any

from tfmini import dtypes
from tfmini.export import export, export_names
from tfmini.layers.base import Layer
from tfmini.layers.functional import as_function
from tfmini.layers.input_spec import InputSpec
from tfmini.layers.kernel_layer import KernelLayer
from tfmini.ops.array.casting import cast
from tfmini.ops.array.identity import identity
from tfmini.ops.array.joining import stack
from tfmini.ops.array.shape import reshape
from tfmini.ops.array.shape import shape as shape_of
from tfmini.ops.array.transpose import transpose
from tfmini.ops.flow.cond import smart_cond
from tfmini.ops.math.contraction import tensordot
from tfmini.ops.math.matmul import matmul
from tfmini.ops.nn.normalization import dropout as drop_out
from tfmini.ops.variables.initializers import Zeros
from tfmini.shapes import TensorShape


@export("tf.layers.Dense")
class Dense(KernelLayer):
    """``activation(inputs @ kernel + bias)`` over the last axis (``tf.layers.Dense``).

    Args:
      units: the length of the last axis of the result.
      The others are those of `KernelLayer`.
    """

    def __init__(
        self,
        units: int,
        activation: Any = None,
        use_bias: bool = True,
        kernel_initializer: Any = None,
        bias_initializer: Any = Zeros(),  # noqa: B008 - initializers are stateless
        kernel_regularizer: Any = None,
        bias_regularizer: Any = None,
        activity_regularizer: Any = None,
        kernel_constraint: Any = None,
        bias_constraint: Any = None,
        trainable: bool = True,
        name: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(
            activation, use_bias, kernel_initializer, bias_initializer, kernel_regularizer, bias_regularizer,
            activity_regularizer, kernel_constraint, bias_constraint, trainable, name, **kwargs,
        )  # fmt: skip
        self.units = int(units)
        self.input_spec = InputSpec(min_ndim=2)

    def build(self, input_shape: TensorShape) -> None:
        if not self._dtype.is_floating and not self._dtype.is_complex:  # type: ignore[union-attr]
            raise TypeError(f"Unable to build `Dense` layer with non-floating point dtype {self._dtype}")
        width = input_shape.as_list()[-1]
        if width is None:
            raise ValueError("The last dimension of the inputs to `Dense` should be defined. Found `None`.")
        self.input_spec = InputSpec(min_ndim=2, axes={-1: width})
        self._build_kernel([width, self.units])
        self._build_bias(self.units)

    def call(self, inputs: Any) -> Any:
        rank = inputs.shape.ndims
        if rank > 2:
            outputs = tensordot(inputs, self.kernel, [[rank - 1], [0]], name="Tensordot")
            outputs.set_shape(self.compute_output_shape(inputs.shape))
        else:
            outputs = matmul(inputs, self.kernel)
        return self._finished(outputs)

    def compute_output_shape(self, input_shape: Any) -> TensorShape:
        shape = TensorShape(input_shape).with_rank_at_least(2).as_list()
        if shape[-1] is None:
            raise ValueError(f"The innermost dimension of input_shape must be defined, but saw: {input_shape}")
        return TensorShape([*shape[:-1], self.units])


@export("tf.layers.Dropout")
class Dropout(Layer):
    """Sets random elements to zero in training and scales up the others (``tf.layers.Dropout``).

    Args:
      rate: the fraction of elements to set to zero.
      noise_shape: the shape of the random mask; None in an axis means the input's length.
      seed: seed of the mask.
    """

    def __init__(
        self, rate: Any = 0.5, noise_shape: Any = None, seed: int | None = None, name: str | None = None, **kwargs: Any
    ) -> None:
        super().__init__(True, name, **kwargs)
        self.rate, self.noise_shape, self.seed = rate, noise_shape, seed

    def call(self, inputs: Any, training: Any = False) -> Any:
        """Applies dropout if ``training`` (a bool or bool tensor); otherwise the identity."""

        def dropped() -> Any:
            return drop_out(inputs, noise_shape=self._noise_shape(inputs), seed=self.seed, rate=self.rate)

        return smart_cond(training, dropped, lambda: identity(inputs))

    def _noise_shape(self, inputs: Any) -> Any:
        if self.noise_shape is None or not isinstance(self.noise_shape, (list, tuple)):
            return self.noise_shape
        sizes = shape_of(inputs)
        return stack([sizes[i] if size is None else size for i, size in enumerate(self.noise_shape)])

    def compute_output_shape(self, input_shape: Any) -> TensorShape:
        return TensorShape(input_shape)


@export("tf.layers.Flatten")
class Flatten(Layer):
    """Flattens all axes but the first (``tf.layers.Flatten``)."""

    def __init__(self, data_format: str | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.data_format = data_format or "channels_last"
        self.input_spec = InputSpec(min_ndim=1)

    def call(self, inputs: Any) -> Any:
        rank = inputs.shape.ndims
        if self.data_format == "channels_first" and rank is not None and rank > 2:
            inputs = transpose(inputs, [0, *range(2, rank), 1])  # to channels_last
        sizes = inputs.shape.as_list()
        if all(size is not None for size in sizes[1:]):
            return reshape(inputs, [-1 if sizes[0] is None else sizes[0], math.prod(sizes[1:])])
        outputs = reshape(inputs, [cast(shape_of(inputs)[0], dtypes.int32), -1])
        outputs.set_shape(self.compute_output_shape(inputs.shape))
        return outputs

    def compute_output_shape(self, input_shape: Any) -> TensorShape:
        sizes = TensorShape(input_shape).as_list()
        return TensorShape([sizes[0], None if None in sizes[1:] else math.prod(sizes[1:])])


dense = as_function(Dense)
dropout = as_function(Dropout, has_weights=False, at_call=["training"], order="training name", training=False)


@export("tf.layers.flatten")
def flatten(inputs: Any, name: str | None = None, data_format: str = "channels_last") -> Any:
    """Applies a `Flatten` layer (``tf.layers.flatten``)."""
    return Flatten(data_format, name=name)(inputs)


export_names("tf.layers", "dense dropout")
