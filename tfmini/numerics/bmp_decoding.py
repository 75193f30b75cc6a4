"""BMP files without compression, as TensorFlow reads them: 8, 24 or 32 bits per pixel."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np

from tfmini.numerics.inflation import check_inflated


def decode(data: bytes) -> np.ndarray[Any, Any]:
    """The pixels of a BMP file, uint8 of shape (rows, columns, 1, 3 or 4); palette indices stay indices.

    Raises:
      ValueError, struct.error: when the data are not an uncompressed BMP file.
      ResourceExhaustedError: see `inflation.check_inflated`.
    """
    start, _, columns, rows, _, bits = struct.unpack_from("<IIiiHH", data, 10)
    channels = bits // 8
    if data[:2] != b"BM" or channels not in (1, 3, 4) or columns <= 0:
        raise ValueError("not an uncompressed BMP file of 8, 24 or 32 bits per pixel")
    stride = (channels * columns + 3) // 4 * 4
    check_inflated(abs(rows) * columns * channels, "A BMP file")
    lines = np.frombuffer(data, np.uint8, stride * abs(rows), start).reshape(abs(rows), stride)
    pixels = lines[:, : channels * columns].reshape(abs(rows), columns, channels)
    order = {1: [0], 3: [2, 1, 0], 4: [2, 1, 0, 3]}[channels]
    return pixels[:: 1 if rows < 0 else -1, :, order]
