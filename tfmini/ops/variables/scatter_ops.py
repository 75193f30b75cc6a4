"""Scatter updates of variables: ``ScatterAdd``, ``ScatterNdUpdate`` and their kin, by reference and by handle."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from tfmini.errors import InvalidArgumentError
from tfmini.graph.operation import Operation
from tfmini.graph.registry import OpHandle, op
from tfmini.ops.state_ref import merged_shape
from tfmini.ops.state_resource import handle_data
from tfmini.ops.state_scatter_rows import check_nd_indices, check_row_indices, scatter_rows
from tfmini.ops.variable_state import VariableState
from tfmini.shapes import RawShape, format_raw

_ORDERED = "{half, bfloat16, float, double, int32, int64}"
_OPERATIONS = {"Update": "type", "Add": "numbertype", "Sub": "numbertype", "Mul": "numbertype",
               "Div": "numbertype", "Min": _ORDERED, "Max": _ORDERED}  # fmt: skip


def _by_reference(name: str, allowed: str, locking: bool) -> OpHandle:
    return op(
        f"{name}(ref: Ref(T), indices: Tindices, updates: T) -> output_ref: Ref(T);"
        f" T: {allowed}; Tindices: {{int32, int64}}; use_locking: bool = {str(locking).lower()}"
    )


def _by_handle(name: str, allowed: str) -> OpHandle:
    return op(
        f"{name}(resource: resource, indices: Tindices, updates: dtype);"
        f" dtype: {allowed}; Tindices: {{int32, int64}}",
        stateful=True,
    )


def _nd_by_handle(name: str) -> OpHandle:
    return op(
        f"{name}(ref: resource, indices: Tindices, updates: T);"
        " T: type; Tindices: {int32, int64}; use_locking: bool = true",
        stateful=True,
    )


def _row_shape(node: Operation) -> list[RawShape]:
    shape = node._inputs[0]._shape
    _check_row_shapes(shape, node._inputs[1]._shape, node._inputs[2]._shape)
    return [shape]


def _resource_row_shape(node: Operation) -> list[RawShape]:
    shape = handle_data(node._inputs[0])[1]
    _check_row_shapes(shape, node._inputs[1]._shape, node._inputs[2]._shape)
    return []


def _check_row_shapes(shape: RawShape, indices: RawShape, updates: RawShape) -> None:
    if shape is None or indices is None or updates == ():
        return
    if not shape:
        raise ValueError("Shape must be at least rank 1 but is rank 0")
    merged_shape(indices + shape[1:], updates)


def _nd_shape(node: Operation) -> list[RawShape]:
    shape = node._inputs[0]._shape
    _check_nd_shapes(shape, node._inputs[1]._shape, node._inputs[2]._shape)
    return [shape]


def _resource_nd_shape(node: Operation) -> list[RawShape]:
    _check_nd_shapes(handle_data(node._inputs[0])[1], node._inputs[1]._shape, node._inputs[2]._shape)
    return []


def _check_nd_shapes(shape: RawShape, indices: RawShape, updates: RawShape) -> None:
    if shape is None or not indices or indices[-1] is None:
        return
    depth = indices[-1]
    if depth > len(shape):
        raise ValueError(
            f"Index innermost dimension length must be <= params rank; saw: {depth} vs. {len(shape)}"
        )
    merged_shape(indices[:-1] + shape[depth:], updates)


# ---- kernels --------------------------------------------------------------------------------


def _scatter(operation: str, state: VariableState, indices: Any, updates: Any) -> VariableState:
    state.update(_update_rows, operation, indices, updates)
    return state


def _scatter_resource(operation: str, state: VariableState, indices: Any, updates: Any) -> tuple[()]:
    state.update(_update_rows, operation, indices, updates)
    return ()


def _update_rows(buffer: Any, operation: str, indices: Any, updates: Any) -> None:
    indices, updates = np.asarray(indices), np.asarray(updates, buffer.dtype)
    if not buffer.ndim:
        raise InvalidArgumentError(None, None, "params must be at least 1-D, got shape []")
    wanted = indices.shape + buffer.shape[1:]
    if updates.ndim and updates.shape != wanted:
        raise InvalidArgumentError(
            None,
            None,
            "Must have updates.shape = indices.shape + params.shape[1:] or updates.shape = [], got updates.shape "
            f"{format_raw(updates.shape)}, indices.shape {format_raw(indices.shape)},"
            f" params.shape {format_raw(buffer.shape)}",
        )
    if not indices.size:
        return
    check_row_indices(indices, len(buffer))
    if updates.ndim or not buffer.ndim - 1:
        updates = np.broadcast_to(updates, wanted).reshape(indices.size, *buffer.shape[1:])
    scatter_rows(operation, buffer, indices.ravel(), updates)


def _scatter_nd(operation: str, state: VariableState, indices: Any, updates: Any) -> VariableState:
    state.update(_update_nd, operation, indices, updates)
    return state


def _scatter_nd_resource(operation: str, state: VariableState, indices: Any, updates: Any) -> tuple[()]:
    state.update(_update_nd, operation, indices, updates)
    return ()


def _update_nd(buffer: Any, operation: str, indices: Any, updates: Any) -> None:
    updates = np.asarray(updates, buffer.dtype)
    check_nd_indices(indices, buffer.shape)
    depth = indices.shape[-1]
    slice_shape = buffer.shape[depth:]
    if updates.shape != indices.shape[:-1] + slice_shape:
        raise InvalidArgumentError(
            None,
            None,
            "Must have updates.shape = indices.shape[:batch_dim] + params_shape[slice_dim:], got updates.shape: "
            f"{format_raw(updates.shape)}, indices.shape: {format_raw(indices.shape)}, params_shape:"
            f" {format_raw(buffer.shape)}, slice_dim: {depth}, and batch_dim: {indices.ndim - 1}",
        )
    count = int(np.prod(indices.shape[:-1], dtype=np.int64))
    if not count:
        return
    # Index vectors become row numbers of the array with its first `depth` axes flattened.
    rows = buffer.reshape(int(np.prod(buffer.shape[:depth], dtype=np.int64)), *slice_shape)
    flat = indices.reshape(count, depth).astype(np.int64)
    strides = np.array([int(np.prod(buffer.shape[k + 1 : depth], dtype=np.int64)) for k in range(depth)], np.int64)
    scatter_rows(operation, rows, flat @ strides, updates.reshape(count, *slice_shape))


# ---- declarations: one op per operation and way of naming the variable -------------------------

scatter_ops: dict[str, OpHandle] = {}
scatter_nd_ops: dict[str, OpHandle] = {}
resource_scatter_ops: dict[str, OpHandle] = {}
resource_scatter_nd_ops: dict[str, OpHandle] = {}


def _attach(handle: OpHandle, shape: Any, kernel: Any, operation: str) -> OpHandle:
    handle.shape(shape)
    handle.kernel("CPU")(partial(kernel, operation))
    handle.not_differentiable()
    return handle


for _name, _allowed in _OPERATIONS.items():
    _operation = _name.lower()
    _reference = _by_reference(f"Scatter{_name}", _allowed, locking=_name == "Update")
    scatter_ops[_operation] = _attach(_reference, _row_shape, _scatter, _operation)
    _resource = _by_handle(f"ResourceScatter{_name}", "type" if _name == "Update" else "numbertype")
    resource_scatter_ops[_operation] = _attach(_resource, _resource_row_shape, _scatter_resource, _operation)

for _name in ("Update", "Add", "Sub"):
    _operation = _name.lower()
    _reference = _by_reference(f"ScatterNd{_name}", _OPERATIONS[_name], locking=_name == "Update")
    scatter_nd_ops[_operation] = _attach(_reference, _nd_shape, _scatter_nd, _operation)
    _resource = _nd_by_handle(f"ResourceScatterNd{_name}")
    resource_scatter_nd_ops[_operation] = _attach(_resource, _resource_nd_shape, _scatter_nd_resource, _operation)
