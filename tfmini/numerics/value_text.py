"""Text of values as TensorFlow prints them in ``tf.Print``, ``tf.Assert`` and ``tf.print``."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

_ESCAPES = {0x0A: "\\n", 0x0D: "\\r", 0x09: "\\t", 0x22: '\\"', 0x27: "\\'", 0x5C: "\\\\"}


def element_text(value: Any) -> str:
    """One element's text: floats with the fewest digits that read back equal, bools as 0 and 1, strings escaped."""
    if isinstance(value, bytes):
        return "".join(_ESCAPES.get(b) or (chr(b) if 32 <= b < 127 else f"\\{b:03o}") for b in value)
    dtype = np.asarray(value).dtype
    if dtype.kind == "b":
        return "1" if value else "0"
    if dtype.kind in "iu":
        return str(int(value))
    if dtype == np.float64:
        return _float_text(float(value), np.float64, 15, 17)
    if dtype.kind == "f" or dtype.name == "bfloat16":
        return _float_text(float(value), np.float32, 6, 9)
    return "?"


def _float_text(value: float, kind: Any, few: int, many: int) -> str:
    text = f"{value:.{few}g}"
    return text if kind(text) == value or math.isnan(value) else f"{value:.{many}g}"


def summary(value: Any, limit: int) -> str:
    """The first ``limit`` elements (negative: all) with their dimensions in brackets, then ``...``."""
    array = np.asarray(value)
    limit = array.size if limit < 0 else limit
    flat = array.ravel()
    parts: list[str] = []
    if array.size:
        if array.ndim == 0:
            parts.append(element_text(flat[0]) if limit else "")
        else:
            _summarize(flat, array.shape, 0, 0, limit, parts)
    return "".join(parts) + ("..." if array.size > limit else "")


def _summarize(flat: Any, shape: tuple[int, ...], dim: int, done: int, limit: int, parts: list[str]) -> int:
    """Adds the text of one dimension; returns how many elements have been printed."""
    for i in range(shape[dim]):
        if done >= limit:
            if dim == len(shape) - 1 and dim:
                parts.append("...")
            break
        if dim == len(shape) - 1:
            parts.append((" " if i else "") + element_text(flat[done]))
            done += 1
        else:
            parts.append("[")
            done = _summarize(flat, shape, dim + 1, done, limit, parts)
            parts.append("]")
    return done


def edges_text(value: Any, edge: int) -> str:
    """All dimensions in brackets, one row per line; a long dimension shows its first and last ``edge`` elements."""
    array = np.asarray(value)
    return _edges(array, 0, array.shape[0] if edge < 0 and array.ndim else edge, edge < 0)


def _edges(array: Any, depth: int, edge: int, everything: bool) -> str:
    if not isinstance(array, np.ndarray) or array.ndim == 0:
        item = array[()] if isinstance(array, np.ndarray) else array
        return f'"{element_text(item)}"' if isinstance(item, bytes) else element_text(item)
    count = len(array)
    shown = range(count)
    if everything or count <= 2 * edge:
        items = [_edges(array[i], depth + 1, edge, everything) for i in shown]
    else:
        items = [_edges(array[i], depth + 1, edge, everything) for i in shown[:edge]]
        items.append("...")
        items += [_edges(array[i], depth + 1, edge, everything) for i in shown[count - edge :]]
    separator = " " if array.ndim == 1 else "\n" * (array.ndim - 1) + " " * (depth + 1)
    return "[" + separator.join(items) + "]"
