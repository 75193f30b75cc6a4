"""CRC-32C checksums."""

from __future__ import annotations

import numpy as np

from tfmini.checkpoint import checksums


def test_checksums_are_the_known_ones() -> None:
    assert checksums.extend(0, b"123456789") == 0xE3069283
    assert checksums.masked(0) == 0xA282EAD8
    long = np.arange(3 * checksums.PIECE, dtype=np.uint8)
    assert checksums.extend(0, long) == checksums.extend(checksums.extend(0, long[:5]), long[5:])
