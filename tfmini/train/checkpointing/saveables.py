"""`SaveableObject`: the unit that a Saver saves, and its construction from variables, lists and dictionaries."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from tfmini.devices import DeviceSpec
from tfmini.graph.conversion import internal_convert
from tfmini.graph.default_graph import get_default_graph
from tfmini.graph.keys import GraphKeys
from tfmini.graph.operation import Operation, Tensor
from tfmini.graph.scoping import device
from tfmini.graph.traits import VARIABLE_OPS, ops_with
from tfmini.ops.array.identity import identity
from tfmini.ops.array.shape import reshape
from tfmini.ops.variables.assignment import assign
from tfmini.ops.variables.base import Variable
from tfmini.ops.variables.partitioned_variable import PartitionedVariable
from tfmini.ops.variables.resource_ops import assign_variable
from tfmini.ops.variables.resource_variable import BaseResourceVariable
from tfmini.shapes import TensorShape

_REFERENCE_VARIABLES = ops_with("variable", "reference")


class SaveSpec:
    """One tensor of a saveable.

    Args:
      tensor: the tensor to save, or a function that makes it.
      slice_spec: the slice of a partitioned tensor, in the format of ``SaveSliceInfo.spec``; "" for a whole tensor.
      name: the tensor's name in the checkpoint.
      dtype, device: dtype and device of the tensor, if ``tensor`` is a function.
    """

    def __init__(self, tensor: Any, slice_spec: str, name: str, dtype: Any = None, device: str | None = None) -> None:
        self._tensor = tensor
        self.slice_spec = slice_spec
        self.name = name
        if callable(tensor):
            if dtype is None or device is None:
                raise AssertionError("When passing `tensor` as a callable `dtype` and `device` must be given.")
            self.dtype, self.device = dtype, device
        else:
            self.dtype, self.device = tensor.dtype, tensor.device

    @property
    def tensor(self) -> Any:
        """The tensor to save."""
        return self._tensor() if callable(self._tensor) else self._tensor


class SaveableObject:
    """An object with state that a Saver can save and restore; subclass it for new kinds of state.

    Args:
      op: the object that is saved, which identifies the saveable.
      specs: the tensors of the object.
      name: the object's name in messages.
    """

    def __init__(self, op: Any, specs: list[SaveSpec], name: str) -> None:
        self.op = op
        self.specs = specs
        self.name = name
        self._device: str | None = None

    @property
    def device(self) -> str:
        """The device of the first tensor."""
        return self.specs[0].device if self._device is None else self._device

    @property
    def optional_restore(self) -> bool:
        return False

    def restore(self, restored_tensors: list[Tensor], restored_shapes: list[Any] | None) -> Any:
        """An op that assigns the restored values to the object.

        Args:
          restored_tensors: the values from the checkpoint, one per spec.
          restored_shapes: shapes to reshape the values to, or None.
        """
        raise ValueError("Calling an abstract method.")


class ReferenceVariableSaveable(SaveableObject):
    """The saveable of a reference variable."""

    def __init__(self, var: Any, slice_spec: str, name: str) -> None:
        super().__init__(var, [SaveSpec(var, slice_spec, name)], name)

    def restore(self, restored_tensors: list[Tensor], restored_shapes: list[Any] | None) -> Any:
        value = restored_tensors[0]
        if restored_shapes is not None:
            value = reshape(value, restored_shapes[0])
        known = self.op.get_shape().is_fully_defined()
        return assign(self.op, value, validate_shape=restored_shapes is None and known)


class ResourceVariableSaveable(SaveableObject):
    """The saveable of a resource variable, which is given as variable or as a read of it."""

    def __init__(self, var: Any, slice_spec: str, name: str) -> None:
        self._var_device: str = var.device
        self._var_shape: TensorShape = var.shape
        if isinstance(var, Tensor):
            self.handle_op: Tensor = var.op.inputs[0]
            tensor: Any = var
        elif isinstance(var, BaseResourceVariable):
            self.handle_op = var.handle
            tensor = _reader(var)
        else:
            raise ValueError(f"Saveable is neither a resource variable nor a read operation. Got: {var!r}")
        super().__init__(var, [SaveSpec(tensor, slice_spec, name, var.dtype, var.device)], name)

    def restore(self, restored_tensors: list[Tensor], restored_shapes: list[Any] | None) -> Any:
        value = restored_tensors[0]
        if restored_shapes is not None:
            value = reshape(value, restored_shapes[0])
        with device(self._var_device):
            value = identity(value)
            self._var_shape.assert_is_compatible_with(value.shape)
            return assign_variable(self.handle_op, value)


def _reader(variable: BaseResourceVariable) -> Callable[[], Tensor]:
    def read() -> Tensor:
        with device(variable.device):
            value = variable.read_value()
            with device("/device:CPU:0"):
                return identity(value)

    return read


def set_cpu0(device_name: str) -> str:
    """The name of the first CPU on a device's task."""
    return DeviceSpec.from_string(device_name).replace(device_type="CPU", device_index=0).to_string()


# ---- from a Saver's var_list ----------------------------------------------------------------


def all_saveables() -> list[Any]:
    """The global variables and SAVEABLE_OBJECTS of the default graph."""
    graph = get_default_graph()
    return graph.get_collection(GraphKeys.GLOBAL_VARIABLES) + graph.get_collection(GraphKeys.SAVEABLE_OBJECTS)


def saveables_for(item: Any, name: str) -> Iterator[SaveableObject]:
    """The saveables of a variable, a list of slices, a `PartitionedVariable` or a `SaveableObject`.

    Raises:
      TypeError: when the item cannot be saved, or the name is no string.
      ValueError: when slices belong to different tensors.
    """
    if not isinstance(name, str):
        raise TypeError(
            "names_to_saveables must be a dict mapping string names to trackable operations. Name is not a string:"
            f" {name}"
        )
    if isinstance(item, SaveableObject):
        yield item
    elif isinstance(item, (list, tuple, PartitionedVariable)):
        yield from _slices(list(item), name)
    elif isinstance(item, BaseResourceVariable):
        yield ResourceVariableSaveable(item._graph_element, "", name)
    else:
        tensor = _tensor_of(item, "names_to_saveables must be a dict mapping string names to Tensors/Variables. Not a")
        kind = ReferenceVariableSaveable if tensor.op.type in _REFERENCE_VARIABLES else ResourceVariableSaveable
        yield kind(tensor, "", name)


def _slices(parts: list[Any], name: str) -> Iterator[SaveableObject]:
    whole = None
    for part in parts:
        if not isinstance(part, Variable):
            raise ValueError(f"Slices must all be Variables: {part}")
        info = part._save_slice_info
        if info is None:
            raise ValueError(f"Slices must all be slices: {part}")
        if whole not in (None, info.full_name):
            raise ValueError(f"Slices must all be from the same tensor: {whole} != {info.full_name}")
        whole = info.full_name
        kind = ReferenceVariableSaveable if part.op.type in _REFERENCE_VARIABLES else ResourceVariableSaveable
        yield kind(part, info.spec, name)


def _tensor_of(item: Any, complaint: str) -> Tensor:
    """The reference or read of a variable; raises TypeError if ``item`` is neither."""
    try:
        tensor = item if isinstance(item, Tensor) else internal_convert(item, as_ref=True)
    except (TypeError, ValueError):
        raise TypeError(f"{complaint} variable: {item}") from None
    if tensor.op.type not in VARIABLE_OPS and tensor.op.type != "ReadVariableOp":
        raise TypeError(f"{complaint} variable: {tensor}")
    return tensor


def named_saveables(items: Iterable[Any]) -> dict[str, Any]:
    """Name -> variable, saveable, or list of the slices of one tensor.

    Raises:
      TypeError: when ``items`` is no list, or an item cannot be saved.
      ValueError: when two items have the same name.
    """
    if not isinstance(items, (list, tuple, set)):
        raise TypeError(f"Variables to save should be passed in a dict or a list: {items}")
    found: dict[str, Any] = {}
    for item in sorted(items, key=lambda item: item.name):
        if isinstance(item, SaveableObject):
            found[item.name] = item
        elif isinstance(item, Variable) and item._save_slice_info is not None:
            _add_slice(found, item._save_slice_info.full_name, item)
        else:
            name, value = _named(item)
            if name in found:
                raise ValueError(f"At least two variables have the same name: {name}")
            found[name] = value
    return found


def _add_slice(found: dict[str, Any], name: str, part: Variable) -> None:
    if not isinstance(found.setdefault(name, []), list):
        raise ValueError(f"Mixing slices and non-slices with the same name: {name}")
    found[name].append(part)


def _named(item: Any) -> tuple[str, Any]:
    if isinstance(item, PartitionedVariable):
        return item.name, item
    is_resource = isinstance(item, BaseResourceVariable)
    value = item._graph_element if is_resource else _tensor_of(item, "Variable to save is not a")
    source: Operation = value.op.inputs[0].op if value.op.type == "ReadVariableOp" else value.op
    return source.name, value


def validated_saveables(names_to_saveables: Any) -> list[SaveableObject]:
    """The saveables of a Saver's ``var_list``, sorted by name.

    Raises:
      TypeError: when an item cannot be saved.
      ValueError: when the same item has two names.
    """
    if not isinstance(names_to_saveables, dict):
        names_to_saveables = named_saveables(names_to_saveables)
    found: list[SaveableObject] = []
    seen: set[int] = set()
    for name, item in sorted(names_to_saveables.items(), key=lambda pair: pair[0]):
        for saveable in saveables_for(item, name):
            if id(saveable.op) in seen:
                raise ValueError(f"The same saveable will be restored with two names: {saveable.name}")
            seen.add(id(saveable.op))
            found.append(saveable)
    return found
