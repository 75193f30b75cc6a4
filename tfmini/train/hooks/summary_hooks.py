"""Hooks that write summaries (`SummarySaverHook`) and profiles (`ProfilerHook`)."""

from __future__ import annotations

import logging
import os
from typing import Any

from tfmini import protos
from tfmini.export import export
from tfmini.train.hooks.session_run_hook import SessionRunArgs, SessionRunContext, SessionRunHook, SessionRunValues
from tfmini.train.hooks.stopping_hooks import global_step_read
from tfmini.train.hooks.timers import SecondOrStepTimer
from tfmini.train.summaries.summary_writer import FileWriterCache
from tfmini.train.summaries.timeline import Timeline

_log = logging.getLogger("tensorflow")


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
        summary_writer: Any = None,
        scaffold: Any = None,
        summary_op: Any = None,
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

    def end(self, session: Any = None) -> None:
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

    def _save(self, step: int, run_metadata: Any) -> None:
        path = self._output_file.format(step)
        _log.info("Saving timeline for %d into '%s'.", step, path)
        timeline = Timeline(run_metadata.step_stats)
        with open(path, "w") as file:
            file.write(timeline.generate_chrome_trace_format(self._show_dataflow, self._show_memory))
        self._file_writer.add_run_metadata(run_metadata, f"step_{step}")
