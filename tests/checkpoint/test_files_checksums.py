"""CRC-32C checksums."""

from __future__ import annotations

import numpy as np

from tfmini.checkpoint import files


def test_checksums_are_the_known_ones() -> None:
    assert files.extend(0, b"123456789") == 0xE3069283
    assert files.masked(0) == 0xA282EAD8
    long = np.arange(3 * files.PIECE, dtype=np.uint8)
    assert files.extend(0, long) == files.extend(files.extend(0, long[:5]), long[5:])
