"""Slots: variables that belong to another variable, such as an optimizer's accumulators.

A slot lives in the variable scope ``<variable>/<name>``, on the device of its variable, and is
not trainable. It is a resource variable if its variable is one, and a slice of a larger one if
its variable is.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from tfmini.graph.operation import Tensor
from tfmini.ops import array_filling, array_shape
from tfmini.ops.initializers import zeros_initializer
from tfmini.ops.save_slice import SaveSliceInfo
from tfmini.ops.scoping import colocate_with
from tfmini.ops.variable_scope import get_variable, get_variable_scope, variable_scope
from tfmini.ops.variables import Variable
from tfmini.shapes import TensorShape


def create_slot(primary: Any, val: Tensor, name: str, colocate_with_primary: bool = True) -> Any:
    """A slot of ``primary`` (a variable or tensor) with the initial value ``val``, whose type it gets."""
    complete = val.shape.is_fully_defined()
    return _in_slot_scope(
        primary, name, colocate_with_primary, lambda: _create(primary, val, complete, None, None)
    )


def create_slot_with_initializer(
    primary: Any, initializer: Any, shape: TensorShape, dtype: Any, name: str, colocate_with_primary: bool = True
) -> Any:
    """A slot of ``primary`` of the given shape and dtype, filled by an initializer."""
    complete = shape.is_fully_defined()
    return _in_slot_scope(
        primary, name, colocate_with_primary, lambda: _create(primary, initializer, complete, shape, dtype)
    )


def create_zeros_slot(primary: Any, name: str, dtype: Any = None, colocate_with_primary: bool = True) -> Any:
    """A slot of zeros of ``primary``'s shape; of its dtype by default."""
    dtype = primary.dtype.base_dtype if dtype is None else dtype
    shape = primary.get_shape()
    if shape.is_fully_defined():
        initializer = zeros_initializer()
        return create_slot_with_initializer(primary, initializer, shape, dtype, name, colocate_with_primary)
    value = primary.initialized_value() if isinstance(primary, Variable) else primary  # type: ignore[attr-defined]
    zeros = array_filling.zeros(array_shape.shape(value), dtype=dtype)
    return create_slot(primary, zeros, name, colocate_with_primary)


def _in_slot_scope(primary: Any, name: str, colocate: bool, create: Callable[[], Any]) -> Any:
    place: AbstractContextManager[Any] = colocate_with(primary) if colocate else nullcontext()
    # As a default name, the scope gets a suffix when a slot of that name exists.
    with variable_scope(None, primary.op.name + "/" + name), place:
        return create()


def _create(primary: Any, value: Any, validate_shape: bool, shape: Any, dtype: Any) -> Any:
    scope = get_variable_scope()
    # A slot of a slice is a slice already.
    partitioner = scope.partitioner
    scope.set_partitioner(None)
    try:
        slot = get_variable(
            "",
            initializer=value,
            trainable=False,
            use_resource=primary.op.type == "VarHandleOp" if isinstance(primary, Variable) else None,
            shape=shape if callable(value) else None,
            dtype=dtype,
            validate_shape=validate_shape,
        )
    finally:
        scope.set_partitioner(partitioner)
    if isinstance(primary, Variable) and primary._save_slice_info:
        _mark_as_slice(slot, primary)
    return slot


def _mark_as_slice(slot: Any, primary: Any) -> None:
    info = primary._save_slice_info
    own_name = slot.op.name[len(primary.op.name) + 1 :]
    slot._set_save_slice_info(
        SaveSliceInfo(f"{info.full_name}/{own_name}", info.full_shape[:], info.var_offset[:], info.var_shape[:])
    )
