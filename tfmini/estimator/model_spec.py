"""``tf.estimator.EstimatorSpec``: what a model function returns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from tfmini.estimator.export_outputs import ExportOutput, default_export_outputs
from tfmini.estimator.modes import ModeKeys
from tfmini.export import export
from tfmini.graph import nest
from tfmini.graph.default_graph import get_default_graph
from tfmini.graph.operation import Operation, Tensor
from tfmini.ops.array.shape import reshape
from tfmini.ops.variables.base import Variable
from tfmini.train.hooks.session_run_hook import SessionRunHook
from tfmini.train.sessions.scaffold import Scaffold


class _EstimatorSpec(NamedTuple):
    mode: str
    predictions: Any
    loss: Any
    train_op: Any
    eval_metric_ops: Any
    export_outputs: Any
    training_chief_hooks: Any
    training_hooks: Any
    scaffold: Any
    evaluation_hooks: Any
    prediction_hooks: Any


@export("tf.estimator.EstimatorSpec")
class EstimatorSpec(_EstimatorSpec):
    """The ops and hooks of a model in one mode (``tf.estimator.EstimatorSpec``).

    Args:
      mode: one of `ModeKeys`.
      predictions: a tensor, or name -> tensor; needed to predict.
      loss: a scalar; needed to train and to evaluate.
      train_op: runs one training step; needed to train.
      eval_metric_ops: name -> (value, update op), as the functions of ``tf.metrics`` return them.
      export_outputs: name of a signature -> `ExportOutput`; default: the predictions.
      training_chief_hooks, training_hooks: hooks of the chief's training, of everybody's.
      scaffold: the scaffold of the sessions; default: a new one.
      evaluation_hooks, prediction_hooks: hooks of evaluation, of prediction.

    Raises:
      ValueError: when something that the mode needs is missing or of another graph.
      TypeError: when something has another type.
    """

    __slots__ = ()

    def __new__(
        cls,
        mode: str,
        predictions: Any = None,
        loss: Any = None,
        train_op: Any = None,
        eval_metric_ops: Any = None,
        export_outputs: Any = None,
        training_chief_hooks: Any = None,
        training_hooks: Any = None,
        scaffold: Any = None,
        evaluation_hooks: Any = None,
        prediction_hooks: Any = None,
    ) -> EstimatorSpec:
        predictions = _checked_predictions(predictions, mode)
        return super().__new__(
            cls,
            mode=mode,
            predictions=predictions,
            loss=_checked_loss(loss, mode),
            train_op=_checked_train_op(train_op, mode),
            eval_metric_ops=_checked_metrics(eval_metric_ops),
            export_outputs=_checked_outputs(export_outputs, predictions, mode),
            training_chief_hooks=_checked_hooks(training_chief_hooks),
            training_hooks=_checked_hooks(training_hooks),
            scaffold=_checked_scaffold(scaffold),
            evaluation_hooks=_checked_hooks(evaluation_hooks),
            prediction_hooks=_checked_hooks(prediction_hooks),
        )


def _checked_predictions(predictions: Any, mode: str) -> Any:
    if predictions is None:
        if mode == ModeKeys.PREDICT:
            raise ValueError("Missing predictions.")
        return {}
    values = predictions.values() if isinstance(predictions, Mapping) else [predictions]
    for value in values:
        _check_tensor(value, "predictions")
    return predictions


def _check_tensor(value: Any, what: str) -> None:
    if not isinstance(value, (Tensor, Variable)) and not nest.is_composite(value):
        raise TypeError(f"{what} must be Tensor, given: {value}")
    _check_graph(value, what)


def _check_graph(value: Any, what: str) -> None:
    graph = getattr(value, "graph", None)
    if graph is not None and graph is not get_default_graph():
        raise ValueError(
            f"{what} with {value} must be from the default graph. A model function is called with a new graph each"
            " time, so the tensors of other calls, and of code outside of it, cannot be used in it."
        )


def _checked_loss(loss: Any, mode: str) -> Any:
    if loss is None:
        if mode in (ModeKeys.TRAIN, ModeKeys.EVAL):
            raise ValueError("Missing loss.")
        return None
    _check_tensor(loss, "loss")
    shape = loss.get_shape()
    if shape.num_elements() not in (None, 1):
        raise ValueError(f"Loss must be scalar, given: {loss}")
    return loss if shape.is_compatible_with([]) else reshape(loss, [])


def _checked_train_op(train_op: Any, mode: str) -> Any:
    if train_op is None:
        if mode == ModeKeys.TRAIN:
            raise ValueError("Missing train_op.")
        return None
    if not isinstance(train_op, (Operation, Tensor, Variable)):
        raise TypeError(f"train_op must be Operation or Tensor, given: {train_op}")
    _check_graph(train_op, "train_op")
    return train_op


def _checked_metrics(metrics: Any) -> dict[str, Any]:
    metrics = {} if metrics is None else metrics
    if not isinstance(metrics, Mapping):
        raise TypeError(f"eval_metric_ops must be a dict, given: {metrics}")
    for name, pair in metrics.items():
        if not isinstance(pair, tuple) or len(pair) != 2:
            raise TypeError(
                f"Values of eval_metric_ops must be (metric_value, update_op) tuples, given: {pair} for key: {name}"
            )
        for part in nest.flatten(list(pair)):
            if not isinstance(part, (Operation, Tensor, Variable)):
                raise TypeError(f"The metric {name} must be made of ops and tensors, given: {part}")
            _check_graph(part, "eval_metric_ops")
    return dict(metrics)


def _checked_outputs(outputs: Any, predictions: Any, mode: str) -> Any:
    if mode == ModeKeys.PREDICT or outputs is not None:
        outputs = default_export_outputs(outputs, predictions) if mode == ModeKeys.PREDICT else outputs
        for name, output in outputs.items():
            if not isinstance(output, ExportOutput):
                raise TypeError(
                    f"Values in export_outputs must be ExportOutput objects. Given: {output} for the key {name}"
                )
    return outputs


def _checked_hooks(hooks: Iterable[Any] | None) -> tuple[Any, ...]:
    found = tuple(hooks or ())
    for hook in found:
        if not isinstance(hook, SessionRunHook):
            raise TypeError(f"All hooks must be SessionRunHook instances, given: {hook}")
    return found


def _checked_scaffold(scaffold: Any) -> Scaffold:
    if scaffold is None:
        return Scaffold()
    if not isinstance(scaffold, Scaffold):
        raise TypeError(f"scaffold must be tf.train.Scaffold. Given: {scaffold}")
    return scaffold
