"""``tf.compat``: shapes that read the same in TensorFlow 1.x and 2.x, and compatibility dates."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tfmini.shapes import Dimension

# What a release of that date could read; TensorFlow 1.15's.
_horizon = datetime.date(2019, 9, 25)


def dimension_value(dimension: Any) -> int | None:
    """A dimension's size, None if it is unknown (``tf.compat.dimension_value``)."""
    return dimension.value if isinstance(dimension, Dimension) else dimension


def dimension_at_index(shape: Any, index: int) -> Dimension:
    """A dimension of a shape, unknown if the rank is (``tf.compat.dimension_at_index``)."""
    return Dimension(None) if shape.ndims is None else shape.dims[index]


def forward_compatible(year: int, month: int, day: int) -> bool:
    """Whether what came after that date may be used (``tf.compat.forward_compatible``)."""
    return _horizon > datetime.date(year, month, day)


@contextmanager
def forward_compatibility_horizon(year: int, month: int, day: int) -> Iterator[None]:
    """While this lasts, that date is the one that `forward_compatible` compares with."""
    global _horizon
    before, _horizon = _horizon, datetime.date(year, month, day)
    try:
        yield
    finally:
        _horizon = before
