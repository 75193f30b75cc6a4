"""Construction of a Saver's ops: the ops that write and restore the variables, and their devices."""

from __future__ import annotations

import functools
import re
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from tfmini import devices, protos
from tfmini.core_types import DTypeLike, TensorLike
from tfmini.data import iterator as dataset_iterator
from tfmini.data import iterator_ops
from tfmini.devices import DeviceSpec
from tfmini.export import export
from tfmini.graph.conversion import internal_convert
from tfmini.graph.default_graph import get_default_graph
from tfmini.graph.names import GraphKeys
from tfmini.graph.op_types import VARIABLE_OPS, ops_with
from tfmini.graph.operation import Operation, Tensor
from tfmini.graph.scoping import add_to_collection, colocate_with, control_dependencies, device, name_scope
from tfmini.ops import table_ops, tables
from tfmini.ops.array.constant import constant
from tfmini.ops.array.identity import identity, placeholder_with_default
from tfmini.ops.array.shape import reshape
from tfmini.ops.array.shape import shape as shape_of
from tfmini.ops.control import group, with_dependencies
from tfmini.ops.growing import checkpoints as growing_checkpoints
from tfmini.ops.growing.state import UNMARKED
from tfmini.ops.growing.variable import EmbeddingParts, EmbeddingVariable
from tfmini.ops.io import checkpoint_ops
from tfmini.ops.string_ops import string_join
from tfmini.ops.variables.assignment import assign
from tfmini.ops.variables.base import Variable
from tfmini.ops.variables.partitioned_variable import PartitionedVariable
from tfmini.ops.variables.resource_ops import assign_variable
from tfmini.ops.variables.resource_variable import BaseResourceVariable
from tfmini.shapes import TensorShape

# ---- saveables ----------------------------------------
# `SaveableObject`: the unit that a Saver saves, and its construction from variables, lists and dictionaries.

GATHER = "_gather_saveables_for_checkpoint"  # a method of objects that make their saveables themselves: lookup tables
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

    def restore_from(self, prefix: Tensor) -> Operation | None:
        """An op that restores the object from the files of a checkpoint; None: they are read for `restore`."""
        return None

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


class GrowingTableSaveable(SaveableObject):
    """The saveable of a table that grows, or of a part: all rows, or those that changed since another checkpoint.

    Attributes:
      since: fed with the mark that the table gave to the other checkpoint; see `GrowingTableState.dump`.
      base: fed with the name of the other checkpoint.
      mark: the mark of what is saved.
    """

    def __init__(self, table: EmbeddingVariable, name: str) -> None:
        with name_scope("save_table"), colocate_with(table.op):
            self.since = placeholder_with_default(UNMARKED, shape=[2], name="since")
            self.base = placeholder_with_default("", shape=[], name="base")
            found: Any = growing_checkpoints.dump(table.handle, self.since, self.base, dtype=table.dtype, name="Dump")
        self.mark: Tensor = found.mark
        parts = growing_checkpoints.PARTS.items()
        specs = [SaveSpec(getattr(found, field), "", f"{name}-{suffix}") for field, suffix in parts]
        super().__init__(table, specs, name)
        self._device = table.device

    def restore_from(self, prefix: Tensor) -> Operation:
        table = self.op
        with colocate_with(table.op):
            return growing_checkpoints.restore(  # type: ignore[no-any-return]
                table.handle, prefix, table.initial_value, table.unadmitted, table_name=table.whole_name,
                part=table.part, parts=table.parts,
            )  # fmt: skip


class IteratorSaveable(SaveableObject):
    """The saveable of a position in a dataset, the handle of whose iterator is given."""

    def __init__(self, iterator: Tensor) -> None:
        with colocate_with(iterator):
            state = iterator_ops.state_op(iterator, name="IteratorState")
        super().__init__(iterator, [SaveSpec(state, "", f"{iterator.name}-state")], iterator.name)

    def restore(self, restored_tensors: list[Tensor], restored_shapes: list[Any] | None) -> Operation:
        with colocate_with(self.op):
            return iterator_ops.restore_op(self.op, restored_tensors[0], name="RestoreIterator")


@export("tf.contrib.data.make_saveable_from_iterator", "tf.data.experimental.make_saveable_from_iterator")
def make_saveable_from_iterator(iterator: dataset_iterator.Iterator) -> SaveableObject:
    """What a Saver saves of an iterator; add it to the collection `SAVEABLE_OBJECTS`.

    A checkpoint has the number of elements that the iterator has given, and the random seeds of its dataset. A restored
    iterator reads as many elements again, so it takes as long as reading them; initialize it first.

    Raises (when a step saves or restores it):
      FailedPreconditionError: the iterator is not initialized, or a function of its dataset is stateful: it reads a
        variable or draws random numbers, for instance.
    """
    return IteratorSaveable(iterator._iterator_resource)


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
    elif isinstance(item, EmbeddingVariable):
        yield GrowingTableSaveable(item, name)
    elif isinstance(item, EmbeddingParts):
        for part in item:
            yield GrowingTableSaveable(part, f"{name}/part_{part.part}")
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


def _tensor_of(item: object, complaint: str) -> Tensor:
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
        elif hasattr(type(item), GATHER):
            found |= {made.name: made for made in (make() for make in item._gather_saveables_for_checkpoint().values())}
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
    if isinstance(item, (PartitionedVariable, EmbeddingParts)):
        return item.name, item
    if isinstance(item, EmbeddingVariable):
        return item.op.name, item
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


# ---- The builders: ops that save and restore, by device and shard --------------------------------------------------

V1, V2 = 1, 2  # SaverDef.CheckpointFormatVersion
_Saveable = SaveableObject  # its name inside of `BaseSaverBuilder`, which has an attribute of that name
PerDevice = Sequence[tuple[str, list[SaveableObject]]]


@export("tensorflow.python.training.saver.BaseSaverBuilder")
class BaseSaverBuilder:
    """Makes the ops of a Saver; subclass it to change how they write or read.

    Args:
      write_version: the format, ``SaverDef.V2`` or ``V1``.
    """

    SaveSpec = SaveSpec
    SaveableObject = SaveableObject
    VariableSaveable = ReferenceVariableSaveable
    ResourceVariableSaveable = ResourceVariableSaveable

    def __init__(self, write_version: int = V2) -> None:
        self._write_version = write_version
        self.tables: list[GrowingTableSaveable] = []

    def save_op(self, filename_tensor: Tensor, saveables: list[_Saveable]) -> Operation:
        """An op that saves ``saveables`` with the prefix that ``filename_tensor`` holds.

        Raises:
          RuntimeError: when the format is unknown.
        """
        specs = [spec for saveable in saveables for spec in saveable.specs]
        names, slices = [spec.name for spec in specs], [spec.slice_spec for spec in specs]
        tensors = [spec.tensor for spec in specs]
        if self._write_version == V2:
            return checkpoint_ops.save_v2(filename_tensor, names, slices, tensors)
        if self._write_version == V1:
            return checkpoint_ops.save_slices(filename_tensor, names, slices, tensors)
        raise RuntimeError(f"Unexpected write_version: {self._write_version}")

    def bulk_restore(
        self, filename_tensor: Tensor, saveables: list[_Saveable], preferred_shard: int, restore_sequentially: bool
    ) -> list[Tensor]:
        """The tensors of all ``saveables``, read from the checkpoint with one op per saveable."""
        found: list[Tensor] = []
        for saveable in saveables:
            with device(set_cpu0(saveable.device) if saveable.device else None):
                found.extend(self.restore_op(filename_tensor, saveable, preferred_shard))
        return found

    def restore_op(self, filename_tensor: Tensor, saveable: _Saveable, preferred_shard: int) -> list[Tensor]:
        """The tensors of one saveable, read from the checkpoint."""
        return [
            checkpoint_ops.restore_v2(filename_tensor, [spec.name], [spec.slice_spec], dtypes=[spec.dtype.base_dtype])[
                0
            ]
            for spec in saveable.specs
        ]

    def sharded_filename(self, filename_tensor: Tensor, shard: int, num_shards: Tensor) -> Tensor:
        """The file name of a shard."""
        return checkpoint_ops.sharded_filename(filename_tensor, shard, num_shards)

    def build(
        self,
        names_to_saveables: object,
        reshape: bool = False,
        sharded: bool = False,
        max_to_keep: int | None = 5,
        keep_checkpoint_every_n_hours: float = 10000.0,
        name: str | None = None,
        restore_sequentially: bool = False,
        filename: str | None = "model",
    ) -> Any:
        """Adds the ops and returns the SaverDef that names them; the arguments are `Saver`'s.

        Raises:
          TypeError, ValueError: when an item cannot be saved, or not under its name.
        """
        saveables = validated_saveables(names_to_saveables)
        self.tables = [saveable for saveable in saveables if isinstance(saveable, GrowingTableSaveable)]
        with name_scope(name, "save", [_element(saveable) for saveable in saveables]):
            target = placeholder_with_default(filename or "model", shape=(), name="filename")
            target = placeholder_with_default(target, shape=(), name="Const")
            if sharded:
                per_device = _by_device(saveables)
                saved = self._save_shards(target, per_device)
                restored = self._restore_shards(target, per_device, restore_sequentially, reshape)
            else:
                saved = self._save(target, saveables)
                restored = self._restore(target, saveables, restore_sequentially, reshape)
        _make_wholes()
        return protos.SaverDef(
            filename_tensor_name=target.name,
            save_tensor_name=saved.name,
            restore_op_name=restored.name,
            max_to_keep=max_to_keep or 0,
            sharded=sharded,
            keep_checkpoint_every_n_hours=keep_checkpoint_every_n_hours,
            version=self._write_version,  # type: ignore[arg-type]
        )

    # ---- saving -------------------------------------------------------------------------------

    def _save(self, target: Tensor, saveables: list[_Saveable]) -> Tensor:
        return with_dependencies([self.save_op(target, saveables)], target)

    def _save_shards(self, target: Tensor, per_device: PerDevice) -> Tensor:
        """Lets each device's task write its variables; V2 then merges the shards into one checkpoint."""
        base = target
        if self._write_version == V2:
            base = string_join([target, f"_temp_{uuid.uuid4().hex}/part"])
        count = constant(len(per_device), name="num_shards")
        prefixes, saved = [], []
        place = ""
        for shard, (where, saveables) in enumerate(per_device):
            place = set_cpu0(where)
            with device(place):
                prefixes.append(self.sharded_filename(base, shard, count))
                saved.append(self._save(prefixes[-1], saveables))
        with control_dependencies([tensor.op for tensor in saved]):
            if self._write_version != V2:
                return checkpoint_ops.sharded_filespec(target, count)
            with device(place):
                merged = checkpoint_ops.merge_v2_checkpoints(prefixes, target, delete_old_dirs=True)
                with control_dependencies([merged]):
                    return identity(target)

    # ---- restoring ----------------------------------------------------------------------------

    def _restore(
        self,
        target: Tensor,
        saveables: list[_Saveable],
        sequentially: bool,
        reshape: bool,
        shard: int = -1,
        name: str = "restore_all",
    ) -> Operation:
        made = [(saveable, saveable.restore_from(target)) for saveable in saveables]
        saveables = [saveable for saveable, restored in made if restored is None]
        assigned: list[Any] = [restored for _, restored in made if restored is not None]
        tensors = self.bulk_restore(target, saveables, shard, sequentially) if saveables else []
        position = 0
        for saveable in saveables:
            count = len(saveable.specs)
            shapes = [_static_or_dynamic_shape(spec.tensor) for spec in saveable.specs] if reshape else None
            assigned.append(saveable.restore(list(tensors[position : position + count]), shapes))
            position += count
        return group(*assigned, name=name)

    def _restore_shards(self, target: Tensor, per_device: PerDevice, sequentially: bool, reshape: bool) -> Operation:
        done = []
        for shard, (where, saveables) in enumerate(per_device):
            with device(where):
                done.append(self._restore(target, saveables, sequentially, reshape, shard, "restore_shard"))
        return group(*done, name="restore_all")


@export("tensorflow.python.training.saver.BulkSaverBuilder")
class BulkSaverBuilder(BaseSaverBuilder):
    """Restores all variables of a shard with one op, on the shard's CPU."""

    def bulk_restore(
        self, filename_tensor: Tensor, saveables: list[SaveableObject], preferred_shard: int, restore_sequentially: bool
    ) -> list[Tensor]:
        specs = [spec for saveable in saveables for spec in saveable.specs]
        with device("cpu:0"):
            return checkpoint_ops.restore_v2(  # type: ignore[no-any-return]
                filename_tensor,
                [spec.name for spec in specs],
                [spec.slice_spec for spec in specs],
                dtypes=[spec.dtype.base_dtype for spec in specs],
            )


def _element(saveable: SaveableObject) -> Any:
    """The graph element of a saveable, or None."""
    op = saveable.op
    if isinstance(op, EmbeddingVariable):
        return op.handle
    return op if isinstance(op, (Tensor, Operation)) or hasattr(op, "_as_graph_element") else None


def _static_or_dynamic_shape(tensor: Tensor) -> Any:
    shape = tensor.get_shape()
    return shape if shape.is_fully_defined() else shape_of(tensor)


def _by_device(saveables: list[SaveableObject]) -> PerDevice:
    """The saveables of each device, sorted by its name.

    Raises:
      ValueError: when a saveable has tensors on several devices.
    """
    found: dict[str, list[SaveableObject]] = {}
    for saveable in saveables:
        places = {devices.canonical_name(spec.device) for spec in saveable.specs}
        if len(places) != 1:
            raise ValueError(f"All tensors of a saveable object must be on the same device: {saveable.name}")
        found.setdefault(places.pop(), []).append(saveable)
    return sorted(found.items())


def _make_wholes() -> None:
    """Makes the tensor of each `PartitionedVariable` in a collection, for graphs that are imported later."""
    graph = get_default_graph()
    for key in graph.get_all_collection_keys():
        for item in graph.get_collection(key):
            if isinstance(item, PartitionedVariable):
                try:
                    graph.get_operation_by_name(item.name)
                except KeyError:
                    item.as_tensor()


# ---- saved tables ----------------------------------------
# Mutable tables that are saved in checkpoints (``tf.contrib.lookup.MutableHashTable``, ``MutableDenseHashTable``).


class _TableSaveable(SaveableObject):
    """The saveable of a table: its keys and values are saved as ``<name>-keys`` and ``<name>-values``."""

    def __init__(self, table: Any, name: str) -> None:
        keys, values = table.export()
        super().__init__(table, [SaveSpec(keys, "", f"{name}-keys"), SaveSpec(values, "", f"{name}-values")], name)

    def restore(self, restored_tensors: Any, restored_shapes: object, name: str | None = None) -> Operation:
        """An operation that replaces the table's content."""
        scope = re.sub(r"[^\w./-]", "_", f"{self.name}_table_restore", flags=re.ASCII)  # keys of dictionaries are in it
        with name_scope(name, scope), colocate_with(self.op.resource_handle):
            return table_ops.import_(self.op.resource_handle, restored_tensors[0], restored_tensors[1])  # type: ignore[no-any-return]


class _SavedTable:
    """What tables have that checkpoints save: those of objects always, Savers only if it is ``checkpoint``."""

    def _add_saveable(self, name: str, checkpoint: bool) -> None:
        self._saved_name = name
        if checkpoint:
            add_to_collection(GraphKeys.SAVEABLE_OBJECTS, _TableSaveable(self, name))

    def _gather_saveables_for_checkpoint(self) -> dict[str, Callable[..., SaveableObject]]:
        return {"table": functools.partial(_TableSaveable, self, name=self._saved_name)}


@export("tf.contrib.lookup.MutableHashTable", "tf.lookup.experimental.MutableHashTable")
class MutableHashTable(_SavedTable, tables.MutableHashTable):
    """`tables.MutableHashTable`, which Savers save if ``checkpoint``."""

    def __init__(
        self, key_dtype: DTypeLike, value_dtype: DTypeLike, default_value: TensorLike, name: str = "MutableHashTable",
        checkpoint: bool = True,
    ) -> None:  # fmt: skip
        super().__init__(key_dtype, value_dtype, default_value, name, checkpoint)
        self._add_saveable(name, checkpoint)


@export(
    "tf.contrib.lookup.MutableDenseHashTable", "tf.lookup.experimental.DenseHashTable",
    "tensorflow.python.ops.lookup_ops.DenseHashTable",
)  # fmt: skip
class DenseHashTable(_SavedTable, tables.DenseHashTable):
    """`tables.DenseHashTable`, which Savers save if ``checkpoint``."""

    def __init__(
        self, key_dtype: DTypeLike, value_dtype: DTypeLike, default_value: TensorLike, empty_key: TensorLike,
        deleted_key: TensorLike, initial_num_buckets: int | None = None, name: str = "MutableDenseHashTable",
        checkpoint: bool = True,
    ) -> None:  # fmt: skip
        super().__init__(
            key_dtype, value_dtype, default_value, empty_key, deleted_key, initial_num_buckets, name, checkpoint
        )
        self._add_saveable(name, checkpoint)
