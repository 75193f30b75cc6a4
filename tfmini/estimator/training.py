"""The training of an `Estimator`: its graph, its hooks and its session."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tfmini.estimator.modes import ModeKeys
from tfmini.estimator.task_environment import TaskType
from tfmini.graph.graph import Graph
from tfmini.graph.keys import GraphKeys
from tfmini.graph.scoping import add_to_collection, get_collection, set_random_seed
from tfmini.ops.summary.functions import scalar
from tfmini.train.checkpointing.reader import load_variable
from tfmini.train.checkpointing.saver import Saver
from tfmini.train.checkpointing.state_file import latest_checkpoint
from tfmini.train.global_steps import _get_or_create_global_step_read, create_global_step, get_global_step
from tfmini.train.hooks.checkpoint_hook import CheckpointSaverHook
from tfmini.train.hooks.logging_hooks import LoggingTensorHook, StepCounterHook
from tfmini.train.hooks.stopping_hooks import NanTensorHook
from tfmini.train.hooks.summary_hooks import SummarySaverHook
from tfmini.train.sessions.monitored_training import MonitoredTrainingSession

if TYPE_CHECKING:
    from tfmini.estimator.estimator import Estimator
    from tfmini.estimator.model_spec import EstimatorSpec

_log = logging.getLogger("tensorflow")


def step_of_checkpoint(directory: str) -> int:
    """The global step of the latest checkpoint; 0 without one."""
    found = latest_checkpoint(directory)
    return 0 if found is None else int(load_variable(found, GraphKeys.GLOBAL_STEP))


def train(estimator: Estimator, input_fn: Callable[..., Any], hooks: list[Any], listeners: list[Any]) -> Any:
    """Trains until a hook or the end of the input stops it; returns the last loss, None without a step."""
    with Graph().as_default() as graph, graph.device(estimator._device_fn):
        set_random_seed(estimator.config.tf_random_seed)
        create_global_step(graph)
        _get_or_create_global_step_read(graph)
        features, labels, input_hooks = estimator._inputs(input_fn, ModeKeys.TRAIN)
        spec = estimator._call_model_fn(features, labels, ModeKeys.TRAIN, estimator.config)
        return _run(estimator, spec, [*input_hooks, *hooks], listeners)


def _run(estimator: Estimator, spec: EstimatorSpec, hooks: list[Any], listeners: list[Any]) -> Any:
    if estimator._warm_start_settings:
        estimator._warm_start_settings.apply()
    if not any(summary.op.name == "loss" for summary in get_collection(GraphKeys.SUMMARIES)):
        scalar("loss", spec.loss)
    add_to_collection(GraphKeys.LOSSES, spec.loss)
    worker_hooks = [*hooks, NanTensorHook(spec.loss), *_loss_log(estimator, spec), *spec.training_hooks]
    if not spec.scaffold.saver and not get_collection(GraphKeys.SAVERS):
        add_to_collection(GraphKeys.SAVERS, _saver(estimator.config))
    chief_hooks = _saving_hooks(estimator, spec, worker_hooks, listeners)
    worker_hooks += _hooks_beside_master(estimator, spec)
    return _loop(estimator, spec, worker_hooks, [*chief_hooks, *spec.training_chief_hooks])


def _loop(estimator: Estimator, spec: EstimatorSpec, hooks: list[Any], chief_hooks: list[Any]) -> Any:
    config, loss, done = estimator.config, None, False
    leads = _has_master(config)
    with MonitoredTrainingSession(
        master=config.master,
        is_chief=config.is_chief,
        checkpoint_dir=estimator.model_dir,
        scaffold=spec.scaffold,
        hooks=hooks,
        chief_only_hooks=chief_hooks,
        save_checkpoint_secs=0,  # a hook of its own saves
        save_summaries_steps=0 if leads else config.save_summary_steps,
        config=estimator._session_config,
        max_wait_secs=config.session_creation_timeout_secs,
        log_step_count_steps=0 if leads else config.log_step_count_steps,
    ) as session:
        while not session.should_stop():
            _, loss = session.run([spec.train_op, spec.loss])
            done = True
    if not done:
        _log.warning("Training with estimator made no steps. Perhaps input is empty or misspecified.")
    return loss


def _loss_log(estimator: Estimator, spec: EstimatorSpec) -> list[Any]:
    every = estimator.config.log_step_count_steps
    if every is None:
        return []
    return [LoggingTensorHook({"loss": spec.loss, "step": get_global_step()}, every_n_iter=every)]


def _saver(config: Any) -> Saver:
    return Saver(
        sharded=True,
        max_to_keep=config.keep_checkpoint_max,
        keep_checkpoint_every_n_hours=config.keep_checkpoint_every_n_hours,
        defer_build=True,
        save_relative_paths=True,
    )


def _saving_hooks(estimator: Estimator, spec: EstimatorSpec, hooks: list[Any], listeners: list[Any]) -> list[Any]:
    """The chief's hook that saves, unless another hook does so; the listeners are told by the one that saves."""
    saving = [hook for hook in (*hooks, *spec.training_chief_hooks) if isinstance(hook, CheckpointSaverHook)]
    config, made = estimator.config, []
    if not saving and (config.save_checkpoints_secs or config.save_checkpoints_steps):
        secs, steps = config.save_checkpoints_secs, config.save_checkpoints_steps
        made = saving = [CheckpointSaverHook(estimator.model_dir, secs, steps, scaffold=spec.scaffold)]
    if listeners:
        if not saving:
            raise ValueError(
                "There should be a CheckpointSaverHook to use saving_listeners. Please set one of the"
                " RunConfig.save_checkpoints_steps or RunConfig.save_checkpoints_secs."
            )
        saving[0]._listeners.extend(listeners)
    return made


def _has_master(config: Any) -> bool:
    return bool(config.cluster_spec) and TaskType.MASTER in config.cluster_spec.jobs


def _hooks_beside_master(estimator: Estimator, spec: EstimatorSpec) -> list[Any]:
    """Summaries of the first worker: a master stands still while it evaluates, so its periods would be wrong."""
    config = estimator.config
    made: list[Any] = []
    if not (_has_master(config) and config.task_type == TaskType.WORKER and config.task_id == 0):
        return []
    if config.save_summary_steps:
        made.append(SummarySaverHook(config.save_summary_steps, None, estimator.model_dir, scaffold=spec.scaffold))
    if config.log_step_count_steps:
        made.append(StepCounterHook(every_n_steps=config.log_step_count_steps, output_dir=estimator.model_dir))
    return made
