"""Images and audio as files."""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np
import pytest

from tfmini.numerics.images import encode_png


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
@pytest.mark.parametrize("channels", [1, 2, 3, 4])
def test_a_png_holds_the_pixels_that_it_was_made_of(dtype: Any, channels: int) -> None:
    pixels = np.random.default_rng(0).integers(0, np.iinfo(dtype).max, (5, 7, channels)).astype(dtype)
    data = encode_png(pixels)
    start = data.index(b"IDAT")
    body = zlib.decompress(data[start + 4 : start + 4 + int.from_bytes(data[start - 4 : start])])
    lines = np.frombuffer(body, np.uint8).reshape(5, -1)
    rows = lines[:, 1:].reshape(5, 7, -1).cumsum(axis=1).astype(np.uint8)
    np.testing.assert_array_equal(rows.view(np.dtype(dtype).newbyteorder(">")).reshape(pixels.shape), pixels)
