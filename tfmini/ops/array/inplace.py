"""Updates of rows: ``InplaceUpdate``, ``InplaceAdd``, ``InplaceSub``; and ``DeepCopy``, ``Empty``.

TensorFlow writes into its input. Here other ops may share the input, so the result is a copy.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tfmini import dtypes
from tfmini.core_types import Array, DTypeLike, SizesLike, TensorLike
from tfmini.graph.families import OpHandle, Tensor, all_of, convert_to_tensor, op, same_shape
from tfmini.memory import check_room
from tfmini.ops.array.constant_value import given_shape
from tfmini.ops.array.kernel_arguments import refuse
from tfmini.ops.array.shape import expand_dims, reshape, shape

_ROWS = "(x: T, i: int32, v: T) -> y: T; T: type"
update_op, add_op, sub_op = (op(f"Inplace{kind}{_ROWS}", shape=same_shape) for kind in ("Update", "Add", "Sub"))
deep_copy_op = op("DeepCopy(x: T) -> y: T; T: type", stateful=True, shape=same_shape)
deep_copy_op.kernel("CPU")(lambda x: x.copy() if isinstance(x, np.ndarray) else x)
empty_op = op("Empty(shape: int32) -> output: dtype; dtype: type; init: bool = false", stateful=True, shape=given_shape)
all_of(update_op, add_op, sub_op, deep_copy_op, empty_op).not_differentiable()


def _attach(handle: OpHandle, change: Callable[[Any, Any, Any], None]) -> None:
    @handle.kernel("CPU")
    def _kernel(x: Array, i: Array, v: Array) -> Any:
        rows = np.asarray(i)
        if rows.ndim != 1:
            refuse("i must be a vector. ")
        if rows.size != len(v):
            refuse(f"i and x shape doesn't match at dimension 0: {rows.size} vs. {len(v)}")
        if x.shape[1:] != v.shape[1:]:
            refuse(f"x and v shape doesn't match: {list(x.shape)} {list(v.shape)}")
        result = x.copy()
        change(result, rows % max(len(x), 1), v)  # As in TensorFlow, a row number past the end starts again at 0.
        return result


def _assign(x: Array, rows: Array, v: Array) -> None:
    x[rows] = v


_attach(update_op, _assign)
_attach(add_op, np.add.at)
_attach(sub_op, np.subtract.at)


@empty_op.kernel("CPU")
def _empty(shape: Array, *, dtype: dtypes.DType, init: bool) -> Any:
    # Zeroed even without ``init``: uninitialised memory may hold data of other steps.
    sizes = shape.tolist()
    check_room(sizes, dtype.numpy.itemsize)
    return np.full(sizes, b"", object) if dtype is dtypes.string else np.zeros(sizes, dtype.numpy)


# ---- The row updates that old scripts import from ``tensorflow.python.ops.inplace_ops`` ----------------------------


def inplace_update(x: TensorLike, i: TensorLike, v: TensorLike) -> Tensor:
    """``x`` with the rows ``i`` replaced by ``v``; ``i`` may be one number, or None for all rows."""
    return _on_rows(update_op, x, i, v)


def inplace_add(x: TensorLike, i: TensorLike, v: TensorLike) -> Tensor:
    """``x`` with ``v`` added to the rows ``i``; see `inplace_update`."""
    return _on_rows(add_op, x, i, v)


def inplace_sub(x: TensorLike, i: TensorLike, v: TensorLike) -> Tensor:
    """``x`` with ``v`` subtracted from the rows ``i``; see `inplace_update`."""
    return _on_rows(sub_op, x, i, v)


alias_inplace_update, alias_inplace_add, alias_inplace_sub = inplace_update, inplace_add, inplace_sub


def _on_rows(handle: OpHandle, x: TensorLike, i: TensorLike, v: TensorLike) -> Tensor:
    x = convert_to_tensor(x)
    v = convert_to_tensor(v, x.dtype.base_dtype)
    if i is None:  # All elements, as one row.
        flat = handle(reshape(x, [1, -1]), [0], reshape(v, [1, -1]))
        return reshape(flat, shape(x))
    rows = convert_to_tensor(i, dtypes.int32)
    if rows.shape.ndims == 0:
        return handle(x, reshape(rows, [1]), expand_dims(v, 0))
    return handle(x, rows, v)


def empty(shape: SizesLike, dtype: DTypeLike, init: bool = False) -> Tensor:
    """A tensor of the given shape with unspecified content."""
    return empty_op(shape, dtype=dtypes.as_dtype(dtype), init=init)


def empty_like(x: TensorLike, init: bool | None = None) -> Tensor:
    """A tensor of the shape and type of ``x`` with unspecified content."""
    x = convert_to_tensor(x)
    return empty(shape(x), x.dtype, bool(init))
