"""Construction of a Saver's ops: the ops that write and restore the variables, and their devices."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any

from tfmini import devices, protos
from tfmini.graph.default_graph import get_default_graph
from tfmini.graph.operation import Operation, Tensor
from tfmini.graph.scoping import control_dependencies, device, name_scope
from tfmini.ops.array.constant import constant
from tfmini.ops.array.identity import identity, placeholder_with_default
from tfmini.ops.array.shape import shape as shape_of
from tfmini.ops.control import group, with_dependencies
from tfmini.ops.io import save_restore
from tfmini.ops.strings.elementwise import string_join
from tfmini.ops.variables.partitioned_variable import PartitionedVariable
from tfmini.train.checkpointing import saveables as saveables_module
from tfmini.train.checkpointing.saveables import SaveableObject as Saveable
from tfmini.train.checkpointing.saveables import set_cpu0, validated_saveables

V1, V2 = 1, 2  # SaverDef.CheckpointFormatVersion
PerDevice = Sequence[tuple[str, list[Saveable]]]


class BaseSaverBuilder:
    """Makes the ops of a Saver; subclass it to change how they write or read.

    Args:
      write_version: the format, ``SaverDef.V2`` or ``V1``.
    """

    SaveSpec = saveables_module.SaveSpec
    SaveableObject = Saveable
    VariableSaveable = saveables_module.ReferenceVariableSaveable
    ResourceVariableSaveable = saveables_module.ResourceVariableSaveable

    def __init__(self, write_version: int = V2) -> None:
        self._write_version = write_version

    def save_op(self, filename_tensor: Tensor, saveables: list[Saveable]) -> Operation:
        """An op that saves ``saveables`` with the prefix that ``filename_tensor`` holds.

        Raises:
          RuntimeError: when the format is unknown.
        """
        specs = [spec for saveable in saveables for spec in saveable.specs]
        names, slices = [spec.name for spec in specs], [spec.slice_spec for spec in specs]
        tensors = [spec.tensor for spec in specs]
        if self._write_version == V2:
            return save_restore.save_v2(filename_tensor, names, slices, tensors)
        if self._write_version == V1:
            return save_restore.save_slices(filename_tensor, names, slices, tensors)
        raise RuntimeError(f"Unexpected write_version: {self._write_version}")

    def bulk_restore(
        self, filename_tensor: Tensor, saveables: list[Saveable], preferred_shard: int, restore_sequentially: bool
    ) -> list[Tensor]:
        """The tensors of all ``saveables``, read from the checkpoint with one op per saveable."""
        found: list[Tensor] = []
        for saveable in saveables:
            with device(set_cpu0(saveable.device) if saveable.device else None):
                found.extend(self.restore_op(filename_tensor, saveable, preferred_shard))
        return found

    def restore_op(self, filename_tensor: Tensor, saveable: Saveable, preferred_shard: int) -> list[Tensor]:
        """The tensors of one saveable, read from the checkpoint."""
        return [
            save_restore.restore_v2(filename_tensor, [spec.name], [spec.slice_spec], dtypes=[spec.dtype.base_dtype])[0]
            for spec in saveable.specs
        ]

    def sharded_filename(self, filename_tensor: Tensor, shard: int, num_shards: Tensor) -> Tensor:
        """The file name of a shard."""
        return save_restore.sharded_filename(filename_tensor, shard, num_shards)

    def build(
        self,
        names_to_saveables: Any,
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

    def _save(self, target: Tensor, saveables: list[Saveable]) -> Tensor:
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
                return save_restore.sharded_filespec(target, count)
            with device(place):
                merged = save_restore.merge_v2_checkpoints(prefixes, target, delete_old_dirs=True)
                with control_dependencies([merged]):
                    return identity(target)

    # ---- restoring ----------------------------------------------------------------------------

    def _restore(
        self,
        target: Tensor,
        saveables: list[Saveable],
        sequentially: bool,
        reshape: bool,
        shard: int = -1,
        name: str = "restore_all",
    ) -> Operation:
        tensors = self.bulk_restore(target, saveables, shard, sequentially)
        assigned = []
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


class BulkSaverBuilder(BaseSaverBuilder):
    """Restores all variables of a shard with one op, on the shard's CPU."""

    def bulk_restore(
        self, filename_tensor: Tensor, saveables: list[Saveable], preferred_shard: int, restore_sequentially: bool
    ) -> list[Tensor]:
        specs = [spec for saveable in saveables for spec in saveable.specs]
        with device("cpu:0"):
            return save_restore.restore_v2(  # type: ignore[no-any-return]
                filename_tensor,
                [spec.name for spec in specs],
                [spec.slice_spec for spec in specs],
                dtypes=[spec.dtype.base_dtype for spec in specs],
            )


def _element(saveable: Saveable) -> Any:
    """The graph element of a saveable, or None."""
    op = saveable.op
    return op if isinstance(op, (Tensor, Operation)) or hasattr(op, "_as_graph_element") else None


def _static_or_dynamic_shape(tensor: Any) -> Any:
    shape = tensor.get_shape()
    return shape if shape.is_fully_defined() else shape_of(tensor)


def _by_device(saveables: list[Saveable]) -> PerDevice:
    """The saveables of each device, sorted by its name.

    Raises:
      ValueError: when a saveable has tensors on several devices.
    """
    found: dict[str, list[Saveable]] = {}
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
