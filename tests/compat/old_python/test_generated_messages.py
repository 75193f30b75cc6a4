"""Generated code of protobuf's compiler from before version 3.20."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from google.protobuf import descriptor_pb2

from tfmini.compat.old_python import GeneratedMessages

# As protoc 3.6 wrote it: bytes as text, then calls that make the same descriptors once more.
OF_3_6 = """
import sys
_b=sys.version_info[0]<3 and (lambda x:x) or (lambda x:x.encode('latin1'))
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from google.protobuf import reflection as _reflection
from google.protobuf import symbol_database as _symbol_database
_sym_db = _symbol_database.Default()
from google.protobuf import any_pb2 as google_dot_protobuf_dot_any__pb2
DESCRIPTOR = _descriptor.FileDescriptor(
  name='{name}.proto', package='{package}', syntax='proto2', serialized_options=None,
  serialized_pb=_b({text!r}), dependencies=[google_dot_protobuf_dot_any__pb2.DESCRIPTOR,])
_COLOUR = _descriptor.EnumDescriptor(name='Colour', full_name='{package}.Colour', filename=None, file=DESCRIPTOR)
RED = 0
_BOX = _descriptor.Descriptor(name='Box', full_name='{package}.Box', filename=None, file=DESCRIPTOR, fields=[])
Box = _reflection.GeneratedProtocolMessageType('Box', (_message.Message,), dict(
  DESCRIPTOR = _BOX, __module__ = '{name}_pb2'))
_sym_db.RegisterMessage(Box)
"""
# As protoc 3.19 wrote it.
OF_3_19 = """
from google.protobuf import descriptor as _descriptor
from google.protobuf import descriptor_pool as _descriptor_pool
from google.protobuf import message as _message
from google.protobuf import reflection as _reflection
DESCRIPTOR = _descriptor_pool.Default().AddSerializedFile({bytes!r})
_BOX = DESCRIPTOR.message_types_by_name['Box']
Box = _reflection.GeneratedProtocolMessageType('Box', (_message.Message,), {{'DESCRIPTOR' : _BOX}})
"""


def description(name: str) -> bytes:
    file = descriptor_pb2.FileDescriptorProto(name=f"{name}.proto", package=name, syntax="proto2")
    file.dependency.append("google/protobuf/any.proto")
    colour = file.enum_type.add(name="Colour")
    colour.value.add(name="RED", number=0)
    box = file.message_type.add(name="Box")
    box.field.add(name="colour", number=1, type=14, label=1, type_name=f".{name}.Colour", default_value="RED")
    box.field.add(name="width", number=2, type=5, label=1, default_value="7")
    box.extension_range.add(start=100, end=200)
    file.extension.add(name="weight", number=100, type=5, label=1, extendee=f".{name}.Box")
    return file.SerializeToString()


@pytest.fixture
def finder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "meta_path", [GeneratedMessages(), *sys.meta_path])
    yield


@pytest.mark.parametrize("text, name", [(OF_3_6, "boxes_of_3_6"), (OF_3_19, "boxes_of_3_19")])
def test_old_generated_code_is_loaded(tmp_path: Path, finder: None, text: str, name: str) -> None:
    data = description(name)
    (tmp_path / f"{name}_pb2.py").write_text(
        text.format(name=name, package=name, text=data.decode("latin1"), bytes=data)
    )
    module = importlib.import_module(f"{name}_pb2")
    box = module.Box(width=3)
    box.Extensions[module.weight] = 4
    read = module.Box.FromString(box.SerializeToString())
    assert (read.width, read.colour, module.RED, module.Colour.Name(0)) == (3, 0, 0, "RED")
    assert read.Extensions[module.weight] == 4 and module.Box().width == 7
    assert module.DESCRIPTOR.name == f"{name}.proto"
    assert module.Box.__module__ == f"{name}_pb2"


def test_other_modules_are_left_to_python(tmp_path: Path, finder: None) -> None:
    (tmp_path / "plain_boxes_pb2.py").write_text("WIDTH = 3\n")
    assert importlib.import_module("plain_boxes_pb2").WIDTH == 3
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("absent_boxes_pb2")
