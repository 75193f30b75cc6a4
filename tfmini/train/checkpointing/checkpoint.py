"""``tf.train.Checkpoint``: saves objects in TensorFlow's object-based format, named by attributes."""

from __future__ import annotations

import os
from typing import Any

from tfmini import dtypes
from tfmini.checkpoint.files import local_path
from tfmini.export import export
from tfmini.graph.operation import Tensor
from tfmini.graph.scoping import colocate_with, control_dependencies, device
from tfmini.ops.array.identity import placeholder_with_default
from tfmini.ops.control import no_op
from tfmini.ops.variables.functions import Variable
from tfmini.train.checkpointing import state_file as checkpoint_state
from tfmini.train.checkpointing.load_status import LoadStatus, session_or_default, status_of
from tfmini.train.checkpointing.object_graph import OBJECT_GRAPH_KEY, ObjectGraph, Trackable, is_trackable
from tfmini.train.checkpointing.saveables import SaveableObject, SaveSpec, set_cpu0
from tfmini.train.checkpointing.saver import Saver


class _GraphSaveable(SaveableObject):
    """The object graph's message, which is fed when it is saved and never restored."""

    def __init__(self, tensor: Tensor) -> None:
        super().__init__(tensor, [SaveSpec(tensor, "", OBJECT_GRAPH_KEY)], OBJECT_GRAPH_KEY)

    def restore(self, restored_tensors: list[Tensor], restored_shapes: list[Any] | None) -> Any:
        return no_op()


@export("tf.train.Checkpoint")
class Checkpoint(Trackable):
    """Groups objects to save and restore them together (``tf.train.Checkpoint``).

    Unlike those of a `Saver`, its files do not depend on the names of variables. They depend on the names of the
    attributes that lead from the checkpoint to an object. Attributes may be added later.

    Args:
      kwargs: attribute -> variable, optimizer, layer, `Checkpoint` or other trackable object.

    Raises:
      ValueError: when a value is not trackable.
    """

    def __init__(self, **kwargs: Any) -> None:
        for name, value in sorted(kwargs.items()):
            if not is_trackable(value):
                raise ValueError(
                    f"`Checkpoint` was expecting a trackable object (an object derived from `TrackableBase`), got"
                    f" {value}. If you believe this object should be trackable (i.e. it is part of the TensorFlow"
                    " Python API and manages state), please open an issue."
                )
            setattr(self, name, value)
        self._save_counter: Any = None
        self._count: Any = None
        self._message: Tensor | None = None
        self._savers: dict[frozenset[tuple[str, int]], Saver] = {}

    def _trackable_children(self) -> list[tuple[str, Any]]:
        own = ("_save_counter", "_count", "_message", "_savers")
        found = [(name, value) for name, value in super()._trackable_children() if name not in own]
        return found if self._save_counter is None else [*found, ("save_counter", self._save_counter)]

    @property
    def save_counter(self) -> Any:
        """An int64 variable that counts the calls of `save`."""
        if self._save_counter is None:
            with device("/cpu:0"), control_dependencies(None):
                kind: Any = {"use_resource": True}
                self._save_counter = Variable(0, name="save_counter", dtype=dtypes.int64, trainable=False, **kind)
        return self._save_counter

    def save(self, file_prefix: Any, session: Any = None) -> str:
        """Saves all objects as ``<file_prefix>-<save_counter>`` and updates the directory's state file.

        Args:
          file_prefix: prefix of the files' names; missing directories are made.
          session: the session of the variables; default: the default session.

        Returns:
          The checkpoint's prefix.
        """
        prefix = os.fsdecode(file_prefix)
        path = self.write(f"{prefix}-{self._next_number(session_or_default(session))}", session)
        directory = os.path.dirname(prefix)
        checkpoint_state.update_checkpoint_state(directory, path, [path], save_relative_paths=True)
        return path

    def _next_number(self, session: Any) -> int:
        if self._save_counter is None:
            session.run(self.save_counter.initializer)
        if self._count is None:
            with colocate_with(self.save_counter.op):
                self._count = self.save_counter.assign_add(1, read_value=True)
        return int(session.run(self._count))

    def write(self, file_prefix: Any, session: Any = None) -> str:
        """Saves all objects with the prefix ``file_prefix``, without number and state file; see `save`."""
        prefix = os.fsdecode(file_prefix)
        os.makedirs(os.path.dirname(local_path(prefix)) or ".", exist_ok=True)
        graph = ObjectGraph(self)
        saver = self._saver_of(graph.variables)
        assert self._message is not None
        message = graph.to_proto().SerializeToString(deterministic=True)
        feeds = {saver.saver_def.filename_tensor_name: prefix, self._message: message}
        saved = session_or_default(session).run(saver.saver_def.save_tensor_name, feeds)
        return saved.decode() if isinstance(saved, bytes) else str(saved)

    def restore(self, save_path: Any) -> LoadStatus:
        """Prepares to restore a checkpoint that a `Checkpoint` or a `Saver` wrote.

        ``run_restore_ops`` or ``initialize_or_restore`` of the result assigns the values.

        Args:
          save_path: the checkpoint's prefix; None (`latest_checkpoint` of an empty directory) to only initialize.

        Raises:
          NotFoundError: when there is no such checkpoint.
        """
        counter = self.save_counter  # creates the variable, so that a script's initializers include it
        assert counter is not None
        return status_of(self, None if save_path is None else os.fsdecode(save_path))

    def _saver_of(self, variables: dict[str, Any]) -> Saver:
        """The cached saver of a set of variables by key."""
        key = frozenset((name, id(variable)) for name, variable in variables.items())
        if key not in self._savers:
            with control_dependencies(None), device(None):
                if self._message is None:
                    with device("/cpu:0"):
                        self._message = placeholder_with_default("", shape=(), name="object_graph")
                places = {set_cpu0(variable.device) for variable in variables.values()}
                items = {**variables, OBJECT_GRAPH_KEY: _GraphSaveable(self._message)}
                self._savers[key] = Saver(items, sharded=len(places) > 1, max_to_keep=None)
        return self._savers[key]
