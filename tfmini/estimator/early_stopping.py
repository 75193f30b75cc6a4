"""Hooks that end a training by what its evaluations say (``tf.estimator.experimental.stop_if_no_decrease_hook``)."""

from __future__ import annotations

import glob
import logging
import operator
import os
from collections.abc import Callable
from typing import Any

from tfmini import dtypes
from tfmini.estimator.estimator import Estimator
from tfmini.export import export
from tfmini.graph.names import GraphKeys
from tfmini.ops.variables.assignment import assign
from tfmini.ops.variables.initializers import Constant
from tfmini.ops.variables.scope import AUTO_REUSE, get_variable, variable_scope
from tfmini.train.hooks import global_step_read
from tfmini.train.session_run_hook import (
    SecondOrStepTimer,
    SessionRunArgs,
    SessionRunContext,
    SessionRunHook,
    SessionRunValues,
)
from tfmini.train.summary_writer import summary_iterator

_log = logging.getLogger("tensorflow")
_Better = Callable[[Any, Any], bool]


@export("tf.contrib.estimator.make_early_stopping_hook", "tf.estimator.experimental.make_early_stopping_hook")
def make_early_stopping_hook(
    estimator: Estimator,
    should_stop_fn: Callable[[], bool],
    run_every_secs: float | None = 60,
    run_every_steps: int | None = None,
) -> SessionRunHook:
    """A hook that ends the training of all tasks when a function says so.

    Args:
      estimator: its config says whether this task is the chief, which calls the function.
      should_stop_fn: returns whether to stop.
      run_every_secs, run_every_steps: the period; exactly one.

    Raises:
      TypeError: when the estimator is none.
      ValueError: unless exactly one period is given.
    """
    if not isinstance(estimator, Estimator):
        raise TypeError(f"`estimator` must have type `tf.estimator.Estimator`. Got: {type(estimator)}")
    if run_every_secs is not None and run_every_steps is not None:
        raise ValueError("Only one of `run_every_secs` and `run_every_steps` must be set.")
    if estimator.config.is_chief:
        return _StopOnPredicate(should_stop_fn, run_every_secs, run_every_steps)
    return _StopWithChief()


def _stop_variable() -> Any:
    """A variable through which the chief tells the other tasks."""
    with variable_scope("signal_early_stopping", reuse=AUTO_REUSE):
        return get_variable(
            "STOP", shape=[], dtype=dtypes.bool, initializer=Constant(False), trainable=False,
            collections=[GraphKeys.GLOBAL_VARIABLES],
        )  # fmt: skip


class _StopOnPredicate(SessionRunHook):
    def __init__(self, should_stop_fn: Callable[[], bool], secs: float | None, steps: int | None) -> None:
        if not callable(should_stop_fn):
            raise TypeError("`should_stop_fn` must be callable.")
        self._should_stop_fn = should_stop_fn
        self._timer = SecondOrStepTimer(every_secs=secs, every_steps=steps)

    def begin(self) -> None:
        self._global_step = global_step_read("make_early_stopping_hook")
        self._stop = assign(_stop_variable(), True)

    def before_run(self, run_context: SessionRunContext) -> SessionRunArgs:
        return SessionRunArgs(self._global_step)

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        step = int(run_values.results)
        if self._timer.should_trigger_for_step(step):
            self._timer.update_last_triggered_step(step)
            if self._should_stop_fn():
                _log.info("Requesting early stopping at global step %d", step)
                run_context.session.run(self._stop)
                run_context.request_stop()


class _StopWithChief(SessionRunHook):
    def begin(self) -> None:
        self._variable = _stop_variable()

    def before_run(self, run_context: SessionRunContext) -> SessionRunArgs:
        return SessionRunArgs(self._variable)

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        if run_values.results:
            _log.info("Early stopping requested, suspending run.")
            run_context.request_stop()


def _threshold_hook(
    estimator: Estimator, metric_name: str, threshold: float, eval_dir: str | None, min_steps: int,
    run_every_secs: float | None, run_every_steps: int | None, crossed: _Better, words: str,
) -> SessionRunHook:  # fmt: skip
    directory = eval_dir or estimator.eval_dir()

    def should_stop() -> bool:
        for step, metrics in read_eval_metrics(directory).items():
            if step >= min_steps and crossed(metrics[metric_name], threshold):
                _log.info(
                    'At step %s, metric "%s" has value %s which is %s the configured threshold (%s) for early'
                    " stopping.",
                    step, metric_name, metrics[metric_name], words, threshold,
                )  # fmt: skip
                return True
        return False

    return make_early_stopping_hook(estimator, should_stop, run_every_secs, run_every_steps)


def _improvement_hook(
    estimator: Estimator, metric_name: str, patience: int, eval_dir: str | None, min_steps: int,
    run_every_secs: float | None, run_every_steps: int | None, better: _Better, words: str,
) -> SessionRunHook:  # fmt: skip
    directory = eval_dir or estimator.eval_dir()

    def should_stop() -> bool:
        best: float | None = None
        best_step = 0
        for step, metrics in read_eval_metrics(directory).items():
            if step < min_steps:
                continue
            value = metrics[metric_name]
            if best is None or better(value, best):
                best, best_step = value, step
            if step - best_step >= patience:
                _log.info(
                    'No %s in metric "%s" for %s steps, which is greater than or equal to max steps (%s) configured for'
                    " early stopping.",
                    words, metric_name, step - best_step, patience,
                )  # fmt: skip
                return True
        return False

    return make_early_stopping_hook(estimator, should_stop, run_every_secs, run_every_steps)


@export("tf.contrib.estimator.stop_if_higher_hook", "tf.estimator.experimental.stop_if_higher_hook")
def stop_if_higher_hook(
    estimator: Estimator, metric_name: str, threshold: float, eval_dir: str | None = None, min_steps: int = 0,
    run_every_secs: float | None = 60, run_every_steps: int | None = None,
) -> SessionRunHook:  # fmt: skip
    """A hook that stops when a metric of an evaluation is above a threshold.

    Args:
      estimator: the estimator that trains.
      metric_name: such as ``"accuracy"``.
      threshold: the threshold.
      eval_dir: the directory of the evaluations' summaries; default: the estimator's `eval_dir`.
      min_steps: evaluations of earlier steps do not count.
      run_every_secs, run_every_steps: how often the summaries are read.
    """
    period = (run_every_secs, run_every_steps)
    return _threshold_hook(estimator, metric_name, threshold, eval_dir, min_steps, *period, operator.gt, "higher than")


@export("tf.contrib.estimator.stop_if_lower_hook", "tf.estimator.experimental.stop_if_lower_hook")
def stop_if_lower_hook(
    estimator: Estimator, metric_name: str, threshold: float, eval_dir: str | None = None, min_steps: int = 0,
    run_every_secs: float | None = 60, run_every_steps: int | None = None,
) -> SessionRunHook:  # fmt: skip
    """A hook that stops when a metric is below a threshold; see `stop_if_higher_hook`."""
    period = (run_every_secs, run_every_steps)
    return _threshold_hook(estimator, metric_name, threshold, eval_dir, min_steps, *period, operator.lt, "lower than")


@export("tf.contrib.estimator.stop_if_no_increase_hook", "tf.estimator.experimental.stop_if_no_increase_hook")
def stop_if_no_increase_hook(
    estimator: Estimator, metric_name: str, max_steps_without_increase: int, eval_dir: str | None = None,
    min_steps: int = 0, run_every_secs: float | None = 60, run_every_steps: int | None = None,
) -> SessionRunHook:  # fmt: skip
    """A hook that stops when a metric has not increased for so many global steps; see `stop_if_higher_hook`."""
    steps, period = max_steps_without_increase, (run_every_secs, run_every_steps)
    return _improvement_hook(estimator, metric_name, steps, eval_dir, min_steps, *period, operator.gt, "increase")


@export("tf.contrib.estimator.stop_if_no_decrease_hook", "tf.estimator.experimental.stop_if_no_decrease_hook")
def stop_if_no_decrease_hook(
    estimator: Estimator, metric_name: str, max_steps_without_decrease: int, eval_dir: str | None = None,
    min_steps: int = 0, run_every_secs: float | None = 60, run_every_steps: int | None = None,
) -> SessionRunHook:  # fmt: skip
    """A hook that stops when a metric has not decreased for so many global steps; see `stop_if_higher_hook`."""
    steps, period = max_steps_without_decrease, (run_every_secs, run_every_steps)
    return _improvement_hook(estimator, metric_name, steps, eval_dir, min_steps, *period, operator.lt, "decrease")


# ---- The metrics of earlier evaluations, read from their event files -----------------------------------------------


def evaluations(pattern: str) -> dict[int, dict[str, float]]:
    """Global step -> metrics that are numbers, of the event files whose paths match a pattern."""
    found: dict[int, dict[str, float]] = {}
    for path in sorted(glob.glob(pattern)):
        for event in summary_iterator(path):
            numbers = {v.tag: v.simple_value for v in event.summary.value if v.HasField("simple_value")}
            if numbers:
                found.setdefault(event.step, {}).update(numbers)
    return dict(sorted(found.items()))


@export("tf.contrib.estimator.read_eval_metrics")
def read_eval_metrics(eval_dir: str) -> dict[int, dict[str, float]]:
    """`evaluations` of a directory (``tf.contrib.estimator.read_eval_metrics``)."""
    return evaluations(os.path.join(eval_dir, "*.tfevents.*"))
