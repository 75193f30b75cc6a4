"""``tf.train.Checkpoint``: saves objects in TensorFlow's object-based format, named by attributes."""

from __future__ import annotations

import logging
import os
from glob import escape, glob
from typing import Any

import numpy as np

from tfmini import dtypes
from tfmini.checkpoint import files
from tfmini.checkpoint.files import local_path
from tfmini.core_types import PathLike
from tfmini.export import export
from tfmini.graph.operation import Tensor
from tfmini.graph.scopes import get_default_session
from tfmini.graph.scoping import colocate_with, control_dependencies, device
from tfmini.ops.array.identity import placeholder_with_default
from tfmini.ops.control import no_op
from tfmini.ops.variables.functions import Variable
from tfmini.runtime.client.session import BaseSession
from tfmini.runtime.process import current_process
from tfmini.train.checkpointing import graph_files
from tfmini.train.checkpointing.load_status import LoadStatus, session_or_default, status_of
from tfmini.train.checkpointing.object_graph import OBJECT_GRAPH_KEY, ObjectGraph, Trackable, is_trackable
from tfmini.train.checkpointing.saver import Saver
from tfmini.train.checkpointing.saver_builder import SaveableObject, SaveSpec, set_cpu0
from tfmini.train.global_steps import global_step as value_of_step


class _FedSaveable(SaveableObject):
    """A text that is fed when it is saved, and that no op restores: the object graph's message or a Python state."""

    def __init__(self, tensor: Tensor, key: str) -> None:
        super().__init__(tensor, [SaveSpec(tensor, "", key)], key)

    def restore(self, restored_tensors: list[Tensor], restored_shapes: list[Any] | None) -> Any:
        return no_op()


@export("tf.train.Checkpoint", "tensorflow.python.training.tracking.util.Checkpoint")
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
        self._fed: dict[str, Tensor] = {}
        self._savers: dict[frozenset[tuple[str, int]], Saver] = {}

    def _trackable_children(self) -> list[tuple[str, Any]]:
        own = ("_save_counter", "_count", "_fed", "_savers")
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

    def save(self, file_prefix: PathLike, session: BaseSession | None = None) -> str:
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
        graph_files.update_checkpoint_state(directory, path, [path], save_relative_paths=True)
        return path

    def _next_number(self, session: BaseSession) -> int:
        if self._save_counter is None:
            session.run(self.save_counter.initializer)
        if self._count is None:
            with colocate_with(self.save_counter.op):
                self._count = self.save_counter.assign_add(1, read_value=True)
        return int(session.run(self._count))

    def write(self, file_prefix: PathLike, session: BaseSession | None = None) -> str:
        """Saves all objects with the prefix ``file_prefix``, without number and state file; see `save`."""
        prefix = os.fsdecode(file_prefix)
        os.makedirs(os.path.dirname(local_path(prefix)) or ".", exist_ok=True)
        graph = ObjectGraph(self)
        texts = {key: state.serialize() for key, state in graph.states.items()}
        texts[OBJECT_GRAPH_KEY] = graph.to_proto().SerializeToString(deterministic=True)
        saver = self._saver_of(graph.variables, tuple(texts))
        feeds = {saver.saver_def.filename_tensor_name: prefix, **{self._fed[key]: texts[key] for key in texts}}
        saved = session_or_default(session).run(saver.saver_def.save_tensor_name, feeds)
        return saved.decode() if isinstance(saved, bytes) else str(saved)

    def restore(self, save_path: PathLike | None) -> LoadStatus:
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

    def _saver_of(self, variables: dict[str, Any], texts: tuple[str, ...] = (OBJECT_GRAPH_KEY,)) -> Saver:
        """The cached saver of a set of variables by key, and of the texts with these keys, which are fed."""
        key = frozenset([*((name, id(variable)) for name, variable in variables.items()), *((t, 0) for t in texts)])
        if key not in self._savers:
            with control_dependencies(None), device(None):
                items = {**variables, **{text: _FedSaveable(self._fed_text(text), text) for text in texts}}
                places = {set_cpu0(getattr(v, "resource_handle", v).device) for v in variables.values()}
                self._savers[key] = Saver(items, sharded=len(places) > 1, max_to_keep=None)
        return self._savers[key]

    def _fed_text(self, key: str) -> Tensor:
        if key not in self._fed:
            with device("/cpu:0"):
                name = "object_graph" if key == OBJECT_GRAPH_KEY else "python_state"
                self._fed[key] = placeholder_with_default("", shape=(), name=name)
        return self._fed[key]


# ---- ``tf.train.CheckpointManager``: saves numbered checkpoints and deletes old ones -------------------------------

_log = logging.getLogger("tensorflow")


@export("tf.train.CheckpointManager", "tf.contrib.checkpoint.CheckpointManager")
class CheckpointManager:
    """Saves a `Checkpoint` under numbered names and deletes old ones (``tf.train.CheckpointManager``).

    The directory's state file holds the manager's state, so a new manager continues where another one stopped.

    Args:
      checkpoint: the checkpoint to save.
      directory: the directory of the files.
      max_to_keep: number of checkpoints to keep; None for all.
      keep_checkpoint_every_n_hours: preserve one of the checkpoints to delete at this interval.
      checkpoint_name: first part of the files' names.

    Raises:
      ValueError: when ``max_to_keep`` is below 1.
    """

    def __init__(
        self,
        checkpoint: Checkpoint,
        directory: Any,
        max_to_keep: int | None,
        keep_checkpoint_every_n_hours: float | None = None,
        checkpoint_name: str = "ckpt",
    ) -> None:
        if max_to_keep is not None and max_to_keep <= 0:
            raise ValueError(f"Expected a positive integer or `None` for `max_to_max_to_keep`, got {max_to_keep}.")
        self._checkpoint = checkpoint
        self._directory = os.fspath(directory)
        self._max_to_keep = max_to_keep
        self._keep_every_n_hours = keep_checkpoint_every_n_hours
        self._prefix = os.path.join(self._directory, checkpoint_name)
        self._latest: str | None = None
        # One second back, so that checkpoints of a manager that ended just before are later than this time.
        self._last_preserved = current_process().wall_time() - 1.0
        self._kept: dict[str, float] = {}
        state = graph_files.get_checkpoint_state(self._directory)
        if state is not None:
            self._recover(state)

    def _recover(self, state: Any) -> None:
        """Takes over the checkpoints of an earlier manager or saver."""
        now = current_process().wall_time()
        self._latest = state.model_checkpoint_path
        self._last_preserved = state.last_preserved_timestamp
        if now < self._last_preserved:
            _log.warning(
                "time.time() returned a value %f seconds behind the last preserved checkpoint timestamp.",
                self._last_preserved - now,
            )
            self._last_preserved = now
        paths = state.all_model_checkpoint_paths
        times = list(state.all_model_checkpoint_timestamps) or [self._last_preserved] * len(paths)
        for path, made in zip(paths, times):
            if min(made, now) > self._last_preserved:
                self._kept[path] = min(made, now)

    @property
    def latest_checkpoint(self) -> str | None:
        """The prefix of the newest checkpoint, or None; for `Checkpoint.restore`."""
        return self._latest

    @property
    def checkpoints(self) -> list[str]:
        """The prefixes of the kept checkpoints, oldest first, without the preserved ones."""
        return list(self._kept)

    def save(self, checkpoint_number: Any = None) -> str:
        """Saves a checkpoint with the default session and deletes excess ones.

        Args:
          checkpoint_number: an integer, or a variable or tensor that holds one; default: the checkpoint's
            save_counter, which is incremented in any case.

        Returns:
          The checkpoint's prefix.
        """
        session = session_or_default(get_default_session())
        number = self._checkpoint._next_number(session)
        if checkpoint_number is not None:
            is_number = isinstance(checkpoint_number, (int, np.integer))
            number = int(checkpoint_number) if is_number else value_of_step(session, checkpoint_number)
        path = self._checkpoint.write(f"{self._prefix}-{number}")
        self._kept.pop(path, None)  # a rewritten checkpoint becomes the newest
        self._kept[path] = current_process().wall_time()
        self._latest = path
        # Written before and after the deletion: a process that is killed in between leaves a valid state file.
        self._write_state()
        self._sweep()
        self._write_state()
        return path

    def _sweep(self) -> None:
        while self._max_to_keep and len(self._kept) > self._max_to_keep:
            path = next(iter(self._kept))
            made = self._kept.pop(path)
            if self._keep_every_n_hours and made - self._keep_every_n_hours * 3600.0 >= self._last_preserved:
                self._last_preserved = made
                continue
            if not graph_files.is_removable(path, os.path.dirname(self._prefix)):
                continue
            files.DISK.remove(files.index_file(path))
            for data in glob(f"{escape(files.local_path(path))}.data-?????-of-?????"):
                files.DISK.remove(data)

    def _write_state(self) -> None:
        assert self._latest is not None
        graph_files.update_checkpoint_state(
            self._directory,
            self._latest,
            list(self._kept),
            all_model_checkpoint_timestamps=list(self._kept.values()),
            last_preserved_timestamp=self._last_preserved,
            save_relative_paths=True,
        )
