"""The messages under TensorFlow's own names: ``tensorflow.Example`` of ``tensorflow/core/example/example.proto``.

Generated code of other projects (TensorFlow Serving's ``input_pb2``) depends on TensorFlow's files and finds them by
these names in protobuf's pool. In a process where ``import tensorflow`` is tfmini, no TensorFlow can bring them, so
the messages are declared under them: each of our files is cut into TensorFlow's, and the package ``tfmini`` is renamed.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from importlib import import_module
from types import ModuleType
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool
from google.protobuf.internal import builder

_FOLDERS = {
    "contrib/training/python/training": "hparam",
    "core/example": "example feature",
    "core/framework": (
        "allocation_description attr_value cost_graph device_attributes full_type function graph node_def op_def "
        "resource_handle step_stats summary tensor tensor_description tensor_shape tensor_slice types variable versions"
    ),
    "core/lib/core": "error_codes",
    "core/util": "event saved_tensor_slice",
    "python/training": "checkpoint_state",
}
_FOLDER_OF = {stem: folder for folder, stems in _FOLDERS.items() for stem in stems.split()}


class TensorFlowFiles:
    """TensorFlow's files as modules like those that protobuf's compiler generates, made when they are asked for.

    Args:
      files: our module -> (the stem of TensorFlow's file -> its messages and enums), as in `tfmini.protos`.
    """

    def __init__(self, files: Mapping[str, Mapping[str, str]]) -> None:
        self._ours = {stem: module for module, stems in files.items() for stem in stems}
        self._names = {stem: names.split() for stems in files.values() for stem, names in stems.items()}
        self._stem_of = {name: stem for stem, names in self._names.items() for name in names}

    @functools.cache  # noqa: B019  # there is one object
    def module(self, stem: str) -> ModuleType:
        """Returns the module of a file, such as ``example``; files that it depends on are made before."""
        file = self._file(stem)
        made = ModuleType(file.name.replace("/", ".").removesuffix(".proto") + "_pb2")
        made_names: dict[str, Any] = vars(made)
        made_names["DESCRIPTOR"] = descriptor_pool.Default().AddSerializedFile(file.SerializeToString())
        builder.BuildMessageAndEnumDescriptors(made_names["DESCRIPTOR"], made_names)
        builder.BuildTopDescriptorsAndMessages(made_names["DESCRIPTOR"], made.__name__, made_names)
        return made

    def with_name(self, name: str) -> ModuleType:
        """Returns the module that has a message or enum."""
        return self.module(self._stem_of[name])

    def _file(self, stem: str) -> descriptor_pb2.FileDescriptorProto:
        ours = descriptor_pb2.FileDescriptorProto()
        import_module(f"{__package__}.{self._ours[stem]}").DESCRIPTOR.CopyToProto(ours)
        file = descriptor_pb2.FileDescriptorProto(name=_path(stem), syntax=ours.syntax)
        file.package = _renamed(ours.package)
        file.message_type.extend(message for message in ours.message_type if message.name in self._names[stem])
        file.enum_type.extend(enum for enum in ours.enum_type if enum.name in self._names[stem])
        used = {field.type_name for message in file.message_type for field in _fields(message)} - {""}
        for message in file.message_type:
            for field in _fields(message):
                if field.type_name:
                    field.type_name = _renamed(field.type_name)
        stems = {self._stem_of[_top(name)] for name in used if name.startswith(".tfmini.")} - {stem}
        file.dependency.extend(self.module(other).__dict__["DESCRIPTOR"].name for other in sorted(stems))
        if any(name.startswith(".google.") for name in used):
            file.dependency.extend(path for path in ours.dependency if path.startswith("google/"))
        return file


def _path(stem: str) -> str:
    return f"tensorflow/{_FOLDER_OF.get(stem, 'core/protobuf')}/{stem}.proto"


def _renamed(name: str) -> str:
    """``.tensorflow.Example`` for ``.tfmini.Example``; names of other packages stay."""
    leading, dot, rest = name.partition("tfmini")
    return f"{leading}tensorflow{rest}" if dot and leading in ("", ".") else name


def _top(name: str) -> str:
    """The top-level message or enum of a full name: ``Features`` for ``.tfmini.Features.FeatureEntry``."""
    return name.removeprefix(".tfmini.").removeprefix("error.").partition(".")[0]


def _fields(message: descriptor_pb2.DescriptorProto) -> Iterator[descriptor_pb2.FieldDescriptorProto]:
    yield from message.field
    for nested in message.nested_type:
        yield from _fields(nested)
