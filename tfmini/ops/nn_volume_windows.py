"""Windows over volumes, which convolution and pooling in three spatial dimensions share.

Kernels work on NDHWC. A three-dimensional window is a loop over its few depth slices (or all its offsets) around
large numpy calls: what is vectorised is the volume, never the window.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np

from tfmini.graph.operation import Operation
from tfmini.ops.array_values import refuse
from tfmini.ops.nn_arguments import spatial_sequence
from tfmini.ops.nn_windows import Array, Axis, window_axis

FORMAT = "data_format: {'NDHWC', 'NCDHW'} = 'NDHWC'"
SLIDE = "strides: list(int) >= 5; padding: {'SAME', 'VALID'}"


def spatial(values: Any, data_format: bytes) -> tuple[Any, ...]:
    """The three spatial entries of a list in the layout of the data."""
    return tuple(values[2:5]) if data_format == b"NCDHW" else tuple(values[1:4])


def arranged(batch: Any, space: Any, channels: Any, data_format: bytes) -> tuple[Any, ...]:
    return (batch, channels, *space) if data_format == b"NCDHW" else (batch, *space, channels)


def parts_of(sizes: tuple[Any, ...], data_format: bytes) -> tuple[Any, tuple[Any, ...], Any]:
    """(batch, spatial sizes, channels) of a five-dimensional shape."""
    return sizes[0], spatial(sizes, data_format), sizes[1] if data_format == b"NCDHW" else sizes[4]


def check_lists(node: Operation, *names: str) -> None:
    for name in names:
        values = node.attrs[name]
        if len(values) != 5:
            raise ValueError(f"{node.type} requires the {name} attribute to contain 5 values, but got: {len(values)}")


def axes_of(node: Any, space: Any, windows: Any) -> list[Axis]:
    attrs = node.attrs
    steps = spatial(attrs["strides"], attrs["data_format"])
    holes = spatial(attrs.get("dilations", (1,) * 5), attrs["data_format"])
    try:
        return [window_axis(n, k, s, d, attrs["padding"]) for n, k, s, d in zip(space, windows, steps, holes)]
    except ValueError as error:
        refuse(str(error))


def inward(value: Array, node: Any) -> Array:
    """As NDHWC, in a type that numpy multiplies quickly."""
    if node.attrs["data_format"] == b"NCDHW":
        value = np.moveaxis(value, 1, -1)
    return value.astype(np.float32) if value.dtype.itemsize == 2 else value


def outward(value: Array, node: Any) -> Array:
    value = value.astype(node.attrs["T"].numpy, copy=False)
    return np.ascontiguousarray(np.moveaxis(value, -1, 1)) if node.attrs["data_format"] == b"NCDHW" else value


def padded(volume: Array, axes: list[Axis], value: Any = 0) -> Array:
    if not any(a.padded for a in axes):
        return volume
    widths = [(0, 0), *((a.before, a.after) for a in axes), (0, 0)]
    return np.pad(volume, widths, constant_values=value)


def offsets_of(axes: list[Axis]) -> Iterator[tuple[tuple[int, ...], tuple[Any, ...]]]:
    """Each position in the window, and where it meets the padded volume."""
    for place in itertools.product(*(range(a.window) for a in axes)):
        yield place, (slice(None), *(a.offsets(k) for a, k in zip(axes, place)))


def cut(volume: Array, axes: list[Axis]) -> Array:
    return volume[(slice(None), *(slice(a.before, a.before + a.size) for a in axes))]


def blank(batch: int, axes: list[Axis], channels: int, dtype: Any) -> Array:
    """A padded volume of zeros, large enough for every window."""
    sizes = [a.before + a.size + a.after for a in axes]
    return np.zeros((batch, *sizes, channels), dtype)


def five(values: Any, data_format: str, name: str) -> list[int]:
    return spatial_sequence(values, 3, 1 if data_format == "NCDHW" else 4, name)
