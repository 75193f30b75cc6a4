"""Convolutions over one, two and three spatial axes (``tf.layers``): plain, separable and transposed ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tfmini.export import export, export_names
from tfmini.layers.functional import as_function, without
from tfmini.layers.input_spec import InputSpec
from tfmini.layers.kernel_layer import KernelLayer
from tfmini.layers.spatial_arguments import (
    around,
    channel_axis,
    channels_of,
    convolved_length,
    deconvolved_length,
    image_format,
    known_padding,
    normalized_tuple,
    op_format,
    within,
)
from tfmini.ops.array.joining import stack
from tfmini.ops.array.shape import expand_dims, squeeze
from tfmini.ops.array.shape import shape as shape_of
from tfmini.ops.nn import convolution
from tfmini.ops.variables.initializers import Zeros
from tfmini.shapes import TensorShape

_ZEROS = Zeros()


class Conv(KernelLayer):
    """Base class of the convolutions; each number of spatial axes has a subclass.

    Args:
      filters: the number of output channels.
      kernel_size, strides, dilation_rate: one int, or one per spatial axis.
      padding: "valid" or "same".
      data_format: "channels_last" or "channels_first".
      The others are those of `KernelLayer`.
    """

    rank: int
    convolve: Callable[..., Any]

    def __init__(
        self,
        filters: int,
        kernel_size: int | Sequence[int],
        strides: int | Sequence[int] = 1,
        padding: str = "valid",
        data_format: str = "channels_last",
        dilation_rate: int | Sequence[int] = 1,
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
        **kwargs: Any,
    ) -> None:
        super().__init__(
            activation, use_bias, kernel_initializer, bias_initializer, kernel_regularizer, bias_regularizer,
            activity_regularizer, kernel_constraint, bias_constraint, trainable, name, **kwargs,
        )  # fmt: skip
        self.filters = int(filters)
        self.kernel_size = normalized_tuple(kernel_size, self.rank, "kernel_size")
        self.strides = normalized_tuple(strides, self.rank, "strides")
        self.dilation_rate = normalized_tuple(dilation_rate, self.rank, "dilation_rate")
        self.padding, self.data_format = known_padding(padding), image_format(data_format)
        self.input_spec = InputSpec(ndim=self.rank + 2)

    @property
    def _layout(self) -> str:
        return op_format(self.data_format, self.rank)

    def kernel_shape(self, channels: int) -> list[int]:
        """The shape of the kernel for inputs with ``channels`` channels."""
        return [*self.kernel_size, channels, self.filters]

    def build(self, input_shape: TensorShape) -> None:
        self._build_kernels(self._channels(input_shape))
        self._build_bias(self.filters)

    def _channels(self, input_shape: TensorShape) -> int:
        """The number of channels, which is required of all further inputs."""
        channels = channels_of(input_shape, self.data_format, type(self).__name__)
        self.input_spec = InputSpec(ndim=self.rank + 2, axes={channel_axis(self.data_format): channels})
        return channels

    def _build_kernels(self, channels: int) -> None:
        self._build_kernel(self.kernel_shape(channels))

    def call(self, inputs: Any) -> Any:
        return self._finished(self._convolved(inputs), self._layout)

    def _convolved(self, inputs: Any) -> Any:
        return type(self).convolve(
            inputs,
            self.kernel,
            around(self.strides, self._layout),
            self.padding.upper(),
            data_format=self._layout,
            dilations=around(self.dilation_rate, self._layout),
            name=f"Conv{self.rank}D",
        )

    def _lengths(self, space: Sequence[Any]) -> list[Any]:
        """The spatial lengths of the result for the given spatial lengths of the inputs."""
        windows = zip(space, self.kernel_size, self.strides, self.dilation_rate)
        return [convolved_length(*each, self.padding) for each in windows]

    def compute_output_shape(self, input_shape: Any) -> TensorShape:
        sizes = TensorShape(input_shape).as_list()
        return TensorShape(around(self._lengths(within(sizes, self._layout)), self._layout, sizes[0], self.filters))


@export("tf.layers.Conv1D")
class Conv1D(Conv):
    """A convolution over one axis (``tf.layers.Conv1D``); see `Conv`."""

    rank = 1
    convolve = staticmethod(convolution.conv1d)


@export("tf.layers.Conv2D")
class Conv2D(Conv):
    """A convolution over rows and columns (``tf.layers.Conv2D``); see `Conv`."""

    rank = 2
    convolve = staticmethod(convolution.conv2d)


@export("tf.layers.Conv3D")
class Conv3D(Conv):
    """A convolution over volumes (``tf.layers.Conv3D``); see `Conv`."""

    rank = 3
    convolve = staticmethod(convolution.conv3d)


class SeparableConv(Conv):
    """Base class of the separable convolutions.

    Args:
      depth_multiplier: number of channels that the depthwise convolution makes of each input channel.
      depthwise_initializer, pointwise_initializer, depthwise_regularizer, pointwise_regularizer,
        depthwise_constraint, pointwise_constraint: arguments of the two kernels.
      The others are those of `Conv`.
    """

    def __init__(
        self,
        filters: int,
        kernel_size: int | Sequence[int],
        strides: int | Sequence[int] = 1,
        padding: str = "valid",
        data_format: str = "channels_last",
        dilation_rate: int | Sequence[int] = 1,
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
            filters, kernel_size, strides, padding, data_format, dilation_rate, activation, use_bias, None,
            bias_initializer, None, bias_regularizer, activity_regularizer, None, bias_constraint, trainable, name,
            **kwargs,
        )  # fmt: skip
        self.depth_multiplier = depth_multiplier
        self.depthwise_initializer, self.pointwise_initializer = depthwise_initializer, pointwise_initializer
        self.depthwise_regularizer, self.pointwise_regularizer = depthwise_regularizer, pointwise_regularizer
        self.depthwise_constraint, self.pointwise_constraint = depthwise_constraint, pointwise_constraint

    def _build_kernels(self, channels: int) -> None:
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


@export("tf.layers.SeparableConv2D")
class SeparableConv2D(SeparableConv):
    """A separable convolution of images (``tf.layers.SeparableConv2D``); see `SeparableConv`."""

    rank = 2

    def _convolved(self, inputs: Any) -> Any:
        return convolution.separable_conv2d(
            inputs,
            self.depthwise_kernel,
            self.pointwise_kernel,
            around(self.strides, self._layout),
            self.padding.upper(),
            rate=list(self.dilation_rate),
            data_format=self._layout,
        )


@export("tf.layers.SeparableConv1D")
class SeparableConv1D(SeparableConv):
    """A separable convolution of sequences (``tf.layers.SeparableConv1D``); see `SeparableConv`."""

    rank = 1

    def _convolved(self, inputs: Any) -> Any:
        # A sequence is an image of one row. The op needs equal strides; the one across the only row has no effect.
        layout = self._layout.replace("W", "HW")
        row = layout.index("H")
        outputs = convolution.separable_conv2d(
            expand_dims(inputs, row),
            expand_dims(self.depthwise_kernel, 0),
            expand_dims(self.pointwise_kernel, 0),
            around(self.strides * 2, layout),
            self.padding.upper(),
            rate=[1, *self.dilation_rate],
            data_format=layout,
        )
        return squeeze(outputs, [row])


class ConvTranspose(Conv):
    """Base class of the transposed convolutions, which compute the gradient of a `Conv`.

    The kernel is ``[*kernel_size, filters, channels]``; the arguments are those of `Conv` without dilation.
    """

    deconvolve: Callable[..., Any]

    __init__ = without(Conv.__init__, "dilation_rate")

    def kernel_shape(self, channels: int) -> list[int]:
        return [*self.kernel_size, self.filters, channels]

    def _lengths(self, space: Sequence[Any]) -> list[Any]:
        return [deconvolved_length(*each, self.padding) for each in zip(space, self.kernel_size, self.strides)]

    def _convolved(self, inputs: Any) -> Any:
        sizes, known = shape_of(inputs), inputs.shape.as_list()
        axes = within(range(self.rank + 2), self._layout)
        space = self._lengths([sizes[i] if known[i] is None else known[i] for i in axes])
        outputs = type(self).deconvolve(
            inputs,
            self.kernel,
            stack(around(space, self._layout, sizes[0], self.filters)),
            around(self.strides, self._layout),
            self.padding.upper(),
            self._layout,
        )
        outputs.set_shape(self.compute_output_shape(inputs.shape))
        return outputs


@export("tf.layers.Conv2DTranspose")
class Conv2DTranspose(ConvTranspose):
    """A transposed convolution of images (``tf.layers.Conv2DTranspose``); see `ConvTranspose`."""

    rank = 2
    deconvolve = staticmethod(convolution.conv2d_transpose)


@export("tf.layers.Conv3DTranspose")
class Conv3DTranspose(ConvTranspose):
    """A transposed convolution of volumes (``tf.layers.Conv3DTranspose``); see `ConvTranspose`."""

    rank = 3
    deconvolve = staticmethod(convolution.conv3d_transpose)


conv1d = as_function(Conv1D)
conv2d = as_function(Conv2D, strides=(1, 1), dilation_rate=(1, 1))
conv3d = as_function(Conv3D, strides=(1, 1, 1), dilation_rate=(1, 1, 1))
separable_conv1d = as_function(SeparableConv1D)
separable_conv2d = as_function(SeparableConv2D, strides=(1, 1), dilation_rate=(1, 1))
conv2d_transpose = as_function(Conv2DTranspose, strides=(1, 1))
conv3d_transpose = as_function(Conv3DTranspose, strides=(1, 1, 1))


export_names("tf.layers", "conv1d conv2d conv2d_transpose conv3d conv3d_transpose separable_conv1d separable_conv2d")
