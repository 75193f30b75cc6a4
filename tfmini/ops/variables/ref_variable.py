"""`RefVariable`: a variable by reference, the default kind in TensorFlow 1."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tfmini.core_types import DTypeLike, ShapeLike, TensorLike
from tfmini.graph.conversion import internal_convert
from tfmini.graph.families import Operation, Tensor, get_default_graph
from tfmini.graph.registry import OpHandle
from tfmini.graph.scoping import colocate_with, device, init_scope, name_scope
from tfmini.ops.array.identity import identity
from tfmini.ops.variables.base import KINDS, Variable, finder
from tfmini.ops.variables.ref_ops import (
    assign_add_op,
    assign_op,
    assign_sub_op,
    count_up_to_op,
    is_initialized_op,
    variable_v2,
)
from tfmini.ops.variables.resource_ops import scatter_nd_ops, scatter_ops
from tfmini.ops.variables.state import initialized_value, safe_initial_value
from tfmini.shapes import as_raw


def beside(ref: Any, result: Tensor) -> Any:
    """Places the op of ``result`` with the variable of ``ref``, as ops on references need it; returns ``result``."""
    op: Operation = result.op if isinstance(result, Tensor) else result
    anchor: Operation = ref.op
    op.attrs["_class"] = sorted({*op.attrs.get("_class", ()), *anchor.colocation_groups()})
    op._device = anchor._device
    return result


def check_outside_control_flow(value: Tensor, name: str) -> None:
    """Refuses an initial value made inside a cond or loop.

    Raises:
      ValueError: when it was; the message says what to do.
    """
    if value.op._control_flow_context is not None:
        raise ValueError(
            f"Initializer for variable {name} is from inside a control-flow construct, such as a loop or conditional."
            " When creating a variable inside a loop or conditional, use a lambda as the initializer."
        )


class RefVariable(Variable):
    """A variable whose op returns a reference; `value` is a read that is made once, at construction."""

    _variable: Tensor

    @property
    def _reference(self) -> Tensor:
        return self._variable

    def _ref(self) -> Tensor:
        return self._variable

    def _build(
        self, initial_value: Any, validate_shape: bool, caching_device: str | Callable[..., Any] | None,
        name: str | None, dtype: DTypeLike | None, shape: ShapeLike,
    ) -> None:  # fmt: skip
        from_function = callable(initial_value)
        with init_scope(), name_scope(name, "Variable", [] if from_function else [initial_value]) as scope:
            if from_function:
                with get_default_graph()._attr_scope({"_class": [b"loc:@" + scope[:-1].encode()]}):
                    with name_scope("Initializer"), device(None):
                        value = internal_convert(initial_value(), dtype, "initial_value")
                    self._make(value, validate_shape, shape, scope)
            else:
                value = internal_convert(initial_value, dtype, "initial_value")
                check_outside_control_flow(value, scope)
                self._make(value, validate_shape, shape, scope)
            if validate_shape and not value.shape.is_fully_defined():
                raise ValueError(f"initial_value must have a shape specified: {value}")
            self._initial_value = value
            safe_value = safe_initial_value(scope, value)
            assigned = assign_op(
                self._variable, safe_value, validate_shape=validate_shape, use_locking=True, name="Assign"
            )
            self._initializer_op = beside(self._variable, assigned).op
            with device(caching_device) if caching_device is not None else colocate_with(self._variable.op):
                self._snapshot = identity(self._variable, name="read")

    def _make(self, value: Tensor, validate_shape: bool, shape: ShapeLike, scope: str) -> None:
        raw = as_raw(shape) if shape is not None else value.raw_shape if validate_shape else None
        self._variable = variable_v2(shape=raw, dtype=value.dtype.base_dtype, name=scope)

    def _init_from_proto(self, definition: Any, import_scope: str | None) -> None:
        find = finder(get_default_graph(), import_scope)
        self._variable = find(definition.variable_name)
        self._snapshot = find(definition.snapshot_name)
        self._settings_from_proto(definition, find, import_scope)

    def _as_graph_element(self) -> Tensor:
        return self._variable

    def value(self) -> Tensor:
        return self._snapshot

    def read_value(self) -> Tensor:
        return identity(self._variable, name="read")

    def initialized_value(self) -> Tensor:
        """The value, or the initial value while the variable is uninitialised."""
        return initialized_value(self)

    def is_initialized(self, name: str | None = None) -> Tensor:
        return beside(self, is_initialized_op(self._variable, name=name))  # type: ignore[no-any-return]

    def set_shape(self, shape: ShapeLike) -> None:
        """Merges ``shape`` into the static shape."""
        self._variable.set_shape(shape)
        self._snapshot.set_shape(shape)

    def _updated(self, handle: OpHandle, value: object, use_locking: bool, name: str | None, read_value: bool) -> Any:
        result = beside(self, handle(self._variable, value, use_locking=use_locking, name=name))
        return result if read_value else result.op

    def assign(
        self, value: TensorLike, use_locking: bool = False, name: str | None = None, read_value: bool = True
    ) -> Any:
        return self._updated(assign_op, value, use_locking, name, read_value)

    def assign_add(
        self, delta: TensorLike, use_locking: bool = False, name: str | None = None, read_value: bool = True
    ) -> Any:
        return self._updated(assign_add_op, delta, use_locking, name, read_value)

    def assign_sub(
        self, delta: TensorLike, use_locking: bool = False, name: str | None = None, read_value: bool = True
    ) -> Any:
        return self._updated(assign_sub_op, delta, use_locking, name, read_value)

    def count_up_to(self, limit: int) -> Tensor:
        return beside(self, count_up_to_op(self._variable, limit=limit))  # type: ignore[no-any-return]

    def scatter_rows(
        self, operation: str, indices: TensorLike, updates: TensorLike, use_locking: bool, name: str | None
    ) -> Any:
        handle = scatter_ops[operation]
        return beside(self, handle(self._variable, indices, updates, use_locking=use_locking, name=name))

    def scatter_points(
        self, operation: str, indices: TensorLike, updates: TensorLike, use_locking: bool, name: str | None
    ) -> Any:
        handle = scatter_nd_ops[operation]
        return beside(self, handle(self._variable, indices, updates, use_locking=use_locking, name=name))

    def __iadd__(self, other: Any) -> Any:
        return self + other

    def __isub__(self, other: Any) -> Any:
        return self - other

    def __imul__(self, other: Any) -> Any:
        return self * other

    def __itruediv__(self, other: Any) -> Any:
        return self / other

    def __ipow__(self, other: Any) -> Any:
        return self**other


KINDS[False] = RefVariable
