"""Assets of SavedModels: files that string constants name; they are copied into the model's directory."""

from __future__ import annotations

import filecmp
import os
import shutil
from collections.abc import Iterable
from typing import Any

from tfmini import dtypes, protos
from tfmini.graph.default_graph import get_default_graph
from tfmini.graph.operation import Tensor
from tfmini.graph.scoped_names import prepend_name_scope
from tfmini.train.checkpointing.saved_model import constants

# TensorFlow's name of the message in an Any; the name in tfmini.protos is tfmini.AssetFileDef.
_TYPE_URL = "type.googleapis.com/tensorflow.AssetFileDef"


def add_assets(export_dir: str, tensors: Iterable[Any] | None) -> None:
    """Copies the files that constants name, and records the file of each constant in a collection.

    Raises:
      TypeError: when a tensor is no scalar string constant.
      ValueError: when a constant is empty.
    """
    sources: dict[str, str] = {}
    for tensor in tensors or ():
        path = _path_of(tensor)
        if not path:
            raise ValueError(f"Invalid asset filepath tensor {tensor}")
        name = _name_for(path, sources)
        sources[name] = path
        _record(name, tensor)
    if not sources:
        return
    directory = os.path.join(export_dir, constants.ASSETS_DIRECTORY)
    os.makedirs(directory, exist_ok=True)
    for name, path in sources.items():
        target = os.path.join(directory, name)
        if not os.path.exists(target):
            shutil.copyfile(path, target)


def _path_of(tensor: Any) -> str:
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
    if name not in sources or sources[name] == path or filecmp.cmp(path, sources[name], shallow=False):
        return name
    count = 1
    while unique in sources:
        unique = f"{name}_{count}"
        count += 1
    return unique


def _record(name: str, tensor: Tensor) -> None:
    from google.protobuf.any_pb2 import Any as AnyMessage

    definition = protos.AssetFileDef(filename=name)
    definition.tensor_info.name = tensor.name
    packed = AnyMessage(type_url=_TYPE_URL, value=definition.SerializeToString())
    get_default_graph().add_to_collection(constants.ASSETS_KEY, packed)


def asset_feeds(export_dir: str, meta_graph_def: Any, import_scope: str | None) -> dict[str, str]:
    """Feeds for a loaded model: name of a constant -> the current path of its asset."""
    definitions = list(meta_graph_def.asset_file_def)
    if not definitions and constants.ASSETS_KEY in meta_graph_def.collection_def:
        packed = meta_graph_def.collection_def[constants.ASSETS_KEY].any_list.value
        definitions = [protos.AssetFileDef.FromString(item.value) for item in packed]
    directory = os.path.join(export_dir, constants.ASSETS_DIRECTORY)
    return {
        prepend_name_scope(definition.tensor_info.name, import_scope): os.path.join(directory, definition.filename)
        for definition in definitions
    }
