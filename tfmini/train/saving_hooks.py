"""``tf.train.CheckpointSaverHook``: saves checkpoints periodically and notifies listeners."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from typing import Any

from tfmini import protos
from tfmini.data.iterator import GLOBAL_ITERATORS
from tfmini.export import export
from tfmini.graph.default_graph import get_default_graph
from tfmini.graph.graph import Graph
from tfmini.graph.names import GraphKeys
from tfmini.graph.scoping import get_collection
from tfmini.protos import RunMetadata
from tfmini.runtime.client.session import BaseSession
from tfmini.train.checkpointing.graph_files import export_meta_graph, latest_checkpoint, write_training_graph
from tfmini.train.checkpointing.saver import Saver
from tfmini.train.checkpointing.saver_builder import IteratorSaveable
from tfmini.train.coordinator import Coordinator
from tfmini.train.global_steps import global_step
from tfmini.train.hooks import global_step_read
from tfmini.train.session_run_hook import (
    SecondOrStepTimer,
    SessionRunArgs,
    SessionRunContext,
    SessionRunHook,
    SessionRunValues,
)
from tfmini.train.summary_writer import FileWriter, FileWriterCache
from tfmini.train.timeline import Timeline

_log = logging.getLogger("tensorflow")


def record_graph(graph: Graph, directory: str | None, writer: FileWriter | None, saver: Saver) -> None:
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


def save_checkpoint(
    session: BaseSession, saver: Saver, path: str | None, step: Any, writer: FileWriter | None, adds: bool = False
) -> None:
    """Saves a checkpoint, and notes it in an event file if there is one.

    Args:
      step: the value of the global step, or the tensor.
      adds: whether tables that grow add their changes to the latest checkpoint.
    """
    save = saver.incremental_save if adds else saver.save
    save(session, path, global_step=step)
    if writer:
        value = step if isinstance(step, int) else global_step(session, step)
        note = protos.SessionLog(status=protos.SessionLog.CHECKPOINT, checkpoint_path=path)
        writer.add_session_log(note, value)


@export("tf.estimator.CheckpointSaverListener", "tf.train.CheckpointSaverListener")
class CheckpointSaverListener:
    """Is notified of every save of a `CheckpointSaverHook` (``tf.train.CheckpointSaverListener``)."""

    def begin(self) -> None:
        """Called before the graph is finalized."""

    def before_save(self, session: BaseSession, global_step_value: int) -> None:
        """Called before a checkpoint is written."""

    def after_save(self, session: BaseSession, global_step_value: int) -> bool | None:
        """Called after a checkpoint was written; returns True to end the training."""

    def end(self, session: BaseSession, global_step_value: int) -> None:
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
      incremental_save_secs: seconds between checkpoints for which tables that grow save only what has changed, between
        the others (DeepRec's name; see `Saver.incremental_save`).

    Raises:
      ValueError: when not exactly one period is given, or both saver and scaffold are.
    """

    def __init__(
        self,
        checkpoint_dir: str,
        save_secs: float | None = None,
        save_steps: int | None = None,
        saver: Saver | None = None,
        checkpoint_basename: str = "model.ckpt",
        scaffold: Any = None,
        listeners: Sequence[CheckpointSaverListener] | None = None,
        incremental_save_secs: float | None = None,
    ) -> None:
        _log.info("Create CheckpointSaverHook.")
        if saver is not None and scaffold is not None:
            raise ValueError("You cannot provide both saver and scaffold.")
        self._saver = saver
        self._checkpoint_dir = checkpoint_dir
        self._save_path = os.path.join(checkpoint_dir, checkpoint_basename)
        self._scaffold = scaffold
        self._timer = SecondOrStepTimer(every_secs=save_secs, every_steps=save_steps)
        between = incremental_save_secs
        self._between = None if between is None else SecondOrStepTimer(every_secs=between)
        self._listeners = list(listeners or ())
        self._steps_per_run = 1

    def _set_steps_per_run(self, steps_per_run: int) -> None:
        self._steps_per_run = steps_per_run

    def begin(self) -> None:
        self._summary_writer = FileWriterCache.get(self._checkpoint_dir)
        self._global_step_tensor = global_step_read("CheckpointSaverHook")
        for listener in self._listeners:
            listener.begin()

    def after_create_session(self, session: BaseSession, coord: Coordinator) -> None:
        step = int(session.run(self._global_step_tensor))
        # Not in `begin`, since the hooks after this one may still add to the graph.
        record_graph(get_default_graph(), self._checkpoint_dir, self._summary_writer, self._get_saver())
        if self._between is not None:
            self._get_saver().track_changes()
            self._between.update_last_triggered_step(step)
        self.save_now(session, step)

    def save_now(self, session: BaseSession, step: int | None = None) -> None:
        """Saves a checkpoint, from which on the next period counts."""
        step = int(session.run(self._global_step_tensor)) if step is None else step
        self._save(session, step)
        self._timer.update_last_triggered_step(step)

    def before_run(self, run_context: SessionRunContext) -> SessionRunArgs:
        return SessionRunArgs(self._global_step_tensor)

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        timers = [timer for timer in (self._timer, self._between) if timer is not None]
        if not any(t.should_trigger_for_step(int(run_values.results) + self._steps_per_run) for t in timers):
            return
        # The fetched value is from before the step; the saved variables are from after it.
        step = int(run_context.session.run(self._global_step_tensor))
        is_whole = self._timer.should_trigger_for_step(step)
        if is_whole or self._between is not None and self._between.should_trigger_for_step(step):
            for timer in timers if is_whole else timers[1:]:
                timer.update_last_triggered_step(step)
            if self._save(run_context.session, step, adds=not is_whole):
                run_context.request_stop()

    def end(self, session: BaseSession) -> None:
        last_step = int(session.run(self._global_step_tensor))
        if last_step != self._timer.last_triggered_step():
            self._save(session, last_step)
        for listener in self._listeners:
            listener.end(session, last_step)

    def _save(self, session: BaseSession, step: int, adds: bool = False) -> bool:
        """Saves a checkpoint; returns whether a listener requested the end of training."""
        _log.info("Saving checkpoints for %d into %s.", step, self._save_path)
        for listener in self._listeners:
            listener.before_save(session, step)
        save_checkpoint(session, self._get_saver(), self._save_path, step, self._summary_writer, adds)
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


@export("tf.contrib.tpu.AsyncCheckpointSaverHook")
class AsyncCheckpointSaverHook(CheckpointSaverHook):
    """A `CheckpointSaverHook` (``tf.contrib.tpu.AsyncCheckpointSaverHook``).

    TensorFlow's saves in a thread of its own; here the checkpoint is written before the next step.
    """


class _InputSaver(Saver):
    """A Saver of iterators, with a state file of its own."""

    def __init__(self, iterators: list[Any], latest_filename: str) -> None:
        super().__init__([IteratorSaveable(iterator) for iterator in iterators])
        self._latest_filename = latest_filename

    def save(self, *args: Any, **kwargs: Any) -> str | None:
        return super().save(*args, **{"latest_filename": self._latest_filename, **kwargs})


@export("tf.contrib.data.CheckpointInputPipelineHook", "tf.data.experimental.CheckpointInputPipelineHook")
class CheckpointInputPipelineHook(SessionRunHook):
    """Saves the position of an estimator's iterators beside its checkpoints, and goes on from there.

    The files are ``input.ckpt-<step>`` in the model's directory (``tf.data.experimental.CheckpointInputPipelineHook``);
    `make_saveable_from_iterator` says what they hold. The period is that of the estimator's checkpoints.

    Raises:
      ValueError: (at the beginning of a training) the graph has no iterator.
    """

    def __init__(self, estimator: Any) -> None:
        config, prefix = estimator.config, "input"
        if config.num_worker_replicas > 1:
            prefix += f"_{config.task_type}_{config.task_id}"
        self._saving = CheckpointSaverHook(
            estimator.model_dir, config.save_checkpoints_secs, config.save_checkpoints_steps, None, f"{prefix}.ckpt"
        )
        self._directory, self._latest_filename, self._is_first = estimator.model_dir, f"checkpoint_{prefix}", True

    def begin(self) -> None:
        if self._saving._saver is None:
            self._saving._saver = _InputSaver(get_collection(GLOBAL_ITERATORS), self._latest_filename)
        self._saving.begin()

    def before_run(self, run_context: SessionRunContext) -> SessionRunArgs:
        # Not in `after_create_session`: other hooks initialize the iterators there.
        if self._is_first:
            latest = latest_checkpoint(self._directory, self._latest_filename)
            if latest is None:
                self._saving.save_now(run_context.session)
            else:
                self._saving._get_saver().restore(run_context.session, latest)
        self._is_first = False
        return self._saving.before_run(run_context)

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        self._saving.after_run(run_context, run_values)

    def end(self, session: BaseSession) -> None:
        self._saving.end(session)


# ---- Hooks that write summaries (`SummarySaverHook`) and profiles (`ProfilerHook`) ---------------------------------


@export("tf.estimator.SummarySaverHook", "tf.train.SummarySaverHook")
class SummarySaverHook(SessionRunHook):
    """Writes summaries periodically (``tf.train.SummarySaverHook``).

    Args:
      save_steps, save_secs: the period; exactly one must be given.
      output_dir: directory of the events.
      summary_writer: a writer in place of ``output_dir``.
      scaffold: provides the summary op.
      summary_op: a string tensor of a serialized Summary, or a list of such tensors, in place of ``scaffold``.

    Raises:
      ValueError: unless exactly one period and one of scaffold and summary_op are given.
    """

    def __init__(
        self,
        save_steps: int | None = None,
        save_secs: float | None = None,
        output_dir: str | None = None,
        summary_writer: FileWriter | None = None,
        scaffold: Any = None,
        summary_op: object = None,
    ) -> None:
        if (scaffold is None) == (summary_op is None):
            raise ValueError("Exactly one of scaffold or summary_op must be provided.")
        self._summary_op = summary_op
        self._summary_writer = summary_writer
        self._output_dir = output_dir
        self._scaffold = scaffold
        self._timer = SecondOrStepTimer(every_secs=save_secs, every_steps=save_steps)

    def begin(self) -> None:
        if self._summary_writer is None and self._output_dir:
            self._summary_writer = FileWriterCache.get(self._output_dir)
        self._next_step: int | None = None
        self._global_step_tensor = global_step_read("SummarySaverHook")

    def before_run(self, run_context: SessionRunContext) -> SessionRunArgs:
        self._request_summary = self._next_step is None or self._timer.should_trigger_for_step(self._next_step)
        requests = {"global_step": self._global_step_tensor}
        if self._request_summary:
            summaries = self._get_summary_op()
            if summaries is not None:
                requests["summary"] = summaries
        return SessionRunArgs(requests)

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        if not self._summary_writer:
            return
        step = int(run_values.results["global_step"]) + 1
        if self._request_summary:
            step = int(run_context.session.run(self._global_step_tensor))
        if self._next_step is None:
            self._summary_writer.add_session_log(protos.SessionLog(status=protos.SessionLog.START), step)
        if self._request_summary:
            self._timer.update_last_triggered_step(step)
            for summary in run_values.results.get("summary", ()):
                self._summary_writer.add_summary(summary, step)
        self._next_step = step + 1

    def end(self, session: BaseSession | None = None) -> None:
        if self._summary_writer:
            self._summary_writer.flush()

    def _get_summary_op(self) -> list[Any] | None:
        found = self._summary_op if self._summary_op is not None else self._scaffold.summary_op
        if found is None or isinstance(found, list):
            return found
        return [found]


@export("tf.estimator.ProfilerHook", "tf.train.ProfilerHook")
class ProfilerHook(SessionRunHook):
    """Traces a run periodically, as ``timeline-<step>.json`` for ``chrome://tracing`` (``tf.train.ProfilerHook``).

    Args:
      save_steps, save_secs: the period; exactly one must be given. The first trace comes after one period.
      output_dir: directory of the files and events.
      show_dataflow: draw arrows from producers to consumers of tensors.
      show_memory: draw the tensors' sizes.

    Raises:
      ValueError: unless exactly one period is given.
    """

    def __init__(
        self,
        save_steps: int | None = None,
        save_secs: float | None = None,
        output_dir: str = "",
        show_dataflow: bool = True,
        show_memory: bool = False,
    ) -> None:
        self._timer = SecondOrStepTimer(every_secs=save_secs, every_steps=save_steps)
        self._output_file = os.path.join(output_dir, "timeline-{}.json")
        self._file_writer = FileWriterCache.get(output_dir or os.curdir)
        self._show_dataflow = show_dataflow
        self._show_memory = show_memory

    def begin(self) -> None:
        self._next_step: int | None = None
        self._global_step_tensor = global_step_read("ProfilerHook")

    def before_run(self, run_context: SessionRunContext) -> SessionRunArgs:
        self._request_summary = self._next_step is not None and self._timer.should_trigger_for_step(self._next_step)
        options = None
        if self._request_summary:
            options = protos.RunOptions(trace_level=protos.RunOptions.FULL_TRACE)
        return SessionRunArgs({"global_step": self._global_step_tensor}, options=options)

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        before = int(run_values.results["global_step"])
        if self._next_step is None:
            self._timer.update_last_triggered_step(before)
        step = before + 1
        if self._request_summary:
            step = int(run_context.session.run(self._global_step_tensor))
            self._timer.update_last_triggered_step(step)
            self._save(step, run_values.run_metadata)
        self._next_step = step + 1

    def _save(self, step: int, run_metadata: RunMetadata) -> None:
        path = self._output_file.format(step)
        _log.info("Saving timeline for %d into '%s'.", step, path)
        timeline = Timeline(run_metadata.step_stats)
        with open(path, "w") as file:
            file.write(timeline.generate_chrome_trace_format(self._show_dataflow, self._show_memory))
        self._file_writer.add_run_metadata(run_metadata, f"step_{step}")
