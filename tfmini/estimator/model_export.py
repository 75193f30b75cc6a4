"""The export of an `Estimator` as a SavedModel, with one graph for each mode."""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from tfmini.estimator.evaluation import metric_ops
from tfmini.estimator.export_outputs import EvalOutput, ExportOutput, TrainOutput
from tfmini.estimator.modes import ModeKeys
from tfmini.graph.graph import Graph
from tfmini.graph.keys import GraphKeys
from tfmini.graph.scoping import get_collection, set_random_seed
from tfmini.runtime.client.session import Session
from tfmini.runtime.process import current_process
from tfmini.train.checkpointing.saved_model import constants, signatures
from tfmini.train.checkpointing.saved_model.builder import SavedModelBuilder
from tfmini.train.checkpointing.saver import Saver
from tfmini.train.global_steps import create_global_step
from tfmini.train.sessions.scaffold import Scaffold

if TYPE_CHECKING:
    from tfmini.estimator.estimator import Estimator
    from tfmini.estimator.model_spec import EstimatorSpec

_log = logging.getLogger("tensorflow")
Receivers = Mapping[str, Callable[[], Any]]
# In this order the graphs are added: the first one writes the variables, and the training graph has all of them.
_TAGS = {
    ModeKeys.TRAIN: constants.TRAINING,
    ModeKeys.EVAL: "eval",
    ModeKeys.PREDICT: constants.SERVING,
}
_ATTEMPTS = 10


def export_model(
    estimator: Estimator,
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
        if not os.path.exists(found):
            return found
        process.sleep(1)  # the next second has another name
    raise RuntimeError(f"Failed to obtain a unique export directory name below {base} after {_ATTEMPTS} attempts.")


def _copy_extra(directory: str, assets_extra: Mapping[str, str]) -> None:
    for relative, source in assets_extra.items():
        target = os.path.join(directory, "assets.extra", relative)
        os.makedirs(os.path.dirname(target), exist_ok=True)
        shutil.copyfile(source, target)


def _add_graph(
    estimator: Estimator,
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
            if not serving_only or signatures.is_valid_signature(made):
                found[name] = made
    _log.info("Signatures INCLUDED in export: %s", sorted(found))
    for name, why in refused.items():
        _log.info("Signature %s EXCLUDED from export because it cannot be served: %s", name, why)
    if outputs and not found:
        _log.warning("Export includes no signature at all. The model cannot be served by name.")
    return found
