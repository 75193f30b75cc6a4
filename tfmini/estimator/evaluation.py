"""The evaluation of an `Estimator`: metrics over a data set, as values and as summaries."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from tfmini import dtypes, protos
from tfmini.estimator.modes import ModeKeys
from tfmini.graph.graph import Graph
from tfmini.graph.keys import GraphKeys
from tfmini.graph.scoping import set_random_seed
from tfmini.layers.metrics.means import mean
from tfmini.ops.array.tensor_protos import make_tensor_proto
from tfmini.ops.control import group
from tfmini.train.checkpointing.state_file import latest_checkpoint
from tfmini.train.global_steps import create_global_step, get_global_step
from tfmini.train.loops.evaluation import StopAfterNEvalsHook, evaluate_once
from tfmini.train.sessions.scaffold import Scaffold
from tfmini.train.summaries.summary_writer import FileWriterCache

if TYPE_CHECKING:
    from tfmini.estimator.estimator import Estimator
    from tfmini.estimator.model_spec import EstimatorSpec

_log = logging.getLogger("tensorflow")
LOSS_KEY = "loss"


def evaluate(
    estimator: Estimator,
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
    values = {name: value for name, (value, _) in metrics.items()}
    update = group(*[update for _, update in metrics.values()])
    values[GraphKeys.GLOBAL_STEP] = get_global_step()
    return values, update


def scaffold_with_local_variables(scaffold: Scaffold) -> Scaffold:
    """A scaffold whose own ``local_init_op`` also initializes what was added after it: metrics, tables."""
    if scaffold.local_init_op is None:
        return scaffold
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


def _shown(value: Any) -> str:
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
