"""Creation of slots: variables that belong to another variable, such as an optimizer's accumulators.

A slot is in the variable scope ``<variable>/<name>``, on the device of its variable, and not trainable. It is
a resource variable if its variable is, and part of a partitioned variable if its variable is.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from tfmini.graph.operation import Tensor
from tfmini.graph.scoping import colocate_with
from tfmini.ops.array import filling as array_filling
from tfmini.ops.array import shape as array_shape
from tfmini.ops.variables.functions import Variable
from tfmini.ops.variables.initializers import zeros_initializer
from tfmini.ops.variables.save_slice import SaveSliceInfo
from tfmini.ops.variables.scope import get_variable, get_variable_scope, variable_scope
from tfmini.shapes import TensorShape


def create_slot(primary: Any, val: Tensor, name: str, colocate_with_primary: bool = True) -> Any:
    """Creates a slot of ``primary`` (a variable or tensor) with the initial value and type of ``val``."""
    complete = val.shape.is_fully_defined()
    return _in_slot_scope(primary, name, colocate_with_primary, lambda: _create(primary, val, complete, None, None))


def create_slot_with_initializer(
    primary: Any, initializer: Any, shape: TensorShape, dtype: Any, name: str, colocate_with_primary: bool = True
) -> Any:
    """Creates a slot of ``primary`` of the given shape and dtype with an initializer."""
    complete = shape.is_fully_defined()
    return _in_slot_scope(
        primary, name, colocate_with_primary, lambda: _create(primary, initializer, complete, shape, dtype)
    )


def create_zeros_slot(primary: Any, name: str, dtype: Any = None, colocate_with_primary: bool = True) -> Any:
    """Creates a slot of zeros of ``primary``'s shape; by default also of its dtype."""
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
    # A default name, which is made unique if a slot of that name exists.
    with variable_scope(None, primary.op.name + "/" + name), place:
        return create()


def _create(primary: Any, value: Any, validate_shape: bool, shape: Any, dtype: Any) -> Any:
    scope = get_variable_scope()
    # The slot of a partition must not be partitioned again.
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
