"""How layers read their arguments about images: windows, formats, lengths."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tfmini.shapes import TensorShape


def normalized_tuple(value: int | Sequence[int], count: int, name: str) -> tuple[int, ...]:
    """``count`` ints from one or from as many; a ValueError otherwise."""
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
    """``channels_first`` or ``channels_last``, in lower case; a ValueError otherwise."""
    if data_format.lower() not in ("channels_first", "channels_last"):
        raise ValueError(
            'The `data_format` argument must be one of "channels_first", "channels_last". Received: ' f"{data_format}"
        )
    return data_format.lower()


def op_format(data_format: str, rank: int) -> str:
    """What the ops call a format with ``rank`` spatial axes: ``NHWC``, ``NCW``, ``NDHWC`` ..."""
    space = "DHW"[3 - rank :]
    return f"NC{space}" if data_format == "channels_first" else f"N{space}C"


def around(space: Sequence[Any], layout: str, batch: Any = 1, channels: Any = 1) -> list[Any]:
    """The values of the spatial axes with those of batch and channels, in the order of an op's format."""
    return [batch, channels, *space] if layout.startswith("NC") else [batch, *space, channels]


def within(values: Sequence[Any], layout: str) -> list[Any]:
    """The values of the spatial axes."""
    return list(values[2:] if layout.startswith("NC") else values[1:-1])


def channel_axis(data_format: str) -> int:
    return 1 if data_format == "channels_first" else -1


def channels_of(shape: Any, data_format: str, layer: str) -> int:
    """The number of channels of an input; a ValueError where it is not known."""
    found = TensorShape(shape).as_list()[channel_axis(data_format)]
    if found is None:
        raise ValueError(f"The channel dimension of the inputs to `{layer}` should be defined. Found `None`.")
    return int(found)


def convolved_length(length: int | None, window: int, stride: int, dilation: int, padding: str) -> int | None:
    """The number of places of a window; None for an unknown length."""
    if length is None:
        return None
    covered = length if padding == "same" else length - (window - 1) * dilation
    return max(0, -(-covered // stride))


def deconvolved_length(length: Any, window: int, stride: int, padding: str) -> Any:
    """The length from which a convolution makes ``length``: an int or a tensor, like the argument."""
    if length is None:
        return None
    return length * stride if padding == "same" else length * stride + max(window - stride, 0)


def known_padding(padding: str) -> str:
    """``valid`` or ``same``, in lower case; a ValueError otherwise."""
    if padding.lower() not in ("valid", "same"):
        raise ValueError(f'The `padding` argument must be one of "valid", "same". Received: {padding}')
    return padding.lower()
