"""The registry of messages for the objects in collections: how a MetaGraphDef stores them.

A module that puts objects of its own into a collection (variables, queue runners, control-flow contexts, savers)
registers their conversion to a message and back, at import. Nodes, numbers and strings need no conversion.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tfmini import protos


@dataclass(frozen=True)
class ProtoFunctions:
    """The registered message and conversions of one collection.

    Attributes:
      type_name: the message's name in `tfmini.protos`, or "".
      to_proto: ``(item, export_scope=None) -> message``, None for an item outside the scope.
      from_proto: ``(message, import_scope=None) -> item``.
    """

    type_name: str
    to_proto: Callable[..., Any] | None
    from_proto: Callable[..., Any] | None


_FUNCTIONS: dict[str, ProtoFunctions] = {}


def register_proto_function(
    collection_name: str,
    proto_type: Any = None,
    to_proto: Callable[..., Any] | None = None,
    from_proto: Callable[..., Any] | None = None,
) -> None:
    """Registers the conversion of a collection's items to messages and back (``ops.register_proto_function``).

    Args:
      collection_name: the collection.
      proto_type: the message class, or its name in `tfmini.protos` (which saves importing protobuf).
      to_proto: a function (item, export_scope=None) -> message or None.
      from_proto: a function (message, import_scope=None) -> item.

    Raises:
      TypeError: a function is not callable.
      KeyError: the collection is registered already.
    """
    if to_proto is not None and not callable(to_proto):
        raise TypeError("to_proto must be callable.")
    if from_proto is not None and not callable(from_proto):
        raise TypeError("from_proto must be callable.")
    if collection_name in _FUNCTIONS:
        raise KeyError(f"Registering two proto_functions with name '{collection_name}'!")
    name = proto_type if isinstance(proto_type, str) else getattr(proto_type, "__name__", "")
    _FUNCTIONS[collection_name] = ProtoFunctions(name, to_proto, from_proto)


def get_to_proto_function(collection_name: str) -> Callable[..., Any] | None:
    """Returns the registered function item -> message, or None."""
    found = _FUNCTIONS.get(collection_name)
    return found.to_proto if found else None


def get_from_proto_function(collection_name: str) -> Callable[..., Any] | None:
    """Returns the registered function message -> item, or None."""
    found = _FUNCTIONS.get(collection_name)
    return found.from_proto if found else None


def get_collection_proto_type(collection_name: str) -> Any:
    """Returns the class of the collection's messages, or None."""
    found = _FUNCTIONS.get(collection_name)
    return getattr(protos, found.type_name) if found and found.type_name else None
