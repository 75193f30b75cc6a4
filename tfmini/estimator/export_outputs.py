"""What a model gives to those who serve it (``tf.estimator.export.PredictOutput`` and its kin)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tfmini import dtypes
from tfmini.export import export
from tfmini.graph.operation import Tensor
from tfmini.ops.variables.base import Variable
from tfmini.train.checkpointing.saved_model import constants, signatures

DEFAULT_OUTPUT = "output"
_TRAIN_METHOD, _EVAL_METHOD = "tensorflow/supervised/training", "tensorflow/supervised/eval"


@export("tf.estimator.export.ExportOutput")
class ExportOutput:
    """The outputs of one signature; subclasses say which (``tf.estimator.export.ExportOutput``)."""

    def as_signature_def(self, receiver_tensors: Mapping[str, Any]) -> Any:
        """The SignatureDef message for these inputs."""
        raise NotImplementedError


def _tensors(outputs: Any, single: str) -> dict[str, Any]:
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

    def __init__(self, outputs: Any) -> None:
        self._outputs = _tensors(outputs, DEFAULT_OUTPUT)

    @property
    def outputs(self) -> dict[str, Any]:
        """The tensors by name."""
        return self._outputs

    def as_signature_def(self, receiver_tensors: Mapping[str, Any]) -> Any:
        return signatures.predict_signature_def(receiver_tensors, self._outputs)


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

    def __init__(self, scores: Any = None, classes: Any = None) -> None:
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
        return signatures.classification_signature_def(examples, self._classes, self._scores)


@export("tf.estimator.export.RegressionOutput")
class RegressionOutput(ExportOutput):
    """A predicted number (``tf.estimator.export.RegressionOutput``).

    Raises:
      ValueError: when the value is no float tensor.
    """

    def __init__(self, value: Any) -> None:
        if not (isinstance(value, Tensor) and value.dtype.is_floating):
            raise ValueError(f"Regression output value must be a float32 Tensor; got {value}")
        self._value = value

    @property
    def value(self) -> Any:
        """The numbers."""
        return self._value

    def as_signature_def(self, receiver_tensors: Mapping[str, Any]) -> Any:
        return signatures.regression_signature_def(_only_input(receiver_tensors, "Regression"), self._value)


class _SupervisedOutput(ExportOutput):
    """Loss, predictions and metrics of a model that is exported to be trained or evaluated."""

    _method = ""

    def __init__(self, loss: Any = None, predictions: Any = None, metrics: Any = None) -> None:
        self.loss = {} if loss is None else {"loss": loss}
        self.predictions = {} if predictions is None else _prefixed(predictions, "predictions", DEFAULT_OUTPUT)
        self.metrics: dict[str, Any] = {}
        for name, (value, update) in (metrics or {}).items():
            self.metrics[f"metrics/{name}/value"] = value
            self.metrics[f"metrics/{name}/update_op"] = update if isinstance(update, (Tensor, Variable)) else None

    def as_signature_def(self, receiver_tensors: Mapping[str, Any]) -> Any:
        outputs = {k: v for k, v in {**self.loss, **self.predictions, **self.metrics}.items() if v is not None}
        return signatures.build_signature_def(
            {name: signatures.build_tensor_info(tensor) for name, tensor in receiver_tensors.items()},
            {name: signatures.build_tensor_info(tensor) for name, tensor in outputs.items()},
            self._method,
        )


def _prefixed(values: Any, prefix: str, single: str) -> dict[str, Any]:
    named = _tensors(values, single)
    return {name if name.startswith(prefix) else f"{prefix}/{name}": value for name, value in named.items()}


class TrainOutput(_SupervisedOutput):
    """The outputs of the graph that trains."""

    _method = _TRAIN_METHOD


@export("tf.estimator.export.EvalOutput")
class EvalOutput(_SupervisedOutput):
    """The outputs of the graph that evaluates (``tf.estimator.export.EvalOutput``)."""

    _method = _EVAL_METHOD


def default_export_outputs(outputs: Any, predictions: Any) -> dict[str, Any]:
    """The outputs with one for the default signature; the predictions where there are none.

    Raises:
      TypeError: when ``outputs`` is no dictionary.
      ValueError: when none of several outputs is the default.
    """
    default = constants.DEFAULT_SERVING_SIGNATURE_DEF_KEY
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
