"""Arguments of queue-like objects: types, shapes and names of the components of an element."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tfmini import dtypes as types
from tfmini.shapes import TensorShape, as_shape


def as_type_list(dtypes: Any) -> list[types.DType]:
    """One type or a list of them, as a list."""
    given = dtypes if isinstance(dtypes, (list, tuple)) else [dtypes]
    return [types.as_dtype(dtype) for dtype in given]


def as_shape_list(shapes: Any, unknown_dim_allowed: bool = False) -> list[TensorShape] | None:
    """One shape or a list of them, as a list; None for no shapes.

    Raises:
      ValueError: for shapes that are not fully defined (or of unknown rank, where partial shapes are allowed).
      TypeError: for values that are not shapes.
    """
    if unknown_dim_allowed:
        is_list = isinstance(shapes, Sequence) and bool(shapes)
        if not is_list or any(shape is None or isinstance(shape, int) for shape in shapes):
            raise ValueError("When providing partial shapes, a list of shapes must be provided.")
    if shapes is None:
        return None
    if isinstance(shapes, TensorShape):
        shapes = [shapes]
    if not isinstance(shapes, (tuple, list)):
        raise TypeError("shapes must be a TensorShape or a list or tuple of TensorShapes.")
    if all(shape is None or isinstance(shape, int) for shape in shapes):
        shapes = [shapes]
    found = [as_shape(shape) for shape in shapes]
    if not unknown_dim_allowed and any(not shape.is_fully_defined() for shape in found):
        raise ValueError(f"All shapes must be fully defined: {found}")
    if any(shape.ndims is None for shape in found):
        raise ValueError(f"All shapes must have a defined rank: {found}")
    return found


def as_name_list(names: Any, count: int) -> list[str] | None:
    """One name or a list of them, as a list; None for no names.

    Raises:
      ValueError: when the number of names is not that of the components.
    """
    if names is None:
        return None
    given = names if isinstance(names, (list, tuple)) else [names]
    if len(given) != count:
        raise ValueError("List of names must have the same length as the list of dtypes")
    return list(given)


def values_of(vals: Any) -> list[Any]:
    """The component values of an element as a list, for name scopes."""
    if isinstance(vals, dict):
        return list(vals.values())
    return list(vals) if isinstance(vals, (list, tuple)) else [vals]
