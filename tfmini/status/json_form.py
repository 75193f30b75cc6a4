"""Dataclasses of plain values as JSON values, and back with a check of every type.

A page that asks 100 tasks once a second reads about 10,000 of them, so what depends on the class alone is kept.
"""

from __future__ import annotations

import dataclasses
import functools
import types
import typing
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

T = TypeVar("T")

_SCALARS = (str, int, float, bool)


def to_json(snapshot: Any) -> dict[str, Any]:
    """A snapshot of any kind as dicts, lists and scalars, by field name."""
    return {name: _plain(getattr(snapshot, name)) for name in _names(typing.cast(Any, type(snapshot)))}


@functools.cache
def _names(cls: Any) -> tuple[str, ...]:
    return tuple(field.name for field in dataclasses.fields(cls))


def _plain(value: Any) -> Any:
    kind = type(value)
    if kind in _SCALARS:
        return value
    if kind is tuple:
        return [_plain(item) for item in value]
    if kind is dict:
        return dict(value)
    return to_json(value) if dataclasses.is_dataclass(value) else value


class _Field(NamedTuple):
    """A field of a class. ``kind``: the type of values that are taken as they are; others go through ``read``."""

    name: str
    kind: Any
    read: Callable[[Any, str], Any]


def from_json(cls: type[T], data: Any) -> T:
    """The inverse of `to_json`. Unknown keys are left out; a field that is missing has its default.

    Raises:
      ValueError: a value has another type than its field, or a field without a default is missing.
    """
    if not isinstance(data, dict):
        raise ValueError(f"a {cls.__name__} must be a mapping, not {type(data).__name__}")
    values = {}
    for name, kind, read in _fields(typing.cast(Any, cls)):
        if name in data:
            value = data[name]
            values[name] = value if type(value) is kind else read(value, name)
    try:
        return cls(**values)
    except TypeError as error:
        raise ValueError(f"a {cls.__name__} is incomplete: {error}") from None


@functools.cache
def _fields(cls: Any) -> tuple[_Field, ...]:
    hints = typing.get_type_hints(cls)
    return tuple(_Field(name, *_reader(hints[name])) for name in _names(cls))


def _reader(hint: Any) -> tuple[Any, Callable[[Any, str], Any]]:
    """The type of values that are what the hint says without a look inside, and a function for all others."""
    if isinstance(hint, types.GenericAlias):
        return None, _tuple_reader(hint) if hint.__origin__ is tuple else _dict_reader(hint)
    if dataclasses.is_dataclass(hint):
        return None, lambda value, name: from_json(typing.cast(type, hint), value)

    def read(value: Any, name: str) -> Any:
        if hint is float and type(value) is int:
            return float(value)
        raise _other_type(hint, value, name)

    return hint, read


def _tuple_reader(hint: types.GenericAlias) -> Callable[[Any, str], Any]:
    kind, read_item = _reader(hint.__args__[0])

    def read(value: Any, name: str) -> tuple[Any, ...]:
        if not isinstance(value, list | tuple):
            raise _other_type(hint, value, name)
        return tuple([item if type(item) is kind else read_item(item, name) for item in value])

    return read


def _dict_reader(hint: types.GenericAlias) -> Callable[[Any, str], Any]:
    (key_kind, read_key), (kind, read_item) = map(_reader, hint.__args__)

    def read(value: Any, name: str) -> dict[Any, Any]:
        if not isinstance(value, dict):
            raise _other_type(hint, value, name)
        return {
            key if type(key) is key_kind else read_key(key, name): item if type(item) is kind else read_item(item, name)
            for key, item in value.items()
        }

    return read


def _other_type(hint: Any, value: Any, name: str) -> ValueError:
    return ValueError(f"{name} must be {getattr(hint, '__name__', hint)}, not {type(value).__name__}")
