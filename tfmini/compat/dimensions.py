"""``tf.compat``: compatibility dates."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from contextlib import contextmanager

from tfmini.export import export

# The default forward compatibility date: that of TensorFlow 1.15.
_horizon = datetime.date(2019, 9, 25)


@export("tf.compat.forward_compatible")
def forward_compatible(year: int, month: int, day: int) -> bool:
    """Whether a feature of that date may be used (``tf.compat.forward_compatible``)."""
    return _horizon > datetime.date(year, month, day)


@export("tf.compat.forward_compatibility_horizon")
@contextmanager
def forward_compatibility_horizon(year: int, month: int, day: int) -> Iterator[None]:
    """Sets the date with which `forward_compatible` compares, within the block."""
    global _horizon
    before, _horizon = _horizon, datetime.date(year, month, day)
    try:
        yield
    finally:
        _horizon = before
