"""``tf.train.CheckpointSaverHook``: saves checkpoints periodically and notifies listeners."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from typing import Any

from tfmini import protos
from tfmini.export import export
from tfmini.graph.default_graph import get_default_graph
from tfmini.graph.graph import Graph
from tfmini.graph.keys import GraphKeys
from tfmini.graph.scoping import get_collection
from tfmini.train.checkpointing.graph_files import export_meta_graph, write_training_graph
from tfmini.train.global_steps import global_step
from tfmini.train.hooks.session_run_hook import SessionRunArgs, SessionRunContext, SessionRunHook, SessionRunValues
from tfmini.train.hooks.stopping_hooks import global_step_read
from tfmini.train.hooks.timers import SecondOrStepTimer
from tfmini.train.summaries.summary_writer import FileWriterCache

_log = logging.getLogger("tensorflow")


def record_graph(graph: Graph, directory: str | None, writer: Any, saver: Any) -> None:
    """Writes a graph to its directory, and with the Saver's description to an event file; either may be None."""
    if not directory and not writer:
        return
    graph_def = graph.as_graph_def(add_shapes=True)
    if directory:
        write_training_graph(graph, directory, graph_def)
    if writer:
        saver_def = saver.saver_def if saver else None
        writer.add_graph(graph)
        writer.add_meta_graph(export_meta_graph(graph=graph, graph_def=graph_def, saver_def=saver_def))


def save_checkpoint(session: Any, saver: Any, path: str | None, step: Any, writer: Any) -> None:
    """Saves a checkpoint, and notes it in an event file if there is one.

    Args:
      step: the value of the global step, or the tensor.
    """
    saver.save(session, path, global_step=step)
    if writer:
        value = step if isinstance(step, int) else global_step(session, step)
        note = protos.SessionLog(status=protos.SessionLog.CHECKPOINT, checkpoint_path=path)
        writer.add_session_log(note, value)


@export("tf.estimator.CheckpointSaverListener", "tf.train.CheckpointSaverListener")
class CheckpointSaverListener:
    """Is notified of every save of a `CheckpointSaverHook` (``tf.train.CheckpointSaverListener``)."""

    def begin(self) -> None:
        """Called before the graph is finalized."""

    def before_save(self, session: Any, global_step_value: int) -> None:
        """Called before a checkpoint is written."""

    def after_save(self, session: Any, global_step_value: int) -> bool | None:
        """Called after a checkpoint was written; returns True to end the training."""

    def end(self, session: Any, global_step_value: int) -> None:
        """Called at the end of the session, after its last checkpoint."""


@export("tf.estimator.CheckpointSaverHook", "tf.train.CheckpointSaverHook")
class CheckpointSaverHook(SessionRunHook):
    """Saves when the session is created, periodically, and at its end (``tf.train.CheckpointSaverHook``).

    Args:
      checkpoint_dir: directory of checkpoints, ``graph.pbtxt`` and events.
      save_secs, save_steps: the period; exactly one must be given.
      saver: the Saver; default: the scaffold's, else that of the collection ``savers``.
      checkpoint_basename: the files are ``<checkpoint_dir>/<checkpoint_basename>-<step>``.
      scaffold: provides the Saver in place of ``saver``.
      listeners: the listeners to notify.

    Raises:
      ValueError: when not exactly one period is given, or both saver and scaffold are.
    """

    def __init__(
        self,
        checkpoint_dir: str,
        save_secs: float | None = None,
        save_steps: int | None = None,
        saver: Any = None,
        checkpoint_basename: str = "model.ckpt",
        scaffold: Any = None,
        listeners: Sequence[CheckpointSaverListener] | None = None,
    ) -> None:
        _log.info("Create CheckpointSaverHook.")
        if saver is not None and scaffold is not None:
            raise ValueError("You cannot provide both saver and scaffold.")
        self._saver = saver
        self._checkpoint_dir = checkpoint_dir
        self._save_path = os.path.join(checkpoint_dir, checkpoint_basename)
        self._scaffold = scaffold
        self._timer = SecondOrStepTimer(every_secs=save_secs, every_steps=save_steps)
        self._listeners = list(listeners or ())
        self._steps_per_run = 1

    def _set_steps_per_run(self, steps_per_run: int) -> None:
        self._steps_per_run = steps_per_run

    def begin(self) -> None:
        self._summary_writer = FileWriterCache.get(self._checkpoint_dir)
        self._global_step_tensor = global_step_read("CheckpointSaverHook")
        for listener in self._listeners:
            listener.begin()

    def after_create_session(self, session: Any, coord: Any) -> None:
        step = int(session.run(self._global_step_tensor))
        # Not in `begin`, since the hooks after this one may still add to the graph.
        record_graph(get_default_graph(), self._checkpoint_dir, self._summary_writer, self._get_saver())
        self._save(session, step)
        self._timer.update_last_triggered_step(step)

    def before_run(self, run_context: SessionRunContext) -> SessionRunArgs:
        return SessionRunArgs(self._global_step_tensor)

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        if not self._timer.should_trigger_for_step(int(run_values.results) + self._steps_per_run):
            return
        # The fetched value is from before the step; the saved variables are from after it.
        step = int(run_context.session.run(self._global_step_tensor))
        if self._timer.should_trigger_for_step(step):
            self._timer.update_last_triggered_step(step)
            if self._save(run_context.session, step):
                run_context.request_stop()

    def end(self, session: Any) -> None:
        last_step = int(session.run(self._global_step_tensor))
        if last_step != self._timer.last_triggered_step():
            self._save(session, last_step)
        for listener in self._listeners:
            listener.end(session, last_step)

    def _save(self, session: Any, step: int) -> bool:
        """Saves a checkpoint; returns whether a listener requested the end of training."""
        _log.info("Saving checkpoints for %d into %s.", step, self._save_path)
        for listener in self._listeners:
            listener.before_save(session, step)
        save_checkpoint(session, self._get_saver(), self._save_path, step, self._summary_writer)
        should_stop = False
        for listener in self._listeners:
            if listener.after_save(session, step):
                _log.info("A CheckpointSaverListener requested that training be stopped. listener: %s", listener)
                should_stop = True
        return should_stop

    def _get_saver(self) -> Any:
        if self._saver is not None:
            return self._saver
        if self._scaffold is not None:
            return self._scaffold.saver
        savers = get_collection(GraphKeys.SAVERS)
        if not savers:
            raise RuntimeError(
                f"No items in collection {GraphKeys.SAVERS}. Please add a saver to the collection or provide a saver or"
                " scaffold."
            )
        if len(savers) > 1:
            raise RuntimeError(
                f"More than one item in collection {GraphKeys.SAVERS}. Please indicate which one to use by passing it"
                " to the constructor."
            )
        self._saver = savers[0]
        return self._saver
