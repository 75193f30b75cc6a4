"""``tf.contrib.predictor``: functions from inputs to outputs, made of SavedModels and estimators."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from tfmini.core_types import PathLike
from tfmini.estimator.estimator import Estimator
from tfmini.estimator.model_export import signature_defs
from tfmini.estimator.model_spec import ModeKeys
from tfmini.export import export
from tfmini.graph.graph import Graph
from tfmini.runtime.client.session import Session
from tfmini.train.checkpointing import saved_model
from tfmini.train.checkpointing.saver import Saver
from tfmini.train.global_steps import create_global_step
from tfmini.train.sessions.scaffold import Scaffold

_KEY = "serving_default"


class Predictor:
    """Computes outputs of a model that is loaded once; calls may come from several threads.

    Attributes:
      graph, session: of the model.
      feed_tensors, fetch_tensors: name of an input or output -> its tensor.
    """

    def __init__(self, session: Session, feeds: Mapping[str, Any], fetches: Mapping[str, Any]) -> None:
        self.session, self.graph = session, session.graph
        self.feed_tensors, self.fetch_tensors = dict(feeds), dict(fetches)

    def __repr__(self) -> str:
        return f"Predictor with feed tensors {self.feed_tensors} and fetch_tensors {self.fetch_tensors}"

    def __call__(self, input_dict: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the outputs by name, as arrays.

        Args:
          input_dict: the value of each input by name; an input with a default may be left out.

        Raises:
          ValueError: when a name is no input's.
        """
        unknown = set(input_dict) - set(self.feed_tensors)
        if unknown:
            raise ValueError(f"Got unexpected keys in input_dict: {unknown}\nexpected: {set(self.feed_tensors)}")
        feeds = {self.feed_tensors[name]: value for name, value in input_dict.items()}
        found: dict[str, Any] = self.session.run(self.fetch_tensors, feeds)
        return found


@export("tf.contrib.predictor.from_saved_model")
def from_saved_model(
    export_dir: PathLike,
    signature_def_key: str | None = None,
    signature_def: Any = None,
    input_names: Mapping[str, str] | None = None,
    output_names: Mapping[str, str] | None = None,
    tags: str | Iterable[str] | None = None,
    graph: Graph | None = None,
    config: Any = None,
) -> Predictor:
    """Makes a function of a SavedModel's signature (``tf.contrib.predictor.from_saved_model``).

    Args:
      export_dir: the SavedModel's directory.
      signature_def_key: the signature; default ``serving_default``. ``signature_def``: another SignatureDef.
      input_names, output_names: name -> name of a tensor, in place of a signature.
      tags: of the meta graph: names, or one text with commas; default ``serve``.
      graph, config: where the model is loaded, and of the session; default: new ones.

    Raises:
      ValueError: when there is no such signature, or more than one of the three ways is used.
      RuntimeError: when no meta graph has these tags.
    """
    if sum(bool(way) for way in (signature_def_key, signature_def, input_names or output_names)) > 1:
        raise ValueError(
            "You must specify at most one of signature_def_key OR signature_def OR(input_names AND output_names)."
        )
    if (input_names is None) != (output_names is None):
        raise ValueError("input_names and output_names must both be specified or both be unspecified.")
    wanted = tags.replace(" ", "").split(",") if isinstance(tags, str) else list(tags or [saved_model.SERVING])
    session = Session(graph=graph or Graph(), config=config)
    definition = saved_model.load(session, wanted, export_dir)
    if input_names is not None and output_names is not None:
        return Predictor(session, _tensors(session, input_names), _tensors(session, output_names))
    signature = signature_def or _signature(definition.signature_def, signature_def_key or _KEY)
    return _of_signature(session, signature)


@export("tf.contrib.predictor.from_estimator")
def from_estimator(
    estimator: Estimator,
    serving_input_receiver_fn: Callable[[], Any],
    output_key: str | None = None,
    graph: Graph | None = None,
    config: Any = None,
) -> Predictor:
    """Makes a function of an estimator's latest checkpoint (``tf.contrib.predictor.from_estimator``).

    Args:
      estimator: has been trained.
      serving_input_receiver_fn: returns a ``ServingInputReceiver``, whose tensors are the inputs.
      output_key: the export output; default ``serving_default``.
      graph, config: where the model is built, and of the session; default: a new one, and the estimator's.

    Raises:
      ValueError: when there is no checkpoint, or no such output.
    """
    path = estimator.latest_checkpoint()
    if not path:
        raise ValueError(f"Couldn't find trained model at {estimator.model_dir}.")
    with (graph or Graph()).as_default() as used:
        create_global_step(used)
        receiver = serving_input_receiver_fn()
        spec = estimator._call_model_fn(receiver.features, None, ModeKeys.PREDICT, estimator.config)
        found = signature_defs(receiver.receiver_tensors, spec.export_outputs, None, True)
        signature = _signature(found, output_key or _KEY)
        session = Session(graph=used, config=config or estimator._session_config)
        (spec.scaffold.saver or Saver()).restore(session, path)
        session.run(spec.scaffold.local_init_op or Scaffold.default_local_init_op())
    return _of_signature(session, signature)


def _of_signature(session: Session, signature: Any) -> Predictor:
    inputs, outputs = (
        {name: info.name for name, info in side.items()} for side in (signature.inputs, signature.outputs)
    )
    return Predictor(session, _tensors(session, inputs), _tensors(session, outputs))


def _tensors(session: Session, names: Mapping[str, str]) -> dict[str, Any]:
    return {name: session.graph.get_tensor_by_name(tensor) for name, tensor in names.items()}


def _signature(found: Mapping[str, Any], key: str) -> Any:
    if key not in found:
        raise ValueError(f"The model has no signature {key!r}; it has {', '.join(map(repr, sorted(found))) or 'none'}.")
    return found[key]
