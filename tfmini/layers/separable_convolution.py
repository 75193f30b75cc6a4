"""Separable convolutions (``tf.layers``): a depthwise convolution, then a pointwise one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tfmini.export import export, export_names
from tfmini.layers.convolutional import ZEROS, Conv
from tfmini.layers.functional import as_function
from tfmini.layers.spatial_arguments import around
from tfmini.ops.array.shape import expand_dims, squeeze
from tfmini.ops.nn.convolution import separable_conv2d as convolve


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
        bias_initializer: Any = ZEROS,
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
        return convolve(
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
        outputs = convolve(
            expand_dims(inputs, row),
            expand_dims(self.depthwise_kernel, 0),
            expand_dims(self.pointwise_kernel, 0),
            around(self.strides * 2, layout),
            self.padding.upper(),
            rate=[1, *self.dilation_rate],
            data_format=layout,
        )
        return squeeze(outputs, [row])


separable_conv1d = as_function(SeparableConv1D)
separable_conv2d = as_function(SeparableConv2D, strides=(1, 1), dilation_rate=(1, 1))

export_names("tf.layers", "separable_conv1d separable_conv2d")
