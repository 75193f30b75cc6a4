"""``tf.compat``: dimensions in the form that TensorFlow 1.x and 2.x share, and compatibility dates."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from contextlib import contextmanager

from tfmini.dimension import dimension_value
from tfmini.shapes import dimension_at_index

__all__ = ["dimension_at_index", "dimension_value", "forward_compatibility_horizon", "forward_compatible"]

# The default forward compatibility date: that of TensorFlow 1.15.
_horizon = datetime.date(2019, 9, 25)


def forward_compatible(year: int, month: int, day: int) -> bool:
    """Whether a feature of that date may be used (``tf.compat.forward_compatible``)."""
    return _horizon > datetime.date(year, month, day)


@contextmanager
def forward_compatibility_horizon(year: int, month: int, day: int) -> Iterator[None]:
    """Sets the date with which `forward_compatible` compares, within the block."""
    global _horizon
    before, _horizon = _horizon, datetime.date(year, month, day)
    try:
        yield
    finally:
        _horizon = before
