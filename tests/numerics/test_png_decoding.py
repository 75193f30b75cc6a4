"""PNG files."""

from __future__ import annotations

import resource
import struct
import zlib

import numpy as np
import pytest

from tfmini import errors
from tfmini.numerics import png_decoding
from tfmini.numerics.inflation import LIMIT_ENV


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


def _grey(width: int, height: int, body: bytes) -> bytes:
    chunk = lambda kind, data: struct.pack(">I", len(data)) + kind + data + b"\0\0\0\0"  # noqa: E731
    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    return png_decoding.SIGNATURE + chunk(b"IHDR", header) + chunk(b"IDAT", body) + chunk(b"IEND", b"")


def test_a_small_file_inflates_to_no_more_than_its_image() -> None:
    """TensorFlow's limit of the size holds, and what is behind the image stays compressed."""
    bomb = zlib.compress(bytes(300 << 20), 9)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    found = png_decoding.decode(_grey(10, 10, bomb))
    assert found is not None and found.shape == (10, 10, 1)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss < before + (100 << 10)  # KiB
    for width, height in ((1 << 27, 1), (1 << 15, 1 << 14), (0, 1)):
        with pytest.raises(ValueError, match=f"PNG size too large for int: {width} by {height}"):
            png_decoding.decode(_grey(width, height, bomb))


def test_an_image_above_the_limit_of_inflation_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(LIMIT_ENV, "100")
    with pytest.raises(errors.ResourceExhaustedError, match="A PNG image of"):
        png_decoding.decode(_grey(10, 10, zlib.compress(bytes(110))))


def test_an_image_that_is_cut_short_is_an_error() -> None:
    for body in (zlib.compress(bytes(109)), zlib.compress(bytes(110))[:-1]):
        with pytest.raises(ValueError, match="cut short"):
            png_decoding.decode(_grey(10, 10, body))
