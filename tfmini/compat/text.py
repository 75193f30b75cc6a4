"""``tf.compat``'s conversions between bytes and text, and its tuples of types."""

from __future__ import annotations

import numbers
import os
from typing import Any

import numpy as np

from tfmini.core_types import PathLike
from tfmini.export import export, export_names

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
