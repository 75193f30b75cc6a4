"""``tf.estimator.train_and_evaluate``: what this task of a cluster, or this process alone, does."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from tfmini import protos
from tfmini.estimator.estimator import Estimator
from tfmini.estimator.evaluation import check_positive, checked_hooks, checked_listeners
from tfmini.estimator.exporters import Exporter
from tfmini.estimator.run_config import TaskType
from tfmini.export import export
from tfmini.graph.names import GraphKeys
from tfmini.runtime.client.session import BaseSession
from tfmini.runtime.process import address_of_target, current_process, server_at
from tfmini.runtime.server import Server
from tfmini.train.saving_hooks import CheckpointSaverListener
from tfmini.train.session_run_hook import SecondOrStepTimer

# Workers start one after the other, so that the first updates are not all made from the initial values.
_DELAY_PER_WORKER_S, _MAX_DELAY_S = 5, 60


@export("tf.estimator.train_and_evaluate")
def train_and_evaluate(estimator: Estimator, train_spec: TrainSpec, eval_spec: EvalSpec | None) -> Any:
    """Trains and evaluates, alone or as the task that TF_CONFIG names.

    Alone, it evaluates after checkpoints, and returns (metrics, results of the exporters). In a cluster

    - a ps serves, without end;
    - the chief trains and saves; a worker trains;
    - the evaluator evaluates new checkpoints until one has reached the last step;
    - a master trains, saves, and evaluates between.

    Raises:
      ValueError: when TF_CONFIG has a second evaluator, or a task that is none of these.
      TypeError: when an argument has another type.
    """
    _check(estimator, train_spec, eval_spec)
    config = estimator.config
    if config.task_type == TaskType.EVALUATOR and config.task_id > 0:
        raise ValueError(
            "For distributed training, there can only be one `evaluator` task (with task id 0). Given task id"
            f" {config.task_id}"
        )
    if not config.cluster_spec and config.task_type != TaskType.EVALUATOR:
        return _alone(estimator, train_spec, _some(eval_spec))
    run: Any = _chief if config.is_chief and config.task_type == TaskType.WORKER else _TASKS.get(config.task_type)
    if run is None:
        raise ValueError(
            f"Task type {config.task_type} is not supported. Supported task types are {', '.join(_TASKS)}."
        )
    return run(estimator, train_spec, eval_spec)


def _check(estimator: Estimator, train_spec: Any, eval_spec: Any) -> None:
    if not isinstance(estimator, Estimator):
        raise TypeError(f"`estimator` must have type `tf.estimator.Estimator`. Got: {type(estimator)}")
    if not isinstance(train_spec, TrainSpec):
        raise TypeError(f"`train_spec` must have type `tf.estimator.TrainSpec`. Got: {type(train_spec)}")
    evaluates = not estimator.config.cluster_spec or estimator.config.task_type == TaskType.MASTER
    if not isinstance(eval_spec, EvalSpec) and (eval_spec is not None or evaluates):
        raise TypeError(f"`eval_spec` must have type `tf.estimator.EvalSpec`. Got: {type(eval_spec)}")


def _some(spec: EvalSpec | None) -> EvalSpec:
    assert spec is not None  # `_check` has refused it
    return spec


def _train(estimator: Estimator, spec: TrainSpec, listeners: tuple[Any, ...] = ()) -> None:
    estimator.train(
        spec.input_fn,
        hooks=spec.hooks,
        max_steps=spec.max_steps,
        saving_listeners=listeners,
    )


def _alone(estimator: Estimator, train_spec: TrainSpec, eval_spec: EvalSpec) -> tuple[Any, list[Any]]:
    _log.info("Running training and evaluation locally (non-distributed).")
    listener = EvaluateNewCheckpoints(CheckpointEvaluator(estimator, eval_spec, train_spec.max_steps))
    _train(estimator, train_spec, (*train_spec.saving_listeners, listener))
    return listener.metrics, listener.exports


def _chief(estimator: Estimator, train_spec: TrainSpec, eval_spec: EvalSpec) -> None:
    start_server(estimator)
    _train(estimator, train_spec, train_spec.saving_listeners)


def _master(estimator: Estimator, train_spec: TrainSpec, eval_spec: EvalSpec) -> None:
    start_server(estimator)
    listener = EvaluateNewCheckpoints(CheckpointEvaluator(estimator, eval_spec, train_spec.max_steps))
    _train(estimator, train_spec, (*train_spec.saving_listeners, listener))


def _worker(estimator: Estimator, train_spec: TrainSpec, eval_spec: EvalSpec) -> None:
    config = estimator.config
    start_server(estimator)  # before the delay: other tasks wait for this server
    in_step = config.train_distribute is not None and config.train_distribute.num_replicas_in_sync > 1
    longest = 0 if in_step else config.experimental_max_worker_delay_secs
    delay = min(_MAX_DELAY_S if longest is None else int(longest), (config.task_id + 1) * _DELAY_PER_WORKER_S)
    if delay > 0:
        _log.info("Waiting %d secs before starting training.", delay)
        current_process().sleep(delay)
    _train(estimator, train_spec)


def _ps(estimator: Estimator, train_spec: TrainSpec, eval_spec: EvalSpec) -> None:
    server = start_server(estimator)
    assert server is not None  # a cluster with a ps has a chief as well
    server.join()


def _evaluator(estimator: Estimator, train_spec: TrainSpec, eval_spec: EvalSpec) -> None:
    evaluate_until_end(CheckpointEvaluator(estimator, eval_spec, train_spec.max_steps))


_TASKS = {
    TaskType.CHIEF: _chief,
    TaskType.EVALUATOR: _evaluator,
    TaskType.MASTER: _master,
    TaskType.PS: _ps,
    TaskType.WORKER: _worker,
}


def start_server(estimator: Any) -> Server | None:
    """The server of this task; None where the cluster is a single task, which needs none."""
    config = estimator.config
    if not config.master:
        _log.info("Skip starting Tensorflow server as there is only one node in the cluster.")
        return None
    running: Server | None = server_at(address_of_target(config.master))
    if running is not None:  # of an earlier training
        return running
    _log.info("Start Tensorflow server.")
    return Server(
        config.cluster_spec,
        job_name=config.task_type,
        task_index=config.task_id,
        protocol=config.protocol,
        config=protos.ConfigProto(log_device_placement=False),
    )


# ---- training specs ----------------------------------------
# ``tf.estimator.TrainSpec`` and ``tf.estimator.EvalSpec``: what `train_and_evaluate` trains and evaluates with.


class _TrainSpec(NamedTuple):
    input_fn: Callable[..., Any]
    max_steps: int | None
    hooks: tuple[Any, ...]
    saving_listeners: tuple[Any, ...]


@export("tf.estimator.TrainSpec")
class TrainSpec(_TrainSpec):
    """How to train (``tf.estimator.TrainSpec``).

    Args:
      input_fn: returns (features, labels), or a dataset of such pairs.
      max_steps: the global step at which training ends; None trains until the input ends.
      hooks: hooks of all tasks that train.
      saving_listeners: are told of each checkpoint.

    Raises:
      ValueError: when ``max_steps`` is not positive.
      TypeError: when the input function is not callable, or a hook is none.
    """

    __slots__ = ()

    def __new__(
        cls,
        input_fn: Callable[..., Any],
        max_steps: int | None = None,
        hooks: Iterable[Any] | None = None,
        saving_listeners: Iterable[Any] | None = None,
    ) -> TrainSpec:
        _check_input_fn(input_fn)
        check_positive("max_steps", max_steps)
        return super().__new__(
            cls, input_fn, max_steps, tuple(checked_hooks(hooks)), tuple(checked_listeners(saving_listeners))
        )


class _EvalSpec(NamedTuple):
    input_fn: Callable[..., Any]
    steps: int | None
    name: str | None
    hooks: tuple[Any, ...]
    exporters: tuple[Exporter, ...]
    start_delay_secs: float
    throttle_secs: float


@export("tf.estimator.EvalSpec")
class EvalSpec(_EvalSpec):
    """How to evaluate (``tf.estimator.EvalSpec``).

    Args:
      input_fn: returns (features, labels), or a dataset of such pairs.
      steps: number of batches of an evaluation; None reads the input to its end.
      name: distinguishes the summaries of several data sets.
      hooks: hooks of the evaluation.
      exporters: one or several `Exporter`, called after each evaluation.
      start_delay_secs: seconds that the evaluator of a cluster waits before its first evaluation.
      throttle_secs: at least so many seconds lie between the starts of two evaluations.

    Raises:
      ValueError: when a number is negative, or two exporters have the same name.
      TypeError: when something has another type.
    """

    __slots__ = ()

    def __new__(
        cls,
        input_fn: Callable[..., Any],
        steps: int | None = 100,
        name: str | None = None,
        hooks: Iterable[Any] | None = None,
        exporters: Any = None,
        start_delay_secs: float = 120,
        throttle_secs: float = 600,
    ) -> EvalSpec:
        _check_input_fn(input_fn)
        check_positive("steps", steps)
        if name is not None and not isinstance(name, str):
            raise TypeError(f"`name` must be string, given: {name}")
        for label, seconds in (("start_delay_secs", start_delay_secs), ("throttle_secs", throttle_secs)):
            if seconds < 0:
                raise ValueError(f"Must specify {label} >= 0, given: {seconds}")
        found = _checked_exporters(exporters)
        return super().__new__(
            cls, input_fn, steps, name, tuple(checked_hooks(hooks)), found, start_delay_secs, throttle_secs
        )


def _check_input_fn(input_fn: Callable[..., Any]) -> None:
    if not callable(input_fn):
        raise TypeError(f"`input_fn` must be callable, given: {input_fn}")


def _checked_exporters(exporters: Any) -> tuple[Exporter, ...]:
    if not exporters:
        return ()
    found = (exporters,) if isinstance(exporters, Exporter) else tuple(exporters)
    names = set()
    for exporter in found:
        if not isinstance(exporter, Exporter):
            raise TypeError(f"`exporters` must be an Exporter, an iterable of Exporter, or `None`, found {exporter}.")
        if not exporter.name:
            raise ValueError(f"An Exporter cannot have a name that is `None` or empty: {type(exporter)}.")
        if exporter.name in names:
            raise ValueError(f"`exporters` must have unique names. Such a name cannot be `{exporter.name}` twice.")
        names.add(exporter.name)
    return found


# ---- Evaluates and exports new checkpoints: between training steps, or in a task of its own ------------------------

_log = logging.getLogger("tensorflow")
_POLL_S = 1.0  # with throttle_secs=0, the directory is read once a second
_WARNING_PERIOD_S = 600.0


class CheckpointEvaluator:
    """Evaluates the latest checkpoint, if it is new, and calls the exporters.

    Args:
      estimator: has the model.
      spec: how to evaluate.
      max_steps: the step with which training ends; None: it is not known.
    """

    def __init__(self, estimator: Estimator, spec: EvalSpec, max_steps: int | None) -> None:
        self._estimator = estimator
        self.spec = spec
        self._max_steps = max_steps
        self._last: str | None = None
        self._exported_finally = False
        self._warned = 0.0

    def evaluate(self) -> tuple[dict[str, Any], list[Any]] | None:
        """(metrics, results of the exporters); None if there is no new checkpoint."""
        path = self._estimator.latest_checkpoint()
        if path is None:
            self._warn("Estimator is not trained yet. Will start an evaluation when a checkpoint is ready.")
            return None
        if path == self._last:
            self._warn("No new checkpoint ready for evaluation. Skip the current evaluation pass.")
            return None
        spec = self.spec
        metrics = self._estimator.evaluate(
            spec.input_fn, steps=spec.steps, name=spec.name, checkpoint_path=path, hooks=spec.hooks
        )
        self._last = path
        is_final = self.is_final(metrics)
        exports = self._export(path, metrics, is_final)
        if is_final:
            _log.info("Calling exporter with the `is_the_final_export=True`.")
        return metrics, exports

    def is_final(self, metrics: dict[str, Any]) -> bool:
        """Whether training ends with the checkpoint of these metrics."""
        return bool(self._max_steps) and int(metrics[GraphKeys.GLOBAL_STEP]) >= (self._max_steps or 0)

    def _export(self, path: str, metrics: dict[str, Any], is_final: bool) -> list[Any]:
        if self._exported_finally:  # training may end with two checkpoints beyond its last step
            return []
        self._exported_finally = is_final
        base = os.path.join(self._estimator.model_dir, "export")
        return [
            exporter.export(self._estimator, os.path.join(base, exporter.name), path, metrics, is_final)
            for exporter in self.spec.exporters
        ]

    def _warn(self, text: str) -> None:
        now = current_process().now()
        if not self._warned or now - self._warned > _WARNING_PERIOD_S:  # an evaluator asks every few seconds
            self._warned = now
            _log.warning("%s", text)


class EvaluateNewCheckpoints(CheckpointSaverListener):
    """Evaluates after a checkpoint, unless the last evaluation was short ago, and after the last one.

    Attributes:
      metrics: those of the latest evaluation; None without any.
      exports: the results of its exporters.
    """

    def __init__(self, evaluator: CheckpointEvaluator) -> None:
        self._evaluator = evaluator
        self.metrics: dict[str, Any] | None = None
        self.exports: list[Any] = []

    def begin(self) -> None:
        self._timer = SecondOrStepTimer(every_secs=self._evaluator.spec.throttle_secs)
        self._is_first = True

    def after_save(self, session: BaseSession, global_step_value: int) -> None:
        if self._is_first:  # the checkpoint before the first step
            self._is_first = False
        elif self._timer.should_trigger_for_step(global_step_value):
            self._evaluate(global_step_value)
        else:
            _log.info(
                "Skip the current checkpoint eval due to throttle secs (%d secs).", self._evaluator.spec.throttle_secs
            )

    def end(self, session: BaseSession, global_step_value: int) -> None:
        if global_step_value != self._timer.last_triggered_step():
            self._evaluate(global_step_value)

    def _evaluate(self, step: int) -> None:
        self._timer.update_last_triggered_step(step)
        found = self._evaluator.evaluate()
        if found is None:
            raise RuntimeError(
                "There was no new checkpoint after the training: another process may have removed it, or written one"
                " to the same directory."
            )
        self.metrics, self.exports = found


def evaluate_until_end(evaluator: CheckpointEvaluator) -> None:
    """Evaluates each new checkpoint until training has ended; without ``max_steps``, without end."""
    process, spec = current_process(), evaluator.spec
    if spec.start_delay_secs:
        _log.info("Waiting %f secs before starting eval.", spec.start_delay_secs)
        process.sleep(spec.start_delay_secs)
    while True:
        begin = process.now()
        found = evaluator.evaluate()
        if found is not None and evaluator.is_final(found[0]):
            step = found[0][GraphKeys.GLOBAL_STEP]
            _log.info("Exiting evaluation, global_step=%s is the last one of the training.", step)
            return
        rest = max(begin + spec.throttle_secs - process.now(), 0 if found else _POLL_S)
        if rest > 0:
            if found is not None:
                _log.info("Waiting %f secs before starting next eval run.", rest)
            process.sleep(rest)
