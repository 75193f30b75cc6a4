"""``tf.layers``: maxima and means of windows over one and two axes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tfmini.layers.base import Layer
from tfmini.layers.images import convolved_length, image_format, known_padding, normalized_tuple
from tfmini.layers.input_spec import InputSpec
from tfmini.ops.array_shape import expand_dims, squeeze
from tfmini.ops.nn_pooling import avg_pool, max_pool
from tfmini.shapes import TensorShape

__all__ = [
    "AveragePooling1D", "AveragePooling2D", "MaxPooling1D", "MaxPooling2D", "average_pooling1d", "average_pooling2d",
    "max_pooling1d", "max_pooling2d",
]  # fmt: skip


# By (channels first, three spatial axes).
_FORMATS = {(False, False): "NHWC", (True, False): "NCHW", (False, True): "NDHWC", (True, True): "NCDHW"}


class Pooling(Layer):
    """The base of all: ``pool_size`` and ``strides`` are one int, or one for each spatial axis."""

    rank = 2
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

    def _axes(self, values: tuple[int, ...]) -> list[int]:
        space = (*values, 1) if self.rank == 1 else values  # a sequence is an image of one column
        return [1, 1, *space] if self.data_format == "channels_first" else [1, *space, 1]

    def call(self, inputs: Any) -> Any:
        first = self.data_format == "channels_first"
        added = (3 if first else 2) if self.rank == 1 else None
        images = inputs if added is None else expand_dims(inputs, added)
        pooled = type(self).pool(
            images,
            self._axes(self.pool_size),
            self._axes(self.strides),
            self.padding.upper(),
            data_format=_FORMATS[first, self.rank == 3],
        )
        return pooled if added is None else squeeze(pooled, [added])

    def compute_output_shape(self, input_shape: Any) -> TensorShape:
        sizes = TensorShape(input_shape).as_list()
        first = 2 if self.data_format == "channels_first" else 1
        for i, (window, stride) in enumerate(zip(self.pool_size, self.strides)):
            sizes[first + i] = convolved_length(sizes[first + i], window, stride, 1, self.padding)
        return TensorShape(sizes)


class MaxPooling2D(Pooling):
    """The maximum of each window of an image (``tf.layers.MaxPooling2D``)."""

    pool = staticmethod(max_pool)


class AveragePooling2D(Pooling):
    """The mean of each window of an image (``tf.layers.AveragePooling2D``)."""

    pool = staticmethod(avg_pool)


class MaxPooling1D(Pooling):
    """The maximum of each window of a sequence (``tf.layers.MaxPooling1D``)."""

    rank = 1
    pool = staticmethod(max_pool)


class AveragePooling1D(Pooling):
    """The mean of each window of a sequence (``tf.layers.AveragePooling1D``)."""

    rank = 1
    pool = staticmethod(avg_pool)


def max_pooling2d(
    inputs: Any,
    pool_size: Any,
    strides: Any,
    padding: str = "valid",
    data_format: str = "channels_last",
    name: str | None = None,
) -> Any:
    """A `MaxPooling2D` layer, applied (``tf.layers.max_pooling2d``)."""
    return MaxPooling2D(pool_size, strides, padding, data_format, name)(inputs)


def average_pooling2d(
    inputs: Any,
    pool_size: Any,
    strides: Any,
    padding: str = "valid",
    data_format: str = "channels_last",
    name: str | None = None,
) -> Any:
    """An `AveragePooling2D` layer, applied (``tf.layers.average_pooling2d``)."""
    return AveragePooling2D(pool_size, strides, padding, data_format, name)(inputs)


def max_pooling1d(
    inputs: Any,
    pool_size: Any,
    strides: Any,
    padding: str = "valid",
    data_format: str = "channels_last",
    name: str | None = None,
) -> Any:
    """A `MaxPooling1D` layer, applied (``tf.layers.max_pooling1d``)."""
    return MaxPooling1D(pool_size, strides, padding, data_format, name)(inputs)


def average_pooling1d(
    inputs: Any,
    pool_size: Any,
    strides: Any,
    padding: str = "valid",
    data_format: str = "channels_last",
    name: str | None = None,
) -> Any:
    """An `AveragePooling1D` layer, applied (``tf.layers.average_pooling1d``)."""
    return AveragePooling1D(pool_size, strides, padding, data_format, name)(inputs)


MaxPool1D, MaxPool2D, AvgPool1D, AvgPool2D = MaxPooling1D, MaxPooling2D, AveragePooling1D, AveragePooling2D
max_pool1d, max_pool2d, avg_pool1d, avg_pool2d = max_pooling1d, max_pooling2d, average_pooling1d, average_pooling2d
