"""Convolutions over one, two and three spatial axes (``tf.layers``)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tfmini.export import export, export_names
from tfmini.layers.functional import as_function
from tfmini.layers.input_spec import InputSpec
from tfmini.layers.kernel_layer import KernelLayer
from tfmini.layers.spatial_arguments import (
    around,
    channel_axis,
    channels_of,
    convolved_length,
    image_format,
    known_padding,
    normalized_tuple,
    op_format,
    within,
)
from tfmini.ops.nn.convolution import conv1d as convolve1d
from tfmini.ops.nn.convolution import conv2d as convolve2d
from tfmini.ops.nn.convolution import conv3d as convolve3d
from tfmini.ops.variables.initializers import Zeros
from tfmini.shapes import TensorShape

ZEROS = Zeros()


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
        bias_initializer: Any = ZEROS,
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
    convolve = staticmethod(convolve1d)


@export("tf.layers.Conv2D")
class Conv2D(Conv):
    """A convolution over rows and columns (``tf.layers.Conv2D``); see `Conv`."""

    rank = 2
    convolve = staticmethod(convolve2d)


@export("tf.layers.Conv3D")
class Conv3D(Conv):
    """A convolution over volumes (``tf.layers.Conv3D``); see `Conv`."""

    rank = 3
    convolve = staticmethod(convolve3d)


conv1d = as_function(Conv1D)
conv2d = as_function(Conv2D, strides=(1, 1), dilation_rate=(1, 1))
conv3d = as_function(Conv3D, strides=(1, 1, 1), dilation_rate=(1, 1, 1))

export_names("tf.layers", "conv1d conv2d conv3d")
