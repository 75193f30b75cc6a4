"""``tf.estimator.train_and_evaluate``: what this task of a cluster, or this process alone, does."""

from __future__ import annotations

import logging
from typing import Any

from tfmini import protos
from tfmini.estimator.checkpoint_evaluation import CheckpointEvaluator, EvaluateNewCheckpoints, evaluate_until_end
from tfmini.estimator.estimator import Estimator
from tfmini.estimator.task_environment import TaskType
from tfmini.estimator.training_specs import EvalSpec, TrainSpec
from tfmini.export import export
from tfmini.runtime.process import current_process
from tfmini.runtime.server import Server

_log = logging.getLogger("tensorflow")
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
    run: Any = _TASKS.get(config.task_type)
    if run is None:
        raise ValueError(
            f"Task type {config.task_type} is not supported. Supported task types are {', '.join(_TASKS)}."
        )
    return run(estimator, train_spec, eval_spec)


def _check(estimator: Any, train_spec: Any, eval_spec: Any) -> None:
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
    _start_server(estimator)
    _train(estimator, train_spec, train_spec.saving_listeners)


def _master(estimator: Estimator, train_spec: TrainSpec, eval_spec: EvalSpec) -> None:
    _start_server(estimator)
    listener = EvaluateNewCheckpoints(CheckpointEvaluator(estimator, eval_spec, train_spec.max_steps))
    _train(estimator, train_spec, (*train_spec.saving_listeners, listener))


def _worker(estimator: Estimator, train_spec: TrainSpec, eval_spec: EvalSpec) -> None:
    config = estimator.config
    _start_server(estimator)  # before the delay: other tasks wait for this server
    longest = config.experimental_max_worker_delay_secs
    delay = min(_MAX_DELAY_S if longest is None else int(longest), (config.task_id + 1) * _DELAY_PER_WORKER_S)
    if delay > 0:
        _log.info("Waiting %d secs before starting training.", delay)
        current_process().sleep(delay)
    _train(estimator, train_spec)


def _ps(estimator: Estimator, train_spec: TrainSpec, eval_spec: EvalSpec) -> None:
    server = _start_server(estimator)
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


def _start_server(estimator: Estimator) -> Server | None:
    """The server of this task; None where the cluster is a single task, which needs none."""
    config = estimator.config
    if not config.master:
        _log.info("Skip starting Tensorflow server as there is only one node in the cluster.")
        return None
    _log.info("Start Tensorflow server.")
    return Server(
        config.cluster_spec,
        job_name=config.task_type,
        task_index=config.task_id,
        protocol=config.protocol,
        config=protos.ConfigProto(log_device_placement=False),
    )
