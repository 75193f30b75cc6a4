"""The attrs of ops that slide windows over images and volumes: strides, dilations, padding, data format."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tfmini.core_types import PaddingLike
from tfmini.errors import InvalidArgumentError
from tfmini.numerics.windows import Axes, explicit_pair, layout_axes, output_size, window_axis
from tfmini.ops.array.kernel_arguments import refuse

_SINGULAR = {"strides": "stride", "dilations": "dilation"}


def check_lengths(op_type: str, count: int, **lists: Sequence[int]) -> None:
    """Refuses attrs that are lists of another length.

    Raises:
      ValueError: naming the first.
    """
    for name, values in lists.items():
        if len(values) != count:
            raise ValueError(
                f"{op_type} requires the {_SINGULAR.get(name, name)} attribute to contain {count} values,"
                f" but got: {len(values)}"
            )


def _check(positions: Sequence[int], lists: Mapping[str, Sequence[int] | None]) -> None:
    """Refuses lists of attrs that no window can have, for a client that has not checked them."""
    for name, values in lists.items():
        if values is not None and (len(values) != len(positions) or min(values) < 1):
            refuse(f"{name} must be {len(positions)} positive numbers, but got: {list(values)}")


class Windows:
    """How windows slide over the spatial axes of an op's data.

    Args:
      attrs: ``strides`` and ``padding``; ``data_format``, ``explicit_paddings`` and dilations where the op has them.
      dilations: the name of the attr for dilations.

    Raises:
      InvalidArgumentError: for lists of another length, or steps below 1.
    """

    __slots__ = ("_known", "_options", "data_format", "padding", "positions")

    def __init__(self, attrs: Mapping[str, Any], dilations: str = "dilations") -> None:
        self.data_format: bytes = attrs.get("data_format", b"NHWC")
        self.positions = layout_axes(self.data_format)
        self.padding: bytes = attrs["padding"]
        holes, explicit = attrs.get(dilations), attrs.get("explicit_paddings") or ()
        _check(self.positions, {"strides": attrs["strides"], "ksize": attrs.get("ksize"), dilations: holes})
        if self.padding == b"EXPLICIT" and (len(explicit) != 2 * len(self.positions) or min(explicit) < 0):
            refuse(
                f"explicit_paddings attribute must contain {2 * len(self.positions)} values, none negative, with"
                f" EXPLICIT padding, but got: {list(explicit)}"
            )
        self._options = [
            (attrs["strides"][i], holes[i] if holes else 1, self.padding, explicit_pair(explicit, i))
            for i in self.positions[1:-1]
        ]
        self._known: dict[Any, Axes] = {}

    def out_sizes(self, sizes: Sequence[int | None], windows: Sequence[int | None]) -> tuple[int | None, ...]:
        """The number of windows along each spatial axis, None where it is unknown."""
        return tuple(output_size(n, k, *options) for n, k, options in zip(sizes, windows, self._options))

    def axes(self, sizes: tuple[int, ...], windows: tuple[int, ...]) -> Axes:
        """The windows along each spatial axis.

        Raises:
          InvalidArgumentError: when a window does not fit.
        """
        key = (sizes, windows)
        found = self._known.get(key)
        if found is None:
            try:
                found = Axes(window_axis(n, k, *options) for n, k, options in zip(sizes, windows, self._options))
            except ValueError as error:
                raise InvalidArgumentError.of(str(error)) from None
            if len(self._known) > 64:
                self._known.clear()
            self._known[key] = found
        return found


# ---- Conversion of the arguments of ``tf.nn`` functions to attrs: strides and paddings -----------------------------


def spatial_sequence(value: int | Sequence[int] | None, count: int, channel_index: int, name: str) -> list[int]:
    """A per-axis list for an image op from an int, one value, ``count`` values, or the whole list.

    Raises:
      ValueError: for another number of values.
    """
    if value is None:
        value = [1]
    values: list[Any] = list(value) if isinstance(value, (list, tuple, np.ndarray)) else [value]
    if len(values) == count + 2:
        return values
    if len(values) == 1:
        values = values * count
    elif len(values) != count:
        raise ValueError(f"{name} should be of length 1, {count} or {count + 2} but was {len(values)}")
    return [1, *values, 1] if channel_index != 1 else [1, 1, *values]


def padding_attrs(padding: PaddingLike | None) -> dict[str, Any]:
    """The attrs ``padding`` and ``explicit_paddings`` from a string or a list of four pairs.

    Raises:
      ValueError: for a list of another form.
    """
    if not isinstance(padding, (list, tuple)):
        return {"padding": padding, "explicit_paddings": []}
    for i, pair in enumerate(padding):
        if not isinstance(pair, (list, tuple)):
            raise ValueError(  # noqa: TRY004 - TensorFlow's class
                "When padding is a list, each element of padding must be a list/tuple of size 2. Element with index"
                f" {i} of padding is not a list/tuple"
            )
        if len(pair) != 2:
            raise ValueError(
                "When padding is a list, each element of padding must be a list/tuple of size 2. Element with index"
                f" {i} of padding has size {len(pair)}"
            )
    if len(padding) != 4:
        raise ValueError(f"When padding is a list, it must be of size 4. Got padding of size: {len(padding)}")
    return {"padding": "EXPLICIT", "explicit_paddings": [int(v) for pair in padding for v in pair]}
