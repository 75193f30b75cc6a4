"""CRC-32C as checkpoints store it."""

from __future__ import annotations

from typing import Any

import google_crc32c
import numpy as np

# The checksum holds the interpreter lock; other threads get a turn between pieces of this size.
PIECE = 1 << 20


def extend(crc: int, data: bytes | np.ndarray[Any, Any]) -> int:
    """The CRC-32C of what ``crc`` stands for followed by ``data`` (bytes, or a contiguous uint8 array)."""
    if len(data) <= PIECE:
        return google_crc32c.extend(crc, data)  # type: ignore[arg-type, no-any-return]
    for start in range(0, len(data), PIECE):
        crc = google_crc32c.extend(crc, data[start : start + PIECE])  # type: ignore[arg-type]
    return crc


def masked(crc: int) -> int:
    """The form in which a CRC is stored: a CRC of data that holds CRCs is a poor check."""
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF
