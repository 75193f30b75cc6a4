"""``tf.layers``: convolutions, transposed convolutions and pooling over volumes."""

from __future__ import annotations

from typing import Any

from tfmini.layers.convolutional import Conv
from tfmini.layers.images import deconvolved_length
from tfmini.layers.pooling import Pooling
from tfmini.ops.array_joining import stack
from tfmini.ops.array_shape import shape as shape_of
from tfmini.ops.initializers import Zeros
from tfmini.ops.nn_volumes import avg_pool3d, conv3d_input_op, max_pool3d
from tfmini.ops.nn_volumes import conv3d as convolve3d
from tfmini.shapes import TensorShape

__all__ = [
    "AveragePooling3D", "Conv3D", "Conv3DTranspose", "Convolution3D", "Deconvolution3D", "MaxPooling3D",
    "average_pooling3d", "conv3d", "conv3d_transpose", "convolution3d", "deconvolution3d", "max_pooling3d",
]  # fmt: skip

_ZEROS = Zeros()


class Conv3D(Conv):
    """A convolution over volumes (``tf.layers.Conv3D``); see `Conv`."""

    def __init__(self, filters: int, kernel_size: Any, strides: Any = (1, 1, 1), *args: Any, **kwargs: Any) -> None:
        super().__init__(3, filters, kernel_size, strides, *args, **kwargs)

    def _convolved(self, inputs: Any) -> Any:
        steps, gaps = list(self.strides), list(self.dilation_rate)
        return convolve3d(
            inputs,
            self.kernel,
            [1, 1, *steps] if self._first else [1, *steps, 1],
            self.padding.upper(),
            data_format="NCDHW" if self._first else "NDHWC",
            dilations=[1, 1, *gaps] if self._first else [1, *gaps, 1],
            name="Conv3D",
        )


class Conv3DTranspose(Conv):
    """The convolution whose gradient is a `Conv3D` (``tf.layers.Conv3DTranspose``).

    The kernel is ``[depth, rows, columns, filters, channels]``; the other arguments are those of `Conv`.
    """

    def __init__(
        self,
        filters: int,
        kernel_size: Any,
        strides: Any = (1, 1, 1),
        padding: str = "valid",
        data_format: str = "channels_last",
        *args: Any,
        **kwargs: Any,
    ) -> None:
        super().__init__(3, filters, kernel_size, strides, padding, data_format, 1, *args, **kwargs)

    def kernel_shape(self, channels: int) -> list[int]:
        return [*self.kernel_size, self.filters, channels]

    def _lengths(self, space: Any) -> list[Any]:
        return [deconvolved_length(*each, self.padding) for each in zip(space, self.kernel_size, self.strides)]

    def _arranged(self, batch: Any, space: list[Any]) -> list[Any]:
        return [batch, self.filters, *space] if self._first else [batch, *space, self.filters]

    def _convolved(self, inputs: Any) -> Any:
        sizes, known = shape_of(inputs), inputs.shape.as_list()
        first = 2 if self._first else 1
        space = [sizes[i] if known[i] is None else known[i] for i in range(first, first + 3)]
        outputs = conv3d_input_op(
            stack(self._arranged(sizes[0], self._lengths(space))),
            self.kernel,
            inputs,
            strides=[1, 1, *self.strides] if self._first else [1, *self.strides, 1],
            padding=self.padding.upper(),
            data_format="NCDHW" if self._first else "NDHWC",
        )
        outputs.set_shape(self.compute_output_shape(inputs.shape))
        return outputs

    def compute_output_shape(self, input_shape: Any) -> TensorShape:
        sizes = TensorShape(input_shape).as_list()
        space = sizes[2:] if self._first else sizes[1:-1]
        return TensorShape(self._arranged(sizes[0], self._lengths(space)))


class MaxPooling3D(Pooling):
    """The maximum of each window of a volume (``tf.layers.MaxPooling3D``)."""

    rank = 3
    pool = staticmethod(max_pool3d)


class AveragePooling3D(Pooling):
    """The mean of each window of a volume (``tf.layers.AveragePooling3D``)."""

    rank = 3
    pool = staticmethod(avg_pool3d)


def conv3d(
    inputs: Any,
    filters: int,
    kernel_size: Any,
    strides: Any = (1, 1, 1),
    padding: str = "valid",
    data_format: str = "channels_last",
    dilation_rate: Any = (1, 1, 1),
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
    """A `Conv3D` layer, applied (``tf.layers.conv3d``)."""
    layer = Conv3D(
        filters, kernel_size, strides, padding, data_format, dilation_rate, activation, use_bias, kernel_initializer,
        bias_initializer, kernel_regularizer, bias_regularizer, activity_regularizer, kernel_constraint,
        bias_constraint, trainable, name, _scope=name, _reuse=reuse,
    )  # fmt: skip
    return layer(inputs)


def conv3d_transpose(
    inputs: Any,
    filters: int,
    kernel_size: Any,
    strides: Any = (1, 1, 1),
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
    """A `Conv3DTranspose` layer, applied (``tf.layers.conv3d_transpose``)."""
    layer = Conv3DTranspose(
        filters, kernel_size, strides, padding, data_format, activation, use_bias, kernel_initializer,
        bias_initializer, kernel_regularizer, bias_regularizer, activity_regularizer, kernel_constraint,
        bias_constraint, trainable, name, _scope=name, _reuse=reuse,
    )  # fmt: skip
    return layer(inputs)


def max_pooling3d(
    inputs: Any,
    pool_size: Any,
    strides: Any,
    padding: str = "valid",
    data_format: str = "channels_last",
    name: str | None = None,
) -> Any:
    """A `MaxPooling3D` layer, applied (``tf.layers.max_pooling3d``)."""
    return MaxPooling3D(pool_size, strides, padding, data_format, name)(inputs)


def average_pooling3d(
    inputs: Any,
    pool_size: Any,
    strides: Any,
    padding: str = "valid",
    data_format: str = "channels_last",
    name: str | None = None,
) -> Any:
    """An `AveragePooling3D` layer, applied (``tf.layers.average_pooling3d``)."""
    return AveragePooling3D(pool_size, strides, padding, data_format, name)(inputs)


Convolution3D, convolution3d, Deconvolution3D, deconvolution3d = Conv3D, conv3d, Conv3DTranspose, conv3d_transpose
