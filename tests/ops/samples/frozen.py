"""Answers of TensorFlow in small files: one JSON line per row of a table, compared with a tolerance by dtype."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

import numpy as np

from tests.ops.samples.notation import FOLDER

# Relative to the largest number of a tensor: sums are added up in another order here than there.
TOLERANCE = {"float64": 1e-9, "complex128": 1e-9, "float32": 1e-5, "complex64": 1e-5, "float16": 2e-3, "bfloat16": 1e-2}


def path_of(room: str) -> Path:
    """The file with a room's answers."""
    return FOLDER / "answers" / f"{room}.json"


@functools.lru_cache(maxsize=None)  # noqa: UP033 - TensorFlow 1.15 has Python 3.7
def read(room: str) -> dict[str, Any]:
    """Row text -> steps -> tensors, each as its encoding."""
    path = path_of(room)
    return json.loads(path.read_text()) if path.exists() else {}


def write(room: str, answers: dict[str, Any]) -> None:
    """Writes a room's answers, a line each."""
    lines = [f"{json.dumps(text)}: {json.dumps(steps, separators=(',', ':'))}" for text, steps in answers.items()]
    path_of(room).write_text("{\n" + ",\n".join(lines) + "\n}\n")


def encode(value: Any, static: Any, tmp: str) -> list[Any]:
    """A fetched value as JSON: dtype and shape, the statically inferred shape if it says less, then the numbers."""
    value = np.asarray(value)
    shape = _shape_text(value.shape)
    static = "?" if static.ndims is None else _shape_text(static.as_list())
    kind = "string" if value.dtype.kind in "OSU" else value.dtype.name
    return [kind + shape + (f" of {static}" if static != shape else ""), *_scalars(value, kind, tmp)]


def _shape_text(dims: Any) -> str:
    return f"[{','.join('?' if d is None else str(d) for d in dims)}]"


def _scalars(value: Any, kind: str, tmp: str) -> list[Any]:
    if kind == "string":
        texts = [item if isinstance(item, str) else item.decode("latin-1") for item in value.ravel().tolist()]
        return [text.replace(tmp or "<tmp>", "<tmp>") for text in texts]
    flat = value.ravel()
    if flat.dtype.kind in "biu":
        return flat.tolist()
    if flat.dtype.kind == "c":
        flat = np.stack([flat.real, flat.imag], -1).ravel()
    if flat.dtype == np.float64:
        return [_short(float(f"{x:.12g}")) for x in flat.tolist()]
    return [_short(float(str(x))) for x in flat]


def _short(number: float) -> Any:
    return int(number) if number.is_integer() and abs(number) < 1e9 and str(number) != "-0.0" else number


def _knows(mine: str, wanted: str) -> bool:
    """Whether every dimension that one shape knows is known to the other."""
    dims, least = (text.partition("[")[2].rstrip("]").split(",") for text in (mine, wanted))
    return wanted == "?" or len(dims) == len(least) and all(b in (a, "?") for a, b in zip(dims, least))


def _same_specials(a: Any, b: Any) -> bool:
    """Whether infinities and NaNs are in the same places. (NumPy's `equal_nan` is younger than TensorFlow 1.15.)"""
    return bool(np.all((a == b) | ((a != a) & (b != b))))


def difference(ours: list[Any], theirs: list[Any], compared: str, inferred: bool = True) -> str:
    """What differs between two encodings, or ''. With ``inferred``, ours must know as much of the shape as theirs."""
    mine, wanted = ours[0].partition(" of "), theirs[0].partition(" of ")
    if mine[0] != wanted[0] or inferred and not _knows(mine[2] or mine[0], wanted[2] or wanted[0]):
        return f"{ours[0]} instead of {theirs[0]}"
    kind = theirs[0].partition("[")[0]
    if compared == "shapes" or ours[1:] == theirs[1:]:
        return ""
    if kind not in TOLERANCE:
        return f"{ours} instead of {theirs}"
    a, b = np.array(ours[1:], np.float64), np.array(theirs[1:], np.float64)
    finite = np.isfinite(b)
    scale = np.abs(b[finite]).max(initial=0.0)
    if _same_specials(a[~finite], b[~finite]) and np.all(np.abs(a[finite] - b[finite]) <= TOLERANCE[kind] * scale):
        return ""
    return f"{ours} instead of {theirs}"
