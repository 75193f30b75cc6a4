"""Reads messages of ours with TensorFlow's classes, in one process with ours. (Runs there, see `tests.oracle`.)"""

from __future__ import annotations

import importlib
import pkgutil
import sys
import types
from pathlib import Path
from typing import Any

from google.protobuf import descriptor_pool, message_factory, text_format

_PACKAGES = ("core/framework", "core/util", "core/example", "core/protobuf", "python/training")
_FEW = {"core/util": {"event_pb2", "saved_tensor_slice_pb2"}, "python/training": {"checkpoint_state_pb2"}}


def reread_all(tf: Any, messages: list[tuple[str, bytes]]) -> list[tuple[str, bytes]]:
    """(text format, bytes) that TensorFlow makes of each message: (full name without package, bytes)."""
    _load_our_messages()
    _load_messages_of(tf)
    return [_reread(name, data) for name, data in messages]


def _load_messages_of(tf: Any) -> None:
    root = Path(importlib.import_module("tensorflow").__file__).parent
    for package in _PACKAGES:
        for module in pkgutil.iter_modules([str(root / package)]):
            if module.name.endswith("_pb2") and module.name in _FEW.get(package, {module.name}):
                importlib.import_module(f"tensorflow.{package.replace('/', '.')}.{module.name}")


def _load_our_messages() -> None:
    """Without the rest of tfmini, which TensorFlow's process need not be able to import."""
    package = types.ModuleType("tfmini")
    package.__path__ = [str(Path(__file__).parents[2] / "tfmini")]
    sys.modules["tfmini"] = package
    protos = importlib.import_module("tfmini.protos")
    for name in protos.MODULE_OF:
        getattr(protos, name)


def _reread(name: str, data: bytes) -> tuple[str, bytes]:
    descriptor = descriptor_pool.Default().FindMessageTypeByName(f"tensorflow.{name}")
    message = message_factory.GetMessageClass(descriptor).FromString(data)
    return text_format.MessageToString(message), message.SerializeToString(deterministic=True)
