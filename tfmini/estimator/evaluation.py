"""The evaluation of an `Estimator` (metrics as values and summaries), its predictions, its training, its checks."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Protocol

import numpy as np

from tfmini import dtypes, protos
from tfmini.core_types import TensorLike
from tfmini.estimator.model_spec import EstimatorSpec, ModeKeys
from tfmini.estimator.run_config import RunConfig, TaskType, WarmStartSettings
from tfmini.graph import nest
from tfmini.graph.graph import Graph
from tfmini.graph.names import GraphKeys
from tfmini.graph.operation import Tensor
from tfmini.graph.scoping import add_to_collection, get_collection, set_random_seed
from tfmini.layers.metrics import mean
from tfmini.ops.array.constant import make_tensor_proto
from tfmini.ops.control import group
from tfmini.ops.summary import scalar
from tfmini.train.checkpointing.graph_files import latest_checkpoint, load_variable
from tfmini.train.checkpointing.saver import Saver
from tfmini.train.evaluation import StopAfterNEvalsHook, evaluate_once, get_or_create_eval_step
from tfmini.train.global_steps import _get_or_create_global_step_read, create_global_step, get_global_step
from tfmini.train.hooks import LoggingTensorHook, NanTensorHook, StepCounterHook
from tfmini.train.saving_hooks import CheckpointSaverHook, CheckpointSaverListener, SummarySaverHook
from tfmini.train.session_run_hook import SessionRunHook
from tfmini.train.sessions.monitored_session import ChiefSessionCreator, MonitoredSession, MonitoredTrainingSession
from tfmini.train.sessions.scaffold import Scaffold
from tfmini.train.summary_writer import FileWriterCache

_log = logging.getLogger("tensorflow")
LOSS_KEY = "loss"


class ModelOwner(Protocol):
    """The part of an `Estimator` that its training, its evaluation, its predictions and its exports use."""

    _session_config: Any
    _device_fn: Any
    _warm_start_settings: WarmStartSettings | None

    @property
    def model_dir(self) -> str: ...
    @property
    def config(self) -> RunConfig: ...
    def eval_dir(self, name: str | None = None) -> str: ...
    def latest_checkpoint(self) -> str | None: ...
    def _inputs(self, input_fn: Callable[..., Any], mode: str) -> tuple[Any, Any, list[Any]]: ...
    def _call_model_fn(self, features: Any, labels: Any, mode: str, config: Any) -> EstimatorSpec: ...


def evaluate(
    estimator: ModelOwner,
    input_fn: Callable[..., Any],
    steps: int | None,
    hooks: list[Any],
    checkpoint_path: str | None,
    name: str | None,
) -> dict[str, Any]:
    """See `Estimator.evaluate`."""
    path = checkpoint_path or latest_checkpoint(estimator.model_dir)
    if not path:
        _log.info(
            "Could not find trained model in model_dir: %s, running initialization to evaluate.", estimator.model_dir
        )
    counting = [] if steps is None else [StopAfterNEvalsHook(num_evals=steps)]
    with Graph().as_default() as graph:
        set_random_seed(estimator.config.tf_random_seed)
        create_global_step(graph)
        features, labels, input_hooks = estimator._inputs(input_fn, ModeKeys.EVAL)
        spec = estimator._call_model_fn(features, labels, ModeKeys.EVAL, estimator.config)
        values, update = metric_ops(spec)
        all_hooks = [*input_hooks, *hooks, *counting, *spec.evaluation_hooks]
        results: dict[str, Any] = evaluate_once(
            path,
            estimator.config.evaluation_master,
            scaffold_with_local_variables(spec.scaffold),
            eval_ops=update,
            final_ops=values,
            hooks=all_hooks,
            config=estimator._session_config,
        )
        _write(estimator.eval_dir(name), results, path)
    return results


def metric_ops(spec: EstimatorSpec) -> tuple[dict[str, Any], Any]:
    """(name -> value, the op that updates all metrics): the model's, the mean loss and the global step.

    Raises:
      ValueError: when a metric of the model has one of those two names.
    """
    metrics = dict(spec.eval_metric_ops)
    for reserved in (LOSS_KEY, GraphKeys.GLOBAL_STEP):
        if reserved in metrics:
            raise ValueError(
                f'Metric with name "{reserved}" is not allowed, because Estimator already defines a default metric'
                " with the same name."
            )
    metrics[LOSS_KEY] = mean(spec.loss)
    values = {name: value for name, (value, _) in sorted(metrics.items())}
    update = group(*[update for _, update in metrics.values()])
    values[GraphKeys.GLOBAL_STEP] = get_global_step()
    return values, update


def scaffold_with_local_variables(scaffold: Scaffold) -> Scaffold:
    """A scaffold whose own ``local_init_op`` also initializes what was added after it: metrics, tables."""
    if scaffold.local_init_op is None:
        return scaffold
    get_or_create_eval_step()  # it is one of them, and would be made after the op
    both = group(scaffold.local_init_op, Scaffold.default_local_init_op())
    return Scaffold(local_init_op=both, copy_from_scaffold=scaffold)


def _write(directory: str, results: dict[str, Any], checkpoint: str | None) -> None:
    step = int(results[GraphKeys.GLOBAL_STEP])
    text = ", ".join(f"{name} = {_shown(value)}" for name, value in sorted(results.items()))
    _log.info("Saving dict for global step %d: %s", step, text)
    writer = FileWriterCache.get(directory)
    summary = protos.Summary()
    for name, value in results.items():
        if name != GraphKeys.GLOBAL_STEP and value is not None:
            _add(summary, name, value)
    writer.add_summary(summary, step)
    if checkpoint:
        _log.info("Saving 'checkpoint_path' summary for global step %d: %s", step, checkpoint)
        note = protos.Summary()
        tensor = make_tensor_proto(checkpoint, dtype=dtypes.string)
        note.value.add(tag="checkpoint_path", tensor=tensor)
        writer.add_summary(note, step)
    writer.flush()


def _shown(value: object) -> str:
    return "<serialized summary>" if isinstance(value, bytes) else str(value)


def _add(summary: Any, name: str, value: Any) -> None:
    """Adds a metric's value to a summary: a number, a serialized summary, or an array as tensor."""
    if isinstance(value, bytes):
        try:
            parsed = protos.Summary.FromString(value)
        except Exception:  # protobuf has an exception class for each of its implementations
            _log.warning("Skipping summary for %s, cannot parse string to Summary.", name)
            return
        for index, part in enumerate(parsed.value):
            part.tag = f"{name}/{index}"
        summary.value.extend(parsed.value)
    elif np.ndim(value) == 0 and np.asarray(value).dtype.kind in "fiub":
        summary.value.add(tag=name, simple_value=float(value))
    elif isinstance(value, np.ndarray):
        summary.value.add(tag=name, node_name=name, tensor=make_tensor_proto(value))
    else:
        _log.warning("Skipping summary for %s, must be a float, np.float32, np.int64, np.int32 or int.", name)


# ---- The predictions of an `Estimator` -----------------------------------------------------------------------------

ITERATOR_OPS = ("IteratorGetNext", "IteratorGetNextSync")


def predict(
    estimator: ModelOwner,
    input_fn: Callable[..., Any],
    keys: Iterable[str] | None,
    hooks: list[Any],
    checkpoint_path: str | None,
    single: bool,
) -> Iterator[Any]:
    """See `Estimator.predict`."""
    path = checkpoint_path or latest_checkpoint(estimator.model_dir)
    if not path:
        _log.info(
            "Could not find trained model in model_dir: %s, running initialization to predict.", estimator.model_dir
        )
    graph = Graph()
    with graph.as_default():
        set_random_seed(estimator.config.tf_random_seed)
        create_global_step(graph)
        features, _, input_hooks = estimator._inputs(input_fn, ModeKeys.PREDICT)
        _warn_of_endless_input(features)
        spec = estimator._call_model_fn(features, None, ModeKeys.PREDICT, estimator.config)
        wanted = chosen(spec.predictions, keys)
        creator = ChiefSessionCreator(
            checkpoint_filename_with_path=path,
            master=estimator.config.master,
            scaffold=scaffold_with_local_variables(spec.scaffold),
            config=estimator._session_config,
        )
        session = MonitoredSession(session_creator=creator, hooks=[*input_hooks, *hooks, *spec.prediction_hooks])
    for batch in _batches(graph, session, wanted):
        yield from examples(batch) if single else [batch]


def _batches(graph: Graph, session: MonitoredSession, wanted: object) -> Iterator[Any]:
    """Yields batches until the input ends. Between two of them, the caller's graph is the default graph."""
    with _closing(graph, session):
        while True:
            with graph.as_default():
                if session.should_stop():
                    return
                batch = session.run(wanted)
            yield batch


@contextmanager
def _closing(graph: Graph, session: MonitoredSession) -> Iterator[None]:
    """As ``with session``, with the session's graph as default graph only while it closes."""
    try:
        yield
    except BaseException as error:
        with graph.as_default():
            if not session.__exit__(type(error), error, error.__traceback__):
                raise
    else:
        with graph.as_default():
            session.__exit__(None, None, None)


def chosen(predictions: TensorLike | Mapping[str, Any], keys: Iterable[str] | None) -> Any:
    """The predictions with the given names; all without names.

    Raises:
      ValueError: when there is none, or the predictions have no names.
    """
    if not keys:
        return predictions
    if not isinstance(predictions, Mapping):
        raise ValueError("predict_keys argument is not valid in case of non-dict predictions.")
    keys = list(keys)
    found = {name: value for name, value in predictions.items() if name in keys}
    if not found:
        raise ValueError(f"Expected to run at least one output from {list(predictions)}, provided {keys}.")
    return found


def examples(batch: Any) -> Iterator[Any]:
    """The examples of a batch of predictions.

    Raises:
      ValueError: when the predictions have different batch lengths.
    """
    if not isinstance(batch, Mapping):
        yield from batch
        return
    lengths = {name: value.shape[0] for name, value in batch.items()}
    first = next(iter(lengths.values()))
    for name, length in lengths.items():
        if length != first:
            raise ValueError(
                f"Batch length of predictions should be same. {name} has different batch length than others."
            )
    for index in range(first):
        yield {name: value[index] for name, value in batch.items()}


def _warn_of_endless_input(features: object) -> None:
    tensors = [value for value in nest.flatten(features, expand_composites=True) if isinstance(value, Tensor)]
    if any(tensor.op.type in ITERATOR_OPS for tensor in tensors) or get_collection(GraphKeys.QUEUE_RUNNERS):
        return
    _log.warning(
        "Input graph does not use tf.data.Dataset or contain a QueueRunner. That means predict yields forever. This is"
        " probably a mistake."
    )


# ---- The training of an `Estimator`: its graph, its hooks and its session ------------------------------------------


def step_of_checkpoint(directory: str) -> int:
    """The global step of the latest checkpoint; 0 without one."""
    found = latest_checkpoint(directory)
    return 0 if found is None else int(load_variable(found, GraphKeys.GLOBAL_STEP))


def train(estimator: ModelOwner, input_fn: Callable[..., Any], hooks: list[Any], listeners: list[Any]) -> Any:
    """Trains until a hook or the end of the input stops it; returns the last loss, None without a step."""
    with Graph().as_default() as graph, graph.device(estimator._device_fn):
        set_random_seed(estimator.config.tf_random_seed)
        create_global_step(graph)
        _get_or_create_global_step_read(graph)
        features, labels, input_hooks = estimator._inputs(input_fn, ModeKeys.TRAIN)
        spec = estimator._call_model_fn(features, labels, ModeKeys.TRAIN, estimator.config)
        return _run(estimator, spec, [*input_hooks, *hooks], listeners)


def _run(estimator: ModelOwner, spec: EstimatorSpec, hooks: list[Any], listeners: list[Any]) -> Any:
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


def _loop(estimator: ModelOwner, spec: EstimatorSpec, hooks: list[Any], chief_hooks: list[Any]) -> Any:
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


def _loss_log(estimator: ModelOwner, spec: EstimatorSpec) -> list[Any]:
    every = estimator.config.log_step_count_steps
    if every is None:
        return []
    return [LoggingTensorHook({"loss": spec.loss, "step": get_global_step()}, every_n_iter=every)]


def _saver(config: RunConfig) -> Saver:
    return Saver(
        sharded=True,
        max_to_keep=config.keep_checkpoint_max,
        keep_checkpoint_every_n_hours=config.keep_checkpoint_every_n_hours,
        defer_build=True,
        save_relative_paths=True,
    )


def _saving_hooks(estimator: ModelOwner, spec: EstimatorSpec, hooks: list[Any], listeners: list[Any]) -> list[Any]:
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


def _has_master(config: RunConfig) -> bool:
    return bool(config.cluster_spec) and TaskType.MASTER in config.cluster_spec.jobs


def _hooks_beside_master(estimator: ModelOwner, spec: EstimatorSpec) -> list[Any]:
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


# ---- Checks of the arguments that several methods of an estimator share: hooks and numbers of steps ----------------


def checked_hooks(hooks: Iterable[Any] | None) -> list[Any]:
    """A list of the hooks; TypeError for what is no hook."""
    found = list(hooks or [])
    for hook in found:
        if not isinstance(hook, SessionRunHook):
            raise TypeError(f"Hooks must be a SessionRunHook, given: {hook}")
    return found


def checked_listeners(listeners: Iterable[Any] | None) -> list[Any]:
    """A list of the listeners; TypeError for what is no listener."""
    found = list(listeners or [])
    for listener in found:
        if not isinstance(listener, CheckpointSaverListener):
            raise TypeError(f"saving_listeners must be a list of CheckpointSaverListener, given: {listener}")
    return found


def check_positive(name: str, steps: int | None) -> None:
    """ValueError for a number of steps that is not positive."""
    if steps is not None and steps <= 0:
        raise ValueError(f"Must specify {name} > 0, given: {steps}")
