"""Attrs that later versions of TensorFlow write, which an import leaves out where they change nothing."""

from __future__ import annotations

from typing import Any

from tfmini.graph.op_types import OPS
from tfmini.graph.traits import trait_of

_EMPTY: dict[str, Any] = {"b": False, "i": 0, "f": 0.0, "s": b""}


def drop_later_attrs(graph_def: Any) -> None:
    """Removes hints (a trait of the op), and attrs that the op does not have, at their default.

    A new attr leaves an op as it was when it is absent, so its default is false, zero or empty almost always.
    """
    for node_def in graph_def.node:
        handle = OPS.get(node_def.op)
        if handle is None:
            continue
        hints = trait_of(node_def.op, "hints") or ()
        for attr in list(node_def.attr):
            unknown = attr not in handle.op_def.attrs and not attr.startswith("_")
            if attr in hints or unknown and _is_empty(node_def.attr[attr]):
                del node_def.attr[attr]


def _is_empty(value: Any) -> bool:
    kind = value.WhichOneof("value")
    if kind == "list":
        return not value.list.ByteSize()
    return kind in _EMPTY and getattr(value, kind) == _EMPTY[kind]
