"""Runs in the oracle's interpreter: reads messages of ours with TensorFlow's classes, in one process with ours.

stdin: JSON ``[[full name without package, hex bytes], ...]``; argv[1]: the repository.
stdout: JSON ``[[text format, hex bytes of TensorFlow's own serialisation], ...]``.
"""

from __future__ import annotations

import importlib
import json
import pkgutil
import site
import sys
import types
from pathlib import Path

from google.protobuf import descriptor_pool, message_factory, text_format

_PACKAGES = ("core/framework", "core/util", "core/example", "core/protobuf", "python/training")
_FEW = {"core/util": {"event_pb2", "saved_tensor_slice_pb2"}, "python/training": {"checkpoint_state_pb2"}}


def hollow(name: str, folder: Path) -> None:
    """Makes ``name`` importable as a bare package, without the seconds that its ``__init__`` takes."""
    module = types.ModuleType(name)
    module.__path__ = [str(folder)]
    sys.modules[name] = module


def load_tensorflow_messages() -> None:
    root = next(p for p in map(Path, site.getsitepackages()) if (p / "tensorflow").is_dir()) / "tensorflow"
    hollow("tensorflow", root)
    hollow("tensorflow.python", root / "python")
    hollow("tensorflow.python.training", root / "python/training")
    for package in _PACKAGES:
        for module in pkgutil.iter_modules([str(root / package)]):
            if module.name.endswith("_pb2") and module.name in _FEW.get(package, {module.name}):
                importlib.import_module(f"tensorflow.{package.replace('/', '.')}.{module.name}")


def load_our_messages(repository: Path) -> None:
    hollow("tfmini", repository / "tfmini")
    protos = importlib.import_module("tfmini.protos")
    for name in protos._MODULE_OF:
        getattr(protos, name)


def reread(name: str, data: bytes) -> tuple[str, str]:
    descriptor = descriptor_pool.Default().FindMessageTypeByName(f"tensorflow.{name}")
    message = message_factory.GetMessageClass(descriptor).FromString(data)
    text = text_format.MessageToString(message)
    return text, message.SerializeToString(deterministic=True).hex()


if __name__ == "__main__":
    load_our_messages(Path(sys.argv[1]))
    load_tensorflow_messages()
    json.dump([reread(name, bytes.fromhex(data)) for name, data in json.load(sys.stdin)], sys.stdout)
