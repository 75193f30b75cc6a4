"""Conversion of the arguments of ``tf.nn`` functions to attrs: strides and paddings."""

from __future__ import annotations

from typing import Any


def spatial_sequence(value: Any, count: int, channel_index: int, name: str) -> list[int]:
    """A per-axis list for an image op from an int, one value, ``count`` values, or the whole list.

    Raises:
      ValueError: for another number of values.
    """
    if value is None:
        value = [1]
    values = list(value) if isinstance(value, (list, tuple)) else [value]
    if len(values) == count + 2:
        return values
    if len(values) == 1:
        values = values * count
    elif len(values) != count:
        raise ValueError(f"{name} should be of length 1, {count} or {count + 2} but was {len(values)}")
    return [1, *values, 1] if channel_index != 1 else [1, 1, *values]


def padding_attrs(padding: Any) -> dict[str, Any]:
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
