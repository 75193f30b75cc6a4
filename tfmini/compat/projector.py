"""``tf.contrib.tensorboard.plugins.projector``: what TensorBoard's page of embeddings shows."""

from __future__ import annotations

import os
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, text_format

from tfmini.export import export, export_names

_FIELD = descriptor_pb2.FieldDescriptorProto
_FIELDS = {  # message -> its fields: (name, number, type, whether it repeats)
    "SpriteMetadata": [("image_path", 1, "string", False), ("single_image_dim", 2, "uint32", True)],
    "EmbeddingInfo": [
        ("tensor_name", 1, "string", False), ("metadata_path", 2, "string", False),
        ("bookmarks_path", 3, "string", False), ("tensor_shape", 4, "uint32", True),
        ("sprite", 5, "SpriteMetadata", False), ("tensor_path", 6, "string", False),
    ],
    "ProjectorConfig": [
        ("model_checkpoint_path", 1, "string", False), ("embeddings", 2, "EmbeddingInfo", True),
        ("model_checkpoint_dir", 3, "string", False),
    ],
}  # fmt: skip
_TYPES = {"string": _FIELD.TYPE_STRING, "uint32": _FIELD.TYPE_UINT32}
_FILE = "projector_config.pbtxt"  # where TensorBoard looks for it, in the folder of the events


def _classes() -> dict[str, Any]:
    file = descriptor_pb2.FileDescriptorProto(name="tfmini/projector.proto", syntax="proto3")
    file.package = "tfmini.projector"
    for name, fields in _FIELDS.items():
        message = file.message_type.add(name=name)
        for field, number, kind, repeats in fields:
            added = message.field.add(name=field, number=number)
            added.label = _FIELD.LABEL_REPEATED if repeats else _FIELD.LABEL_OPTIONAL
            added.type = _TYPES.get(kind, _FIELD.TYPE_MESSAGE)
            if kind not in _TYPES:
                added.type_name = f".tfmini.projector.{kind}"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    found = message_factory.GetMessageClassesForFiles([file.name], pool)
    return {name: found[f"tfmini.projector.{name}"] for name in _FIELDS}


_made = _classes()
SpriteMetadata, EmbeddingInfo, ProjectorConfig = (_made[name] for name in _FIELDS)
export_names("tf.contrib.tensorboard.plugins.projector", "EmbeddingInfo ProjectorConfig SpriteMetadata")


@export("tf.contrib.tensorboard.plugins.projector.visualize_embeddings")
def visualize_embeddings(summary_writer: Any, config: Any) -> None:
    """Writes the configuration of the page of embeddings beside the events of a writer.

    Raises:
      ValueError: the writer has no folder.
    """
    folder = summary_writer.get_logdir()
    if folder is None:
        raise ValueError("Summary writer must have a logdir")
    with open(os.path.join(os.fspath(folder), _FILE), "w") as file:
        file.write(text_format.MessageToString(config))
