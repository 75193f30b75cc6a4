"""References to objects that compare and hash by identity, for sets and dictionaries (``Tensor.experimental_ref``)."""

from __future__ import annotations

from typing import Any


class ObjectReference:
    """Refers to an object, compares and hashes by its identity, and keeps it alive."""

    __slots__ = ("_wrapped",)

    def __init__(self, wrapped: Any) -> None:
        self._wrapped = wrapped

    def deref(self) -> Any:
        """Returns the object itself."""
        return self._wrapped

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ObjectReference) and self._wrapped is other._wrapped

    def __hash__(self) -> int:
        return id(self._wrapped)

    def __repr__(self) -> str:
        return f"<Reference wrapping {self._wrapped!r}>"
