"""Lowerings of the ops that read and change variables."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tfmini.graph.lowering import DeviceValue, jnp, lower
from tfmini.graph.node import Node
from tfmini.ops.array.kernel_arguments import refuse
from tfmini.ops.array.lowering import DROP, gather, gather_nd, places
from tfmini.shapes import compatible_raw, format_raw

lower("ReadVariableOp")(lambda cell: cell.read())
lower("VariableShape", keeps_shape_only=True)(lambda cell, *, out_type: np.array(cell.read().shape, out_type.numpy))


@lower("Assign")
def _assign(ref: DeviceValue, value: DeviceValue, *, validate_shape: bool) -> Any:
    if validate_shape:
        declared = ref.state.shape if ref.value is None else ref.value.shape
        if not compatible_raw(declared, value.shape):
            shapes = f"{format_raw(declared)} rhs shape= {format_raw(value.shape)}"
            refuse(f"Assign requires shapes of both tensors to match. lhs shape= {shapes}")
    ref.value = jnp.asarray(value)
    return ref


@lower("AssignVariableOp")
def _assign_variable(ref: DeviceValue, value: DeviceValue) -> Any:
    ref.value = jnp.asarray(value)
    return ()


def _check(ref: DeviceValue, value: DeviceValue) -> None:
    if ref.read().shape != value.shape:
        shapes = f"{format_raw(ref.value.shape)} and {format_raw(value.shape)}"
        refuse(f"Parameters and update must be the same size: {shapes}")


@lower("AssignAdd AssignAddVariableOp AssignSub AssignSubVariableOp")
def _assign_add(ref: DeviceValue, value: DeviceValue, *, node: Node) -> Any:
    _check(ref, value)
    ref.value = ref.value + value if "Add" in node.op else ref.value - value
    return ref if node.op in ("AssignAdd", "AssignSub") else ()


@lower("ResourceGather")
def _gather(cell: DeviceValue, indices: DeviceValue, *, batch_dims: int) -> Any:
    return gather(cell.read(), indices, batch_dims, batch_dims)


lower("ResourceGatherNd")(lambda cell, indices: gather_nd(cell.read(), indices))

# ---- scatter updates: rows out of range are left out ---------------------------------------------------------------


def _scatter(name: str, function: Callable[[Any, Any], Any]) -> None:
    @lower(f"Scatter{name} ResourceScatter{name}")
    def _rows(ref: DeviceValue, indices: DeviceValue, updates: DeviceValue, *, node: Node) -> Any:
        value = ref.read()
        wanted = (*indices.shape, *value.shape[1:])
        if updates.ndim and updates.shape != wanted:
            refuse(
                "Must have updates.shape = indices.shape + params.shape[1:] or updates.shape = [], got updates.shape"
                f" {format_raw(updates.shape)}, indices.shape {format_raw(indices.shape)},"
                f" params.shape {format_raw(value.shape)}"
            )
        ref.value = function(value.at[jnp.asarray(indices)], jnp.asarray(updates).astype(value.dtype))
        return () if node.op.startswith("Resource") else ref


_FUNCTIONS: dict[str, Callable[[Any, Any], Any]] = {
    "Update": lambda at, updates: at.set(updates, **DROP),
    "Add": lambda at, updates: at.add(updates, **DROP),
    "Sub": lambda at, updates: at.add(-updates, **DROP),
    "Mul": lambda at, updates: at.multiply(updates, **DROP),
    "Div": lambda at, updates: at.divide(updates, **DROP),
    "Min": lambda at, updates: at.min(updates, **DROP),
    "Max": lambda at, updates: at.max(updates, **DROP),
}
for _name, _function in _FUNCTIONS.items():
    _scatter(_name, _function)


def _scatter_nd(name: str, function: Callable[[Any, Any], Any]) -> None:
    @lower(f"ScatterNd{name} ResourceScatterNd{name}")
    def _nd(ref: DeviceValue, indices: DeviceValue, updates: DeviceValue, *, node: Node) -> Any:
        value = ref.read()
        ref.value = function(value.at[places(indices)], updates)
        return () if node.op.startswith("Resource") else ref


for _name in ("Update", "Add", "Sub"):
    _scatter_nd(_name, _FUNCTIONS[_name])
