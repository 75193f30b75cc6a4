"""Variable-length integers: seven bits per byte, the lowest first."""

from __future__ import annotations


def encode(value: int) -> bytes:
    """Encodes a non-negative integer as a varint."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def decode(data: bytes, position: int) -> tuple[int, int]:
    """Returns the integer at ``position`` and the position after it.

    Raises:
      ValueError: when the data ends inside the varint or it has more than 64 bits.
    """
    value = shift = 0
    while shift < 64 and position < len(data):
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80 and value < 1 << 64:
            return value, position
        shift += 7
    raise ValueError("a varint is truncated or too long")
