"""What a served model receives (``tf.estimator.export.ServingInputReceiver``), and functions that make it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from tfmini import dtypes
from tfmini.export import export
from tfmini.graph.nest import is_composite
from tfmini.graph.operation import Tensor
from tfmini.ops.array.identity import placeholder
from tfmini.ops.io.parsing_functions import parse_example
from tfmini.ops.variables.base import Variable

_FEATURE, _LABEL, _INPUT = "feature", "label", "input"


def _named(values: Any, default: str, what: str) -> dict[str, Any]:
    """name -> tensor; a single tensor gets the default name.

    Raises:
      ValueError: for None, a name that is no string, or a value that is no tensor.
    """
    if values is None:
        raise ValueError(f"{what} must be defined.")
    found = dict(values) if isinstance(values, Mapping) else {default: values}
    for name, value in found.items():
        if not isinstance(name, str):
            raise ValueError(f"{what} keys must be strings: {name}.")
        if not isinstance(value, (Tensor, Variable)) and not is_composite(value):
            raise ValueError(f"{what} {name} must be a Tensor or SparseTensor.")
    return found


def _checked_alternatives(alternatives: Any) -> Any:
    if alternatives is None:
        return None
    if not isinstance(alternatives, Mapping):
        raise ValueError(f"receiver_tensors_alternatives must be a dict: {alternatives}.")
    return {name: _named(tensors, _INPUT, "receiver_tensors_alternative") for name, tensors in alternatives.items()}


class _ServingInputReceiver(NamedTuple):
    features: Any
    receiver_tensors: dict[str, Any]
    receiver_tensors_alternatives: Any


@export("tf.estimator.export.ServingInputReceiver")
class ServingInputReceiver(_ServingInputReceiver):
    """The features of a served model and what they are made of (``tf.estimator.export.ServingInputReceiver``).

    Args:
      features: a tensor, or name -> tensor, for the model function.
      receiver_tensors: a tensor, or name -> tensor, that is fed.
      receiver_tensors_alternatives: name -> other tensors that may be fed, such as the features themselves.

    Raises:
      ValueError: when something is missing or has another type.
    """

    __slots__ = ()

    def __new__(
        cls, features: Any, receiver_tensors: Any, receiver_tensors_alternatives: Any = None
    ) -> ServingInputReceiver:
        return super().__new__(
            cls,
            _named(features, _FEATURE, "features"),
            _named(receiver_tensors, _INPUT, "receiver_tensors"),
            _checked_alternatives(receiver_tensors_alternatives),
        )


@export("tf.estimator.export.TensorServingInputReceiver")
class TensorServingInputReceiver(_ServingInputReceiver):
    """`ServingInputReceiver` for a model function that takes a single tensor, not a dictionary."""

    __slots__ = ()

    def __new__(
        cls, features: Any, receiver_tensors: Any, receiver_tensors_alternatives: Any = None
    ) -> TensorServingInputReceiver:
        _named(features, _FEATURE, "feature")
        if isinstance(features, Mapping):
            raise ValueError("features must be a Tensor; for a dict use ServingInputReceiver.")
        return super().__new__(
            cls,
            features,
            _named(receiver_tensors, _INPUT, "receiver_tensors"),
            _checked_alternatives(receiver_tensors_alternatives),
        )


class SupervisedInputReceiver(NamedTuple):
    """Features, labels and what they are made of, for a graph that trains or evaluates."""

    features: Any
    labels: Any
    receiver_tensors: Any
    receiver_tensors_alternatives: Any = None


@export("tf.estimator.export.build_parsing_serving_input_receiver_fn")
def build_parsing_serving_input_receiver_fn(
    feature_spec: Mapping[str, Any], default_batch_size: int | None = None
) -> Callable[[], ServingInputReceiver]:
    """A function that makes a receiver of serialized Examples.

    Args:
      feature_spec: name -> `FixedLenFeature` and its kin.
      default_batch_size: the static batch size; None for any.

    TF name: ``tf.estimator.export.build_parsing_serving_input_receiver_fn``.
    """

    def serving_input_receiver_fn() -> ServingInputReceiver:
        serialized = placeholder(dtypes.string, [default_batch_size], name="input_example_tensor")
        return ServingInputReceiver(parse_example(serialized, feature_spec), {"examples": serialized})

    return serving_input_receiver_fn


def _placeholders(tensors: Mapping[str, Any], batch_size: int | None) -> dict[str, Any]:
    """A placeholder for each tensor, with its name, and its shape but for the batch."""
    made = {}
    for name, tensor in tensors.items():
        shape = tensor.get_shape().as_list() if tensor.get_shape().ndims is not None else None
        if shape:
            shape[0] = batch_size
        made[name] = placeholder(tensor.dtype, shape, name=tensor.op.name)
    return made


@export("tf.estimator.export.build_raw_serving_input_receiver_fn")
def build_raw_serving_input_receiver_fn(
    features: Mapping[str, Any], default_batch_size: int | None = None
) -> Callable[[], ServingInputReceiver]:
    """A function that makes a receiver of the features themselves.

    Args:
      features: name -> a tensor with the feature's dtype and shape.
      default_batch_size: the static batch size; None for any.

    TF name: ``tf.estimator.export.build_raw_serving_input_receiver_fn``.
    """

    def serving_input_receiver_fn() -> ServingInputReceiver:
        fed = _placeholders(features, default_batch_size)
        return ServingInputReceiver(fed, fed)

    return serving_input_receiver_fn


@export(
    "tf.contrib.estimator.build_raw_supervised_input_receiver_fn",
    "tf.estimator.experimental.build_raw_supervised_input_receiver_fn",
)
def build_raw_supervised_input_receiver_fn(
    features: Any, labels: Any, default_batch_size: int | None = None
) -> Callable[[], SupervisedInputReceiver]:
    """A function that makes a receiver of features and labels, for a graph that trains or evaluates.

    Raises:
      ValueError: when a feature and a label have the same name, or something is missing.
    """
    named_features = _named(features, _FEATURE, "features")
    named_labels = _named(labels, _LABEL, "labels")
    both = set(named_features) & set(named_labels)
    if both:
        raise ValueError(f"Features and labels must have distinct keys. Found overlapping keys: {sorted(both)}")

    def supervised_input_receiver_fn() -> SupervisedInputReceiver:
        fed_features = _placeholders(named_features, default_batch_size)
        fed_labels = _placeholders(named_labels, default_batch_size)
        own_features = fed_features if isinstance(features, Mapping) else fed_features[_FEATURE]
        own_labels = fed_labels if isinstance(labels, Mapping) else fed_labels[_LABEL]
        return SupervisedInputReceiver(own_features, own_labels, {**fed_features, **fed_labels})

    return supervised_input_receiver_fn
