"""Encodes tensors as bytes of data files: numbers as little-endian memory, strings after their lengths.

::

    string tensor = varint length*, masked CRC-32C of the lengths (fixed32), bytes of the strings

The checksum of the lengths is computed over fixed32 values (fixed64 where a length needs it), not over the varints.
"""

from __future__ import annotations

import struct
from typing import Any

import numpy as np

from tfmini import dtypes
from tfmini.checkpoint import checksums, varint

Array = np.ndarray[Any, Any]


def raw_bytes(array: Array) -> Array:
    """Returns the memory of a numeric array as a flat uint8 array, without a copy if it is contiguous."""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def encode_strings(strings: list[bytes]) -> tuple[bytes, int]:
    """Returns the bytes of a string tensor and their (unmasked) checksum."""
    lengths = b"".join(varint.encode(len(text)) for text in strings)
    crc = _crc_of_lengths([len(text) for text in strings])
    check = struct.pack("<I", checksums.masked(crc))
    body = b"".join(strings)
    return lengths + check + body, checksums.extend(checksums.extend(crc, check), body)


def decode_strings(data: bytes, count: int) -> tuple[list[bytes], int]:
    """Returns the strings of a tensor of ``count`` elements, and the (unmasked) checksum of the bytes.

    Raises:
      ValueError: the bytes are inconsistent; the text has the reason.
    """
    position, lengths = 0, []
    for _ in range(count):
        length, position = varint.decode(data, position)
        lengths.append(length)
    crc = _crc_of_lengths(lengths)
    check = data[position : position + 4]
    if len(check) < 4:
        raise ValueError("Read less bytes than requested")
    stored, actual = struct.unpack("<I", check)[0], checksums.masked(crc)
    if stored != actual:
        raise ValueError(f"The length checksum does not match: expected {stored} but actual is {actual}")
    position += 4
    if position + sum(lengths) != len(data):
        raise ValueError(f"The strings have {sum(lengths)} bytes, but {len(data) - position} are stored")
    crc = checksums.extend(checksums.extend(crc, check), data[position:])
    strings = []
    for length in lengths:
        strings.append(data[position : position + length])
        position += length
    return strings, crc


def _crc_of_lengths(lengths: list[int]) -> int:
    packed = b"".join(struct.pack("<I" if length < 1 << 32 else "<Q", length) for length in lengths)
    return checksums.extend(0, packed)


def checked_array(value: Any, dtype: dtypes.DType) -> Array:
    """Converts a kernel's value to an array of its declared type."""
    if dtype is dtypes.string:
        return value if isinstance(value, np.ndarray) else np.array(value, object)
    return np.asarray(value, dtype.numpy)
