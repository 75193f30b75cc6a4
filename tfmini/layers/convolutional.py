"""``tf.layers``: convolutions over one and two axes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tfmini.layers.base import Layer
from tfmini.layers.images import (
    channel_axis,
    channels_of,
    convolved_length,
    image_format,
    known_padding,
    normalized_tuple,
)
from tfmini.layers.input_spec import InputSpec
from tfmini.ops.initializers import Zeros
from tfmini.ops.nn_bias import bias_add
from tfmini.ops.nn_convolution import conv1d as convolve1d
from tfmini.ops.nn_convolution import conv2d as convolve2d
from tfmini.shapes import TensorShape

__all__ = ["Conv", "Conv1D", "Conv2D", "Convolution1D", "Convolution2D", "conv1d", "conv2d", "convolution2d"]

_ZEROS = Zeros()


class Conv(Layer):
    """The base of the convolutions.

    Args:
      rank: the number of spatial axes.
      filters: the number of output channels.
      kernel_size, strides, dilation_rate: one int, or one for each spatial axis.
      padding: "valid" or "same".
      data_format: "channels_last" or "channels_first".
      The others are those of `tfmini.layers.core.Dense`.
    """

    def __init__(
        self,
        rank: int,
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
        super().__init__(trainable, name, **kwargs)
        self.rank, self.filters = rank, int(filters)
        self.kernel_size = normalized_tuple(kernel_size, rank, "kernel_size")
        self.strides = normalized_tuple(strides, rank, "strides")
        self.dilation_rate = normalized_tuple(dilation_rate, rank, "dilation_rate")
        self.padding, self.data_format = known_padding(padding), image_format(data_format)
        self.activation, self.use_bias = activation, use_bias
        self.kernel_initializer, self.bias_initializer = kernel_initializer, bias_initializer
        self.kernel_regularizer, self.bias_regularizer = kernel_regularizer, bias_regularizer
        self.activity_regularizer = activity_regularizer
        self.kernel_constraint, self.bias_constraint = kernel_constraint, bias_constraint
        self.input_spec = InputSpec(ndim=rank + 2)

    @property
    def _first(self) -> bool:
        return self.data_format == "channels_first"

    def kernel_shape(self, channels: int) -> list[int]:
        """The kernel's shape for an input of so many channels."""
        return [*self.kernel_size, channels, self.filters]

    def build(self, input_shape: TensorShape) -> None:
        channels = channels_of(input_shape, self.data_format, type(self).__name__)
        self.input_spec = InputSpec(ndim=self.rank + 2, axes={channel_axis(self.data_format): channels})
        self.kernel = self.add_weight(
            "kernel",
            self.kernel_shape(channels),
            initializer=self.kernel_initializer,
            regularizer=self.kernel_regularizer,
            constraint=self.kernel_constraint,
        )
        self._build_bias()

    def _build_bias(self) -> None:
        self.bias = None
        if self.use_bias:
            self.bias = self.add_weight(
                "bias",
                [self.filters],
                initializer=self.bias_initializer,
                regularizer=self.bias_regularizer,
                constraint=self.bias_constraint,
            )

    def call(self, inputs: Any) -> Any:
        return self._finished(self._convolved(inputs))

    def _convolved(self, inputs: Any) -> Any:
        raise NotImplementedError

    def _finished(self, outputs: Any) -> Any:
        """Bias, activation and the loss of the activity."""
        if self.bias is not None:
            outputs = bias_add(outputs, self.bias, "NCHW" if self._first else "NHWC", name="BiasAdd")
        if self.activation is not None:
            outputs = self.activation(outputs)
        if self.activity_regularizer is not None:
            self.add_loss(self.activity_regularizer(outputs))
        return outputs

    def compute_output_shape(self, input_shape: Any) -> TensorShape:
        sizes = TensorShape(input_shape).as_list()
        space = sizes[2:] if self._first else sizes[1:-1]
        new = [
            convolved_length(*each, self.padding)
            for each in zip(space, self.kernel_size, self.strides, self.dilation_rate)
        ]
        return TensorShape([sizes[0], self.filters, *new] if self._first else [sizes[0], *new, self.filters])


class Conv2D(Conv):
    """A convolution over rows and columns (``tf.layers.Conv2D``); see `Conv`."""

    def __init__(self, filters: int, kernel_size: Any, strides: Any = (1, 1), *args: Any, **kwargs: Any) -> None:
        super().__init__(2, filters, kernel_size, strides, *args, **kwargs)

    def _convolved(self, inputs: Any) -> Any:
        one = [1, 1]
        steps, gaps = list(self.strides), list(self.dilation_rate)
        return convolve2d(
            inputs,
            self.kernel,
            one + steps if self._first else [1, *steps, 1],
            self.padding.upper(),
            data_format="NCHW" if self._first else "NHWC",
            dilations=one + gaps if self._first else [1, *gaps, 1],
            name="Conv2D",
        )


class Conv1D(Conv):
    """A convolution over one axis (``tf.layers.Conv1D``); see `Conv`."""

    def __init__(self, filters: int, kernel_size: Any, strides: Any = 1, *args: Any, **kwargs: Any) -> None:
        super().__init__(1, filters, kernel_size, strides, *args, **kwargs)

    def _convolved(self, inputs: Any) -> Any:
        return convolve1d(
            inputs,
            self.kernel,
            self.strides[0],
            self.padding.upper(),
            data_format="NCW" if self._first else "NWC",
            dilations=self.dilation_rate[0],
            name="Conv1D",
        )


def conv2d(
    inputs: Any,
    filters: int,
    kernel_size: Any,
    strides: Any = (1, 1),
    padding: str = "valid",
    data_format: str = "channels_last",
    dilation_rate: Any = (1, 1),
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
    """A `Conv2D` layer, applied (``tf.layers.conv2d``)."""
    layer = Conv2D(
        filters, kernel_size, strides, padding, data_format, dilation_rate, activation, use_bias, kernel_initializer,
        bias_initializer, kernel_regularizer, bias_regularizer, activity_regularizer, kernel_constraint,
        bias_constraint, trainable, name, _scope=name, _reuse=reuse,
    )  # fmt: skip
    return layer(inputs)


def conv1d(
    inputs: Any,
    filters: int,
    kernel_size: Any,
    strides: Any = 1,
    padding: str = "valid",
    data_format: str = "channels_last",
    dilation_rate: Any = 1,
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
    """A `Conv1D` layer, applied (``tf.layers.conv1d``)."""
    layer = Conv1D(
        filters, kernel_size, strides, padding, data_format, dilation_rate, activation, use_bias, kernel_initializer,
        bias_initializer, kernel_regularizer, bias_regularizer, activity_regularizer, kernel_constraint,
        bias_constraint, trainable, name, _scope=name, _reuse=reuse,
    )  # fmt: skip
    return layer(inputs)


Convolution1D, Convolution2D, convolution1d, convolution2d = Conv1D, Conv2D, conv1d, conv2d
