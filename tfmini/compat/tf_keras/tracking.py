"""Lists and dictionaries in which a layer or model of a program keeps layers: these are layers of its own."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any

from tfmini.compat.tf_keras.state import LIBRARY as NAME
from tfmini.graph.nest import flatten

_OWN = ("_layers", "_metrics", "_trainable_weights", "_non_trainable_weights")  # what a layer notes by itself


def tracked(owner: Any, name: str, value: Any) -> Any:
    """What an attribute becomes that the program sets: a list or dictionary with layers, one that tells of new ones."""
    kind = type(value)
    if kind not in (list, tuple, dict) or name in _OWN or _is_set_by_the_library():
        return value
    for found in flatten(value):
        _add(owner, found)
    if kind is tuple or value and not _has_layers(value):
        return value
    return _List(owner, value) if kind is list else _Dict(owner, value)


def _is_set_by_the_library() -> bool:
    frame: Any = sys._getframe(2)
    while frame.f_code.co_name == "__setattr__":
        frame = frame.f_back
    return str(frame.f_globals["__name__"]).startswith(NAME)


def _has_layers(value: Any) -> bool:
    return any(isinstance(found, _layer_class()) for found in flatten(value))


def _layer_class() -> Any:
    return sys.modules[f"{NAME}.engine.base_layer"].Layer


def _add(owner: Any, value: Any) -> None:
    """Makes a layer or a variable one of a layer's own."""
    if isinstance(value, _layer_class()):
        layers = owner.__dict__.setdefault("_layers", [])
        if not any(value is layer for layer in layers):
            layers.append(value)
    elif hasattr(value, "initializer") and hasattr(value, "trainable") and not getattr(value, "_tracked", False):
        kind = "_trainable_weights" if value.trainable else "_non_trainable_weights"
        owner.__dict__.setdefault(kind, []).append(value)
        value._tracked = True


class _List(list[Any]):
    """A list whose layers are its owner's."""

    def __init__(self, owner: Any, values: Iterable[Any]) -> None:
        super().__init__(values)
        self._owner = owner

    def append(self, value: Any) -> None:
        self.extend([value])

    def insert(self, index: Any, value: Any) -> None:
        _add(self._owner, value)
        super().insert(index, value)

    def extend(self, values: Iterable[Any]) -> None:
        for value in values:
            _add(self._owner, value)
            super().append(value)

    def __iadd__(self, values: Iterable[Any]) -> Any:  # type: ignore[misc]
        self.extend(values)
        return self

    def __reduce__(self) -> Any:
        return list, (list(self),)


class _Dict(dict[Any, Any]):
    """A dictionary whose layers are its owner's."""

    def __init__(self, owner: Any, values: dict[Any, Any]) -> None:
        super().__init__(values)
        self._owner = owner

    def __setitem__(self, key: Any, value: Any) -> None:
        _add(self._owner, value)
        super().__setitem__(key, value)

    def update(self, *args: Any, **kwargs: Any) -> None:
        for key, value in dict(*args, **kwargs).items():
            self[key] = value

    def __reduce__(self) -> Any:
        return dict, (dict(self),)
