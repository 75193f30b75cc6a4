"""Hooks that stop or delay a training loop: at a step, at a NaN loss, until other workers have started."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from tfmini import errors, protos
from tfmini.core_types import TensorLike
from tfmini.export import export
from tfmini.graph.default_graph import get_default_graph
from tfmini.runtime.client.session import BaseSession
from tfmini.runtime.process import current_process
from tfmini.train.coordinator import Coordinator
from tfmini.train.global_steps import _get_or_create_global_step_read, get_global_step
from tfmini.train.session_run_hook import (
    HookTimer,
    NeverTriggerTimer,
    SecondOrStepTimer,
    SessionRunArgs,
    SessionRunContext,
    SessionRunHook,
    SessionRunValues,
)
from tfmini.train.summary_writer import FileWriter, FileWriterCache

_log = logging.getLogger("tensorflow")
# How often a waiting worker reads the global step, and the number of steps after which it logs again.
_POLL_S = 0.1
_LOG_EVERY_STEPS = 1000


def global_step_read(hook: str) -> Any:
    """The tensor with which a hook reads the global step.

    Raises:
      RuntimeError: when the graph has no global step; the message names ``hook``.
    """
    read = _get_or_create_global_step_read()
    if read is None:
        raise RuntimeError(
            f"Global step should be created to use {hook}: by `tf.train.get_or_create_global_step()`, and increased by"
            " `minimize(…, global_step=…)`."
        )
    return read


_WARNINGS_OF_A_STANDING_STEP = 5


class _StandingStep:
    """Warns of a global step that so many successive runs have not increased."""

    def __init__(self, runs: int) -> None:
        self._runs = runs
        self._last: int | None = None
        self._standing = 0  # successive runs that have read the value of the run before
        self._warnings = 0

    def note(self, step: int) -> None:
        """Takes the step that a run has read."""
        self._standing = self._standing + 1 if step == self._last else 0
        # Rarely, since it may be intended: with SyncReplicasOptimizer only the chief increments the step.
        if self._standing >= self._runs and self._warnings < _WARNINGS_OF_A_STANDING_STEP:
            self._warnings += 1
            _log.warning(
                "It seems that global step (tf.train.get_global_step) has not been increased. Current value (could be"
                " stable): %s vs previous value: %s. You could increase the global step by passing"
                " tf.train.get_global_step() to Optimizer.apply_gradients or Optimizer.minimize.",
                step, self._last,
            )  # fmt: skip
        self._last = step


@export("tf.estimator.StopAtStepHook", "tf.train.StopAtStepHook")
class StopAtStepHook(SessionRunHook):
    """Requests a stop when the global step reaches a value (``tf.train.StopAtStepHook``).

    Args:
      num_steps: number of steps after the creation of the first session; all workers' steps count.
      last_step: the value of the global step.

    Raises:
      ValueError: unless exactly one is given.
    """

    def __init__(self, num_steps: int | None = None, last_step: int | None = None) -> None:
        if num_steps is None and last_step is None:
            raise ValueError("One of num_steps or last_step must be specified.")
        if num_steps is not None and last_step is not None:
            raise ValueError("Only one of num_steps or last_step can be specified.")
        self._num_steps = num_steps
        self._last_step = last_step
        self._standing = _StandingStep(10)  # after a hook that counts steps, which warns at once

    def begin(self) -> None:
        self._global_step_tensor = global_step_read("StopAtStepHook")

    def after_create_session(self, session: BaseSession, coord: Coordinator) -> None:
        if self._last_step is None:
            assert self._num_steps is not None
            self._last_step = int(session.run(self._global_step_tensor)) + self._num_steps

    def before_run(self, run_context: SessionRunContext) -> SessionRunArgs:
        return SessionRunArgs(self._global_step_tensor)

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        assert self._last_step is not None
        self._standing.note(int(run_values.results))
        if run_values.results + 1 < self._last_step:
            return
        # The fetched value is from before the step, so read the step again.
        if run_context.session.run(self._global_step_tensor) >= self._last_step:
            run_context.request_stop()


@export("tf.estimator.NanLossDuringTrainingError", "tf.train.NanLossDuringTrainingError")
class NanLossDuringTrainingError(RuntimeError):
    """Raised when the loss is NaN (``tf.train.NanLossDuringTrainingError``)."""

    def __str__(self) -> str:
        return "NaN loss during training."


@export("tf.estimator.NanTensorHook", "tf.train.NanTensorHook")
class NanTensorHook(SessionRunHook):
    """Ends training when the loss is NaN (``tf.train.NanTensorHook``).

    Args:
      loss_tensor: the loss.
      fail_on_nan_loss: raise NanLossDuringTrainingError rather than request a stop.
    """

    def __init__(self, loss_tensor: TensorLike | str, fail_on_nan_loss: bool = True) -> None:
        self._loss_tensor = loss_tensor
        self._fail_on_nan_loss = fail_on_nan_loss

    def before_run(self, run_context: SessionRunContext) -> SessionRunArgs:
        return SessionRunArgs(self._loss_tensor)

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        if not np.isnan(run_values.results):
            return
        failure_message = "Model diverged with loss = NaN."
        if self._fail_on_nan_loss:
            _log.error(failure_message)
            raise NanLossDuringTrainingError
        _log.warning(failure_message)
        run_context.request_stop()


@export("tf.estimator.GlobalStepWaiterHook", "tf.train.GlobalStepWaiterHook")
class GlobalStepWaiterHook(SessionRunHook):
    """Delays the first run until the global step reaches a value (``tf.train.GlobalStepWaiterHook``).

    The wait also ends when a stop of the session's coordinator is requested.

    Args:
      wait_until_step: the global step to wait for; no wait if it is not positive.
    """

    def __init__(self, wait_until_step: int) -> None:
        self._wait_until_step = wait_until_step
        self._coord: Any = None

    def begin(self) -> None:
        self._worker_is_started = False
        self._global_step_tensor = global_step_read("_GlobalStepWaiterHook")

    def after_create_session(self, session: BaseSession, coord: Coordinator) -> None:
        self._coord = coord

    def before_run(self, run_context: SessionRunContext) -> None:
        if not self._worker_is_started:
            if self._wait_until_step > 0:
                self._wait(run_context.session)
            self._worker_is_started = True

    def _wait(self, session: BaseSession) -> None:
        _log.info("Waiting for global step %d before starting training.", self._wait_until_step)
        last_logged_step = 0
        while (step := int(session.run(self._global_step_tensor))) < self._wait_until_step:
            if step - last_logged_step > _LOG_EVERY_STEPS:
                _log.info(
                    "Waiting for global step %d before starting training. Current step is %d.",
                    self._wait_until_step, step,
                )  # fmt: skip
                last_logged_step = step
            if self._pause():
                return

    def _pause(self) -> bool:
        """Pauses until the next poll; returns True if a stop was requested."""
        if self._coord is not None:
            return bool(self._coord.wait_for_stop(_POLL_S))
        current_process().sleep(_POLL_S)
        return False


# ---- Hooks that feed every run (`FeedFnHook`) and that evaluate tensors at the end (`FinalOpsHook`) ----------------


@export("tf.estimator.FinalOpsHook", "tf.train.FinalOpsHook")
class FinalOpsHook(SessionRunHook):
    """Evaluates tensors at the end of the session (``tf.train.FinalOpsHook``).

    Args:
      final_ops: fetches, in any structure that ``Session.run`` accepts.
      final_ops_feed_dict: feeds for the fetches.
    """

    def __init__(self, final_ops: object, final_ops_feed_dict: Mapping[Any, Any] | None = None) -> None:
        self._final_ops = final_ops
        self._final_ops_feed_dict = final_ops_feed_dict
        self._final_ops_values: Any = None

    @property
    def final_ops_values(self) -> Any:
        """The values of the tensors; None before the end."""
        return self._final_ops_values

    def end(self, session: BaseSession) -> None:
        if self._final_ops is None:
            return
        try:
            self._final_ops_values = session.run(self._final_ops, feed_dict=self._final_ops_feed_dict)
        except (errors.OutOfRangeError, StopIteration):
            _log.warning(
                "The ops of a FinalOpsHook reached the end of the input: they have a dependency back to some input"
                " source, which is exhausted at the end of a session. Use ops that only read variables, such as a"
                " metric's value_op, not its update_op."
            )
            raise


@export("tf.estimator.FeedFnHook", "tf.train.FeedFnHook")
class FeedFnHook(SessionRunHook):
    """Feeds every run with the result of a function (``tf.train.FeedFnHook``).

    Args:
      feed_fn: () -> {tensor: value}.
    """

    def __init__(self, feed_fn: Callable[[], Any]) -> None:
        self.feed_fn = feed_fn

    def before_run(self, run_context: SessionRunContext) -> SessionRunArgs:
        return SessionRunArgs(fetches=None, feed_dict=self.feed_fn())


# ---- Hooks that log: values of tensors, steps per second -----------------------------------------------------------


def as_graph_element(obj: object) -> Any:
    """A hook's tensor, given as tensor or by its name in the default graph.

    Raises:
      ValueError: when the tensor is of another graph, or the name is that of an op with several outputs.
    """
    graph = get_default_graph()
    if not isinstance(obj, str):
        if getattr(obj, "graph", None) is not graph:
            raise ValueError(f"Passed {obj} should have graph attribute that is equal to current graph {graph}.")
        return obj
    if ":" in obj:
        return graph.as_graph_element(obj)
    element = graph.as_graph_element(obj + ":0")
    if len(element.op.outputs) > 1:
        raise ValueError(f"Name {obj} is ambiguous, as this `Operation` has multiple outputs (at least 2).")
    return element


@export("tf.estimator.LoggingTensorHook", "tf.train.LoggingTensorHook")
class LoggingTensorHook(SessionRunHook):
    """Logs values of tensors periodically, and at the end (``tf.train.LoggingTensorHook``).

    Args:
      tensors: tag -> tensor or name, or an iterable of tensors or names, which serve as tags.
      every_n_iter: the period in runs of this session.
      every_n_secs: the period in seconds.
      at_end: also log at the end of the session.
      formatter: a function from {tag: value} to the text; default: "tag = value, ... (seconds sec)".

    Raises:
      ValueError: unless exactly one period, or only ``at_end``, is given.
    """

    def __init__(
        self,
        tensors: Mapping[str, Any] | Iterable[Any],
        every_n_iter: int | None = None,
        every_n_secs: float | None = None,
        at_end: bool = False,
        formatter: Callable[[dict[Any, Any]], str] | None = None,
    ) -> None:
        only_at_end = at_end and every_n_iter is None and every_n_secs is None
        if not only_at_end and (every_n_iter is None) == (every_n_secs is None):
            raise ValueError("either at_end and/or exactly one of every_n_iter and every_n_secs must be provided.")
        if every_n_iter is not None and every_n_iter <= 0:
            raise ValueError(f"invalid every_n_iter={every_n_iter}.")
        if isinstance(tensors, Mapping):
            self._tag_order: list[Any] = sorted(tensors)
            self._tensors = dict(tensors)
        else:
            self._tag_order = list(tensors)
            self._tensors = {item: item for item in self._tag_order}
        self._formatter = formatter
        self._timer: HookTimer = NeverTriggerTimer()
        if not only_at_end:
            self._timer = SecondOrStepTimer(every_secs=every_n_secs, every_steps=every_n_iter)
        self._log_at_end = at_end

    def begin(self) -> None:
        self._timer.reset()
        self._iter_count = 0
        self._current_tensors = {tag: as_graph_element(tensor) for tag, tensor in self._tensors.items()}

    def before_run(self, run_context: SessionRunContext) -> SessionRunArgs | None:
        self._should_trigger = self._timer.should_trigger_for_step(self._iter_count)
        return SessionRunArgs(self._current_tensors) if self._should_trigger else None

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        if self._should_trigger:
            self._log_tensors(run_values.results)
        self._iter_count += 1

    def end(self, session: BaseSession) -> None:
        if self._log_at_end:
            self._log_tensors(session.run(self._current_tensors))

    def _log_tensors(self, values: dict[Any, Any]) -> None:
        elapsed_secs, _ = self._timer.update_last_triggered_step(self._iter_count)
        if self._formatter is not None:
            _log.info(self._formatter(values))
            return
        with np.printoptions(suppress=True):
            text = ", ".join(f"{tag} = {values[tag]!s}" for tag in self._tag_order)
        if elapsed_secs is not None:
            text = f"{text} ({elapsed_secs:.3f} sec)"
        _log.info("%s", text)


def write_steps_per_sec(
    writer: FileWriter | None, tag: str, steps: int, seconds: float, global_step: int, log: bool = True
) -> None:
    """Writes the steps per second as a summary, if there is a writer, and to the log."""
    steps_per_sec = steps / seconds if seconds > 0 else float("inf")
    if writer is not None:
        value = protos.Summary.Value(tag=tag, simple_value=steps_per_sec)
        writer.add_summary(protos.Summary(value=[value]), global_step)
    if log:
        _log.info("%s: %g", tag, steps_per_sec)


@export("tf.estimator.StepCounterHook", "tf.train.StepCounterHook")
class StepCounterHook(SessionRunHook):
    """Logs steps per second and writes them as summary ``global_step/sec`` (``tf.train.StepCounterHook``).

    Args:
      every_n_steps, every_n_secs: the period; exactly one must be given.
      output_dir: directory of the summaries.
      summary_writer: a writer in place of ``output_dir``.

    Raises:
      ValueError: unless exactly one period is given.
    """

    def __init__(
        self,
        every_n_steps: int | None = 100,
        every_n_secs: float | None = None,
        output_dir: str | None = None,
        summary_writer: FileWriter | None = None,
    ) -> None:
        if (every_n_steps is None) == (every_n_secs is None):
            raise ValueError("exactly one of every_n_steps and every_n_secs should be provided.")
        self._timer = SecondOrStepTimer(every_steps=every_n_steps, every_secs=every_n_secs)
        self._summary_writer = summary_writer
        self._output_dir = output_dir
        # A run may read the step after its own increment, and the next one before it: then both read the same value.
        self._standing = _StandingStep(2)
        self._steps_per_run = 1

    def _set_steps_per_run(self, steps_per_run: int) -> None:
        self._steps_per_run = steps_per_run

    def begin(self) -> None:
        if self._summary_writer is None and self._output_dir:
            self._summary_writer = FileWriterCache.get(self._output_dir)
        self._global_step_tensor = global_step_read("StepCounterHook")
        self._summary_tag = get_global_step().op.name + "/sec"

    def before_run(self, run_context: SessionRunContext) -> SessionRunArgs:
        return SessionRunArgs(self._global_step_tensor)

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        before = int(run_values.results)
        if self._timer.should_trigger_for_step(before + self._steps_per_run):
            # The fetched value is from before the step, so read the step again.
            step = int(run_context.session.run(self._global_step_tensor))
            if self._timer.should_trigger_for_step(step):
                seconds, steps = self._timer.update_last_triggered_step(step)
                if seconds is not None and steps is not None:
                    self._log_and_record(steps, seconds, step)
        self._standing.note(before)

    def _log_and_record(self, elapsed_steps: int, elapsed_time: float, global_step: int) -> None:
        write_steps_per_sec(self._summary_writer, self._summary_tag, elapsed_steps, elapsed_time, global_step)
