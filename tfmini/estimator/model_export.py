"""The export of an `Estimator` as a SavedModel, with one graph for each mode."""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from tfmini import dtypes
from tfmini.checkpoint.files import local_path
from tfmini.estimator.evaluation import ModelOwner, metric_ops
from tfmini.estimator.model_spec import EstimatorSpec, EvalOutput, ExportOutput, ModeKeys, TrainOutput
from tfmini.export import export
from tfmini.graph.graph import Graph
from tfmini.graph.names import GraphKeys
from tfmini.graph.nest import is_composite
from tfmini.graph.operation import Tensor
from tfmini.graph.scoping import get_collection, set_random_seed
from tfmini.ops.array.identity import placeholder
from tfmini.ops.io.parsing_functions import parse_example
from tfmini.ops.variables.base import Variable
from tfmini.runtime.client.session import Session
from tfmini.runtime.process import current_process
from tfmini.train.checkpointing import saved_model
from tfmini.train.checkpointing.saved_model import SavedModelBuilder
from tfmini.train.checkpointing.saver import Saver
from tfmini.train.global_steps import create_global_step
from tfmini.train.sessions.scaffold import Scaffold

_log = logging.getLogger("tensorflow")
Receivers = Mapping[str, Callable[[], Any]]
# In this order the graphs are added: the first one writes the variables, and the training graph has all of them.
_TAGS = {
    ModeKeys.TRAIN: saved_model.TRAINING,
    ModeKeys.EVAL: "eval",
    ModeKeys.PREDICT: saved_model.SERVING,
}
_ATTEMPTS = 10


def export_model(
    estimator: ModelOwner,
    base: str,
    receivers: Receivers,
    assets_extra: Mapping[str, str] | None,
    as_text: bool,
    checkpoint_path: str | None,
    strip_default_attrs: bool,
) -> bytes:
    """See `Estimator.export_saved_model`."""
    if not receivers:
        raise ValueError("An input_receiver_fn must be defined.")
    path = checkpoint_path or estimator.latest_checkpoint()
    if not path:
        raise ValueError(f"Couldn't find trained model at {estimator.model_dir}.")
    base = os.fsdecode(base)
    final = timestamped_directory(base)
    temporary = os.path.join(base, f"temp-{os.path.basename(final)}")  # nobody loads what is half written
    builder = SavedModelBuilder(temporary)
    saved = False
    for mode in (mode for mode in _TAGS if mode in receivers):
        _add_graph(estimator, builder, receivers[mode], mode, path, saved, strip_default_attrs)
        saved = True
    builder.save(as_text)
    _copy_extra(temporary, assets_extra or {})
    os.rename(temporary, final)
    _log.info("SavedModel written to: %s", final)
    return os.fsencode(final)


def timestamped_directory(base: str) -> str:
    """A path below ``base`` that does not exist; its name is the time in seconds.

    Raises:
      RuntimeError: when there is one for each of the last tries.
    """
    process = current_process()
    for _ in range(_ATTEMPTS):
        found = os.path.join(base, str(int(process.wall_time())))
        if not os.path.exists(local_path(found)):
            return found
        process.sleep(1)  # the next second has another name
    raise RuntimeError(f"Failed to obtain a unique export directory name below {base} after {_ATTEMPTS} attempts.")


def _copy_extra(directory: str, assets_extra: Mapping[str, str]) -> None:
    for relative, source in assets_extra.items():
        target = local_path(os.path.join(directory, "assets.extra", relative))
        os.makedirs(os.path.dirname(target), exist_ok=True)
        shutil.copyfile(local_path(source), target)


def _add_graph(
    estimator: ModelOwner,
    builder: SavedModelBuilder,
    receiver_fn: Callable[[], Any],
    mode: str,
    path: str,
    saved: bool,
    strip: bool,
) -> None:
    config = estimator.config
    with Graph().as_default() as graph:
        set_random_seed(config.tf_random_seed)
        create_global_step(graph)
        receiver = receiver_fn()
        spec = estimator._call_model_fn(receiver.features, getattr(receiver, "labels", None), mode, config)
        alternatives = getattr(receiver, "receiver_tensors_alternatives", None)
        found = signature_defs(receiver.receiver_tensors, _outputs(spec, mode), alternatives, mode == ModeKeys.PREDICT)
        saver = spec.scaffold.saver or Saver(sharded=True)
        main_op = spec.scaffold.local_init_op
        if main_op is None:
            main_op = Scaffold.default_local_init_op()
        common: dict[str, Any] = {
            "tags": [_TAGS[mode]],
            "signature_def_map": found,
            "assets_collection": get_collection(GraphKeys.ASSET_FILEPATHS),
            "main_op": main_op,
            "strip_default_attrs": strip,
            "saver": saver,
        }
        with Session(config=estimator._session_config) as session:
            saver.restore(session, path)
            if saved:
                builder.add_meta_graph(**common)
            else:
                builder.add_meta_graph_and_variables(session, **common)


def _outputs(spec: EstimatorSpec, mode: str) -> dict[str, ExportOutput]:
    """The outputs by the name of their signature."""
    if mode == ModeKeys.PREDICT:
        return spec.export_outputs  # type: ignore[no-any-return]
    made = TrainOutput if mode == ModeKeys.TRAIN else EvalOutput
    metrics = dict(spec.eval_metric_ops)
    if mode == ModeKeys.EVAL:
        metric_ops(spec)  # refuses the names that evaluation itself uses
    return {mode: made(spec.loss, spec.predictions or None, metrics)}


def signature_defs(
    receiver_tensors: Mapping[str, Any],
    outputs: Mapping[str, ExportOutput],
    alternatives: Mapping[str, Mapping[str, Any]] | None,
    serving_only: bool,
) -> dict[str, Any]:
    """name -> SignatureDef: of each output with the receiver's tensors, and with each alternative to them.

    A signature that cannot be served with these inputs is left out, with a line in the log.

    Raises:
      ValueError: when an alternative is no dictionary.
    """
    found, refused = {}, {}
    inputs: list[tuple[str | None, Mapping[str, Any]]] = [(None, receiver_tensors), *(alternatives or {}).items()]
    for prefix, tensors in inputs:
        for key, output in outputs.items():
            name = key if prefix is None else f"{prefix}:{key}"
            try:
                made = output.as_signature_def(tensors)
            except ValueError as error:
                refused[name] = str(error)
                continue
            if not serving_only or saved_model.is_valid_signature(made):
                found[name] = made
    _log.info("Signatures INCLUDED in export: %s", sorted(found))
    for name, why in refused.items():
        _log.info("Signature %s EXCLUDED from export because it cannot be served: %s", name, why)
    if outputs and not found:
        _log.warning("Export includes no signature at all. The model cannot be served by name.")
    return found


# ---- What a served model receives (``tf.estimator.export.ServingInputReceiver``), and functions that make it -------

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
        cls, features: object, receiver_tensors: object, receiver_tensors_alternatives: Mapping[str, Any] | None = None
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
        cls, features: object, receiver_tensors: object, receiver_tensors_alternatives: Mapping[str, Any] | None = None
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


class _SupervisedInputReceiver(NamedTuple):
    features: Any
    labels: Any
    receiver_tensors: dict[str, Any]


class SupervisedInputReceiver(_SupervisedInputReceiver):
    """Features, labels and what they are made of, for a graph that trains or evaluates.

    Args:
      features: a tensor, or key -> tensor, for the model function.
      labels: likewise.
      receiver_tensors: a tensor, or name -> tensor, that is fed.

    Raises:
      ValueError: when something is missing or has another type.
    """

    __slots__ = ()

    def __new__(cls, features: object, labels: object, receiver_tensors: object) -> SupervisedInputReceiver:
        _check_tensors(features, _FEATURE)
        _check_tensors(labels, _LABEL)
        return super().__new__(cls, features, labels, _named(receiver_tensors, _INPUT, "receiver_tensors"))


def _check_tensors(values: Any, what: str) -> None:
    if values is None:
        raise ValueError(f"{what}s must be defined.")
    for key, value in (values if isinstance(values, Mapping) else {what: values}).items():
        if not isinstance(value, (Tensor, Variable)) and not is_composite(value):
            raise ValueError(f"{what} {key} must be a Tensor or SparseTensor.")


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
    features: object, labels: object, default_batch_size: int | None = None
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
