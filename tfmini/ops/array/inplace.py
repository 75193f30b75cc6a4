"""Rows changed, increased or decreased: ``InplaceUpdate``, ``InplaceAdd``, ``InplaceSub``, ``DeepCopy``, ``Empty``.

TensorFlow writes into its input. Here the input may be shared with others, so the result is a copy.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tfmini import dtypes
from tfmini.graph.operation import Operation
from tfmini.graph.registry import OpHandle, op
from tfmini.ops.array_values import refuse
from tfmini.ops.constant_value import constant_value_as_shape
from tfmini.shapes import RawShape

_ROWS = "(x: T, i: int32, v: T) -> y: T; T: type"
update_op, add_op, sub_op = (op(name + _ROWS) for name in ("InplaceUpdate", "InplaceAdd", "InplaceSub"))
deep_copy_op = op("DeepCopy(x: T) -> y: T; T: type", stateful=True)
empty_op = op("Empty(shape: int32) -> output: dtype; dtype: type; init: bool = false", stateful=True)
for _handle in (update_op, add_op, sub_op, deep_copy_op, empty_op):
    _handle.not_differentiable()


@update_op.shape
@add_op.shape
@sub_op.shape
@deep_copy_op.shape
def _same(node: Operation) -> list[RawShape]:
    return [node._inputs[0]._shape]


@empty_op.shape
def _given(node: Operation) -> list[RawShape]:
    return [constant_value_as_shape(node._inputs[0])]


def _attach(handle: OpHandle, change: Callable[[Any, Any, Any], None]) -> None:
    @handle.kernel("CPU")
    def _kernel(x: Any, i: Any, v: Any) -> Any:
        rows = np.asarray(i)
        if rows.ndim != 1:
            refuse("i must be a vector. ")
        if rows.size != len(v):
            refuse(f"i and x shape doesn't match at dimension 0: {rows.size} vs. {len(v)}")
        if x.shape[1:] != v.shape[1:]:
            refuse(f"x and v shape doesn't match: {list(x.shape)} {list(v.shape)}")
        result = x.copy()
        change(result, rows % max(len(x), 1), v)  # a row past the end is counted from the start again
        return result


def _assign(x: Any, rows: Any, v: Any) -> None:
    x[rows] = v


_attach(update_op, _assign)
_attach(add_op, np.add.at)
_attach(sub_op, np.subtract.at)


@deep_copy_op.kernel("CPU")
def _deep_copy(x: Any) -> Any:
    return x.copy() if isinstance(x, np.ndarray) else x


@empty_op.kernel("CPU")
def _empty(shape: Any, *, dtype: dtypes.DType, init: bool) -> Any:
    # What is not asked for is zeroed all the same: memory of others must not be shown.
    sizes = shape.tolist()
    return np.full(sizes, b"", object) if dtype is dtypes.string else np.zeros(sizes, dtype.numpy)
