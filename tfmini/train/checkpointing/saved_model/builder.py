"""Writing SavedModels: ``tf.saved_model.Builder`` and ``tf.saved_model.simple_save``."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any

from tfmini import protos
from tfmini.export import export
from tfmini.graph.default_graph import get_default_graph
from tfmini.graph.keys import GraphKeys
from tfmini.graph.operation import Operation
from tfmini.train.checkpointing.graph_files import write_message
from tfmini.train.checkpointing.saveables import all_saveables
from tfmini.train.checkpointing.saved_model import constants
from tfmini.train.checkpointing.saved_model.assets import add_assets
from tfmini.train.checkpointing.saved_model.signatures import predict_signature_def
from tfmini.train.checkpointing.saver import Saver


@export("tf.saved_model.Builder", "tf.saved_model.builder.SavedModelBuilder")
class SavedModelBuilder:
    """Collects meta graphs and writes them as a SavedModel (``tf.saved_model.Builder``).

    Args:
      export_dir: a directory that is empty or does not exist.

    Raises:
      AssertionError: when the directory is not empty.
    """

    def __init__(self, export_dir: Any) -> None:
        self._saved_model = protos.SavedModel(saved_model_schema_version=constants.SAVED_MODEL_SCHEMA_VERSION)
        self._export_dir = os.fsdecode(export_dir)
        self._has_saved_variables = False
        if os.path.isdir(self._export_dir) and os.listdir(self._export_dir):
            raise AssertionError(
                "Export directory already exists, and isn't empty. Please choose a different export directory, or"
                f" delete all the contents of the specified directory: {self._export_dir}"
            )
        os.makedirs(self._export_dir, exist_ok=True)

    def add_meta_graph_and_variables(
        self,
        sess: Any,
        tags: Iterable[str],
        signature_def_map: Mapping[str, Any] | None = None,
        assets_collection: Iterable[Any] | None = None,
        legacy_init_op: Any = None,
        clear_devices: bool = False,
        main_op: Any = None,
        strip_default_attrs: bool = False,
        saver: Saver | None = None,
    ) -> None:
        """Adds the default graph and writes the variables of ``sess``; called once, before `add_meta_graph`.

        Args:
          sess: the session of the variables.
          tags: names of the meta graph.
          signature_def_map: name -> SignatureDef.
          assets_collection: string constants that name files to copy.
          legacy_init_op: older name of ``main_op``.
          clear_devices: drop the nodes' devices.
          main_op: an op to run when the model is loaded.
          strip_default_attrs: leave out attrs with default values.
          saver: writes the variables; default: a sharded Saver of all variables.

        Raises:
          AssertionError: when variables were added before, or a TensorInfo has no name or type.
          KeyError: when a signature name is reserved.
          TypeError, ValueError: when the main op is no op, or there is another one.
        """
        if self._has_saved_variables:
            raise AssertionError(
                "Graph state including variables and assets has already been saved. Please invoke `add_meta_graph()`"
                " instead."
            )
        self._prepare(signature_def_map, assets_collection, main_op or legacy_init_op)
        variables = os.path.join(self._export_dir, constants.VARIABLES_DIRECTORY)
        os.makedirs(variables, exist_ok=True)
        saver = saver or _saver_of_all()
        path = os.path.join(variables, constants.VARIABLES_FILENAME)
        saver.save(sess, path, write_meta_graph=False, write_state=False)
        self._add(saver, tags, signature_def_map, clear_devices, strip_default_attrs)
        self._has_saved_variables = True

    def add_meta_graph(
        self,
        tags: Iterable[str],
        signature_def_map: Mapping[str, Any] | None = None,
        assets_collection: Iterable[Any] | None = None,
        legacy_init_op: Any = None,
        clear_devices: bool = False,
        main_op: Any = None,
        strip_default_attrs: bool = False,
        saver: Saver | None = None,
    ) -> None:
        """Adds the default graph, which shares the written variables; see `add_meta_graph_and_variables`."""
        if not self._has_saved_variables:
            raise AssertionError(
                "Graph state including variables and assets has not been saved yet. Please invoke"
                " `add_meta_graph_and_variables()` first."
            )
        self._prepare(signature_def_map, assets_collection, main_op or legacy_init_op)
        self._add(saver or _saver_of_all(), tags, signature_def_map, clear_devices, strip_default_attrs)

    def _prepare(self, signatures: Mapping[str, Any] | None, assets: Iterable[Any] | None, main_op: Any) -> None:
        _check_signatures(signatures or {})
        add_assets(self._export_dir, assets)
        if main_op is not None:
            _add_main_op(main_op)

    def _add(
        self, saver: Saver, tags: Iterable[str], signatures: Mapping[str, Any] | None, clear_devices: bool, strip: bool
    ) -> None:
        made = saver.export_meta_graph(clear_devices=clear_devices, strip_default_attrs=strip)
        made.meta_info_def.tags.extend(tags)
        for key, signature in (signatures or {}).items():
            made.signature_def[key].CopyFrom(signature)
        self._saved_model.meta_graphs.add().CopyFrom(made)

    def save(self, as_text: bool = False) -> str:
        """Writes the SavedModel message to its file and returns the path."""
        name = constants.SAVED_MODEL_FILENAME_PBTXT if as_text else constants.SAVED_MODEL_FILENAME_PB
        path = os.path.join(self._export_dir, name)
        write_message(self._saved_model, path, as_text)
        return path


def _saver_of_all() -> Saver:
    return Saver(all_saveables(), sharded=True, allow_empty=True)


def _add_main_op(main_op: Any) -> None:
    if not isinstance(main_op, Operation):
        raise TypeError(f"main_op needs to be an Operation: {main_op!r}")
    graph = get_default_graph()
    for key in (constants.MAIN_OP_KEY, constants.LEGACY_INIT_OP_KEY):
        if graph.get_collection(key):
            raise ValueError(f"Graph already contains one or more main ops under the collection {key}.")
    graph.add_to_collection(constants.MAIN_OP_KEY, main_op)


def _check_signatures(signatures: Mapping[str, Any]) -> None:
    reserved = {constants.INIT_OP_SIGNATURE_KEY: "initialization", constants.TRAIN_OP_SIGNATURE_KEY: "the train op"}
    for key, signature in signatures.items():
        for info in (*signature.inputs.values(), *signature.outputs.values()):
            _check_tensor_info(info)
        if key in reserved:
            raise KeyError(f'SignatureDef map key "{key}" is reserved for {reserved[key]}. Please use a different key.')


def _check_tensor_info(info: Any) -> None:
    start = "All TensorInfo protos used in the SignatureDefs must have"
    if info.WhichOneof("encoding") is None:
        raise AssertionError(f"{start} one of the 'encoding' fields (e.g., name or coo_sparse) set: {info}")
    if info.dtype == 0:
        raise AssertionError(f"{start} the dtype field set: {info}")


@export("tf.saved_model.simple_save")
def simple_save(
    session: Any, export_dir: Any, inputs: Mapping[str, Any], outputs: Mapping[str, Any], legacy_init_op: Any = None
) -> None:
    """Writes the default graph for serving, with one signature (``tf.saved_model.simple_save``).

    Args:
      session: the session of the variables.
      export_dir: a directory that is empty or does not exist.
      inputs, outputs: name -> tensor.
      legacy_init_op: an op to run when the model is loaded.
    """
    signatures = {constants.DEFAULT_SERVING_SIGNATURE_DEF_KEY: predict_signature_def(inputs, outputs)}
    builder = SavedModelBuilder(export_dir)
    builder.add_meta_graph_and_variables(
        session,
        tags=[constants.SERVING],
        signature_def_map=signatures,
        assets_collection=get_default_graph().get_collection(GraphKeys.ASSET_FILEPATHS),
        main_op=legacy_init_op,
        clear_devices=True,
    )
    builder.save()
