"""TensorFlow's switches between the behaviour of 1.x and 2.x; tfmini has only that of 1.x."""

from __future__ import annotations

import datetime
import numbers
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from tfmini.compat.py_function import EagerGraph
from tfmini.core_types import PathLike
from tfmini.export import export, export_names
from tfmini.graph.default_graph import get_default_graph


@export("tf.disable_v2_behavior")
def disable_v2_behavior() -> None:
    """``tf.disable_v2_behavior``: does nothing, tfmini always behaves like TensorFlow 1.x."""


disable_eager_execution = disable_v2_behavior
disable_v2_tensorshape = disable_v2_behavior
disable_control_flow_v2 = disable_v2_behavior
disable_tensor_equality = disable_v2_behavior


@export("tf.executing_eagerly")
def executing_eagerly() -> bool:
    """``tf.executing_eagerly``: False, except in a function of `tf.py_function`: ops build a graph for a `Session`."""
    return isinstance(get_default_graph(), EagerGraph)


@export("tf.control_flow_v2_enabled")
def control_flow_v2_enabled() -> bool:
    """``tf.control_flow_v2_enabled``: False."""
    return False


export_names("tf", "disable_control_flow_v2 disable_eager_execution disable_tensor_equality disable_v2_tensorshape")


# ---- ``tf.compat``: compatibility dates ----------------------------------------------------------------------------

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


# ---- ``tf.compat``'s conversions between bytes and text, and its tuples of types -----------------------------------

bytes_or_text_types = (bytes, str)
integral_types = (numbers.Integral, np.integer)
real_types = (numbers.Real, np.integer, np.floating)
complex_types = (numbers.Complex, np.number)


@export("tf.compat.as_bytes")
def as_bytes(bytes_or_text: bytes | bytearray | str, encoding: str = "utf-8") -> bytes:
    """``tf.compat.as_bytes``: encodes text, returns bytes unchanged; raises TypeError for other types."""
    if isinstance(bytes_or_text, str):
        return bytes_or_text.encode(encoding)
    if isinstance(bytes_or_text, (bytes, bytearray)):
        return bytes(bytes_or_text)
    raise TypeError(f"Expected binary or unicode string, got {bytes_or_text!r}")


@export("tf.compat.as_text")
def as_text(bytes_or_text: bytes | str, encoding: str = "utf-8") -> str:
    """``tf.compat.as_text``: decodes bytes, returns text unchanged; raises TypeError for other types."""
    if isinstance(bytes_or_text, str):
        return bytes_or_text
    if isinstance(bytes_or_text, bytes):
        return bytes_or_text.decode(encoding)
    raise TypeError(f"Expected binary or unicode string, got {bytes_or_text!r}")


as_str = as_text


@export("tf.compat.as_str_any")
def as_str_any(value: object) -> str:
    """``tf.compat.as_str_any``: decodes bytes, converts other values by ``str``."""
    return as_text(value) if isinstance(value, bytes) else str(value)


@export("tf.compat.path_to_str")
def path_to_str(path: PathLike) -> Any:
    """``tf.compat.path_to_str``: converts a path object to text, returns other values unchanged."""
    return as_str_any(os.fspath(path)) if hasattr(path, "__fspath__") else path


export_names("tf.compat", "as_str bytes_or_text_types complex_types integral_types real_types")
