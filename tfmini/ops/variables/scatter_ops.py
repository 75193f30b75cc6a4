"""Scatter updates of variables: ``ScatterAdd``, ``ScatterNdUpdate`` and the like, by reference and by handle."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tfmini.graph.families import Operation, OpHandle, op
from tfmini.numerics.scatter_rows import check_nd_indices, check_row_indices, scatter_rows
from tfmini.ops.array.kernel_arguments import refuse
from tfmini.ops.variables.ref_ops import merged_shape
from tfmini.ops.variables.resource_ops import handle_data
from tfmini.ops.variables.state import VariableState
from tfmini.shapes import RawShape, at_least_rank, format_raw

_ORDERED = "{half, bfloat16, float, double, int32, int64}"
_OPERATIONS = {"Update": "type", "Add": "numbertype", "Sub": "numbertype", "Mul": "numbertype",
               "Div": "numbertype", "Min": _ORDERED, "Max": _ORDERED}  # fmt: skip


# ---- shapes ---------------------------------------------------------------------------------


def _check_row_shapes(shape: RawShape, indices: RawShape, updates: RawShape) -> None:
    if shape is None or indices is None or updates == ():
        return
    at_least_rank(shape, 1)
    merged_shape(indices + shape[1:], updates)


def _check_nd_shapes(shape: RawShape, indices: RawShape, updates: RawShape) -> None:
    if shape is None or not indices or indices[-1] is None:
        return
    depth = indices[-1]
    if depth > len(shape):
        raise ValueError(f"Index innermost dimension length must be <= params rank; saw: {depth} vs. {len(shape)}")
    merged_shape(indices[:-1] + shape[depth:], updates)


def _shape_of(check: Callable[..., None], by_handle: bool) -> Callable[[Operation], list[RawShape]]:
    def shape(node: Operation) -> list[RawShape]:
        variable, indices, updates = node.inputs
        whole = handle_data(variable)[1] if by_handle else variable.raw_shape
        check(whole, indices.raw_shape, updates.raw_shape)
        return [] if by_handle else [whole]

    return shape


# ---- kernels --------------------------------------------------------------------------------


def _update_rows(buffer: Any, operation: str, indices: Any, updates: Any) -> None:
    indices, updates = np.asarray(indices), np.asarray(updates, buffer.dtype)
    if not buffer.ndim:
        refuse("params must be at least 1-D, got shape []")
    wanted = indices.shape + buffer.shape[1:]
    if updates.ndim and updates.shape != wanted:
        refuse(
            "Must have updates.shape = indices.shape + params.shape[1:] or updates.shape = [], got updates.shape "
            f"{format_raw(updates.shape)}, indices.shape {format_raw(indices.shape)},"
            f" params.shape {format_raw(buffer.shape)}"
        )
    if not indices.size:
        return
    check_row_indices(indices, len(buffer))
    if updates.ndim or not buffer.ndim - 1:
        updates = np.broadcast_to(updates, wanted).reshape(indices.size, *buffer.shape[1:])
    scatter_rows(operation, buffer, indices.ravel(), updates)


def _update_nd(buffer: Any, operation: str, indices: Any, updates: Any) -> None:
    updates = np.asarray(updates, buffer.dtype)
    check_nd_indices(indices, buffer.shape)
    depth = indices.shape[-1]
    slice_shape = buffer.shape[depth:]
    if updates.shape != indices.shape[:-1] + slice_shape:
        refuse(
            "Must have updates.shape = indices.shape[:batch_dim] + params_shape[slice_dim:], got updates.shape: "
            f"{format_raw(updates.shape)}, indices.shape: {format_raw(indices.shape)}, params_shape:"
            f" {format_raw(buffer.shape)}, slice_dim: {depth}, and batch_dim: {indices.ndim - 1}"
        )
    count = int(np.prod(indices.shape[:-1], dtype=np.int64))
    if not count:
        return
    # Index vectors become row numbers of the array with its first `depth` axes flattened.
    rows = buffer.reshape(int(np.prod(buffer.shape[:depth], dtype=np.int64)), *slice_shape)
    flat = indices.reshape(count, depth).astype(np.int64)
    strides = np.array([int(np.prod(buffer.shape[k + 1 : depth], dtype=np.int64)) for k in range(depth)], np.int64)
    scatter_rows(operation, rows, flat @ strides, updates.reshape(count, *slice_shape))


def _kernel(update: Callable[..., None], operation: str, by_handle: bool) -> Callable[..., Any]:
    def scatter(state: VariableState, indices: Any, updates: Any) -> Any:
        state.update(update, operation, indices, updates)
        return () if by_handle else state

    return scatter


# ---- declarations: one op per operation and way of naming the variable -------------------------


def _declare(operation: str, signature: str, allowed: str, locking: str = "") -> OpHandle[Any]:
    by_handle, of_rows = ": resource" in signature, "Nd" not in signature
    element = "dtype" if by_handle and of_rows else "T"
    output = "" if by_handle else " -> output_ref: Ref(T)"
    handle = op(
        f"{signature}, indices: Tindices, updates: {element}){output}; {element}: {allowed};"
        f" Tindices: {{int32, int64}}{locking and '; use_locking: bool = ' + locking}",
        stateful=by_handle,
        writes="scatter",
        shape=_shape_of(_check_row_shapes if of_rows else _check_nd_shapes, by_handle),
    )
    handle.kernel("CPU")(_kernel(_update_rows if of_rows else _update_nd, operation, by_handle))
    handle.not_differentiable()
    return handle


scatter_ops: dict[str, OpHandle] = {}
scatter_nd_ops: dict[str, OpHandle] = {}
resource_scatter_ops: dict[str, OpHandle[Operation]] = {}
resource_scatter_nd_ops: dict[str, OpHandle[Operation]] = {}

for _name, _allowed in _OPERATIONS.items():
    _operation, _locking = _name.lower(), "true" if _name == "Update" else "false"
    scatter_ops[_operation] = _declare(_operation, f"Scatter{_name}(ref: Ref(T)", _allowed, _locking)
    resource_scatter_ops[_operation] = _declare(
        _operation, f"ResourceScatter{_name}(resource: resource", "type" if _name == "Update" else "numbertype"
    )
    if _name in ("Update", "Add", "Sub"):
        scatter_nd_ops[_operation] = _declare(_operation, f"ScatterNd{_name}(ref: Ref(T)", _allowed, _locking)
        resource_scatter_nd_ops[_operation] = _declare(
            _operation, f"ResourceScatterNd{_name}(ref: resource", "type", "true"
        )
