"""``tf.estimator.EstimatorSpec``: what a model function returns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from tfmini import dtypes
from tfmini.core_types import TensorLike
from tfmini.export import export
from tfmini.graph import nest
from tfmini.graph.default_graph import get_default_graph
from tfmini.graph.operation import Operation, Tensor
from tfmini.ops.array.shape import reshape
from tfmini.ops.control import group
from tfmini.ops.variables.base import Variable
from tfmini.train.checkpointing import saved_model
from tfmini.train.session_run_hook import SessionRunHook, list_of_hooks
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
      eval_metric_ops: name -> (value, update op), as the functions of ``tf.metrics`` return them, or a metric of
        ``tf.keras.metrics`` that has been updated.
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
        loss: TensorLike | None = None,
        train_op: Operation | None | None = None,
        eval_metric_ops: object = None,
        export_outputs: object = None,
        training_chief_hooks: Sequence[SessionRunHook] | None = None,
        training_hooks: Sequence[SessionRunHook] | None = None,
        scaffold: Scaffold | None = None,
        evaluation_hooks: Sequence[SessionRunHook] | None = None,
        prediction_hooks: Sequence[SessionRunHook] | None = None,
    ) -> EstimatorSpec:
        train_op, loss = _checked_train_op(train_op, mode), _checked_loss(loss, mode)
        predictions = _checked_predictions(predictions, mode)
        return super().__new__(
            cls,
            mode=mode,
            predictions=predictions,
            loss=loss,
            train_op=train_op,
            eval_metric_ops=_checked_metrics(eval_metric_ops),
            export_outputs=_checked_outputs(export_outputs, predictions, mode),
            training_chief_hooks=_checked_hooks(training_chief_hooks),
            training_hooks=_checked_hooks(training_hooks),
            scaffold=_checked_scaffold(scaffold),
            evaluation_hooks=_checked_hooks(evaluation_hooks),
            prediction_hooks=_checked_hooks(prediction_hooks),
        )


def _checked_predictions(predictions: TensorLike, mode: str) -> Any:
    if predictions is None:
        if mode == ModeKeys.PREDICT:
            raise ValueError("Missing predictions.")
        return {}
    values = predictions.values() if isinstance(predictions, Mapping) else [predictions]
    for value in values:
        _check_tensor(value, "predictions")
    return predictions


def _check_tensor(value: TensorLike, what: str) -> None:
    if not isinstance(value, (Tensor, Variable)) and not nest.is_composite(value):
        raise TypeError(f"{what} must be Tensor, given: {value}")
    _check_graph(value, what)


def _check_graph(value: object, what: str) -> None:
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


def _checked_train_op(train_op: Operation | None, mode: str) -> Any:
    if train_op is None:
        if mode == ModeKeys.TRAIN:
            raise ValueError("Missing train_op.")
        return None
    if not isinstance(train_op, (Operation, Tensor, Variable)):
        raise TypeError(f"train_op must be Operation or Tensor, given: {train_op}")
    _check_graph(train_op, "train_op")
    return train_op


def _checked_metrics(metrics: object) -> dict[str, Any]:
    metrics = {} if metrics is None else metrics
    if not isinstance(metrics, Mapping):
        raise TypeError(f"eval_metric_ops must be a dict, given: {metrics}")
    pairs = {name: _as_pair(metric) for name, metric in metrics.items()}
    for name, pair in pairs.items():
        if not isinstance(pair, tuple) or len(pair) != 2:
            raise TypeError(
                f"Values of eval_metric_ops must be (metric_value, update_op) tuples, given: {pair} for key: {name}"
            )
        for part in nest.flatten(list(pair)):
            if not isinstance(part, (Operation, Tensor, Variable)):
                raise TypeError(f"The metric {name} must be made of ops and tensors, given: {part}")
            _check_graph(part, "eval_metric_ops")
    return pairs


def _as_pair(metric: Any) -> Any:
    """(value, update op) of a metric of ``tf.keras.metrics``; other things as they are."""
    if not all(hasattr(metric, name) for name in ("update_state", "result", "updates")):
        return metric
    if not metric.updates:
        raise ValueError(f'Please call update_state(...) on the "{metric.name}" metric')
    return metric.result(), group(*metric.updates)


def _checked_outputs(outputs: Any, predictions: TensorLike, mode: str) -> Any:
    if mode != ModeKeys.PREDICT:
        return outputs
    if outputs is not None and not isinstance(outputs, Mapping):
        raise TypeError(f"export_outputs must be dict, given: {outputs}")
    outputs = default_export_outputs(outputs, predictions)
    if not all(isinstance(output, ExportOutput) for output in outputs.values()):
        raise TypeError(f"Values in export_outputs must be ExportOutput objects. Given: {outputs}")
    return outputs


def _checked_hooks(hooks: Iterable[Any] | None) -> tuple[Any, ...]:
    found = tuple(list_of_hooks(hooks))
    for hook in found:
        if not isinstance(hook, SessionRunHook):
            raise TypeError(f"All hooks must be SessionRunHook instances, given: {hook}")
    return found


def _checked_scaffold(scaffold: Scaffold | None) -> Scaffold:
    if scaffold is None:
        return Scaffold()
    if not isinstance(scaffold, Scaffold):
        raise TypeError(f"scaffold must be tf.train.Scaffold. Given: {scaffold}")
    return scaffold


# ---- What a model gives to those who serve it (``tf.estimator.export.PredictOutput`` and its kin) ------------------

DEFAULT_OUTPUT = "output"
_TRAIN_METHOD, _EVAL_METHOD = "tensorflow/supervised/training", "tensorflow/supervised/eval"


@export("tf.estimator.export.ExportOutput")
class ExportOutput:
    """The outputs of one signature; subclasses say which (``tf.estimator.export.ExportOutput``)."""

    def as_signature_def(self, receiver_tensors: Mapping[str, Any]) -> Any:
        """The SignatureDef message for these inputs."""
        raise NotImplementedError


def _tensors(outputs: object, single: str) -> dict[str, Any]:
    found = dict(outputs) if isinstance(outputs, Mapping) else {single: outputs}
    for name, value in found.items():
        if not isinstance(name, str):
            raise ValueError(f"Output names of a PredictOutput must be strings, got {name!r}.")
        if not hasattr(value, "dtype"):
            raise ValueError(f"The output {name!r} must be a tensor, got {value!r}.")
    return found


@export("tf.estimator.export.PredictOutput")
class PredictOutput(ExportOutput):
    """Any tensors by name (``tf.estimator.export.PredictOutput``).

    Args:
      outputs: a tensor, or name -> tensor.

    Raises:
      ValueError: when a name is no string, or a value no tensor.
    """

    def __init__(self, outputs: object) -> None:
        self._outputs = _tensors(outputs, DEFAULT_OUTPUT)

    @property
    def outputs(self) -> dict[str, Any]:
        """The tensors by name."""
        return self._outputs

    def as_signature_def(self, receiver_tensors: Mapping[str, Any]) -> Any:
        return saved_model.predict_signature_def(receiver_tensors, self._outputs)


def _only_input(receiver_tensors: Mapping[str, Any], kind: str) -> Any:
    inputs = list(receiver_tensors.values())
    if len(inputs) != 1 or getattr(inputs[0], "dtype", None) != dtypes.string:
        raise ValueError(f"{kind} input must be a single string Tensor; got {dict(receiver_tensors)}")
    return inputs[0]


@export("tf.estimator.export.ClassificationOutput")
class ClassificationOutput(ExportOutput):
    """Scores and names of classes (``tf.estimator.export.ClassificationOutput``).

    Args:
      scores: floats of shape [batch, classes].
      classes: strings of the same shape; default: the numbers of the columns are meant.

    Raises:
      ValueError: when both are missing, or one has another type.
    """

    def __init__(self, scores: Tensor | None = None, classes: Tensor | None = None) -> None:
        if scores is not None and not (isinstance(scores, Tensor) and scores.dtype.is_floating):
            raise ValueError(f"Classification scores must be a float32 Tensor; got {scores}")
        if classes is not None and not (isinstance(classes, Tensor) and classes.dtype == dtypes.string):
            raise ValueError(f"Classification classes must be a string Tensor; got {classes}")
        if scores is None and classes is None:
            raise ValueError("At least one of scores and classes must be set.")
        self._scores, self._classes = scores, classes

    @property
    def scores(self) -> Any:
        """The scores, or None."""
        return self._scores

    @property
    def classes(self) -> Any:
        """The names, or None."""
        return self._classes

    def as_signature_def(self, receiver_tensors: Mapping[str, Any]) -> Any:
        examples = _only_input(receiver_tensors, "Classification")
        return saved_model.classification_signature_def(examples, self._classes, self._scores)


@export("tf.estimator.export.RegressionOutput")
class RegressionOutput(ExportOutput):
    """A predicted number (``tf.estimator.export.RegressionOutput``).

    Raises:
      ValueError: when the value is no float tensor.
    """

    def __init__(self, value: object) -> None:
        if not (isinstance(value, Tensor) and value.dtype.is_floating):
            raise ValueError(f"Regression output value must be a float32 Tensor; got {value}")
        self._value = value

    @property
    def value(self) -> Any:
        """The numbers."""
        return self._value

    def as_signature_def(self, receiver_tensors: Mapping[str, Any]) -> Any:
        return saved_model.regression_signature_def(_only_input(receiver_tensors, "Regression"), self._value)


class _SupervisedOutput(ExportOutput):
    """Loss, predictions and metrics of a model that is exported to be trained or evaluated."""

    _method = ""

    def __init__(self, loss: TensorLike | None = None, predictions: Any = None, metrics: Any = None) -> None:
        self.loss = {} if loss is None else {"loss": loss}
        self.predictions = {} if predictions is None else _prefixed(predictions, "predictions", DEFAULT_OUTPUT)
        self.metrics: dict[str, Any] = {}
        for name, (value, update) in (metrics or {}).items():
            self.metrics[f"metrics/{name}/value"] = value
            self.metrics[f"metrics/{name}/update_op"] = update if isinstance(update, (Tensor, Variable)) else None

    def as_signature_def(self, receiver_tensors: Mapping[str, Any]) -> Any:
        outputs = {k: v for k, v in {**self.loss, **self.predictions, **self.metrics}.items() if v is not None}
        return saved_model.build_signature_def(
            {name: saved_model.build_tensor_info(tensor) for name, tensor in receiver_tensors.items()},
            {name: saved_model.build_tensor_info(tensor) for name, tensor in outputs.items()},
            self._method,
        )


def _prefixed(values: TensorLike, prefix: str, single: str) -> dict[str, Any]:
    named = _tensors(values, single)
    return {name if name.startswith(prefix) else f"{prefix}/{name}": value for name, value in named.items()}


class TrainOutput(_SupervisedOutput):
    """The outputs of the graph that trains."""

    _method = _TRAIN_METHOD


@export("tf.estimator.export.EvalOutput")
class EvalOutput(_SupervisedOutput):
    """The outputs of the graph that evaluates (``tf.estimator.export.EvalOutput``)."""

    _method = _EVAL_METHOD


def default_export_outputs(outputs: object, predictions: TensorLike) -> dict[str, Any]:
    """The outputs with one for the default signature; the predictions where there are none.

    Raises:
      TypeError: when ``outputs`` is no dictionary.
      ValueError: when none of several outputs is the default.
    """
    default = saved_model.DEFAULT_SERVING_SIGNATURE_DEF_KEY
    if outputs is None:
        return {default: PredictOutput(predictions)}
    if not isinstance(outputs, Mapping):
        raise TypeError(f"export_outputs must be dict, given: {outputs}")
    found = dict(outputs)
    if len(found) == 1:
        found.setdefault(default, next(iter(found.values())))
    elif found and default not in found:
        raise ValueError(
            "Multiple export_outputs were provided, but none of them is specified as the default. Do this by naming"
            f" one of them with signature_constants.DEFAULT_SERVING_SIGNATURE_DEF_KEY ({default!r})."
        )
    return found


# ---- ``tf.estimator.ModeKeys``: what a model function is called for ------------------------------------------------


@export("tf.estimator.ModeKeys")
class ModeKeys:
    """The names of the modes of a model function (``tf.estimator.ModeKeys``)."""

    TRAIN, EVAL, PREDICT = "train", "eval", "infer"
