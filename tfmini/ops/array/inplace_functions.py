"""The row updates that old scripts import from ``tensorflow.python.ops.inplace_ops``."""

from __future__ import annotations

from typing import Any

from tfmini import dtypes
from tfmini.graph.families import Tensor, convert_to_tensor
from tfmini.ops.array.inplace import add_op, empty_op, sub_op, update_op
from tfmini.ops.array.shape import expand_dims, reshape, shape


def inplace_update(x: Any, i: Any, v: Any) -> Tensor:
    """``x`` with the rows ``i`` replaced by ``v``; ``i`` may be one number, or None for all rows."""
    return _on_rows(update_op, x, i, v)


def inplace_add(x: Any, i: Any, v: Any) -> Tensor:
    """``x`` with ``v`` added to the rows ``i``; see `inplace_update`."""
    return _on_rows(add_op, x, i, v)


def inplace_sub(x: Any, i: Any, v: Any) -> Tensor:
    """``x`` with ``v`` subtracted from the rows ``i``; see `inplace_update`."""
    return _on_rows(sub_op, x, i, v)


alias_inplace_update, alias_inplace_add, alias_inplace_sub = inplace_update, inplace_add, inplace_sub


def _on_rows(handle: Any, x: Any, i: Any, v: Any) -> Tensor:
    x = convert_to_tensor(x)
    v = convert_to_tensor(v, x.dtype.base_dtype)
    if i is None:  # All elements, as one row.
        flat = handle(reshape(x, [1, -1]), [0], reshape(v, [1, -1]))
        return reshape(flat, shape(x))
    rows = convert_to_tensor(i, dtypes.int32)
    if rows.shape.ndims == 0:
        return handle(x, reshape(rows, [1]), expand_dims(v, 0))  # type: ignore[no-any-return]
    return handle(x, rows, v)  # type: ignore[no-any-return]


def empty(shape: Any, dtype: Any, init: bool = False) -> Tensor:
    """A tensor of the given shape with unspecified content."""
    return empty_op(shape, dtype=dtypes.as_dtype(dtype), init=init)


def empty_like(x: Any, init: bool | None = None) -> Tensor:
    """A tensor of the shape and type of ``x`` with unspecified content."""
    x = convert_to_tensor(x)
    return empty(shape(x), x.dtype, bool(init))
