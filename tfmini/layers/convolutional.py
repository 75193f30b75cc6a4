"""Convolutions over one, two and three spatial axes (``tf.layers``): plain, separable and transposed ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tfmini.core_types import ShapeLike, TensorLike
from tfmini.export import export, export_names
from tfmini.layers.base import InputSpec, Layer
from tfmini.layers.core import KernelLayer, as_function, without
from tfmini.ops.array.joining import stack
from tfmini.ops.array.layout import transpose
from tfmini.ops.array.shape import expand_dims, squeeze
from tfmini.ops.array.shape import shape as shape_of
from tfmini.ops.nn import convolution
from tfmini.ops.nn.dilated import check_steps
from tfmini.ops.nn.pooling import avg_pool, avg_pool3d, max_pool, max_pool3d
from tfmini.ops.variables.initializers import Zeros
from tfmini.shapes import TensorShape

# ---- Spatial arguments of layers: window sizes, data formats, paddings and output lengths --------------------------


def normalized_tuple(value: int | Sequence[int], count: int, name: str) -> tuple[int, ...]:
    """Expands an int to ``count`` ints, or checks ``count`` ints; raises ValueError for anything else."""
    if isinstance(value, (int, np.integer)):
        return (int(value),) * count
    try:
        values = tuple(int(v) for v in value)
    except (TypeError, ValueError):
        values = ()
    if len(values) != count:
        raise ValueError(f"The `{name}` argument must be a tuple of {count} integers. Received: {value}")
    return values


def image_format(data_format: str) -> str:
    """The format in lower case; raises ValueError unless it is ``channels_first`` or ``channels_last``."""
    if data_format.lower() not in ("channels_first", "channels_last"):
        raise ValueError(
            f'The `data_format` argument must be one of "channels_first", "channels_last". Received: {data_format}'
        )
    return data_format.lower()


def op_format(data_format: str, rank: int) -> str:
    """The ops' name of a format with ``rank`` spatial axes: ``NHWC``, ``NCW``, ``NDHWC`` ..."""
    space = "DHW"[3 - rank :]
    return f"NC{space}" if data_format == "channels_first" else f"N{space}C"


def around(space: Sequence[Any], layout: str, batch: Any = 1, channels: int = 1) -> list[Any]:
    """Adds the values for batch and channels to those of the spatial axes, in the order of ``layout``."""
    return [batch, channels, *space] if layout.startswith("NC") else [batch, *space, channels]


def within(values: Sequence[Any], layout: str) -> list[Any]:
    """The values of the spatial axes: the inverse of `around`."""
    return list(values[2:] if layout.startswith("NC") else values[1:-1])


def channel_axis(data_format: str) -> int:
    return 1 if data_format == "channels_first" else -1


def channels_of(shape: ShapeLike, data_format: str, layer: str) -> int:
    """The number of channels of an input; raises ValueError if it is not known."""
    found = TensorShape(shape).as_list()[channel_axis(data_format)]
    if found is None:
        raise ValueError(f"The channel dimension of the inputs to `{layer}` should be defined. Found `None`.")
    return int(found)


def convolved_length(length: int | None, window: int, stride: int, dilation: int, padding: str) -> int | None:
    """The output length of a convolution along one axis; None for an unknown length."""
    if length is None:
        return None
    covered = length if padding == "same" else length - (window - 1) * dilation
    return max(0, -(-covered // stride))


def deconvolved_length(length: int | None, window: int, stride: int, padding: str) -> Any:
    """The output length of a transposed convolution along one axis: an int or a tensor, like ``length``."""
    if length is None:
        return None
    return length * stride if padding == "same" else length * stride + max(window - stride, 0)


def known_padding(padding: str) -> str:
    """The padding in lower case; raises ValueError unless it is ``valid`` or ``same``."""
    if padding.lower() not in ("valid", "same"):
        raise ValueError(f'The `padding` argument must be one of "valid", "same". Received: {padding}')
    return padding.lower()


# ---- Convolution layers: plain, separable and transposed -----------------------------------------------------------

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
        activation: Callable[..., Any] | None = None,
        use_bias: bool = True,
        kernel_initializer: Callable[..., Any] | None = None,
        bias_initializer: Callable[..., Any] | None = _ZEROS,
        kernel_regularizer: Callable[..., Any] | None = None,
        bias_regularizer: Callable[..., Any] | None = None,
        activity_regularizer: Callable[..., Any] | None = None,
        kernel_constraint: Callable[..., Any] | None = None,
        bias_constraint: Callable[..., Any] | None = None,
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
        self._note_dilation()

    def _note_dilation(self) -> None:
        convolution.note_dilation(self.dilation_rate)

    def _channels(self, input_shape: TensorShape) -> int:
        """The number of channels, which is required of all further inputs."""
        channels = channels_of(input_shape, self.data_format, type(self).__name__)
        self.input_spec = InputSpec(ndim=self.rank + 2, axes={channel_axis(self.data_format): channels})
        return channels

    def _build_kernels(self, channels: int) -> None:
        self._build_kernel(self.kernel_shape(channels))

    def call(self, inputs: TensorLike) -> Any:
        return self._finished(self._convolved(inputs), self._layout)

    def _convolved(self, inputs: TensorLike) -> Any:
        check_steps(self.strides, self.dilation_rate)
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

    def compute_output_shape(self, input_shape: ShapeLike) -> TensorShape:
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
        activation: Callable[..., Any] | None = None,
        use_bias: bool = True,
        depthwise_initializer: Callable[..., Any] | None = None,
        pointwise_initializer: Callable[..., Any] | None = None,
        bias_initializer: Callable[..., Any] | None = _ZEROS,
        depthwise_regularizer: Callable[..., Any] | None = None,
        pointwise_regularizer: Callable[..., Any] | None = None,
        bias_regularizer: Callable[..., Any] | None = None,
        activity_regularizer: Callable[..., Any] | None = None,
        depthwise_constraint: Callable[..., Any] | None = None,
        pointwise_constraint: Callable[..., Any] | None = None,
        bias_constraint: Callable[..., Any] | None = None,
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

    def _note_dilation(self) -> None:
        pass  # `separable_conv2d` does

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

    def _convolved(self, inputs: TensorLike) -> Any:
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

    def _convolved(self, inputs: TensorLike) -> Any:
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

    def _note_dilation(self) -> None:
        pass  # it has none

    def kernel_shape(self, channels: int) -> list[int]:
        return [*self.kernel_size, self.filters, channels]

    def _lengths(self, space: Sequence[Any]) -> list[Any]:
        return [deconvolved_length(*each, self.padding) for each in zip(space, self.kernel_size, self.strides)]

    def _convolved(self, inputs: Any) -> Any:
        sizes = shape_of(inputs)
        batch = sizes[0]
        space = self._lengths([sizes[i] for i in within(range(self.rank + 2), self._layout)])
        shape = stack(around(space, self._layout, batch, self.filters))
        if self.rank == 2:
            shape[0]  # for an op that 1.15 makes here: the default seeds of later ops count it
        outputs = type(self).deconvolve(
            inputs,
            self.kernel,
            shape,
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


# ---- Max and average pooling over one, two and three spatial axes (``tf.layers``) ----------------------------------


class Pooling(Layer):
    """Base class of pooling layers.

    Args:
      pool_size: the size of the window: one int, or one per spatial axis.
      strides: the steps between windows: one int, or one per spatial axis.
      padding: "valid" or "same".
      data_format: "channels_last" or "channels_first".
      name: of the layer; default: the class name in snake case, made unique.
    """

    rank: int
    pool: Callable[..., Any]

    def __init__(
        self,
        pool_size: int | Sequence[int],
        strides: int | Sequence[int],
        padding: str = "valid",
        data_format: str = "channels_last",
        name: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(name=name, **kwargs)
        if strides is None:
            raise ValueError("Argument `strides` must not be None.")
        self.pool_size = normalized_tuple(pool_size, self.rank, "pool_size")
        self.strides = normalized_tuple(strides, self.rank, "strides")
        self.padding, self.data_format = known_padding(padding), image_format(data_format)
        self.input_spec = InputSpec(ndim=self.rank + 2)

    def call(self, inputs: TensorLike) -> Any:
        if self.rank > 1:
            return self._pooled(inputs, self.pool_size, self.strides)
        # A sequence is an image of one column.
        column = 3 if self.data_format == "channels_first" else 2
        images = expand_dims(inputs, column)
        return squeeze(self._pooled(images, (*self.pool_size, 1), (*self.strides, 1)), [column])

    def _pooled(self, inputs: TensorLike, window: tuple[int, ...], strides: tuple[int, ...]) -> Any:
        if self.rank == 3 and self.data_format == "channels_first":  # as in TensorFlow, whose op on CPUs has none
            pooled = self._in_layout(transpose(inputs, [0, 2, 3, 4, 1]), window, strides, "NDHWC")
            return transpose(pooled, [0, 4, 1, 2, 3])
        return self._in_layout(inputs, window, strides, op_format(self.data_format, len(window)))

    def _in_layout(self, inputs: TensorLike, window: tuple[int, ...], strides: tuple[int, ...], layout: str) -> Any:
        return type(self).pool(
            inputs, around(window, layout), around(strides, layout), self.padding.upper(), data_format=layout
        )

    def compute_output_shape(self, input_shape: ShapeLike) -> TensorShape:
        sizes = TensorShape(input_shape).as_list()
        first = 2 if self.data_format == "channels_first" else 1
        for i, (window, stride) in enumerate(zip(self.pool_size, self.strides)):
            sizes[first + i] = convolved_length(sizes[first + i], window, stride, 1, self.padding)
        return TensorShape(sizes)


@export("tf.layers.MaxPooling1D")
class MaxPooling1D(Pooling):
    """The maximum of each window of a sequence (``tf.layers.MaxPooling1D``)."""

    rank = 1
    pool = staticmethod(max_pool)


@export("tf.layers.AveragePooling1D")
class AveragePooling1D(Pooling):
    """The mean of each window of a sequence (``tf.layers.AveragePooling1D``)."""

    rank = 1
    pool = staticmethod(avg_pool)


@export("tf.layers.MaxPooling2D")
class MaxPooling2D(Pooling):
    """The maximum of each window of an image (``tf.layers.MaxPooling2D``)."""

    rank = 2
    pool = staticmethod(max_pool)


@export("tf.layers.AveragePooling2D")
class AveragePooling2D(Pooling):
    """The mean of each window of an image (``tf.layers.AveragePooling2D``)."""

    rank = 2
    pool = staticmethod(avg_pool)


@export("tf.layers.MaxPooling3D")
class MaxPooling3D(Pooling):
    """The maximum of each window of a volume (``tf.layers.MaxPooling3D``)."""

    rank = 3
    pool = staticmethod(max_pool3d)


@export("tf.layers.AveragePooling3D")
class AveragePooling3D(Pooling):
    """The mean of each window of a volume (``tf.layers.AveragePooling3D``)."""

    rank = 3
    pool = staticmethod(avg_pool3d)


max_pooling1d = as_function(MaxPooling1D, has_weights=False)
max_pooling2d = as_function(MaxPooling2D, has_weights=False)
max_pooling3d = as_function(MaxPooling3D, has_weights=False)
average_pooling1d = as_function(AveragePooling1D, has_weights=False)
average_pooling2d = as_function(AveragePooling2D, has_weights=False)
average_pooling3d = as_function(AveragePooling3D, has_weights=False)

export_names(
    "tf.layers",
    "average_pooling1d average_pooling2d average_pooling3d max_pooling1d max_pooling2d max_pooling3d",
)
