"""Ragged tensors from nested Python lists (``tf.ragged.constant``)."""

from __future__ import annotations

from typing import Any

import numpy as np

from tfmini import dtypes
from tfmini.export import export
from tfmini.graph.scoping import name_scope
from tfmini.ops.array.constant import constant
from tfmini.ops.ragged.ragged_tensor import RaggedTensor, RaggedTensorValue


@export("tf.ragged.constant")
def ragged_constant(
    pylist: Any, dtype: Any = None, ragged_rank: int | None = None, inner_shape: Any = None, name: str | None = None,
    row_splits_dtype: Any = dtypes.int64,
) -> Any:  # fmt: skip
    """A constant ragged tensor from nested lists (``tf.ragged.constant``).

    Args:
      pylist: nested lists, tuples or arrays.
      dtype: of the values, inferred by default.
      ragged_rank: the number of ragged levels; default: all axes but the innermost.
      inner_shape: the shape of each flat value.
      name: of the scope.
      row_splits_dtype: int32 or int64.

    Returns:
      A `RaggedTensor`, or a plain tensor if no level is ragged.

    Raises:
      ValueError: when scalars are nested at different depths.
    """
    with name_scope(name, "RaggedConstant", []):
        splits, flat = _parse(pylist, ragged_rank, inner_shape)
        value_type = None if dtype is None else dtypes.as_dtype(dtype)
        flat_tensor = constant(flat, value_type, shape=_flat_shape(flat, inner_shape))
        if not splits:
            return flat_tensor
        levels = [constant(s, dtypes.as_dtype(row_splits_dtype)) for s in splits]
        return RaggedTensor.from_nested_row_splits(flat_tensor, levels, validate=False)


@export("tf.ragged.constant_value")
def ragged_constant_value(
    pylist: Any, dtype: Any = None, ragged_rank: int | None = None, inner_shape: Any = None,
    row_splits_dtype: Any = "int64",
) -> Any:  # fmt: skip
    """`ragged_constant` as a numpy value (``tf.ragged.constant_value``)."""
    splits, flat = _parse(pylist, ragged_rank, inner_shape)
    found: Any = np.array(flat, dtype=None if dtype is None else dtypes.as_dtype(dtype).numpy)
    shape = _flat_shape(flat, inner_shape)
    found = found if shape is None else found.reshape(shape)
    splits_type = dtypes.as_dtype(row_splits_dtype).numpy
    for level in reversed(splits):
        found = RaggedTensorValue(found, np.array(level, splits_type))
    return found


def _is_list(value: Any) -> bool:
    return isinstance(value, (list, tuple)) or isinstance(value, np.ndarray) and value.ndim > 0


def _depth(value: Any) -> int | None:
    """The nesting depth of scalars; None if there is no scalar."""
    if not _is_list(value):
        return 0
    depths = {_depth(item) for item in value} - {None}
    if len(depths) > 1:
        raise ValueError("all scalar values must have the same nesting depth")
    return None if not depths else depths.pop() + 1  # type: ignore[operator]


def _list_depth(value: Any) -> int:
    """The deepest nesting of lists, empty ones included."""
    return 1 + max((_list_depth(item) for item in value), default=0) if _is_list(value) else 0


def _flat_shape(flat: Any, inner_shape: Any) -> Any:
    return None if inner_shape is None else (-1 if len(flat) else 0, *inner_shape)


def _parse(pylist: Any, ragged_rank: int | None, inner_shape: Any) -> tuple[list[list[int]], Any]:
    """The row splits of each ragged level, outermost first, and the flat values."""
    if not _is_list(pylist):
        return [], pylist
    depth, deepest = _depth(pylist), _list_depth(pylist)
    if depth is not None and deepest > depth:
        raise ValueError(f"Invalid pylist={pylist}: empty list nesting is greater than scalar value nesting")
    depth = depth or deepest
    inner = () if inner_shape is None else tuple(inner_shape)
    if ragged_rank is None:
        ragged_rank = max(depth - 1 - len(inner), 0)
    if ragged_rank and ragged_rank >= depth and inner_shape is None:
        raise ValueError(f"Invalid pylist={pylist}: ragged_rank must be less than {depth}")
    splits: list[list[int]] = []
    values: Any = pylist
    for _ in range(ragged_rank):
        bounds = [0]
        for row in values:
            bounds.append(bounds[-1] + len(row))
        splits.append(bounds)
        values = [item for row in values for item in row]
    return splits, values
