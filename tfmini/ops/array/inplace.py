"""Updates of rows: ``InplaceUpdate``, ``InplaceAdd``, ``InplaceSub``; and ``DeepCopy``, ``Empty``.

TensorFlow writes into its input. Here other ops may share the input, so the result is a copy.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tfmini import dtypes
from tfmini.graph.families import OpHandle, all_of, op, same_shape
from tfmini.machine_memory import check_room
from tfmini.ops.array.constant_value import given_shape
from tfmini.ops.array.kernel_arguments import refuse

_ROWS = "(x: T, i: int32, v: T) -> y: T; T: type"
update_op, add_op, sub_op = (op(f"Inplace{kind}{_ROWS}", shape=same_shape) for kind in ("Update", "Add", "Sub"))
deep_copy_op = op("DeepCopy(x: T) -> y: T; T: type", stateful=True, shape=same_shape)
deep_copy_op.kernel("CPU")(lambda x: x.copy() if isinstance(x, np.ndarray) else x)
empty_op = op("Empty(shape: int32) -> output: dtype; dtype: type; init: bool = false", stateful=True, shape=given_shape)
all_of(update_op, add_op, sub_op, deep_copy_op, empty_op).not_differentiable()


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
        change(result, rows % max(len(x), 1), v)  # As in TensorFlow, a row number past the end starts again at 0.
        return result


def _assign(x: Any, rows: Any, v: Any) -> None:
    x[rows] = v


_attach(update_op, _assign)
_attach(add_op, np.add.at)
_attach(sub_op, np.subtract.at)


@empty_op.kernel("CPU")
def _empty(shape: Any, *, dtype: dtypes.DType, init: bool) -> Any:
    # Zeroed even without ``init``: uninitialised memory may hold data of other steps.
    sizes = shape.tolist()
    check_room(sizes, dtype.numpy.itemsize)
    return np.full(sizes, b"", object) if dtype is dtypes.string else np.zeros(sizes, dtype.numpy)
