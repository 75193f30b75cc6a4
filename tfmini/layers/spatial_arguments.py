"""Spatial arguments of layers: window sizes, data formats, paddings and output lengths."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tfmini.shapes import TensorShape


def normalized_tuple(value: int | Sequence[int], count: int, name: str) -> tuple[int, ...]:
    """Expands an int to ``count`` ints, or checks ``count`` ints; raises ValueError for anything else."""
    if isinstance(value, int):
        return (value,) * count
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


def around(space: Sequence[Any], layout: str, batch: Any = 1, channels: Any = 1) -> list[Any]:
    """Adds the values for batch and channels to those of the spatial axes, in the order of ``layout``."""
    return [batch, channels, *space] if layout.startswith("NC") else [batch, *space, channels]


def within(values: Sequence[Any], layout: str) -> list[Any]:
    """The values of the spatial axes: the inverse of `around`."""
    return list(values[2:] if layout.startswith("NC") else values[1:-1])


def channel_axis(data_format: str) -> int:
    return 1 if data_format == "channels_first" else -1


def channels_of(shape: Any, data_format: str, layer: str) -> int:
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


def deconvolved_length(length: Any, window: int, stride: int, padding: str) -> Any:
    """The output length of a transposed convolution along one axis: an int or a tensor, like ``length``."""
    if length is None:
        return None
    return length * stride if padding == "same" else length * stride + max(window - stride, 0)


def known_padding(padding: str) -> str:
    """The padding in lower case; raises ValueError unless it is ``valid`` or ``same``."""
    if padding.lower() not in ("valid", "same"):
        raise ValueError(f'The `padding` argument must be one of "valid", "same". Received: {padding}')
    return padding.lower()
