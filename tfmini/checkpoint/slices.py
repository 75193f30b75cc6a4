"""Slices of tensors: their text in save ops, their keys in index files, and their arithmetic.

A slice has one extent per axis: ``(start, length)``, or `FULL` for the whole axis. Save and restore
ops name it by a text with the tensor's shape and the extents: ``"10 3 0,4:-"``. In an index file, a
slice has its own entry, under a key that sorts before all plain names.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

Extent = tuple[int, int]
FULL: Extent = (0, -1)
_MOST_SLICES = 1 << 14


@dataclass(frozen=True)
class Slice:
    """A part of a tensor, one extent per axis."""

    extents: tuple[Extent, ...]

    @staticmethod
    def from_proto(message: Any) -> Slice:
        """Reads a TensorSliceProto."""
        return Slice(tuple((e.start, e.length) if e.WhichOneof("has_length") else FULL for e in message.extent))

    def to_proto(self, message: Any) -> None:
        """Fills a TensorSliceProto."""
        for start, length in self.extents:
            if length < 0:
                message.extent.add()
            else:
                # TensorFlow leaves out a start of 0, as proto3 does.
                message.extent.add(start=start, length=length)

    def resolved(self, shape: Sequence[int]) -> Slice:
        """Returns the same slice with a start and a length on every axis of ``shape``."""
        pairs = zip(self.extents, shape)
        return Slice(tuple((0, size) if length < 0 else (start, length) for (start, length), size in pairs))

    def covers(self, shape: Sequence[int]) -> bool:
        """Whether the slice is a whole tensor of that shape."""
        return self.resolved(shape).extents == tuple((0, size) for size in shape)

    def shape(self, full: Sequence[int]) -> tuple[int, ...]:
        """Returns the shape of the slice of a tensor of shape ``full``."""
        return tuple(length for _, length in self.resolved(full).extents)

    def index(self, within: Slice) -> tuple[slice, ...]:
        """Returns the index of this resolved slice in the array of the resolved slice ``within``."""
        pairs = zip(self.extents, within.extents)
        return tuple(slice(start - base, start - base + length) for (start, length), (base, _) in pairs)

    def intersect(self, other: Slice) -> Slice | None:
        """Returns the intersection of two resolved slices, or None."""
        common = []
        for (a, n), (b, m) in zip(self.extents, other.extents):
            start, end = max(a, b), min(a + n, b + m)
            if start >= end:
                return None
            common.append((start, end - start))
        return Slice(tuple(common))

    def fits(self, shape: Sequence[int]) -> bool:
        """Whether the slice has the rank of ``shape`` and lies within it."""
        return len(self.extents) == len(shape) and all(
            length < 0 or 0 <= start <= start + length <= size for (start, length), size in zip(self.extents, shape)
        )

    @property
    def text(self) -> str:
        """The extents as save ops write them."""
        return ":".join("-" if length < 0 else f"{start},{length}" for start, length in self.extents)


def check_disjoint(parts: Sequence[Slice], shape: Sequence[int]) -> None:
    """Checks the slices in which a tensor is stored.

    Raises:
      ValueError: one does not fit the tensor's shape, two overlap, or there are too many.
    """
    for part in parts:
        if not part.fits(shape):
            raise ValueError(f"its slice {part.text} does not lie within the shape {list(shape)}")
    if len(parts) < 2:
        return
    if len(parts) > _MOST_SLICES:
        raise ValueError(f"it has {len(parts)} slices; at most {_MOST_SLICES} can be read")
    # The slices are compared in pairs, each with all that follow at once.
    extents = np.array([part.resolved(shape).extents for part in parts], np.int64).reshape(len(parts), len(shape), 2)
    starts, ends = extents[:, :, 0], extents.sum(axis=2)
    for i, part in enumerate(parts[:-1]):
        common = (starts[i + 1 :] < ends[i]) & (starts[i] < ends[i + 1 :])
        hits = np.flatnonzero(common.all(axis=1))
        if hits.size:
            raise ValueError(f"Overlapping slices: {part.text} and {parts[i + 1 + int(hits[0])].text}")


def parse(text: str) -> tuple[tuple[int, ...], Slice]:
    """Parses a specification like ``"10 3 0,4:-"``; returns the shape and the slice.

    Raises:
      ValueError: with TensorFlow's message.
    """
    *sizes, extents = text.split(" ")
    if not sizes:
        raise ValueError(f"Need least two elements in shape_and_slice specification: {text}")
    try:
        shape = tuple(int(size) for size in sizes)
        found = Slice(tuple(_parse_extent(part) for part in extents.split(":")))
    except ValueError:
        form = "Expected a list of sizes and a slice of 'start,length' or '-' per axis, separated by ':'"
        raise ValueError(f"{form} in shape_and_slice specification: {text}") from None
    if len(found.extents) != len(shape):
        raise ValueError(
            f"Shape rank {len(shape)} does not match slice rank {len(found.extents)} in shape_and_slice"
            f" specification: {text}"
        )
    for axis, ((start, length), size) in enumerate(zip(found.extents, shape)):
        if length >= 0 and start + length > size:
            raise ValueError(f"Extent in dimension {axis} out of bounds: shape = {list(shape)}, slice = {found.text}")
    return shape, found


def _parse_extent(text: str) -> Extent:
    if text == "-":
        return FULL
    start, length = (int(number) for number in text.split(","))
    if start < 0 or length <= 0:
        raise ValueError
    return start, length


# ---- keys -----------------------------------------------------------------------------------


def encode_key(name: str, part: Slice) -> bytes:
    """Returns the key of a slice of the tensor ``name`` in the index: an order-preserving code."""
    numbers = b"".join(_signed(number) for extent in part.extents for number in extent)
    return _unsigned(0) + _escaped(name.encode()) + _unsigned(len(part.extents)) + numbers


def _unsigned(value: int) -> bytes:
    size = (value.bit_length() + 7) // 8
    return bytes([size]) + value.to_bytes(size, "big")


def _escaped(text: bytes) -> bytes:
    # TensorFlow also escapes the byte ff, which does not occur in UTF-8.
    return text.replace(b"\0", b"\0\xff") + b"\0\1"


def _signed(value: int) -> bytes:
    """Encodes a number so that codes sort as the numbers do: as many leading ones as it has bytes, then the number.

    The code of a negative number is the complement of the code of ``~value``.
    """
    magnitude = ~value if value < 0 else value
    size = magnitude.bit_length() // 7 + 1
    code = magnitude | ((1 << size) - 1) << 7 * size  # size ones, then 7 * size bits
    if value < 0:
        code ^= (1 << 8 * size) - 1
    return code.to_bytes(size, "big")
