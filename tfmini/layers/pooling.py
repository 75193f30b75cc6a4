"""Max and average pooling over one, two and three spatial axes (``tf.layers``)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tfmini.export import export, export_names
from tfmini.layers.base import Layer
from tfmini.layers.functional import as_function
from tfmini.layers.input_spec import InputSpec
from tfmini.layers.spatial_arguments import (
    around,
    convolved_length,
    image_format,
    known_padding,
    normalized_tuple,
    op_format,
)
from tfmini.ops.array.shape import expand_dims, squeeze
from tfmini.ops.array.transpose import transpose
from tfmini.ops.nn.pooling import avg_pool, avg_pool3d, max_pool, max_pool3d
from tfmini.shapes import TensorShape


class Pooling(Layer):
    """Base class of pooling layers: ``pool_size`` and ``strides`` are one int, or one per spatial axis."""

    rank: int
    pool: Callable[..., Any]

    def __init__(
        self,
        pool_size: Any,
        strides: Any,
        padding: str = "valid",
        data_format: str = "channels_last",
        name: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(name=name, **kwargs)
        self.pool_size = normalized_tuple(pool_size, self.rank, "pool_size")
        self.strides = normalized_tuple(pool_size if strides is None else strides, self.rank, "strides")
        self.padding, self.data_format = known_padding(padding), image_format(data_format)
        self.input_spec = InputSpec(ndim=self.rank + 2)

    def call(self, inputs: Any) -> Any:
        if self.rank > 1:
            return self._pooled(inputs, self.pool_size, self.strides)
        # A sequence is an image of one column.
        column = 3 if self.data_format == "channels_first" else 2
        images = expand_dims(inputs, column)
        return squeeze(self._pooled(images, (*self.pool_size, 1), (*self.strides, 1)), [column])

    def _pooled(self, inputs: Any, window: tuple[int, ...], strides: tuple[int, ...]) -> Any:
        if self.rank == 3 and self.data_format == "channels_first":  # as in TensorFlow, whose op on CPUs has none
            pooled = self._in_layout(transpose(inputs, [0, 2, 3, 4, 1]), window, strides, "NDHWC")
            return transpose(pooled, [0, 4, 1, 2, 3])
        return self._in_layout(inputs, window, strides, op_format(self.data_format, len(window)))

    def _in_layout(self, inputs: Any, window: tuple[int, ...], strides: tuple[int, ...], layout: str) -> Any:
        return type(self).pool(
            inputs, around(window, layout), around(strides, layout), self.padding.upper(), data_format=layout
        )

    def compute_output_shape(self, input_shape: Any) -> TensorShape:
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
