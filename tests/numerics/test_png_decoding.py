"""PNG files."""

from __future__ import annotations

import struct
import zlib

import numpy as np
import pytest

from tfmini.numerics import png_decoding


@pytest.mark.parametrize("filter_kind", range(5))
def test_lines_of_each_filter_are_decoded(filter_kind: int) -> None:
    pixels = np.random.RandomState(1).randint(0, 256, (4, 5, 3)).astype(np.uint8)
    flat = pixels.reshape(4, -1).astype(int)
    left = np.pad(flat, ((0, 0), (3, 0)))[:, :-3]
    up = np.pad(flat, ((1, 0), (0, 0)))[:-1]
    corner = np.pad(flat, ((1, 0), (3, 0)))[:-1, :-3]
    guess = left + up - corner
    distances = np.abs(np.stack([guess - left, guess - up, guess - corner]))
    paeth = np.choose(distances.argmin(axis=0), [left, up, corner])
    lines = (flat - [0 * flat, left, up, (left + up) // 2, paeth][filter_kind]) % 256
    body = zlib.compress(b"".join(bytes([filter_kind, *line]) for line in lines.tolist()))
    chunk = lambda kind, data: struct.pack(">I", len(data)) + kind + data + b"\0\0\0\0"  # noqa: E731
    header = struct.pack(">IIBBBBB", 5, 4, 8, 2, 0, 0, 0)
    file = png_decoding.SIGNATURE + chunk(b"IHDR", header) + chunk(b"IDAT", body) + chunk(b"IEND", b"")
    found = png_decoding.decode(file)
    assert found is not None and (found == pixels).all()
