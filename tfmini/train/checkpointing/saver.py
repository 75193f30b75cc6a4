"""``tf.train.Saver``: saves a graph's variables in checkpoints and restores them."""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from tfmini import errors, protos
from tfmini.checkpoint.files import local_path
from tfmini.core_types import PathLike, TensorLike
from tfmini.export import export
from tfmini.graph.default_graph import get_default_graph
from tfmini.graph.meta_graph import import_scoped_meta_graph, register_proto_function
from tfmini.graph.names import GraphKeys, prepend_name_scope, strip_name_scope
from tfmini.graph.op_types import VARIABLE_OPS, ops_with
from tfmini.journal import RESTORED, journal
from tfmini.ops.growing.checkpoints import bases
from tfmini.protos import MetaGraphDef
from tfmini.runtime.client.session import BaseSession
from tfmini.runtime.process import current_process
from tfmini.shapes import format_raw
from tfmini.train import queue_runners  # noqa: F401 - registers how a MetaGraphDef stores them, before one is read
from tfmini.train.checkpointing import graph_files
from tfmini.train.checkpointing.graph_files import NewCheckpointReader, as_meta_graph
from tfmini.train.checkpointing.object_graph import keys_by_name, renamed_saveables
from tfmini.train.checkpointing.saver_builder import (
    V1,
    V2,
    BaseSaverBuilder,
    BulkSaverBuilder,
    GrowingTableSaveable,
    all_saveables,
)
from tfmini.train.global_steps import global_step as value_of_step

_FORWARDS, _RESTORES = ops_with("forwards"), ops_with("checkpoint")
_log = logging.getLogger("tensorflow")


@export("tf.train.Saver")
class Saver:
    """Saves variables to checkpoints and restores them (``tf.train.Saver``).

    Args:
      var_list: name -> variable, saveable, `PartitionedVariable` or list of slices; or a list of those, saved
        under their own names. Default: the current global variables and SAVEABLE_OBJECTS.
      reshape: restore variables from tensors of another shape with the same number of elements.
      sharded: let each device's task save its own variables.
      max_to_keep: number of checkpoints to keep; None or 0 for all.
      keep_checkpoint_every_n_hours: preserve one checkpoint at this interval.
      name: the name scope of the ops; default "save".
      restore_sequentially: accepted and ignored.
      saver_def: names of existing ops, to use in place of new ones.
      builder: makes the ops; default: a `BulkSaverBuilder`.
      defer_build: make the ops in `build` rather than in the constructor.
      allow_empty: do nothing, rather than raise, if there is nothing to save.
      write_version: the format, ``SaverDef.V2`` or ``V1``.
      pad_step_number: write step numbers with at least eight digits.
      save_relative_paths: write paths relative to the directory in the state file.
      filename: the default value of the file name tensor.
      incremental_save_restore: let tables that grow track their changes, for `incremental_save` (DeepRec's name).

    Raises:
      TypeError, ValueError: when an item cannot be saved, or there is nothing to save.
    """

    def __init__(
        self,
        var_list: Any = None,
        reshape: bool = False,
        sharded: bool = False,
        max_to_keep: int | None = 5,
        keep_checkpoint_every_n_hours: float = 10000.0,
        name: str | None = None,
        restore_sequentially: bool = False,
        saver_def: Any = None,
        builder: BaseSaverBuilder | None = None,
        defer_build: bool = False,
        allow_empty: bool = False,
        write_version: int = V2,
        pad_step_number: bool = False,
        save_relative_paths: bool = False,
        filename: str | None = None,
        incremental_save_restore: bool = False,
    ) -> None:
        if defer_build and var_list:
            raise ValueError(
                "If `var_list` is provided then build cannot be deferred. Either set defer_build=False or"
                " var_list=None."
            )
        self._var_list = var_list
        self._reshape = reshape
        self._sharded = sharded
        self._max_to_keep = max_to_keep
        self._keep_checkpoint_every_n_hours = keep_checkpoint_every_n_hours
        self._name = name
        self._restore_sequentially = restore_sequentially
        self.saver_def = saver_def
        self._builder = builder
        self._allow_empty = allow_empty
        self._is_built = self._is_empty = False
        self._write_version = write_version
        self._pad_step_number = pad_step_number
        self._save_relative_paths = save_relative_paths
        self._filename = filename
        self._last_checkpoints: list[tuple[str, float]] = []  # (prefix, time), oldest first
        self._checkpoints_to_be_deleted: list[tuple[str, float]] = []
        self._bases_of_preserved: set[str] = set()
        self._written: set[str] = set()  # prefixes; others come from a state file
        self._next_checkpoint_time = math.inf
        self._of_objects: Saver | None = None
        self._is_incremental = incremental_save_restore
        self._latest_save: tuple[str, list[Any]] | None = None  # a complete checkpoint, and the marks of its tables
        if not defer_build:
            self.build()
        if self.saver_def is not None:
            self._check_saver_def()
            self._write_version = self.saver_def.version

    # ---- ops ----------------------------------------------------------------------------------

    def build(self) -> None:
        """Adds the ops to the default graph, at the first call.

        Raises:
          ValueError: when there is nothing to save.
        """
        if self._is_built:
            return
        self._is_built = True
        if self.saver_def is None:
            self._build_ops()
            if self._is_empty:
                return
        elif self._name:
            for field in ("filename_tensor_name", "save_tensor_name", "restore_op_name"):
                setattr(self.saver_def, field, prepend_name_scope(getattr(self.saver_def, field), self._name))
        self._check_saver_def()
        self._next_checkpoint_time = current_process().wall_time() + self.saver_def.keep_checkpoint_every_n_hours * 3600

    def _build_ops(self) -> None:
        builder = self._builder = self._builder or BulkSaverBuilder(self._write_version)
        if self._var_list is None:
            self._var_list = all_saveables()
        if not self._var_list:
            if not self._allow_empty:
                raise ValueError("No variables to save")
            self._is_empty = True
            return
        self.saver_def = builder.build(
            self._var_list,
            reshape=self._reshape,
            sharded=self._sharded,
            max_to_keep=self._max_to_keep,
            keep_checkpoint_every_n_hours=self._keep_checkpoint_every_n_hours,
            name=self._name,
            restore_sequentially=self._restore_sequentially,
            filename=self._filename,
        )

    def _check_saver_def(self) -> None:
        if not isinstance(self.saver_def, protos.SaverDef):
            raise ValueError(f"saver_def must be a saver_pb2.SaverDef: {self.saver_def}")
        for field in ("save_tensor_name", "restore_op_name"):
            if not getattr(self.saver_def, field):
                raise ValueError(f"saver_def must specify the {field}: {self.saver_def}")

    # ---- messages -----------------------------------------------------------------------------

    def as_saver_def(self) -> Any:
        """The SaverDef that names the ops."""
        return self.saver_def

    def to_proto(self, export_scope: str | None = None) -> Any:
        """The SaverDef, with names relative to ``export_scope``; None if the ops are outside that scope."""
        if export_scope is None:
            return self.saver_def
        if self.saver_def is None or not self.saver_def.filename_tensor_name.startswith(export_scope):
            return None
        made = protos.SaverDef()
        made.CopyFrom(self.saver_def)
        for field in ("filename_tensor_name", "save_tensor_name", "restore_op_name"):
            setattr(made, field, strip_name_scope(getattr(made, field), export_scope))
        return made

    @staticmethod
    def from_proto(saver_def: Any, import_scope: str | None = None) -> Saver:
        """A Saver that uses existing ops below ``import_scope``."""
        made = protos.SaverDef.FromString(saver_def.SerializeToString())
        return Saver(saver_def=made, name=import_scope)

    def export_meta_graph(
        self,
        filename: str | None = None,
        collection_list: Sequence[str] | None = None,
        as_text: bool = False,
        export_scope: str | None = None,
        clear_devices: bool = False,
        clear_extraneous_savers: bool = False,
        strip_default_attrs: bool = False,
        save_debug_info: bool = False,
    ) -> Any:
        """The MetaGraphDef of the default graph with this Saver; see ``tf.train.export_meta_graph``."""
        return graph_files.export_meta_graph(
            filename=filename,
            saver_def=self.saver_def,
            collection_list=collection_list,
            as_text=as_text,
            export_scope=export_scope,
            clear_devices=clear_devices,
            clear_extraneous_savers=clear_extraneous_savers,
            strip_default_attrs=strip_default_attrs,
            save_debug_info=save_debug_info,
        )

    # ---- the kept checkpoints -----------------------------------------------------------------

    @property
    def last_checkpoints(self) -> list[str]:
        """The prefixes of the kept checkpoints, oldest first."""
        return [path for path, _ in self._last_checkpoints]

    def set_last_checkpoints(self, last_checkpoints: list[str]) -> None:
        """Sets the kept checkpoints; deprecated, since their times are unknown."""
        assert isinstance(last_checkpoints, list)
        self._last_checkpoints = [(path, math.inf) for path in last_checkpoints]

    def set_last_checkpoints_with_time(self, last_checkpoints_with_time: list[tuple[str, float]]) -> None:
        """Sets the kept checkpoints with their times."""
        assert isinstance(last_checkpoints_with_time, list)
        self._last_checkpoints = last_checkpoints_with_time

    def recover_last_checkpoints(self, checkpoint_paths: list[str]) -> None:
        """Takes over the existing checkpoints of ``checkpoint_paths`` after a restart."""
        times = graph_files.get_checkpoint_mtimes
        self.set_last_checkpoints_with_time([(path, made) for path in checkpoint_paths for made in times([path])])

    def _record(self, path: str) -> None:
        if not self.saver_def.max_to_keep:
            return
        self._last_checkpoints = [kept for kept in self._last_checkpoints if kept[0] != path]
        # A base that has waited for its removal, and whose files are new ones now, is kept as such.
        self._checkpoints_to_be_deleted = [old for old in self._checkpoints_to_be_deleted if old[0] != path]
        self._last_checkpoints.append((path, current_process().wall_time()))
        self._written.add(path)
        if len(self._last_checkpoints) > self.saver_def.max_to_keep:
            self._checkpoints_to_be_deleted.append(self._last_checkpoints.pop(0))

    def _delete_old(self, directory: str, meta_graph_suffix: str) -> None:
        """Removes the excess checkpoints but those to preserve, and those to which kept or preserved ones only add."""
        excess = self._checkpoints_to_be_deleted
        if not excess:
            return
        needed = self._bases_of_preserved | self._bases_of(self.last_checkpoints)
        goes = [path for path, made in excess if path not in needed and not self._preserves(path, made)]
        needed |= self._bases_of_preserved  # also of those that are preserved from now on
        self._checkpoints_to_be_deleted = [old for old in excess if old[0] in needed]
        for path in goes:
            if path not in needed:
                self._delete(path, directory, meta_graph_suffix)

    def _bases_of(self, paths: Sequence[str]) -> set[str]:
        return {base for path in paths for base in bases(path)} if self._is_incremental else set()

    def _preserves(self, path: str, made: float) -> bool:
        """Whether an excess checkpoint is the next one to preserve."""
        if made <= self._next_checkpoint_time:
            return False
        self._next_checkpoint_time += self.saver_def.keep_checkpoint_every_n_hours * 3600
        self._bases_of_preserved |= self._bases_of([path])
        return True

    def _delete(self, path: str, directory: str, meta_graph_suffix: str) -> None:
        """Removes a checkpoint that this Saver may remove."""
        if path not in self._written and not graph_files.is_removable(path, directory):
            return
        self._written.discard(path)
        try:
            graph_files.remove_checkpoint(path, self.saver_def.version, meta_graph_suffix)
        except errors.OpError as error:
            _log.warning("Ignoring: %s", error)

    # ---- saving and restoring -----------------------------------------------------------------

    def save(
        self,
        sess: BaseSession,
        save_path: Any,
        global_step: TensorLike | None = None,
        latest_filename: str | None = None,
        meta_graph_suffix: str = "meta",
        write_meta_graph: bool = True,
        write_state: bool = True,
        strip_default_attrs: bool = False,
        save_debug_info: bool = False,
    ) -> str | None:
        """Saves the variables; an existing checkpoint stays intact until the new one is complete.

        Args:
          sess: the session of the variables.
          save_path: prefix of the checkpoint's files.
          global_step: a number, or a tensor that holds it, to append to the prefix.
          latest_filename: name of the state file; default ``checkpoint``.
          meta_graph_suffix: suffix of the MetaGraphDef's file.
          write_meta_graph: also write the MetaGraphDef.
          write_state: update the state file and remove old checkpoints.
          strip_default_attrs: leave out attrs with default values from the MetaGraphDef.
          save_debug_info: accepted and ignored.

        Returns:
          The checkpoint's prefix; None for an empty Saver.

        Raises:
          TypeError: when ``sess`` is no session.
          ValueError: when the path is invalid or its directory does not exist.
          RuntimeError: when `build` was not called.
          OpError: when saving fails.
        """
        if not self._is_built:
            raise RuntimeError("`build()` should be called before save if defer_build==True")
        latest_filename = latest_filename or "checkpoint"
        prefix = self._prefix(sess, os.fsdecode(save_path), global_step, latest_filename)
        if not isinstance(sess, BaseSession):
            raise TypeError(f"'sess' must be a Session; {sess}")
        saved = None
        if not self._is_empty:
            saved = self._run_save(sess, os.fsdecode(save_path), prefix)
            if write_state:
                self._write_state(os.path.dirname(os.fsdecode(save_path)), saved, latest_filename, meta_graph_suffix)
        if write_meta_graph:
            path = graph_files.meta_graph_filename(prefix, meta_graph_suffix)
            with sess.graph.as_default():
                self.export_meta_graph(path, strip_default_attrs=strip_default_attrs, save_debug_info=save_debug_info)
        return saved

    def track_changes(self) -> None:
        """From the next checkpoint on, tables that grow track their changes; as ``incremental_save_restore`` does."""
        self._is_incremental = True

    def incremental_save(
        self, sess: BaseSession, save_path: Any, global_step: TensorLike | None = None, **kwargs: Any
    ) -> str | None:
        """Saves a checkpoint whose tables that grow hold only what has changed since this Saver's latest one.

        It is restored as any other: `restore` reads the earlier checkpoints, too, and they stay until no kept
        checkpoint needs them. Variables are saved whole. A table is saved whole if nothing is known of its changes: in
        the first checkpoint of this Saver, after a restart of its task, and when that is smaller.

        Args:
          sess, save_path, global_step: as for `save`.
          **kwargs: the others of `save`.

        Returns:
          As `save`.

        Raises:
          ValueError: the Saver was made without ``incremental_save_restore``; otherwise as `save`.
        """
        if not self._is_incremental:
            raise ValueError("incremental_save needs a tf.train.Saver(incremental_save_restore=True).")
        self._adds = True
        try:
            return self.save(sess, save_path, global_step, **kwargs)
        finally:
            self._adds = False

    _adds = False  # whether the save that runs adds to the latest one

    def _prefix(self, sess: BaseSession, save_path: str, global_step: Any, latest_filename: str) -> str:
        if os.path.split(latest_filename)[0]:
            raise ValueError("'latest_filename' must not contain path components")
        if self._write_version == V1:
            _log.warning("TensorFlow's V1 checkpoint format has been deprecated: tf.train.SaverDef.V2 is the default.")
        if global_step is not None:
            if not isinstance(global_step, (int, np.integer)):
                global_step = value_of_step(sess, global_step)
            return f"{save_path}-{global_step:08d}" if self._pad_step_number else f"{save_path}-{global_step}"
        if os.path.basename(save_path) == latest_filename and not self._sharded:
            raise ValueError(f"'latest_filename' collides with 'save_path': '{latest_filename}' and '{save_path}'")
        return save_path

    def _run_save(self, sess: BaseSession, save_path: str, prefix: str) -> str:
        try:
            feeds = {self.saver_def.filename_tensor_name: prefix, **self._feeds_of_tables(prefix)}
            marks = [table.mark for table in self._tables]
            saved, marks = sess.run([self.saver_def.save_tensor_name, marks], feeds)
            self._latest_save = prefix, marks
        except (errors.FailedPreconditionError, errors.NotFoundError):
            if not os.path.isdir(os.path.dirname(local_path(save_path)) or "."):
                raise ValueError(f"Parent directory of {save_path} doesn't exist, can't save.") from None
            raise
        return saved.decode() if isinstance(saved, bytes) else str(saved)

    @property
    def _tables(self) -> Sequence[GrowingTableSaveable]:
        return self._builder.tables if self._builder is not None else ()

    def _feeds_of_tables(self, prefix: str) -> dict[Any, Any]:
        """What tells the tables what to save."""
        tables = self._tables if self._is_incremental else ()
        latest, marks = self._latest_save or ("", [])
        is_beside = latest and os.path.dirname(latest) == os.path.dirname(prefix)
        # A checkpoint that replaces one of its own bases would be lost with it.
        if self._adds and is_beside and prefix not in (latest, *bases(latest)):
            base = os.path.basename(latest)
            return {t.since: mark for t, mark in zip(tables, marks)} | {t.base: base for t in tables}
        return {table.since: np.zeros(2, np.int64) for table in tables}

    def _write_state(self, directory: str, saved: str, latest_filename: str, meta_graph_suffix: str) -> None:
        self._record(saved)
        graph_files.update_checkpoint_state(
            directory, saved, self.last_checkpoints, latest_filename, save_relative_paths=self._save_relative_paths
        )
        self._delete_old(directory, meta_graph_suffix)

    def restore(self, sess: Any, save_path: PathLike | None) -> None:
        """Assigns the values of a checkpoint to the variables, which need not be initialized.

        Raises:
          ValueError: when there is no such checkpoint.
          NotFoundError: when a variable is not in the checkpoint.
          InvalidArgumentError: when a variable has another shape or type than in the checkpoint.
          DataLossError: when the checkpoint is truncated or corrupt.
          FailedPreconditionError: when ``save_path`` is a directory.
        """
        if self._is_empty:
            return
        if save_path is None:
            raise ValueError("Can't load save_path when it is None.")
        prefix = os.fsdecode(save_path)
        if not graph_files.checkpoint_exists(prefix):
            raise ValueError(f"The passed save_path is not a valid checkpoint: {prefix}{_whereabouts(prefix)}")
        _log.info("Restoring parameters from %s", prefix)
        try:
            sess.run(self.saver_def.restore_op_name, {self.saver_def.filename_tensor_name: prefix})
        except errors.NotFoundError as error:
            keys = keys_by_name(prefix)
            if keys is None:
                raise _explained(error, "a Variable name or other graph key that is missing") from None
            self._restore_objects(sess, prefix, keys)
        except errors.InvalidArgumentError as error:
            _name_variable(error, prefix)
            error.explain(
                f"Train anew in another directory (an Estimator's model_dir) than {os.path.dirname(prefix)!r}, or give"
                " the model the sizes of before."
            )
            raise _explained(error, "a mismatch between the current graph and the graph") from None
        except errors.FailedPreconditionError as error:
            if not os.path.isdir(local_path(prefix)):
                raise
            hint = f"save_path is a directory: give tf.train.latest_checkpoint({prefix!r}), if there is one."
            raise type(error)(error.node_def, error.op, f"{error.message}\n{hint}") from None
        journal.note(RESTORED, prefix)

    def _restore_objects(self, sess: BaseSession, prefix: str, keys: dict[str, str]) -> None:
        """Restores a `Checkpoint`'s file by the names that the variables had when it was written."""
        _log.warning(
            "Restoring an object-based checkpoint using a name-based saver. This may be somewhat fragile, and will"
            " re-build the Saver. Instead, consider loading object-based checkpoints using tf.train.Checkpoint()."
        )
        if self._of_objects is None:
            with sess.graph.as_default():
                self._of_objects = Saver(renamed_saveables(self._var_list, keys), max_to_keep=None)
        self._of_objects.restore(sess, prefix)


def _whereabouts(prefix: str) -> str:
    """Why a path that a ``checkpoint`` file may have given names no checkpoint; "" for other paths."""
    directory = os.path.dirname(local_path(prefix))
    if not os.path.isabs(prefix) or os.path.isdir(directory):
        return ""
    return (
        f". There is no directory {directory}: the file named 'checkpoint' holds absolute paths, which are those of the"
        " directory that it was written in. If that one was moved or copied, give the new path of the checkpoint, or"
        " correct the file; Saver(save_relative_paths=True) writes relative paths."
    )


def _name_variable(error: errors.OpError, prefix: str) -> None:
    """Adds to an error of a restoring assignment which variable it was, and its shape here and in the checkpoint."""
    op = error.op
    if op is None or len(op.inputs) < 2 or op.inputs[0].op.type not in VARIABLE_OPS:
        return
    restored = op.inputs[1]
    while restored.op.type in _FORWARDS:
        restored = restored.op.inputs[0]
    names = restored.op.inputs[1].op.attrs.get("value") if restored.op.type in _RESTORES else None
    if names is None:
        return
    key = np.ravel(names)[restored.value_index].decode()
    found = NewCheckpointReader(prefix).get_variable_to_shape_map().get(key)
    variable = op.inputs[0]
    error.explain(
        f"The variable '{variable.op.name}' has shape {format_raw(variable.raw_shape)} in this graph; '{key}' in the"
        f" checkpoint {prefix} has shape {found}."
    )


def _explained(error: errors.OpError, cause: str) -> errors.OpError:
    """The error of a failed restore, with its most likely cause in the message."""
    text = (
        f"Restoring from checkpoint failed. This is most likely due to {cause} from the checkpoint. Please ensure that"
        f" you have not altered the graph expected based on the checkpoint. Original error:\n\n{error.message}"
    )
    return type(error)(error.node_def, error.op, text)  # type: ignore[call-arg]


@export("tensorflow.python.training.saver._get_saver_or_default")
def get_saver_or_default() -> Saver:
    """The Saver in the collection SAVERS; if there is none, adds a sharded one.

    Raises:
      RuntimeError: when there are several.
    """
    graph = get_default_graph()
    savers = graph.get_collection(GraphKeys.SAVERS)
    if len(savers) > 1:
        raise RuntimeError(
            f"More than one item in collection {GraphKeys.SAVERS}. Please indicate which one to use by passing it to"
            " the constructor."
        )
    if savers:
        return savers[0]  # type: ignore[no-any-return]
    saver = Saver(sharded=True, allow_empty=True)
    graph.add_to_collection(GraphKeys.SAVERS, saver)
    return saver


register_proto_function(GraphKeys.SAVERS, "SaverDef", Saver.to_proto, Saver.from_proto)


# ---- ``tf.train.import_meta_graph``: imports a graph from a file or message and makes a Saver for it ---------------


@export("tf.train.import_meta_graph")
def import_meta_graph(
    meta_graph_or_file: PathLike | MetaGraphDef,
    clear_devices: bool = False,
    import_scope: str | None = None,
    **kwargs: Any,
) -> Saver | None:
    """Adds a MetaGraphDef to the default graph (``tf.train.import_meta_graph``).

    Args:
      meta_graph_or_file: the message or the path of its file.
      clear_devices: drop the nodes' devices.
      import_scope: a name scope for all imported names.
      **kwargs: as in `import_scoped_meta_graph`.

    Returns:
      A Saver of the graph's variables; None if there are none.

    Raises:
      OSError: when the file cannot be read.
      ValueError: when the message is malformed, or inputs are missing.
    """
    return import_meta_graph_with_return_elements(meta_graph_or_file, clear_devices, import_scope, **kwargs)[0]


def import_meta_graph_with_return_elements(
    meta_graph_or_file: PathLike | MetaGraphDef,
    clear_devices: bool = False,
    import_scope: str | None = None,
    return_elements: Any = None,
    **kwargs: Any,
) -> tuple[Saver | None, list[Any] | None]:
    """As `import_meta_graph`; returns (Saver, the elements named by ``return_elements``)."""
    message = as_meta_graph(meta_graph_or_file)
    variables, elements = import_scoped_meta_graph(
        message, clear_devices, import_scope=import_scope, return_elements=return_elements, **kwargs
    )
    return _saver_of(message, import_scope, variables), elements


def _saver_of(message: Any, import_scope: str | None, variables: dict[str, Any]) -> Saver | None:
    if message.HasField("saver_def"):
        scope = import_scope
        if variables:
            # The current name scope also applies, and scopes are made unique: derive the prefix from a variable.
            original, variable = next(iter(variables.items()))
            scope = variable.name[: len(variable.name) - len(original)].rstrip("/")
        return Saver(saver_def=message.saver_def, name=scope)
    graph = get_default_graph()
    has_saveables = graph.get_collection(GraphKeys.GLOBAL_VARIABLES, import_scope) or graph.get_collection(
        GraphKeys.SAVEABLE_OBJECTS, import_scope
    )
    return Saver() if has_saveables else None
