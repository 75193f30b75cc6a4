"""The services and the protocol as tables, derived from the messages."""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from tfmini import errors
from tfmini.rpc import messages
from tfmini.rpc.records import REGISTRY, Message, Retry


@dataclasses.dataclass(frozen=True)
class Method:
    """One row of a service: what a caller sends and gets."""

    name: str
    request: type[Message]
    reply: type[Message] | None
    retry: Retry


def _snake(name: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


def _service(direction: str) -> Mapping[str, Method]:
    rows = [
        cls for _, cls in sorted(REGISTRY.items()) if cls.row.direction == direction and not cls.row.is_reply
    ]
    return MappingProxyType(
        {_snake(c.__name__): Method(_snake(c.__name__), c, c.row.reply, c.row.retry) for c in rows}
    )


MASTER: Mapping[str, Method] = _service(messages.MASTER)
WORKER: Mapping[str, Method] = _service(messages.WORKER)
PEER: Mapping[str, Method] = _service(messages.PEER)


def method_of(service: Mapping[str, Method], name: str) -> Method:
    """The row of that method.

    Raises:
      errors.UnimplementedError: when the service has no such method.
    """
    try:
        return service[name]
    except KeyError:
        raise errors.UnimplementedError(
            None, None, f"unknown method {name!r}; the service has: {', '.join(sorted(service))}"
        ) from None


def protocol_table() -> list[dict[str, Any]]:
    """One row per kind, by number: kind, name, direction, fields, reply, retry, header_limit (bytes), text."""
    return [
        {
            "kind": row.kind,
            "name": row.name,
            "direction": row.direction,
            "fields": [(f.name, f.describe()) for f in row.fields],
            "reply": row.reply.__name__ if row.reply else "",
            "retry": "" if row.is_reply else row.retry.value,
            "header_limit": cls.header_limit,
            "text": inspect.cleandoc(cls.__doc__ or ""),
        }
        for _, cls in sorted(REGISTRY.items())
        for row in (cls.row,)
    ]
