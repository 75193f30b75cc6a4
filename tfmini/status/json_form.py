"""Dataclasses of plain values as JSON values, and back with a check of every type.

Of what another process tells (``outside``), texts become printable, and numbers that no measure can have become 0. So
one task's answer cannot break or deceive what shows all of them. A field with the metadata `ANY_NUMBER` keeps its own.

A page that asks 100 tasks once a second reads about 10,000 of them, so what depends on the class alone is kept.
"""

from __future__ import annotations

import dataclasses
import functools
import types
import typing
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

from tfmini.printable import printable

T = TypeVar("T")

ANY_NUMBER = {"any number": True}
_LARGEST, _LONGEST = 1e18, 4000  # a number, and the characters of a text
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


def from_json(cls: type[T], data: Any, outside: bool = False) -> T:
    """The inverse of `to_json`. Unknown keys are left out; a field that is missing has its default.

    Args:
      outside: whether the data are of another process; see the module.

    Raises:
      ValueError: a value has another type than its field, or a field without a default is missing.
    """
    if not isinstance(data, dict):
        raise ValueError(f"a {cls.__name__} must be a mapping, not {type(data).__name__}")
    values = {}
    for name, kind, read in _fields(typing.cast(Any, cls), outside):
        if name in data:
            value = data[name]
            values[name] = value if type(value) is kind else read(value, name)
    try:
        return cls(**values)
    except TypeError as error:
        raise ValueError(f"a {cls.__name__} is incomplete: {error}") from None


@functools.cache
def _fields(cls: Any, outside: bool) -> tuple[_Field, ...]:
    hints = typing.get_type_hints(cls)
    free = {field.name for field in dataclasses.fields(cls) if field.metadata == ANY_NUMBER}
    return tuple(_Field(name, *_reader(hints[name], outside and name not in free)) for name in _names(cls))


def _reader(hint: Any, outside: bool) -> tuple[Any, Callable[[Any, str], Any]]:
    """The type of values that are what the hint says without a look inside, and a function for all others."""
    if isinstance(hint, types.GenericAlias):
        return None, _tuple_reader(hint, outside) if hint.__origin__ is tuple else _dict_reader(hint, outside)
    if dataclasses.is_dataclass(hint):
        return None, lambda value, name: from_json(typing.cast(type, hint), value, outside)

    def read(value: Any, name: str) -> Any:
        kind = type(value)
        if kind is not hint and (hint is not float or kind is not int):
            raise _other_type(hint, value, name)
        if kind is str:
            return value if value.isprintable() and len(value) <= _LONGEST else printable(value, _LONGEST)
        return float(value) if not outside or -_LARGEST < value < _LARGEST else 0.0

    return (None if outside and hint in (str, float) else hint), read


def _tuple_reader(hint: types.GenericAlias, outside: bool) -> Callable[[Any, str], Any]:
    kind, read_item = _reader(hint.__args__[0], outside)

    def read(value: Any, name: str) -> tuple[Any, ...]:
        if not isinstance(value, list | tuple):
            raise _other_type(hint, value, name)
        return tuple([item if type(item) is kind else read_item(item, name) for item in value])

    return read


def _dict_reader(hint: types.GenericAlias, outside: bool) -> Callable[[Any, str], Any]:
    (key_kind, read_key), (kind, read_item) = (_reader(each, outside) for each in hint.__args__)

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
