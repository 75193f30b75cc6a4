"""References to objects whose ``==`` means something else, for sets and dictionaries (``Tensor.experimental_ref``)."""

from __future__ import annotations

from typing import Any


class ObjectReference:
    """Compares and hashes by the identity of what it refers to, which it keeps alive."""

    __slots__ = ("_wrapped",)

    def __init__(self, wrapped: Any) -> None:
        self._wrapped = wrapped

    def deref(self) -> Any:
        """The object itself."""
        return self._wrapped

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ObjectReference) and self._wrapped is other._wrapped

    def __hash__(self) -> int:
        return id(self._wrapped)

    def __repr__(self) -> str:
        return f"<Reference wrapping {self._wrapped!r}>"
