"""Zeros as the gradients of outputs that have no gradient, in conds and loops.

A branch of a cond contributes zeros only when it is not taken, so they depend on a Switch of the value
whose gradient they are.
"""

from __future__ import annotations

from typing import Any

from tfmini import dtypes
from tfmini.graph import raw_ops
from tfmini.graph.families import Operation, Tensor, control_dependencies
from tfmini.graph.traits import SWITCH_OPS
from tfmini.ops.array.constant import constant
from tfmini.ops.array.filling import zeros, zeros_like
from tfmini.ops.array.identity import identity
from tfmini.ops.array.shape import shape_internal
from tfmini.ops.flow import flow_ops as flow
from tfmini.ops.flow.control_flow_context import inside
from tfmini.ops.flow.loop_state import GradLoopState
from tfmini.shapes import RawShape


def _is_handle(tensor: Tensor) -> bool:
    return tensor.dtype.name == "resource"


def value_dtype(value: Tensor) -> dtypes.DType:
    """The dtype of a tensor, or of the variable behind a handle."""
    if not _is_handle(value):
        return value.dtype.base_dtype
    return dtypes.float32 if value.handle_data is None else value.handle_data[0]


def value_shape(value: Tensor) -> RawShape:
    """The static shape of a tensor, or of the variable behind a handle."""
    if not _is_handle(value):
        return value.raw_shape
    return None if value.handle_data is None else value.handle_data[1]


def sizes_of(value: Tensor, out_type: Any = dtypes.int32) -> Tensor:
    """The shape of a tensor, or of the variable behind a handle."""
    if _is_handle(value):
        return raw_ops.VariableShape(value, out_type=out_type)
    return shape_internal(value, optimize=False, out_type=out_type)


def zeros_outside_loops(op: Operation, index: int) -> Tensor:
    """Zeros like output ``index`` of an op that is in no loop."""
    value = op.outputs[index]
    dtype = value_dtype(value)
    context = op._control_flow_context
    if op.type not in SWITCH_OPS or context is None:
        return zeros(sizes_of(value), dtype) if _is_handle(value) else zeros_like(value, optimize=False)
    other: Tensor = flow.switch(op.inputs[0], context.pred)[1 - context.branch]
    pivot = identity(other)
    if _is_handle(value):
        with control_dependencies([pivot]):
            return zeros(sizes_of(other), dtype)
    sizes = sizes_of(other)
    # An op without inputs would run whichever branch is taken.
    with control_dependencies([pivot]):
        return zeros(sizes, dtype)


def zeros_in_loop(state: GradLoopState, op: Operation, index: int) -> Tensor:
    """Zeros like output ``index`` of an op of a loop, in the backprop loop, whose context is active."""
    value = op.outputs[index]
    is_dead_branch = op.type in SWITCH_OPS
    if _is_handle(value):
        return _zeros_of_handle(state, op, value, is_dead_branch)
    raw = value.raw_shape
    if raw is not None and None not in raw:
        result: Any = constant(0, shape=raw, dtype=value.dtype)
        return _on_other_branch(state, op, result) if is_dead_branch else result
    sizes = _sizes_of_dead_branch(op) if is_dead_branch else _sizes_in_context(op, value)
    remembered = state.remembered(sizes, is_dead_branch)
    return zeros(remembered, value.dtype.base_dtype)


def _on_other_branch(state: GradLoopState, op: Operation, value: Tensor) -> Tensor:
    context = op._control_flow_context
    pred = state.history.get(context.pred.name, context.pred)
    return flow.switch_beside(value, pred)[1 - context.branch]  # type: ignore[no-any-return]


def _sizes_in_context(op: Operation, value: Tensor) -> Tensor:
    with inside(op._control_flow_context):
        return shape_internal(value, optimize=False)


def _sizes_of_dead_branch(op: Operation) -> Tensor:
    """The shape of a Switch's value, as a tensor that is alive when the branch that it feeds is not taken."""
    context = op._control_flow_context
    with inside(context.outer_context):
        other: Tensor = flow.switch_beside(op.inputs[0], context.pred)[1 - context.branch]
        sizes = shape_internal(other, optimize=False)
    other.op._set_control_flow_context(context)
    sizes.op._set_control_flow_context(context)
    return sizes


def _zeros_of_handle(state: GradLoopState, op: Operation, value: Tensor, is_dead_branch: bool) -> Tensor:
    """Zeros like the variable of a handle. A handle is a loop invariant, so the backprop loop can read the shape."""
    handle = op.inputs[0] if is_dead_branch else value
    result = zeros(sizes_of(handle), value_dtype(handle))
    return _on_other_branch(state, op, result) if is_dead_branch else result
