"""``tf.layers``: transposed and separable convolutions over images."""

from __future__ import annotations

from typing import Any

from tfmini.layers.convolutional import Conv
from tfmini.layers.images import channel_axis, channels_of, deconvolved_length
from tfmini.layers.input_spec import InputSpec
from tfmini.ops.array_joining import stack
from tfmini.ops.array_shape import expand_dims, squeeze
from tfmini.ops.array_shape import shape as shape_of
from tfmini.ops.initializers import Zeros
from tfmini.ops.nn_convolution import conv2d_transpose as transposed
from tfmini.ops.nn_convolution import separable_conv2d as separable
from tfmini.shapes import TensorShape

__all__ = [
    "Conv2DTranspose", "Deconvolution2D", "SeparableConv2D", "SeparableConvolution2D", "conv2d_transpose",
    "deconvolution2d", "SeparableConv1D", "separable_conv1d", "separable_conv2d", "separable_convolution2d",
]  # fmt: skip

_ZEROS = Zeros()


class Conv2DTranspose(Conv):
    """The convolution whose gradient is a `Conv2D` (``tf.layers.Conv2DTranspose``).

    The kernel is ``[rows, columns, filters, channels]``; the other arguments are those of `Conv`.
    """

    def __init__(
        self,
        filters: int,
        kernel_size: Any,
        strides: Any = (1, 1),
        padding: str = "valid",
        data_format: str = "channels_last",
        *args: Any,
        **kwargs: Any,
    ) -> None:
        super().__init__(2, filters, kernel_size, strides, padding, data_format, 1, *args, **kwargs)

    def kernel_shape(self, channels: int) -> list[int]:
        return [*self.kernel_size, self.filters, channels]

    def _convolved(self, inputs: Any) -> Any:
        sizes = shape_of(inputs)
        known = inputs.shape.as_list()
        first = 2 if self._first else 1
        space = [known[first + i] if known[first + i] is not None else sizes[first + i] for i in (0, 1)]
        space = [
            deconvolved_length(*each, self.padding) for each in zip(space, self.kernel_size, self.strides)
        ]
        shape = [sizes[0], self.filters, *space] if self._first else [sizes[0], *space, self.filters]
        outputs = transposed(
            inputs,
            self.kernel,
            stack(shape),
            [1, 1, *self.strides] if self._first else [1, *self.strides, 1],
            self.padding.upper(),
            data_format="NCHW" if self._first else "NHWC",
        )
        outputs.set_shape(self.compute_output_shape(inputs.shape))
        return outputs

    def compute_output_shape(self, input_shape: Any) -> TensorShape:
        sizes = TensorShape(input_shape).as_list()
        space = sizes[2:] if self._first else sizes[1:-1]
        new = [deconvolved_length(*each, self.padding) for each in zip(space, self.kernel_size, self.strides)]
        return TensorShape([sizes[0], self.filters, *new] if self._first else [sizes[0], *new, self.filters])


class SeparableConv2D(Conv):
    """A convolution of each channel, then one across channels (``tf.layers.SeparableConv2D``).

    Args:
      depth_multiplier: how many results the first makes of each channel.
      depthwise_initializer, pointwise_initializer, depthwise_regularizer, pointwise_regularizer,
        depthwise_constraint, pointwise_constraint: for the kernels of the first and the second.
      The others are those of `Conv`.
    """

    rank = 2

    def __init__(
        self,
        filters: int,
        kernel_size: Any,
        strides: Any = (1, 1),
        padding: str = "valid",
        data_format: str = "channels_last",
        dilation_rate: Any = (1, 1),
        depth_multiplier: int = 1,
        activation: Any = None,
        use_bias: bool = True,
        depthwise_initializer: Any = None,
        pointwise_initializer: Any = None,
        bias_initializer: Any = _ZEROS,
        depthwise_regularizer: Any = None,
        pointwise_regularizer: Any = None,
        bias_regularizer: Any = None,
        activity_regularizer: Any = None,
        depthwise_constraint: Any = None,
        pointwise_constraint: Any = None,
        bias_constraint: Any = None,
        trainable: bool = True,
        name: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(
            self.rank, filters, kernel_size, strides, padding, data_format, dilation_rate, activation, use_bias, None,
            bias_initializer, None, bias_regularizer, activity_regularizer, None, bias_constraint, trainable, name,
            **kwargs,
        )  # fmt: skip
        self.depth_multiplier = depth_multiplier
        self.depthwise_initializer, self.pointwise_initializer = depthwise_initializer, pointwise_initializer
        self.depthwise_regularizer, self.pointwise_regularizer = depthwise_regularizer, pointwise_regularizer
        self.depthwise_constraint, self.pointwise_constraint = depthwise_constraint, pointwise_constraint

    def build(self, input_shape: TensorShape) -> None:
        channels = channels_of(input_shape, self.data_format, type(self).__name__)
        self.input_spec = InputSpec(ndim=self.rank + 2, axes={channel_axis(self.data_format): channels})
        self.depthwise_kernel = self.add_weight(
            "depthwise_kernel",
            [*self.kernel_size, channels, self.depth_multiplier],
            initializer=self.depthwise_initializer,
            regularizer=self.depthwise_regularizer,
            constraint=self.depthwise_constraint,
        )
        self.pointwise_kernel = self.add_weight(
            "pointwise_kernel",
            [*[1] * self.rank, channels * self.depth_multiplier, self.filters],
            initializer=self.pointwise_initializer,
            regularizer=self.pointwise_regularizer,
            constraint=self.pointwise_constraint,
        )
        self._build_bias()

    def _convolved(self, inputs: Any) -> Any:
        return self._separable(inputs, self.depthwise_kernel, self.pointwise_kernel, self.strides, self.dilation_rate)

    def _separable(self, inputs: Any, depthwise: Any, pointwise: Any, strides: Any, rate: Any) -> Any:
        return separable(
            inputs,
            depthwise,
            pointwise,
            [1, 1, *strides] if self._first else [1, *strides, 1],
            self.padding.upper(),
            rate=list(rate),
            data_format="NCHW" if self._first else "NHWC",
        )


class SeparableConv1D(SeparableConv2D):
    """`SeparableConv2D` over one axis (``tf.layers.SeparableConv1D``)."""

    rank = 1

    def __init__(
        self, filters: int, kernel_size: Any, strides: Any = 1, padding: str = "valid",
        data_format: str = "channels_last", dilation_rate: Any = 1, *args: Any, **kwargs: Any,
    ) -> None:  # fmt: skip
        super().__init__(filters, kernel_size, strides, padding, data_format, dilation_rate, *args, **kwargs)

    def _convolved(self, inputs: Any) -> Any:
        # An image of one row. Both strides are equal, as the kernel wants it: along one row that does not matter.
        row = 2 if self._first else 1
        outputs = self._separable(
            expand_dims(inputs, row),
            expand_dims(self.depthwise_kernel, 0),
            expand_dims(self.pointwise_kernel, 0),
            self.strides * 2,
            (1, *self.dilation_rate),
        )
        return squeeze(outputs, [row])


def conv2d_transpose(
    inputs: Any,
    filters: int,
    kernel_size: Any,
    strides: Any = (1, 1),
    padding: str = "valid",
    data_format: str = "channels_last",
    activation: Any = None,
    use_bias: bool = True,
    kernel_initializer: Any = None,
    bias_initializer: Any = _ZEROS,
    kernel_regularizer: Any = None,
    bias_regularizer: Any = None,
    activity_regularizer: Any = None,
    kernel_constraint: Any = None,
    bias_constraint: Any = None,
    trainable: bool = True,
    name: str | None = None,
    reuse: Any = None,
) -> Any:
    """A `Conv2DTranspose` layer, applied (``tf.layers.conv2d_transpose``)."""
    layer = Conv2DTranspose(
        filters, kernel_size, strides, padding, data_format, activation, use_bias, kernel_initializer,
        bias_initializer, kernel_regularizer, bias_regularizer, activity_regularizer, kernel_constraint,
        bias_constraint, trainable, name, _scope=name, _reuse=reuse,
    )  # fmt: skip
    return layer(inputs)


def separable_conv2d(
    inputs: Any,
    filters: int,
    kernel_size: Any,
    strides: Any = (1, 1),
    padding: str = "valid",
    data_format: str = "channels_last",
    dilation_rate: Any = (1, 1),
    depth_multiplier: int = 1,
    activation: Any = None,
    use_bias: bool = True,
    depthwise_initializer: Any = None,
    pointwise_initializer: Any = None,
    bias_initializer: Any = _ZEROS,
    depthwise_regularizer: Any = None,
    pointwise_regularizer: Any = None,
    bias_regularizer: Any = None,
    activity_regularizer: Any = None,
    depthwise_constraint: Any = None,
    pointwise_constraint: Any = None,
    bias_constraint: Any = None,
    trainable: bool = True,
    name: str | None = None,
    reuse: Any = None,
) -> Any:
    """A `SeparableConv2D` layer, applied (``tf.layers.separable_conv2d``)."""
    layer = SeparableConv2D(
        filters, kernel_size, strides, padding, data_format, dilation_rate, depth_multiplier, activation, use_bias,
        depthwise_initializer, pointwise_initializer, bias_initializer, depthwise_regularizer,
        pointwise_regularizer, bias_regularizer, activity_regularizer, depthwise_constraint, pointwise_constraint,
        bias_constraint, trainable, name, _scope=name, _reuse=reuse,
    )  # fmt: skip
    return layer(inputs)


def separable_conv1d(
    inputs: Any,
    filters: int,
    kernel_size: Any,
    strides: Any = 1,
    padding: str = "valid",
    data_format: str = "channels_last",
    dilation_rate: Any = 1,
    depth_multiplier: int = 1,
    activation: Any = None,
    use_bias: bool = True,
    depthwise_initializer: Any = None,
    pointwise_initializer: Any = None,
    bias_initializer: Any = _ZEROS,
    depthwise_regularizer: Any = None,
    pointwise_regularizer: Any = None,
    bias_regularizer: Any = None,
    activity_regularizer: Any = None,
    depthwise_constraint: Any = None,
    pointwise_constraint: Any = None,
    bias_constraint: Any = None,
    trainable: bool = True,
    name: str | None = None,
    reuse: Any = None,
) -> Any:
    """A `SeparableConv1D` layer, applied (``tf.layers.separable_conv1d``)."""
    layer = SeparableConv1D(
        filters, kernel_size, strides, padding, data_format, dilation_rate, depth_multiplier, activation, use_bias,
        depthwise_initializer, pointwise_initializer, bias_initializer, depthwise_regularizer,
        pointwise_regularizer, bias_regularizer, activity_regularizer, depthwise_constraint, pointwise_constraint,
        bias_constraint, trainable, name, _scope=name, _reuse=reuse,
    )  # fmt: skip
    return layer(inputs)


Deconvolution2D, deconvolution2d = Conv2DTranspose, conv2d_transpose
SeparableConvolution2D, separable_convolution2d = SeparableConv2D, separable_conv2d
