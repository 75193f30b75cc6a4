"""Decodes the usual PNG files without a library: not interlaced, 8 or 16 bits per sample."""

from __future__ import annotations

import struct
import zlib
from typing import Any

import numpy as np

from tfmini.numerics.inflation import check_inflated

Array = np.ndarray[Any, Any]

SIGNATURE = b"\x89PNG\r\n\x1a\n"
_LARGEST_SIDE, _MOST_PIXELS = 1 << 27, 1 << 29  # less than these, as in TensorFlow
_SAMPLES = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}  # per pixel, by colour type


def decode(data: bytes) -> Array | None:
    """The pixels (rows, columns, channels) of uint8 or uint16; None for a form that is not supported.

    Raises:
      ValueError: when the data are not a PNG file.
      ResourceExhaustedError: see `inflation.check_inflated`.
    """
    if data[:8] != SIGNATURE:
        raise ValueError("no PNG signature")
    header: tuple[int, ...] = ()
    palette, transparency, body = b"", b"", []
    at = 8
    while at + 8 <= len(data):
        length, kind = struct.unpack_from(">I4s", data, at)
        chunk = data[at + 8 : at + 8 + length]
        at += length + 12
        if kind == b"IHDR":
            header = struct.unpack(">IIBBBBB", chunk)
        elif kind == b"PLTE":
            palette = chunk
        elif kind == b"tRNS":
            transparency = chunk
        elif kind == b"IDAT":
            body.append(chunk)
    if not header or not body:
        raise ValueError("the image is missing")
    width, height, bits, colour, _, _, interlaced = header
    if bits not in (8, 16) or interlaced or colour not in _SAMPLES or (transparency and colour != 3):
        return None
    if not (0 < width < _LARGEST_SIDE and 0 < height < _LARGEST_SIDE and width * height < _MOST_PIXELS):
        raise ValueError(f"PNG size too large for int: {width} by {height}")
    step = _SAMPLES[colour] * bits // 8
    raw = _inflated(b"".join(body), height * (1 + width * step))
    rows = _unfiltered(raw.reshape(height, -1), step)
    pixels = rows.reshape(height, width, -1) if bits == 8 else rows.view(">u2").reshape(height, width, -1)
    pixels = pixels.astype(np.uint8 if bits == 8 else np.uint16)
    return _coloured(pixels[:, :, 0], palette, transparency) if colour == 3 else pixels


def _inflated(body: bytes, size: int) -> Array:
    """The bytes of all lines. What follows them in the file is not inflated."""
    check_inflated(size, f"A PNG image of {len(body)} compressed bytes")
    decoder = zlib.decompressobj()
    try:
        found = decoder.decompress(body, size + 1)  # one more, so that the checksum is read
    except zlib.error as error:
        raise ValueError(str(error)) from error
    if len(found) < size or (len(found) == size and not decoder.eof):
        raise ValueError("the image is cut short")
    return np.frombuffer(found, np.uint8, size)


def _coloured(indices: Array, palette: bytes, transparency: bytes) -> Array:
    table = np.frombuffer(palette, np.uint8).reshape(-1, 3)
    if transparency:
        alpha = np.full((len(table), 1), 255, np.uint8)
        alpha[: len(transparency), 0] = np.frombuffer(transparency, np.uint8)
        table = np.concatenate([table, alpha], axis=1)
    if indices.size and indices.max() >= len(table):
        raise ValueError("a colour is not in the palette")
    return table[indices]


def _unfiltered(lines: Array, step: int) -> Array:
    """Undoes the prediction of each line from its neighbours; the first byte of a line says which."""
    height, width = lines.shape[0], lines.shape[1] - 1
    result = np.zeros((height, width), np.uint8)
    above = np.zeros(width, np.uint8)
    for row in range(height):
        kind, line = int(lines[row, 0]), lines[row, 1:]
        if kind == 0:
            result[row] = line
        elif kind == 1:
            sums = line.reshape(-1, step).cumsum(axis=0, dtype=np.uint8)
            result[row] = sums.reshape(-1)
        elif kind == 2:
            result[row] = line + above
        elif kind in (3, 4):
            _predict(result[row], line, above, step, kind == 4)
        else:
            raise ValueError(f"unknown filter {kind}")
        above = result[row]
    return result


def _predict(out: Array, line: Array, above: Array, step: int, paeth: bool) -> None:
    """Undoes the two filters that predict from the pixel to the left, pixel by pixel."""
    found, up = out.tolist(), above.tolist()
    for i, value in enumerate(line.tolist()):
        left = found[i - step] if i >= step else 0
        if not paeth:
            found[i] = (value + (left + up[i]) // 2) & 255
            continue
        corner = up[i - step] if i >= step else 0
        guess = left + up[i] - corner
        distances = (abs(guess - left), abs(guess - up[i]), abs(guess - corner))
        nearest = (left, up[i], corner)[distances.index(min(distances))]
        found[i] = (value + nearest) & 255
    out[:] = found
