"""``tf.train.init_from_checkpoint``: makes the initializers of variables read a checkpoint."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from tfmini.export import export
from tfmini.graph.scoping import device
from tfmini.ops.io.save_restore import restore_v2
from tfmini.ops.variables.base import Variable
from tfmini.ops.variables.partitioned_variable import PartitionedVariable
from tfmini.ops.variables.store import default_variable_store
from tfmini.train.checkpointing.reader import load_checkpoint
from tfmini.train.checkpointing.saveables import named_saveables, saveables_for
from tfmini.train.checkpointing.state_file import checkpoint_file

_log = logging.getLogger("tensorflow")
Parts = list[Any]  # one variable, or the parts of one


@export("tf.train.init_from_checkpoint", "tf.contrib.framework.init_from_checkpoint")
def init_from_checkpoint(ckpt_dir_or_file: Any, assignment_map: Mapping[str, Any]) -> None:
    """Makes the initializers of variables load from a checkpoint (``tf.train.init_from_checkpoint``).

    Args:
      ckpt_dir_or_file: a checkpoint's prefix, or a directory whose newest checkpoint is used.
      assignment_map: tensor in the checkpoint -> variable, its name, or the list of its parts; or scope in the
        checkpoint -> scope of variables, both with a trailing ``/``. ``/`` is the root scope.

    Raises:
      ValueError: when a tensor is missing or has another shape, or a scope is mapped to a name.
    """
    prefix = checkpoint_file(ckpt_dir_or_file)
    shapes = load_checkpoint(prefix).get_variable_to_shape_map()
    loader = _Loader(prefix, str(ckpt_dir_or_file), shapes, default_variable_store()._vars)
    for tensor_name, target in sorted(assignment_map.items(), key=lambda item: item[0]):
        parts = loader.variables(target)
        if parts is not None:
            loader.load_one(parts, tensor_name)
        else:
            loader.load_scope(target, tensor_name)


class _Loader:
    def __init__(self, prefix: str, label: str, shapes: dict[str, list[int]], store: Mapping[str, Any]) -> None:
        self.prefix = prefix
        self.label = label
        self.shapes = shapes
        self.store = store

    def variables(self, target: Any) -> Parts | None:
        """The variable or parts that a value of the map names; None for a scope."""
        if isinstance(target, Variable):
            return [target]
        if isinstance(target, (list, PartitionedVariable)):
            return list(target)
        if target in self.store:
            return [self.store[target]]
        parts: Parts = []
        while f"{target}/part_{len(parts)}" in self.store:
            parts.append(self.store[f"{target}/part_{len(parts)}"])
        return parts or None

    def load_one(self, parts: Parts, tensor_name: str) -> None:
        if tensor_name not in self.shapes:
            raise ValueError(f"Tensor {tensor_name} is not found in {self.label} checkpoint {self.shapes}")
        if len(parts) == 1 and parts[0]._save_slice_info is None:
            self._check_shape(parts[0], tensor_name)
        self._set(parts, tensor_name)

    def _check_shape(self, variable: Any, tensor_name: str) -> None:
        shape = self.shapes[tensor_name]
        if not variable.get_shape().is_compatible_with(shape):
            raise ValueError(
                f"Shape of variable {variable.name} ({variable.get_shape()}) doesn't match with shape of tensor"
                f" {tensor_name} ({shape}) from checkpoint reader."
            )

    def load_scope(self, target: str, tensor_scope: str) -> None:
        scope = target.rpartition("/")[0]
        if not tensor_scope.endswith("/"):
            raise ValueError(
                f"Assignment map with scope only name {scope} should map to scope only {tensor_scope}. Should be"
                " 'scope/': 'other_scope/'."
            )
        inside = f"{scope}/" if scope else ""
        names = {name.partition("/part_")[0] for name in self.store if name.startswith(inside)}
        for name in sorted(names):
            relative = name[len(inside) :]
            full = relative if tensor_scope == "/" else tensor_scope + relative
            if full not in self.shapes:
                raise ValueError(
                    f"Tensor {full} ({relative} in {tensor_scope}) is not found in {self.label} checkpoint"
                )
            self._set(self.variables(name) or [], full)

    def _set(self, parts: Parts, tensor_name: str) -> None:
        for part in parts:
            info = part._save_slice_info
            _set_initializer(part, self.prefix, tensor_name, "" if info is None else info.spec)
        names = ",".join(part.name for part in parts)
        _log.debug("Initialize variable %s from checkpoint %s with %s", names, self.label, tensor_name)


def _set_initializer(variable: Any, prefix: str, tensor_name: str, spec: str) -> None:
    """Replaces a variable's initializer with an assignment of the checkpoint's value."""
    with device(variable.device), device("/cpu:0"):
        restored = restore_v2(
            prefix, [tensor_name], [spec], dtypes=[variable.dtype.base_dtype], name="checkpoint_initializer"
        )[0]
        ((name, item),) = named_saveables([variable]).items()
        (saveable,) = saveables_for(item, name)
    assigned = saveable.restore([restored], None)
    restored.set_shape(variable.shape)
    variable._initializer_op = getattr(assigned, "op", assigned)
    variable._initial_value = restored
