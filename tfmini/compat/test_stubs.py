"""``tf.test.mock`` and ``tf.test.StubOutForTesting``: replacing attributes during a test."""

from __future__ import annotations

from typing import Any
from unittest import mock

from tfmini.export import export, export_names

__all__ = ["StubOutForTesting", "mock"]


@export("tf.test.StubOutForTesting")
class StubOutForTesting:
    """Replaces attributes and restores them later (``tf.test.StubOutForTesting``)."""

    def __init__(self) -> None:
        self._set: list[tuple[Any, str, Any]] = []

    def Set(self, parent: Any, child_name: str, new_child: Any) -> None:
        """Replaces an attribute until `UnsetAll`."""
        self._set.append((parent, child_name, getattr(parent, child_name)))
        setattr(parent, child_name, new_child)

    SmartSet = Set

    def UnsetAll(self) -> None:
        """Restores all attributes, the last replaced first."""
        while self._set:
            setattr(*self._set.pop())

    SmartUnsetAll = CleanUp = UnsetAll

    def __enter__(self) -> StubOutForTesting:
        return self

    def __exit__(self, *error: object) -> None:
        self.UnsetAll()


export_names("tf.test", "mock")
