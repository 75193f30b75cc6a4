"""CRC-32C checksums in the form that checkpoints store."""

from __future__ import annotations

from typing import Any

import google_crc32c
import numpy as np

# Computing the checksum holds the interpreter lock; other threads can run between pieces of this size.
PIECE = 1 << 20


def extend(crc: int, data: bytes | np.ndarray[Any, Any]) -> int:
    """Extends the CRC-32C of earlier bytes, ``crc``, by ``data`` (bytes, or a contiguous uint8 array)."""
    if len(data) <= PIECE:
        return google_crc32c.extend(crc, data)  # type: ignore[no-any-return]
    for start in range(0, len(data), PIECE):
        crc = google_crc32c.extend(crc, data[start : start + PIECE])
    return crc


def masked(crc: int) -> int:
    """Masks a CRC for storage, since the CRC of data that contains CRCs is a weak check."""
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF
