"""``tf.contrib.learn.Experiment``, its runner and its settings: training and evaluation before `train_and_evaluate`."""

from __future__ import annotations

import logging
import math
import os
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from tfmini.cluster import tf_config_object
from tfmini.estimator.cluster_training import start_server
from tfmini.estimator.contrib_learn import Data, InputFn, LearnEstimator
from tfmini.estimator.estimator import Estimator
from tfmini.estimator.evaluation import step_of_checkpoint
from tfmini.estimator.exporters import LatestExporter
from tfmini.estimator.input_functions import argument_names, known_arguments
from tfmini.estimator.run_config import RunConfig, TaskType, task_of_contrib_learn
from tfmini.export import export
from tfmini.protos import ConfigProto
from tfmini.runtime.process import current_process
from tfmini.train.checkpointing.graph_files import latest_checkpoint
from tfmini.train.global_steps import get_global_step
from tfmini.train.hooks import GlobalStepWaiterHook
from tfmini.train.session_run_hook import SessionRunArgs, SessionRunContext, SessionRunHook, SessionRunValues

_log = logging.getLogger("tensorflow")
_MAX_DELAY_S, _DELAY_PER_WORKER_S = 60, 5
_STEPS_OF_A_ROUND = 1000
Metrics = Mapping[str, Any] | None


@export("tf.contrib.learn.RunConfig")
class LearnRunConfig(RunConfig):
    """The settings of ``tf.contrib.learn``'s estimators and experiments (``tf.contrib.learn.RunConfig``).

    Args:
      master, evaluation_master: targets of sessions in place of those that TF_CONFIG says.
      num_cores, log_device_placement, gpu_memory_fraction: fields of the session's ConfigProto.
      save_checkpoints_secs: 0 means the default, 600 seconds, if there are no ``save_checkpoints_steps``.
      Others: see `tf.estimator.RunConfig`.
    """

    _task_of = staticmethod(task_of_contrib_learn)

    def __init__(
        self, master: str | None = None, num_cores: int = 0, log_device_placement: bool = False,
        gpu_memory_fraction: float = 1, tf_random_seed: int | None = None, save_summary_steps: int = 100,
        save_checkpoints_secs: float | None = 0, save_checkpoints_steps: int | None = None,
        keep_checkpoint_max: int = 5, keep_checkpoint_every_n_hours: float = 10000, log_step_count_steps: int = 100,
        protocol: str | None = None, evaluation_master: str = "", model_dir: str | None = None,
        session_config: Any = None, session_creation_timeout_secs: float = 7200,
    ) -> None:  # fmt: skip
        secs = save_checkpoints_secs or (None if save_checkpoints_steps or save_checkpoints_secs is None else 600)
        super().__init__(
            model_dir, tf_random_seed, save_summary_steps, save_checkpoints_steps, secs, session_config,
            keep_checkpoint_max, keep_checkpoint_every_n_hours, log_step_count_steps, protocol=protocol,
            session_creation_timeout_secs=session_creation_timeout_secs,
        )  # fmt: skip
        task = self._environment
        self._environment = task._replace(
            master=task.master if master is None else master,
            evaluation_master=evaluation_master or task.evaluation_master,
        )
        self.environment = tf_config_object().get("environment", "local")
        self.tf_config = session_config or ConfigProto(
            log_device_placement=log_device_placement,
            inter_op_parallelism_threads=num_cores,
            intra_op_parallelism_threads=num_cores,
        )
        self.tf_config.gpu_options.per_process_gpu_memory_fraction = gpu_memory_fraction

    def get_task_id(self) -> int:
        """The index of this task."""
        return int(self.task_id)


class _ExportStrategy(NamedTuple):
    name: str
    export_fn: Callable[..., Any]
    strip_default_attrs: bool | None = None


@export("tf.contrib.learn.ExportStrategy")
class ExportStrategy(_ExportStrategy):
    """How an experiment exports its model (``tf.contrib.learn.ExportStrategy``).

    Args:
      name: the folder of the exports, below ``export`` of the model's.
      export_fn: a function of (estimator, directory), which may also take ``checkpoint_path``, ``eval_result`` and
        ``strip_default_attrs`` by these names.
      strip_default_attrs: without effect here.
    """

    __slots__ = ()

    def export(
        self, estimator: Any, export_path: str, checkpoint_path: str | None = None, eval_result: Metrics = None
    ) -> Any:
        """Exports the model; returns what the function returned.

        Raises:
          ValueError: the function takes ``eval_result`` but no ``checkpoint_path``.
        """
        names = argument_names(self.export_fn)
        if "eval_result" in names and "checkpoint_path" not in names:
            raise ValueError("An export_fn accepting eval_result must also accept checkpoint_path.")
        more = {
            "checkpoint_path": checkpoint_path, "eval_result": eval_result,
            "strip_default_attrs": self.strip_default_attrs,
        }  # fmt: skip
        return self.export_fn(estimator, export_path, **known_arguments(self.export_fn, more))


@export(
    "tf.contrib.learn.make_export_strategy",
    "tensorflow.contrib.learn.python.learn.utils.saved_model_export_utils.make_export_strategy",
)
def make_export_strategy(
    serving_input_fn: Callable[[], Any],
    default_output_alternative_key: str | None = None,
    assets_extra: dict[str, str] | None = None,
    as_text: bool = False,
    exports_to_keep: int = 5,
    strip_default_attrs: bool | None = None,
) -> ExportStrategy:
    """A strategy that writes SavedModels of a `tf.estimator.Estimator` (``tf.contrib.learn.make_export_strategy``).

    Args:
      serving_input_fn: returns a `ServingInputReceiver`.
      default_output_alternative_key: only None is supported.
      assets_extra, as_text, exports_to_keep: see `LatestExporter`.

    Raises:
      ValueError: for a key, which only estimators of ``tf.contrib.learn`` take.
    """
    if default_output_alternative_key is not None:
        raise ValueError("default_output_alternative_key is not supported in core Estimator.")
    exporter = LatestExporter("Servo", serving_input_fn, assets_extra, as_text, exports_to_keep)

    def export_fn(
        estimator: Estimator, directory: str, checkpoint_path: str | None = None, eval_result: Metrics = None
    ) -> Any:
        path = checkpoint_path or estimator.latest_checkpoint() or ""
        return exporter.export(estimator, directory, path, eval_result or {}, True)

    return ExportStrategy("Servo", export_fn, strip_default_attrs)


@export("tf.contrib.learn.monitors.ValidationMonitor")
class ValidationMonitor(SessionRunHook):
    """Evaluates new checkpoints while the model is trained (``tf.contrib.learn.monitors.ValidationMonitor``).

    Args:
      x, y, input_fn, batch_size, metrics, hooks, name: see `LearnEstimator.evaluate`; ``eval_steps`` is its steps.
      every_n_steps: steps between evaluations, if there is a new checkpoint.
      early_stopping_rounds: training ends so many steps after the best value of ``early_stopping_metric``.
      early_stopping_metric_minimize: whether the smallest value is the best.
      check_interval_secs: no new checkpoint is looked for before so many seconds.
    """

    def __init__(
        self, x: Data = None, y: Data = None, input_fn: InputFn | None = None, batch_size: int | None = None,
        eval_steps: int | None = None, every_n_steps: int = 100, metrics: Mapping[Any, Any] | None = None,
        hooks: Iterable[Any] | None = None,
        early_stopping_rounds: int | None = None, early_stopping_metric: str = "loss",
        early_stopping_metric_minimize: bool = True, name: str | None = None, check_interval_secs: float | None = 5,
    ) -> None:  # fmt: skip
        if x is None and input_fn is None:
            raise ValueError("Either x or input_fn should be provided.")
        self._arrays = {} if x is None else {"x": x, "y": y, "batch_size": batch_size}
        self._more = {"input_fn": input_fn, "steps": eval_steps, "hooks": hooks, "name": name}
        self._metrics, self._every, self._interval = metrics, every_n_steps, check_interval_secs or 0
        self._rounds, self._metric, self._least = early_stopping_rounds, early_stopping_metric, (
            early_stopping_metric_minimize
        )  # fmt: skip
        self.best_step: int | None = None
        self.best_value: Any = None
        self.best_metrics: dict[str, Any] | None = None
        self.early_stopped = False
        self._estimator: Any = None
        self._evaluated: str | None = None
        self._looked, self._last = float("-inf"), 0

    def set_estimator(self, estimator: Estimator | LearnEstimator) -> None:
        """Says whose model is evaluated; `LearnEstimator.fit` and `Experiment` do so."""
        self._estimator = estimator

    def begin(self) -> None:
        self._step = get_global_step()
        self._last = step_of_checkpoint(self._estimator.model_dir)

    def before_run(self, run_context: SessionRunContext) -> SessionRunArgs:
        return SessionRunArgs(self._step)

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        step = int(run_values.results)
        if step - self._last >= self._every and self._is_new():
            self._last = step
            self._validate(step)
            if self.early_stopped:
                run_context.request_stop()

    def _is_new(self) -> bool:
        """Whether there is a checkpoint that was not evaluated yet."""
        if time.monotonic() - self._looked < self._interval:
            return False
        self._looked = time.monotonic()
        found, before = latest_checkpoint(self._estimator.model_dir), self._evaluated
        self._evaluated = found
        return found not in (None, before)

    def _validate(self, step: int) -> None:
        found = evaluated(self._estimator, self._metrics, **self._arrays, **self._more)
        _log.info("Validation (step %d): %s", step, ", ".join(f"{k} = {v}" for k, v in sorted(found.items())))
        if self._rounds is None:
            return
        value = found[self._metric]
        if self.best_value is None or (value < self.best_value if self._least else value > self.best_value):
            self.best_value, self.best_step, self.best_metrics = value, step, found
        elif step - (self.best_step or 0) >= self._rounds:
            _log.info("Stopping. Best step: %s with %s = %s.", self.best_step, self._metric, self.best_value)
            self.early_stopped = True


@export("tf.contrib.learn.monitors.replace_monitors_with_hooks")
def replace_monitors_with_hooks(
    monitors_or_hooks: Iterable[SessionRunHook] | None, estimator: Estimator | LearnEstimator
) -> list[SessionRunHook]:
    """Tells monitors whose model is trained, and returns them and the hooks as a list.

    Args:
      monitors_or_hooks: hooks and `ValidationMonitor`, which are hooks here; None is no hook.
      estimator: whose model is trained.

    Raises:
      TypeError: for a monitor of another class, which is no hook.
    """
    hooks = list(monitors_or_hooks or ())
    for hook in hooks:
        if not isinstance(hook, SessionRunHook):
            raise TypeError(f"{hook!r} is no hook; write a subclass of tf.train.SessionRunHook.")
        if isinstance(hook, ValidationMonitor):
            hook.set_estimator(estimator)
    return hooks


def evaluated(estimator: Estimator | LearnEstimator, metrics: Mapping[Any, Any] | None, **given: Any) -> dict[str, Any]:
    """The metrics of an estimator of ``tf.contrib.learn``, or of a `tf.estimator.Estimator`."""
    if isinstance(estimator, Estimator):
        return estimator.evaluate(**given)
    return estimator.evaluate(metrics=metrics, **given)


@export("tf.contrib.learn.Experiment")
class Experiment:
    """An estimator with its data and its numbers of steps (``tf.contrib.learn.Experiment``).

    Args:
      estimator: one of ``tf.contrib.learn``, or a `tf.estimator.Estimator`.
      train_input_fn, eval_input_fn: return (features, labels).
      eval_metrics: further metrics, for estimators of ``tf.contrib.learn``.
      train_steps: the global step at which training ends; None: with the input.
      eval_steps: batches of an evaluation; None: to the end of the input.
      train_monitors, eval_hooks: hooks of the sessions.
      local_eval_frequency: ``min_eval_frequency`` of `local_run`.
      eval_delay_secs: seconds before an `evaluate` begins.
      min_eval_frequency: steps between evaluations of new checkpoints in `train_and_evaluate`; 0: only at the end.
      delay_workers_by_global_step: whether workers begin at a global step, not at a time.
      export_strategies: `ExportStrategy` objects, or one.
      train_steps_per_iteration: steps of a round of `continuous_train_and_eval`.
      saving_listeners: are told of each checkpoint.
      check_interval_secs: seconds between looks for a new checkpoint.
      continuous_eval_throttle_secs, checkpoint_and_export: without effect here.

    Raises:
      ValueError: for metrics with a `tf.estimator.Estimator`, for listeners without one, and for other estimators.
    """

    def __init__(
        self, estimator: Any, train_input_fn: Callable[[], Any], eval_input_fn: Callable[[], Any],
        eval_metrics: Mapping[Any, Any] | None = None, train_steps: int | None = None, eval_steps: int | None = 100,
        train_monitors: Iterable[Any] | None = None, eval_hooks: Iterable[Any] | None = None,
        local_eval_frequency: int | None = None, eval_delay_secs: float = 120,
        continuous_eval_throttle_secs: float = 60, min_eval_frequency: int | None = None,
        delay_workers_by_global_step: bool = False, export_strategies: Any = None,
        train_steps_per_iteration: int | None = None, checkpoint_and_export: bool = False,
        saving_listeners: Iterable[Any] | None = None, check_interval_secs: float = 5,
    ) -> None:  # fmt: skip
        if isinstance(estimator, Estimator) and eval_metrics is not None:
            raise ValueError("`eval_metrics` must be `None` with `tf.estimator.Estimator`: use eval_metric_ops.")
        if not isinstance(estimator, (Estimator, LearnEstimator)):
            raise ValueError("`estimator` must be a `tf.contrib.learn.Estimator` or a `tf.estimator.Estimator`.")
        if isinstance(estimator, LearnEstimator) and saving_listeners is not None:
            raise ValueError("`saving_listeners` must be `None` with `tf.contrib.learn.Estimator`.")
        self.estimator, self.train_steps, self.eval_steps = estimator, train_steps, eval_steps
        self.eval_metrics = eval_metrics
        self._train_fn, self._eval_fn = train_input_fn, eval_input_fn
        self._train_hooks, self._eval_hooks = list(train_monitors or ()), list(eval_hooks or ())
        self._local_every, self._every = local_eval_frequency, 1 if min_eval_frequency is None else min_eval_frequency
        self._delay, self._interval, self._by_step = eval_delay_secs, check_interval_secs, delay_workers_by_global_step
        self._listeners, self._round = saving_listeners, train_steps_per_iteration
        one = isinstance(export_strategies, ExportStrategy)
        self._exports: list[ExportStrategy] = [export_strategies] if one else list(export_strategies or ())

    def extend_train_hooks(self, additional_hooks: Iterable[Any]) -> None:
        """Adds hooks of training."""
        self._train_hooks.extend(additional_hooks)

    def train(self, delay_secs: float | None = None) -> Any:
        """Trains, as one task of a cluster; returns the estimator.

        Args:
          delay_secs: seconds before training begins; default: 5 for each worker before this one, at most 60.
        """
        config, hooks = self.estimator.config, list(self._train_hooks)
        if config.cluster_spec and config.master:
            start_server(self.estimator)
        if delay_secs is None and self._by_step:
            delay_secs = 0
            hooks.append(GlobalStepWaiterHook(_first_step(config.task_id)))
        delay = min(_MAX_DELAY_S, config.task_id * _DELAY_PER_WORKER_S) if delay_secs is None else delay_secs
        if delay > 0:
            _log.info("Waiting %d secs before starting training.", delay)
            current_process().sleep(delay)
        return self._train(hooks, max_steps=self.train_steps)

    def evaluate(self, delay_secs: float | None = None, name: str | None = None) -> dict[str, Any]:
        """The metrics of the evaluation data, after a delay in seconds."""
        delay = self._delay if delay_secs is None else delay_secs
        if delay:
            _log.info("Waiting %d secs before starting eval.", delay)
            current_process().sleep(delay)
        return self._evaluate(name)

    def train_and_evaluate(self) -> tuple[dict[str, Any], list[Any]]:
        """Trains, and evaluates new checkpoints meanwhile and the last one afterwards; returns (metrics, exports)."""
        return self._train_and_evaluate(self._every)

    def local_run(self) -> tuple[dict[str, Any], list[Any]]:
        """`train_and_evaluate` with ``local_eval_frequency``."""
        return self._train_and_evaluate(self._local_every)

    def continuous_train_and_eval(self, continuous_eval_predicate_fn: Callable[..., bool] | None = None) -> Any:
        """Trains and evaluates in turns, until ``train_steps`` or while the predicate of the metrics holds."""
        steps = self._round or (int(self.train_steps / 10) if self.train_steps else _STEPS_OF_A_ROUND)
        found, exports = None, None
        while continuous_eval_predicate_fn is None or continuous_eval_predicate_fn(found):
            if self.train_steps and found and found["global_step"] >= self.train_steps:
                break
            self._train(self._train_hooks, steps=steps)
            found = self._evaluate("one_pass")
            exports = self._export(found)
        return found, exports

    def test(self) -> dict[str, Any]:
        """Trains, evaluates and exports with one step."""
        self._train(self._train_hooks, steps=1)
        found = self._evaluate("one_pass", 1)
        self._export(found)
        return found

    def run_std_server(self) -> None:
        """Serves as one task of the cluster, for ever."""
        server = start_server(self.estimator)
        if server is None:
            raise ValueError("Could not start server; Parameter server type requires a cluster in TF_CONFIG.")
        server.join()

    def _train_and_evaluate(self, every: int | None) -> tuple[dict[str, Any], list[Any]]:
        before = list(self._train_hooks)
        if every:
            self._train_hooks.append(ValidationMonitor(
                input_fn=self._eval_fn, eval_steps=self.eval_steps, every_n_steps=every, metrics=self.eval_metrics,
                hooks=self._eval_hooks, check_interval_secs=self._interval,
            ))  # fmt: skip
        try:
            self.train(0)
        finally:
            self._train_hooks = before
        found = self._evaluate(None)
        return found, self._export(found)

    def _train(self, hooks: list[Any], **steps: Any) -> Any:
        for hook in hooks:
            if isinstance(hook, ValidationMonitor):
                hook.set_estimator(self.estimator)
        if isinstance(self.estimator, Estimator):
            return self.estimator.train(self._train_fn, hooks, saving_listeners=self._listeners, **steps)
        return self.estimator.fit(input_fn=self._train_fn, monitors=hooks, **steps)

    def _evaluate(self, name: str | None, steps: int | None = None) -> dict[str, Any]:
        given = {"input_fn": self._eval_fn, "steps": steps or self.eval_steps, "hooks": self._eval_hooks}
        return evaluated(self.estimator, self.eval_metrics, name=name, **given)

    def _export(self, found: dict[str, Any]) -> list[Any]:
        base = os.path.join(self.estimator.model_dir, "export")
        return [s.export(self.estimator, os.path.join(base, s.name), None, found) for s in self._exports]


def _first_step(task: int) -> int:
    """The global step before which a worker waits: 8000 times the logarithm of its place."""
    return int(8000 * math.log(task + 1))


@export("tf.contrib.learn.learn_runner.run", "tensorflow.contrib.learn.python.learn.learn_runner.run")
def run_experiment(
    experiment_fn: Callable[..., Experiment],
    output_dir: str | None = None,
    schedule: str | None = None,
    run_config: RunConfig | None = None,
    hparams: Any = None,
) -> Any:
    """Makes an experiment and calls one of its methods (``tf.contrib.learn.learn_runner.run``).

    Args:
      experiment_fn: a function of ``run_config`` and ``hparams``, or of ``output_dir``.
      schedule: the method's name; default: that of the task: train_and_evaluate, train or run_std_server.
      output_dir, run_config, hparams: the function's arguments.

    Raises:
      ValueError: when neither or both of the first two are given, or there is no such method.
      TypeError: when the function makes no experiment.
    """
    if (output_dir is None) == (run_config is None):
        raise ValueError("Give one of `output_dir` and `run_config`.")
    if run_config is not None and not run_config.model_dir:
        raise ValueError("Must specify a model directory `model_dir` in `run_config`.")
    made = experiment_fn(output_dir) if run_config is None else experiment_fn(run_config=run_config, hparams=hparams)
    if not isinstance(made, Experiment):
        raise TypeError(f"Experiment builder did not return an Experiment instance, got {type(made)} instead.")
    method = getattr(made, schedule or schedule_of(run_config or made.estimator.config), None)
    if method is None:
        raise ValueError(f"Schedule references non-existent task {schedule}")
    return method()


def schedule_of(config: RunConfig) -> str:
    """What a task does: all alone and the master train and evaluate, a ps serves, workers train."""
    if len(list(config.cluster_spec.tasks())) < 2:
        return "train_and_evaluate"
    of_task = {TaskType.MASTER: "train_and_evaluate", TaskType.PS: "run_std_server", TaskType.WORKER: "train"}
    if config.task_type not in of_task:
        raise ValueError(f"No default schedule for task type: {config.task_type}")
    return of_task[config.task_type]
