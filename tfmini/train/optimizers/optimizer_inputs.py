"""Conversion and checks of an optimizer's inputs: variables, gradients and the global step."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tfmini.graph import nest, raw_ops
from tfmini.graph.conversion import IndexedSlices, convert_to_tensor, convert_to_tensor_or_indexed_slices
from tfmini.graph.keys import GraphKeys
from tfmini.graph.operation import Operation, Tensor
from tfmini.graph.scoping import get_collection
from tfmini.ops.variables.functions import Variable, trainable_variables

GradAndVar = tuple[Any, Any]


def is_resource(variable: Any) -> bool:
    """Whether a variable is a resource variable (rather than a reference variable)."""
    return bool(variable.op.type == "VarHandleOp")


def state_of(variable: Any) -> Tensor:
    """The input of an update op for a variable: its handle or its reference."""
    return variable.handle if is_resource(variable) else variable._ref()  # type: ignore[no-any-return]


def chosen_variables(var_list: Any) -> list[Any]:
    """The given variables, or all trainable ones of the default graph; raises ValueError if there are none."""
    if var_list is None:
        chosen = trainable_variables() + get_collection(GraphKeys.TRAINABLE_RESOURCE_VARIABLES)
    else:
        chosen = nest.flatten(var_list)
    if not chosen:
        raise ValueError("No variables to optimize.")
    return chosen


def differentiation_target(var: Any) -> Any:
    """The tensor or variable to differentiate by for ``var``; raises NotImplementedError for other types."""
    if isinstance(var, Variable):
        return var if is_resource(var) else state_of(var)
    if isinstance(var, Tensor):
        return var
    raise NotImplementedError(f"Trying to optimize unsupported type {type(var).__name__}: {var!r} is no variable.")


def checked_pairs(grads_and_vars: Iterable[GradAndVar]) -> list[GradAndVar]:
    """The pairs with gradients converted to tensors or `IndexedSlices`; raises ValueError if there are none."""
    pairs = [(None if grad is None else _as_gradient(grad), var) for grad, var in grads_and_vars]
    if not pairs:
        raise ValueError("No variables provided.")
    for _, var in pairs:
        differentiation_target(var)
    return pairs


def _as_gradient(grad: Any) -> Any:
    try:
        grad = convert_to_tensor_or_indexed_slices(grad)
    except TypeError:
        raise TypeError(f"Gradient must be convertible to a Tensor or IndexedSlices, or None: {grad}") from None
    if not isinstance(grad, (Tensor, IndexedSlices)):
        raise TypeError(f"Gradient must be a Tensor, IndexedSlices, or None: {grad}")
    return grad


def increment_op(global_step: Any, name: str) -> Operation:
    """An operation called ``name`` that adds one to the global step."""
    if is_resource(global_step):
        one = convert_to_tensor(1, dtype=global_step.dtype)
        return raw_ops.AssignAddVariableOp(global_step.handle, one, name=name)
    reference = state_of(global_step) if isinstance(global_step, Variable) else global_step
    return raw_ops.AssignAdd(reference, 1, name=name).op
