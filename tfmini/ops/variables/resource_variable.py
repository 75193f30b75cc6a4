"""`ResourceVariable`: a variable by handle; each use as a tensor is a separate read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from tfmini.core_types import DTypeLike, ShapeLike, TensorLike
from tfmini.dtypes import DType, as_dtype
from tfmini.graph import raw_ops
from tfmini.graph.conversion import convert_to_tensor, internal_convert
from tfmini.graph.families import Operation, Tensor, get_default_graph
from tfmini.graph.scoping import colocate_with, control_dependencies, count_ops, device, init_scope, name_scope
from tfmini.ops.array.identity import identity
from tfmini.ops.variables import resource_ops
from tfmini.ops.variables.base import KINDS, Variable, finder
from tfmini.ops.variables.ref_variable import check_outside_control_flow
from tfmini.ops.variables.resource_ops import resource_scatter_nd_ops, resource_scatter_ops
from tfmini.ops.variables.state import safe_initial_value
from tfmini.shapes import RawShape, TensorShape, as_raw, compatible_raw


@contextmanager
def _on_device_of(handle: Tensor) -> Iterator[None]:
    with colocate_with(None, ignore_existing=True), device(handle.device):
        yield


class BaseResourceVariable(Variable):
    """Base of a resource variable and of the result of an assignment to it."""

    _is_resource = True
    _handle: Tensor
    _raw_shape: RawShape
    _value_dtype: DType
    _graph_element: Tensor
    _cached_value: Tensor | None = None

    @property
    def _reference(self) -> Tensor:
        return self._handle

    def __bool__(self) -> bool:
        return bool(self.read_value())  # refused, as of every tensor

    @property
    def handle(self) -> Tensor:
        """The resource handle."""
        return self._handle

    @property
    def dtype(self) -> DType:
        """The element type."""
        return self._value_dtype

    @property
    def shape(self) -> TensorShape:
        """The static shape."""
        return TensorShape.from_raw(self._raw_shape)

    @property
    def create(self) -> Operation:
        """Same as `initializer`."""
        return self._initializer_op

    def _as_graph_element(self) -> Tensor:
        return self._graph_element

    def _read(self) -> Tensor:
        return resource_ops.read_variable(self._handle, dtype=self._value_dtype)

    def value(self) -> Tensor:
        if self._cached_value is not None:
            return self._cached_value
        with _on_device_of(self._handle):
            return self._read()

    def read_value(self) -> Tensor:
        with name_scope("Read"), device(self._handle.device):
            value = self._read()
        return identity(value)

    def is_initialized(self, name: str | None = None) -> Tensor:
        return resource_ops.var_is_initialized(self._handle, name=name)

    def initialized_value(self) -> Tensor:
        """The value, or the initial value while the variable is uninitialised."""
        has_value = self.is_initialized()
        with name_scope("cond"):
            chosen = identity(has_value, name="pred_id")
            _, handle = raw_ops.Switch(self._handle, chosen, name="Read/ReadVariableOp/Switch")
            present = resource_ops.read_variable(handle, dtype=self._value_dtype, name="Read/ReadVariableOp")
            initial, _ = raw_ops.Switch(self._initial_value, chosen, name="Switch_1")
            count_ops(4)  # the rest of TensorFlow's cond
            return raw_ops.Merge([initial, present], name="Merge")[0]

    def sparse_read(self, indices: TensorLike, name: str | None = None) -> Tensor:
        """The rows ``indices``, without reading the others: shape ``indices.shape + shape[1:]``."""
        with name_scope("Gather" if name is None else name) as scope:
            rows = resource_ops.resource_gather(self._handle, indices, dtype=self._value_dtype, name=scope)
        return identity(rows)

    def gather_nd(self, indices: TensorLike, name: str | None = None) -> Tensor:
        """The slices at index vectors."""
        with name_scope("GatherNd" if name is None else name) as scope:
            slices = resource_ops.resource_gather_nd(self._handle, indices, dtype=self._value_dtype, name=scope)
        return identity(slices)

    def set_shape(self, shape: ShapeLike) -> None:
        """Not supported by resource variables."""
        raise NotImplementedError("ResourceVariable does not implement set_shape(): give its shape when it is made.")

    def _after(self, op: Operation, read_value: bool = True) -> Any:
        if not read_value:
            return op
        with self.graph.as_default():  # the caller's graph may be another one
            return UnreadVariable(self, op)

    def _as_value(self, value: TensorLike) -> Tensor:
        with self.graph.as_default():
            return convert_to_tensor(value, dtype=self._value_dtype)

    def assign(
        self, value: Any, use_locking: bool | None = None, name: str | None = None, read_value: bool = True
    ) -> Any:
        tensor = self._as_value(value)
        if not compatible_raw(self._raw_shape, tensor.raw_shape):
            raise ValueError(f"Shapes {self.shape} and {tensor.shape} are incompatible")
        return self._after(resource_ops.assign_variable(self._handle, tensor, name=name), read_value)

    def assign_add(
        self, delta: TensorLike, use_locking: bool | None = None, name: str | None = None, read_value: bool = True
    ) -> Any:
        return self._after(resource_ops.assign_add_variable(self._handle, self._as_value(delta), name=name), read_value)

    def assign_sub(
        self, delta: TensorLike, use_locking: bool | None = None, name: str | None = None, read_value: bool = True
    ) -> Any:
        return self._after(resource_ops.assign_sub_variable(self._handle, self._as_value(delta), name=name), read_value)

    def count_up_to(self, limit: int) -> Tensor:
        return resource_ops.resource_count_up_to(self._handle, limit=limit, T=self._value_dtype)

    def scatter_rows(
        self, operation: str, indices: TensorLike, updates: TensorLike, use_locking: bool, name: str | None
    ) -> Any:
        handle = resource_scatter_ops[operation]
        return self._after(handle(self._handle, indices, self._as_value(updates), name=name))

    def scatter_points(
        self, operation: str, indices: TensorLike, updates: TensorLike, use_locking: bool, name: str | None
    ) -> Any:
        handle = resource_scatter_nd_ops[operation]
        return self._after(handle(self._handle, indices, self._as_value(updates), name=name))

    def _refuse_in_place(self, other: object) -> Any:
        raise RuntimeError(
            "Augmented assignment to a resource variable is not supported. Use variable.assign_add(value) and its kin"
            " to modify the variable, or variable = variable + value to get a new Tensor object."
        )

    __iadd__ = __isub__ = __imul__ = __itruediv__ = __ipow__ = _refuse_in_place


class ResourceVariable(BaseResourceVariable):
    """A variable by handle (``tf.Variable(…, use_resource=True)``)."""

    def _build(
        self, initial_value: Any, validate_shape: bool, caching_device: Any, name: str | None, dtype: DTypeLike | None,
        shape: ShapeLike,
    ) -> None:  # fmt: skip
        from_function = callable(initial_value)
        with init_scope(), name_scope(name, "Variable", [] if from_function else [initial_value]) as scope:
            own_name = scope[:-1].encode()
            with get_default_graph()._attr_scope({"_class": [b"loc:@" + own_name]}):
                with name_scope("Initializer"), device(None):
                    given = initial_value() if from_function else initial_value
                    value = internal_convert(given, dtype, "initial_value")
                raw = value.raw_shape if shape is None else as_raw(shape)
                if not compatible_raw(raw, value.raw_shape):
                    raise ValueError(
                        f"The initial value's shape ({value.shape}) is not compatible with the explicitly supplied"
                        f" `shape` argument ({TensorShape.from_raw(raw)})."
                    )
                self._make_handle(value.dtype.base_dtype, raw, own_name, scope)
            check_outside_control_flow(value, scope)
            self._initial_value = value
            with name_scope("IsInitialized"):
                self._is_initialized_op = resource_ops.var_is_initialized(self._handle)
            with name_scope("Assign") as assign_name, _on_device_of(self._handle):
                safe_value = safe_initial_value(scope, value)
                self._initializer_op = resource_ops.assign_variable(self._handle, safe_value, name=assign_name)
            self._make_reads(caching_device)

    def _make_handle(self, dtype: DType, raw: RawShape, own_name: bytes, scope: str) -> None:
        self._raw_shape, self._value_dtype = raw, dtype
        self._handle = resource_ops.var_handle(shape=raw, dtype=self._value_dtype, shared_name=own_name, name=scope)
        self._handle.handle_data = (self._value_dtype, raw)

    def _make_reads(self, caching_device: Callable[..., Any]) -> None:
        with name_scope("Read"):
            with device(self._handle.device):
                self._graph_element = self._snapshot = self._read()
            if caching_device is not None:
                with colocate_with(None, ignore_existing=True), device(caching_device):
                    self._cached_value = self._snapshot = identity(self._graph_element)

    def _init_from_proto(self, definition: Any, import_scope: str | None) -> None:
        if not definition.is_resource:
            raise ValueError("Trying to restore Variable as ResourceVariable.")
        find = finder(get_default_graph(), import_scope)
        self._handle = find(definition.variable_name)
        attrs = self._handle.op.attrs
        self._raw_shape, self._value_dtype = attrs["shape"], attrs["dtype"]
        snapshot = find(definition.snapshot_name or f"{self._handle.op.name}/Read/ReadVariableOp:0")
        self._snapshot = snapshot
        if snapshot.op.type != "ReadVariableOp":
            self._cached_value = snapshot
        while snapshot.op.type != "ReadVariableOp":
            snapshot = snapshot.op.inputs[0]
        self._graph_element = snapshot
        self._settings_from_proto(definition, find, import_scope)


class LoadedVariable(ResourceVariable):
    """A variable whose initializer restores it: its initial value is made when it is there, and may be None."""

    def _build(
        self, initial_value: Any, validate_shape: bool, caching_device: Any, name: str | None, dtype: DTypeLike | None,
        shape: ShapeLike,
    ) -> None:  # fmt: skip
        with init_scope(), name_scope(name, "Variable") as scope:
            self._make_handle(as_dtype(dtype), as_raw(shape), scope[:-1].encode(), scope)
            self._initial_value = None
            with name_scope("Assign") as assign_name, _on_device_of(self._handle):
                value = initial_value()
                if value is not None:
                    self._initializer_op = resource_ops.assign_variable(self._handle, value, name=assign_name)
            self._make_reads(caching_device)


class UnreadVariable(BaseResourceVariable):
    """The result of an assignment: a variable whose reads run after the assignment."""

    def __init__(self, variable: BaseResourceVariable, parent: Operation) -> None:
        self._handle = variable._handle
        self._raw_shape = variable._raw_shape
        self._value_dtype = variable._value_dtype
        self._parent_op = parent
        self._trainable = getattr(variable, "_trainable", False)
        self._constraint = None
        self._initial_value = None
        self._graph_element = self._snapshot = self._read()

    @property
    def name(self) -> str:
        """The name of the assigning op."""
        return self._parent_op.name

    @property
    def op(self) -> Operation:
        """The assigning op."""
        return self._parent_op

    def _read(self) -> Tensor:
        with control_dependencies([self._parent_op]):
            return super()._read()

    def value(self) -> Tensor:
        return self._read()

    def read_value(self) -> Tensor:
        return self._read()

    def assign(self, *args: Any, **kwargs: Any) -> Any:
        """Like `Variable.assign`, after this assignment; `assign_add` and `assign_sub` likewise."""
        with control_dependencies([self._parent_op]):
            return super().assign(*args, **kwargs)

    def assign_add(self, *args: Any, **kwargs: Any) -> Any:
        with control_dependencies([self._parent_op]):
            return super().assign_add(*args, **kwargs)

    def assign_sub(self, *args: Any, **kwargs: Any) -> Any:
        with control_dependencies([self._parent_op]):
            return super().assign_sub(*args, **kwargs)


KINDS[True] = ResourceVariable
