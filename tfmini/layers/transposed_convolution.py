"""Transposed convolutions of images and volumes (``tf.layers``)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tfmini.export import export, export_names
from tfmini.layers.convolutional import ZEROS, Conv
from tfmini.layers.functional import as_function
from tfmini.layers.spatial_arguments import around, deconvolved_length, within
from tfmini.ops.array.joining import stack
from tfmini.ops.array.shape import shape as shape_of
from tfmini.ops.nn.convolution import conv2d_transpose as deconvolve2d
from tfmini.ops.nn.convolution import conv3d_transpose as deconvolve3d


class ConvTranspose(Conv):
    """Base class of the transposed convolutions, which compute the gradient of a `Conv`.

    The kernel is ``[*kernel_size, filters, channels]``; the arguments are those of `Conv` without dilation.
    """

    deconvolve: Callable[..., Any]

    def __init__(
        self,
        filters: int,
        kernel_size: int | Sequence[int],
        strides: int | Sequence[int] = 1,
        padding: str = "valid",
        data_format: str = "channels_last",
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
            filters, kernel_size, strides, padding, data_format, 1, activation, use_bias, kernel_initializer,
            bias_initializer, kernel_regularizer, bias_regularizer, activity_regularizer, kernel_constraint,
            bias_constraint, trainable, name, **kwargs,
        )  # fmt: skip

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
    deconvolve = staticmethod(deconvolve2d)


@export("tf.layers.Conv3DTranspose")
class Conv3DTranspose(ConvTranspose):
    """A transposed convolution of volumes (``tf.layers.Conv3DTranspose``); see `ConvTranspose`."""

    rank = 3
    deconvolve = staticmethod(deconvolve3d)


conv2d_transpose = as_function(Conv2DTranspose, strides=(1, 1))
conv3d_transpose = as_function(Conv3DTranspose, strides=(1, 1, 1))

export_names("tf.layers", "conv2d_transpose conv3d_transpose")
