"""The package's surface: lazy, complete, and generated from the text beside it."""

from __future__ import annotations

import importlib
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tfmini import protos

FOLDER = Path(protos.__file__).parent
STEMS = sorted(path.stem for path in FOLDER.glob("*.proto"))


def _python(code: str, **env: str) -> None:
    command = [sys.executable, "-c", code]
    environment = {**os.environ, **env}
    done = subprocess.run(
        command,
        env=environment,
        cwd=FOLDER.parents[1],
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_protobuf_waits_for_the_first_message() -> None:
    _python(
        "import sys; from tfmini import protos; assert 'google.protobuf' not in sys.modules\n"
        "protos.VersionDef; assert 'google.protobuf' in sys.modules\n"
        "assert 'tfmini.protos.config_pb2' not in sys.modules; assert 'VersionDef' in vars(protos)"
    )


def test_pure_python_protobuf_works_too() -> None:
    """Where no compiled protobuf exists, the generated code takes another path."""
    _python(
        "from google.protobuf.internal import api_implementation as a; assert a.Type() == 'python'\n"
        "from tfmini import protos; g = protos.GraphDef(); g.node.add(name='x').attr['a'].list.i[:] = [1, 2]\n"
        "assert protos.GraphDef.FromString(g.SerializeToString()) == g\n"
        "c = protos.ConfigProto(device_count={'CPU': 2})\n"
        "assert protos.ConfigProto.FromString(c.SerializeToString()) == c",
        PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION="python",
    )


def test_every_message_and_enum_is_reachable() -> None:
    found = {}
    for stem in STEMS:
        descriptor = importlib.import_module(f"tfmini.protos.{stem}_pb2").DESCRIPTOR
        found.update(dict.fromkeys([*descriptor.message_types_by_name, *descriptor.enum_types_by_name], stem))
    assert sorted(found) == sorted(protos.MODULE_OF)
    for name, stem in found.items():
        assert getattr(protos, name) is getattr(importlib.import_module(f"tfmini.protos.{stem}_pb2"), name)


def test_the_type_stub_lists_the_same_names() -> None:
    line = r"^from tfmini\.protos\.(\w+) import (\w+) as \2$"
    listed = re.findall(line, (FOLDER / "__init__.pyi").read_text(), re.MULTILINE)
    assert {name: module for module, name in listed} == protos.MODULE_OF


def test_an_unknown_name_is_an_attribute_error() -> None:
    misspelt = "GraphDeff"
    with pytest.raises(AttributeError, match="module 'tfmini.protos' has no attribute 'GraphDeff'"):
        getattr(protos, misspelt)
    assert {"GraphDef", "ConfigProto"} <= set(dir(protos))


def test_generated_code_is_that_of_the_text(tmp_path: Path) -> None:
    protoc = pytest.importorskip("grpc_tools.protoc", reason="grpcio-tools (the protocol compiler) is not installed")
    from google.protobuf import descriptor_pb2

    out = tmp_path / "set.pb"
    include = Path(protoc.__file__).parent / "_proto"
    files = [f"tfmini/protos/{stem}.proto" for stem in STEMS]
    args = ["protoc", f"-I{FOLDER.parents[1]}", f"-I{include}", f"--descriptor_set_out={out}", *files]
    assert protoc.main(args) == 0
    for compiled in descriptor_pb2.FileDescriptorSet.FromString(out.read_bytes()).file:
        generated = descriptor_pb2.FileDescriptorProto()
        name = Path(compiled.name).stem
        importlib.import_module(f"tfmini.protos.{name}_pb2").DESCRIPTOR.CopyToProto(generated)
        for proto in (compiled, generated):
            _drop_json_names(proto)
        assert generated == compiled, f"{name}_pb2.py is stale: see tfmini/protos/README.md"


def _drop_json_names(proto: object) -> None:
    """Removes what only some compiler versions write out: the names in JSON, which follow from the others."""
    for message in (*getattr(proto, "message_type", ()), *getattr(proto, "nested_type", ())):
        for field in message.field:
            field.ClearField("json_name")
        _drop_json_names(message)
