"""Writing SavedModels: ``tf.saved_model.Builder`` and ``tf.saved_model.simple_save``."""

from __future__ import annotations

import filecmp
import os
import shutil
from collections.abc import Iterable, Mapping
from typing import Any

from tfmini import dtypes, errors, protos
from tfmini.checkpoint.files import local_path
from tfmini.core_types import PathLike, TensorLike
from tfmini.export import export, export_names
from tfmini.graph.attr_values import shape_proto
from tfmini.graph.default_graph import get_default_graph
from tfmini.graph.graph import Graph
from tfmini.graph.names import GraphKeys, prepend_name_scope
from tfmini.graph.operation import Operation, Tensor
from tfmini.graph.scoping import control_dependencies
from tfmini.ops.composites import SparseTensor
from tfmini.ops.control import group
from tfmini.ops.variables.functions import global_variables_initializer, local_variables_initializer
from tfmini.protos import MetaGraphDef, SignatureDef, TensorInfo
from tfmini.runtime.client.session import BaseSession
from tfmini.shapes import as_raw
from tfmini.train.checkpointing.graph_files import read_message, write_message
from tfmini.train.checkpointing.saver import Saver, import_meta_graph
from tfmini.train.checkpointing.saver_builder import all_saveables

# ---- Names in SavedModels (``tf.saved_model.constants``, ``signature_constants``, ``tag_constants``) ---------------

ASSETS_DIRECTORY = "assets"
ASSETS_KEY = "saved_model_assets"
LEGACY_INIT_OP_KEY = "legacy_init_op"
MAIN_OP_KEY = "saved_model_main_op"
SAVED_MODEL_SCHEMA_VERSION = 1
SAVED_MODEL_FILENAME_PB = "saved_model.pb"
SAVED_MODEL_FILENAME_PBTXT = "saved_model.pbtxt"
VARIABLES_DIRECTORY = "variables"
VARIABLES_FILENAME = "variables"
# Newer versions of TensorFlow write this signature in place of the collection MAIN_OP_KEY.
INIT_OP_SIGNATURE_KEY = "__saved_model_init_op"
TRAIN_OP_SIGNATURE_KEY = "__saved_model_train_op"

DEFAULT_SERVING_SIGNATURE_DEF_KEY = "serving_default"
CLASSIFY_INPUTS = "inputs"
CLASSIFY_METHOD_NAME = "tensorflow/serving/classify"
CLASSIFY_OUTPUT_CLASSES = "classes"
CLASSIFY_OUTPUT_SCORES = "scores"
PREDICT_INPUTS = "inputs"
PREDICT_METHOD_NAME = "tensorflow/serving/predict"
PREDICT_OUTPUTS = "outputs"
REGRESS_INPUTS = "inputs"
REGRESS_METHOD_NAME = "tensorflow/serving/regress"
REGRESS_OUTPUTS = "outputs"

SERVING = "serve"
TRAINING = "train"
GPU = "gpu"
TPU = "tpu"

export_names(
    "tf.saved_model tf.saved_model.constants",
    "ASSETS_DIRECTORY ASSETS_KEY LEGACY_INIT_OP_KEY MAIN_OP_KEY SAVED_MODEL_FILENAME_PB SAVED_MODEL_FILENAME_PBTXT "
    "SAVED_MODEL_SCHEMA_VERSION VARIABLES_DIRECTORY VARIABLES_FILENAME",
)
export_names(
    "tf.saved_model tf.saved_model.signature_constants",
    "CLASSIFY_INPUTS CLASSIFY_METHOD_NAME CLASSIFY_OUTPUT_CLASSES CLASSIFY_OUTPUT_SCORES "
    "DEFAULT_SERVING_SIGNATURE_DEF_KEY PREDICT_INPUTS PREDICT_METHOD_NAME PREDICT_OUTPUTS REGRESS_INPUTS "
    "REGRESS_METHOD_NAME REGRESS_OUTPUTS",
)
export_names("tf.saved_model tf.saved_model.tag_constants", "GPU SERVING TPU TRAINING")


# ---- Assets of SavedModels: files that string constants name; they are copied into the model's directory -----------

# TensorFlow's name of the message in an Any; the name in tfmini.protos is tfmini.AssetFileDef.
_TYPE_URL = "type.googleapis.com/tensorflow.AssetFileDef"


def add_assets(export_dir: str, tensors: Iterable[Any] | None) -> list[Any]:
    """Copies the files that constants name, and records the file of each constant in a collection.

    Returns:
      The records, AssetFileDefs.

    Raises:
      TypeError: when a tensor is no scalar string constant.
      ValueError: when a constant is empty.
    """
    sources: dict[str, str] = {}
    records = []
    for tensor in tensors or ():
        path = _path_of(tensor)
        if not path:
            raise ValueError(f"Invalid asset filepath tensor {tensor}")
        name = _name_for(path, sources)
        sources[name] = path
        records.append(_record(name, tensor))
    if not sources:
        return []
    directory = os.path.join(export_dir, ASSETS_DIRECTORY)
    os.makedirs(local_path(directory), exist_ok=True)
    for name, path in sources.items():
        target = local_path(os.path.join(directory, name))
        if not os.path.exists(target):
            shutil.copyfile(local_path(path), target)
    return records


def _path_of(tensor: TensorLike) -> str:
    if not isinstance(tensor, Tensor):
        raise TypeError("Asset path tensor must be a Tensor.")
    if tensor.op.type != "Const":
        raise TypeError("Asset path tensor must be of type constant.")
    if tensor.dtype is not dtypes.string:
        raise TypeError("Asset path tensor must be of dtype string.")
    values = tensor.op.attrs["value"]
    if values.size != 1:
        raise TypeError("Asset path tensor must be a scalar.")
    return values.item().decode()  # type: ignore[no-any-return]


def _name_for(path: str, sources: dict[str, str]) -> str:
    """The file's base name, made unique if a different file has the same name."""
    name = unique = os.path.basename(path)
    if name not in sources or sources[name] == path:
        return name
    if filecmp.cmp(local_path(path), local_path(sources[name]), shallow=False):
        return name
    count = 1
    while unique in sources:
        unique = f"{name}_{count}"
        count += 1
    return unique


def _record(name: str, tensor: Tensor) -> Any:
    from google.protobuf.any_pb2 import Any as AnyMessage

    definition = protos.AssetFileDef(filename=name)
    definition.tensor_info.name = tensor.name
    packed = AnyMessage(type_url=_TYPE_URL, value=definition.SerializeToString())
    get_default_graph().add_to_collection(ASSETS_KEY, packed)
    return definition


def asset_feeds(export_dir: str, meta_graph_def: MetaGraphDef, import_scope: str | None) -> dict[str, str]:
    """Feeds for a loaded model: name of a constant -> the current path of its asset."""
    definitions = list(meta_graph_def.asset_file_def)
    if not definitions and ASSETS_KEY in meta_graph_def.collection_def:
        packed = meta_graph_def.collection_def[ASSETS_KEY].any_list.value
        definitions = [protos.AssetFileDef.FromString(item.value) for item in packed]
    directory = os.path.join(export_dir, ASSETS_DIRECTORY)
    return {
        prepend_name_scope(definition.tensor_info.name, import_scope): os.path.join(directory, definition.filename)
        for definition in definitions
    }


# ---- Loading SavedModels into a session (``tf.saved_model.loader``), and their main ops ----------------------------


@export(
    "tf.saved_model.contains_saved_model",
    "tf.saved_model.maybe_saved_model_directory",
    "tf.saved_model.loader.maybe_saved_model_directory",
)
def maybe_saved_model_directory(export_dir: PathLike) -> bool:
    """Whether a directory holds a SavedModel's file (``tf.saved_model.loader.maybe_saved_model_directory``)."""
    return _model_file(os.fsdecode(export_dir)) is not None


def _model_file(export_dir: str) -> str | None:
    names = (SAVED_MODEL_FILENAME_PB, SAVED_MODEL_FILENAME_PBTXT)
    paths = (os.path.join(export_dir, name) for name in names)
    return next((path for path in paths if os.path.exists(local_path(path))), None)


def parse_saved_model(export_dir: PathLike) -> Any:
    """The SavedModel message of a directory.

    Raises:
      OSError: when the file does not exist or cannot be read.
    """
    path = _model_file(os.fsdecode(export_dir))
    if path is None:
        names = f"{SAVED_MODEL_FILENAME_PBTXT}|{SAVED_MODEL_FILENAME_PB}"
        raise OSError(f"SavedModel file does not exist at: {os.fsdecode(export_dir)}/{{{names}}}")
    return read_message(path, protos.SavedModel())


@export("tf.saved_model.load", "tf.saved_model.loader.load")
def load(
    sess: BaseSession, tags: Iterable[str], export_dir: PathLike, import_scope: str | None = None, **saver_kwargs: Any
) -> Any:
    """Adds a meta graph of a SavedModel to a session's graph, restores its variables and runs its main op.

    Args:
      sess: the session.
      tags: the tags of the meta graph; all must match.
      export_dir: the SavedModel's directory.
      import_scope: a name scope for all imported names.
      **saver_kwargs: as in ``tf.train.import_meta_graph``.

    Returns:
      The MetaGraphDef (``tf.saved_model.loader.load``).

    Raises:
      OSError: when there is no SavedModel or it cannot be read.
      RuntimeError: when no meta graph has these tags, or it has several main ops.
      ValueError: when its graph is not valid.
      OpError: when the variables cannot be restored.
    """
    directory = os.fsdecode(export_dir)
    definition = with_tags(parse_saved_model(directory), set(tags))
    main_op = _main_op_name(definition)
    what = f"The SavedModel in {directory} is not valid"
    with errors.reading(what, ValueError), sess.graph.as_default():
        saver = import_meta_graph(definition, import_scope=import_scope, **saver_kwargs)
        if saver is not None:
            saver.restore(sess, os.path.join(directory, VARIABLES_DIRECTORY, VARIABLES_FILENAME))
        if main_op is not None:
            op = get_default_graph().as_graph_element(prepend_name_scope(main_op, import_scope))
            sess.run(op, asset_feeds(directory, definition, import_scope))
    return definition


def with_tags(model: Any, tags: set[str]) -> Any:
    """The graph of a SavedModel message with exactly these tags; RuntimeError without one."""
    for definition in model.meta_graphs:
        if set(definition.meta_info_def.tags) == tags:
            return definition
    available = [set(definition.meta_info_def.tags) for definition in model.meta_graphs]
    raise RuntimeError(
        f"MetaGraphDef associated with tags {', '.join(repr(tag) for tag in sorted(tags))} could not be found in"
        " SavedModel. To inspect available tag-sets in the SavedModel, please use the SavedModel CLI:"
        f" `saved_model_cli`\navailable_tags: {available}"
    )


def _main_op_name(definition: Any) -> str | None:
    if INIT_OP_SIGNATURE_KEY in definition.signature_def:
        info = definition.signature_def[INIT_OP_SIGNATURE_KEY].outputs[INIT_OP_SIGNATURE_KEY]
        return str(info.name)
    for key in (MAIN_OP_KEY, LEGACY_INIT_OP_KEY):
        if key in definition.collection_def:
            names = definition.collection_def[key].node_list.value
            if len(names) != 1:
                raise RuntimeError(f"Expected exactly one SavedModel init op. Found: {list(names)}")
            return str(names[0])
    return None


@export("tf.saved_model.main_op.main_op")
def main_op() -> Operation:
    """An op that initializes variables and tables (``tf.saved_model.main_op.main_op``)."""
    tables = get_default_graph().get_collection(GraphKeys.TABLE_INITIALIZERS)
    init_tables = group(*tables, name="init_all_tables")
    return group(global_variables_initializer(), local_variables_initializer(), init_tables)


@export("tf.saved_model.main_op_with_restore", "tf.saved_model.main_op.main_op_with_restore")
def main_op_with_restore(restore_op_name: Any) -> Operation:
    """`main_op` followed by the op ``restore_op_name`` (``tf.saved_model.main_op.main_op_with_restore``)."""
    with control_dependencies([main_op()]):
        return group(get_default_graph().as_graph_element(restore_op_name))


# ---- Signatures of models: SignatureDef and TensorInfo messages for the inputs and outputs -------------------------

_STRING, _FLOAT = dtypes.string.as_datatype_enum, dtypes.float32.as_datatype_enum


@export("tf.saved_model.build_tensor_info", "tf.saved_model.utils.build_tensor_info")
def build_tensor_info(tensor: Any) -> Any:
    """The TensorInfo of a tensor or sparse tensor (``tf.saved_model.build_tensor_info``)."""
    dtype: Any = dtypes.as_dtype(tensor.dtype).as_datatype_enum
    info = protos.TensorInfo(dtype=dtype, tensor_shape=shape_proto(as_raw(tensor.get_shape())))
    if isinstance(tensor, SparseTensor):
        info.coo_sparse.values_tensor_name = tensor.values.name
        info.coo_sparse.indices_tensor_name = tensor.indices.name
        info.coo_sparse.dense_shape_tensor_name = tensor.dense_shape.name
    else:
        info.name = tensor.name
    return info


@export("tf.saved_model.get_tensor_from_tensor_info", "tf.saved_model.utils.get_tensor_from_tensor_info")
def get_tensor_from_tensor_info(
    tensor_info: TensorInfo, graph: Graph | None = None, import_scope: str | None = None
) -> Any:
    """The tensor that a TensorInfo names (``tf.saved_model.get_tensor_from_tensor_info``).

    Raises:
      KeyError: when the graph has no such tensor.
      ValueError: when the message names no tensor.
    """
    graph = graph or get_default_graph()

    def find(name: str) -> Any:
        return graph.get_tensor_by_name(prepend_name_scope(name, import_scope))

    encoding = tensor_info.WhichOneof("encoding")
    if encoding == "name":
        return find(tensor_info.name)
    if encoding == "coo_sparse":
        names = tensor_info.coo_sparse
        return SparseTensor(
            find(names.indices_tensor_name), find(names.values_tensor_name), find(names.dense_shape_tensor_name)
        )
    raise ValueError(f"Invalid TensorInfo.encoding: {encoding}")


@export("tf.saved_model.build_signature_def", "tf.saved_model.signature_def_utils.build_signature_def")
def build_signature_def(
    inputs: Mapping[str, Any] | None = None, outputs: Mapping[str, Any] | None = None, method_name: str | None = None
) -> Any:
    """A SignatureDef with TensorInfos by name (``tf.saved_model.build_signature_def``)."""
    made = protos.SignatureDef()
    for key, info in (inputs or {}).items():
        made.inputs[key].CopyFrom(info)
    for key, info in (outputs or {}).items():
        made.outputs[key].CopyFrom(info)
    if method_name is not None:
        made.method_name = method_name
    return made


def _typed_info(tensor: TensorLike, enum: int, complaint: str) -> Any:
    info = build_tensor_info(tensor)
    if info.dtype != enum:
        raise ValueError(complaint)
    return info


def _examples(examples: Tensor, kind: str) -> Any:
    if examples is None:
        raise ValueError(f"{kind} examples cannot be None.")
    complaint = f"{kind} examples must be a string Tensor."
    if not isinstance(examples, Tensor):
        raise ValueError(complaint)
    return _typed_info(examples, _STRING, complaint)


@export("tf.saved_model.regression_signature_def", "tf.saved_model.signature_def_utils.regression_signature_def")
def regression_signature_def(examples: Tensor, predictions: TensorLike) -> Any:
    """The signature from serialized Examples to a float tensor (``tf.saved_model.regression_signature_def``).

    Raises:
      ValueError: when a tensor is missing or has another type.
    """
    inputs = {REGRESS_INPUTS: _examples(examples, "Regression")}
    if predictions is None:
        raise ValueError("Regression predictions cannot be None.")
    output = _typed_info(predictions, _FLOAT, "Regression output must be a float Tensor.")
    return build_signature_def(inputs, {REGRESS_OUTPUTS: output}, REGRESS_METHOD_NAME)


@export(
    "tf.saved_model.classification_signature_def", "tf.saved_model.signature_def_utils.classification_signature_def"
)
def classification_signature_def(examples: Tensor, classes: Tensor | None, scores: Tensor | None) -> Any:
    """The signature from serialized Examples to classes and scores (``tf.saved_model.classification_signature_def``).

    Raises:
      ValueError: when the examples, or both classes and scores, are missing, or a tensor has another type.
    """
    inputs = {CLASSIFY_INPUTS: _examples(examples, "Classification")}
    if classes is None and scores is None:
        raise ValueError("Classification classes and scores cannot both be None.")
    outputs = {}
    if classes is not None:
        complaint = "Classification classes must be a string Tensor."
        outputs[CLASSIFY_OUTPUT_CLASSES] = _typed_info(classes, _STRING, complaint)
    if scores is not None:
        complaint = "Classification scores must be a float Tensor."
        outputs[CLASSIFY_OUTPUT_SCORES] = _typed_info(scores, _FLOAT, complaint)
    return build_signature_def(inputs, outputs, CLASSIFY_METHOD_NAME)


@export("tf.saved_model.predict_signature_def", "tf.saved_model.signature_def_utils.predict_signature_def")
def predict_signature_def(inputs: Mapping[str, Any], outputs: Mapping[str, Any]) -> Any:
    """The signature with any inputs and outputs (``tf.saved_model.predict_signature_def``).

    Raises:
      ValueError: when there are no inputs or no outputs.
    """
    if not inputs:
        raise ValueError("Prediction inputs cannot be None or empty.")
    if not outputs:
        raise ValueError("Prediction outputs cannot be None or empty.")
    return build_signature_def(
        {key: build_tensor_info(tensor) for key, tensor in inputs.items()},
        {key: build_tensor_info(tensor) for key, tensor in outputs.items()},
        PREDICT_METHOD_NAME,
    )


# Method -> (inputs, outputs) with their required types; all inputs and at least one output must be present.
_RULES = {
    REGRESS_METHOD_NAME: ({REGRESS_INPUTS: _STRING}, {REGRESS_OUTPUTS: _FLOAT}),
    CLASSIFY_METHOD_NAME: (
        {CLASSIFY_INPUTS: _STRING},
        {CLASSIFY_OUTPUT_CLASSES: _STRING, CLASSIFY_OUTPUT_SCORES: _FLOAT},
    ),
}


@export("tf.saved_model.is_valid_signature", "tf.saved_model.signature_def_utils.is_valid_signature")
def is_valid_signature(signature_def: SignatureDef) -> bool:
    """Whether a SignatureDef is of one of the three kinds for serving (``tf.saved_model.is_valid_signature``)."""
    if signature_def is None or not signature_def.inputs or not signature_def.outputs:
        return False
    if signature_def.method_name == PREDICT_METHOD_NAME:
        return True
    rule = _RULES.get(signature_def.method_name)
    if rule is None:
        return False
    inputs = {key: info.dtype for key, info in signature_def.inputs.items()}
    outputs = {key: info.dtype for key, info in signature_def.outputs.items()}
    return inputs == rule[0] and outputs.items() <= rule[1].items()


# ---- builder ------------------------------------------------------------


@export("tf.saved_model.Builder", "tf.saved_model.builder.SavedModelBuilder")
class SavedModelBuilder:
    """Collects meta graphs and writes them as a SavedModel (``tf.saved_model.Builder``).

    Args:
      export_dir: a directory that is empty or does not exist.

    Raises:
      AssertionError: when the directory is not empty.
    """

    def __init__(self, export_dir: PathLike) -> None:
        self._saved_model = protos.SavedModel(saved_model_schema_version=SAVED_MODEL_SCHEMA_VERSION)
        self._export_dir = os.fsdecode(export_dir)
        self._has_saved_variables = False
        directory = local_path(self._export_dir)
        if os.path.isdir(directory) and os.listdir(directory):
            raise AssertionError(
                "Export directory already exists, and isn't empty. Please choose a different export directory, or"
                f" delete all the contents of the specified directory: {self._export_dir}"
            )
        os.makedirs(directory, exist_ok=True)

    def add_meta_graph_and_variables(
        self,
        sess: BaseSession,
        tags: Iterable[str],
        signature_def_map: Mapping[str, Any] | None = None,
        assets_collection: Iterable[Any] | None = None,
        legacy_init_op: object = None,
        clear_devices: bool = False,
        main_op: object = None,
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
        variables = os.path.join(self._export_dir, VARIABLES_DIRECTORY)
        os.makedirs(local_path(variables), exist_ok=True)
        saver = saver or _saver_of_all()
        path = os.path.join(variables, VARIABLES_FILENAME)
        saver.save(sess, path, write_meta_graph=False, write_state=False)
        self._add(saver, tags, signature_def_map, clear_devices, strip_default_attrs)
        self._has_saved_variables = True

    def add_meta_graph(
        self,
        tags: Iterable[str],
        signature_def_map: Mapping[str, Any] | None = None,
        assets_collection: Iterable[Any] | None = None,
        legacy_init_op: object = None,
        clear_devices: bool = False,
        main_op: object = None,
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

    def _prepare(self, signatures: Mapping[str, Any] | None, assets: Iterable[Any] | None, main_op: object) -> None:
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

    def save(self, as_text: bool = False) -> bytes:
        """Writes the SavedModel message to its file and returns the path, as bytes."""
        name = SAVED_MODEL_FILENAME_PBTXT if as_text else SAVED_MODEL_FILENAME_PB
        path = os.path.join(self._export_dir, name)
        write_message(self._saved_model, path, as_text)
        return os.fsencode(path)


def _saver_of_all() -> Saver:
    return Saver(all_saveables(), sharded=True, allow_empty=True)


def _add_main_op(main_op: object) -> None:
    if not isinstance(main_op, Operation):
        raise TypeError(f"main_op needs to be an Operation: {main_op!r}")
    graph = get_default_graph()
    for key in (MAIN_OP_KEY, LEGACY_INIT_OP_KEY):
        if graph.get_collection(key):
            raise ValueError(f"Graph already contains one or more main ops under the collection {key}.")
    graph.add_to_collection(MAIN_OP_KEY, main_op)


def _check_signatures(signatures: Mapping[str, Any]) -> None:
    reserved = {INIT_OP_SIGNATURE_KEY: "initialization", TRAIN_OP_SIGNATURE_KEY: "the train op"}
    for key, signature in signatures.items():
        for info in (*signature.inputs.values(), *signature.outputs.values()):
            _check_tensor_info(info)
        if key in reserved:
            raise KeyError(f'SignatureDef map key "{key}" is reserved for {reserved[key]}. Please use a different key.')


def _check_tensor_info(info: TensorInfo) -> None:
    start = "All TensorInfo protos used in the SignatureDefs must have"
    if info.WhichOneof("encoding") is None:
        raise AssertionError(f"{start} one of the 'encoding' fields (e.g., name or coo_sparse) set: {info}")
    if info.dtype == 0:
        raise AssertionError(f"{start} the dtype field set: {info}")


@export("tf.saved_model.simple_save")
def simple_save(
    session: BaseSession,
    export_dir: PathLike,
    inputs: Mapping[str, Any],
    outputs: Mapping[str, Any],
    legacy_init_op: object = None,
) -> None:
    """Writes the default graph for serving, with one signature (``tf.saved_model.simple_save``).

    Args:
      session: the session of the variables.
      export_dir: a directory that is empty or does not exist.
      inputs, outputs: name -> tensor.
      legacy_init_op: an op to run when the model is loaded.
    """
    signatures = {DEFAULT_SERVING_SIGNATURE_DEF_KEY: predict_signature_def(inputs, outputs)}
    builder = SavedModelBuilder(export_dir)
    builder.add_meta_graph_and_variables(
        session,
        tags=[SERVING],
        signature_def_map=signatures,
        assets_collection=get_default_graph().get_collection(GraphKeys.ASSET_FILEPATHS),
        main_op=legacy_init_op,
        clear_devices=True,
    )
    builder.save()
