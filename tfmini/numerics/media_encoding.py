"""Encodes arrays as PNG images and WAV sounds, in the forms that summaries and image ops need."""

from __future__ import annotations

import struct
import zlib
from typing import Any

import numpy as np

from tfmini.errors import InvalidArgumentError

_PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_COLOR_TYPES = {1: 0, 2: 4, 3: 2, 4: 6}  # by number of channels: grey, grey + alpha, RGB, RGBA
_SUB_FILTER = 1
_UINT32_MAX = 2**32 - 1
_UINT16_MAX = 2**16 - 1
_WAV_HEADER = struct.Struct("<4sI4s4sIHHIIHH4sI")


def encode_png(pixels: np.ndarray[Any, Any], compression: int = -1) -> bytes:
    """A PNG file of an image.

    Args:
      pixels: uint8 or uint16, [height, width, channels], 1 to 4 channels.
      compression: zlib's level.
    """
    height, width, channels = pixels.shape
    depth = pixels.itemsize
    rows = np.ascontiguousarray(pixels.astype(f">u{depth}", copy=False)).view(np.uint8).reshape(height, -1)
    step = channels * depth
    # Each byte is stored as its difference from the pixel to the left, which compresses better.
    lines = np.empty((height, 1 + rows.shape[1]), np.uint8)
    lines[:, 0] = _SUB_FILTER
    lines[:, 1 : 1 + step] = rows[:, :step]
    np.subtract(rows[:, step:], rows[:, :-step], out=lines[:, 1 + step :])
    header = struct.pack(">IIBBBBB", width, height, 8 * depth, _COLOR_TYPES[channels], 0, 0, 0)
    body = zlib.compress(lines.tobytes(), compression)
    return _PNG_SIGNATURE + _chunk(b"IHDR", header) + _chunk(b"IDAT", body) + _chunk(b"IEND", b"")


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def encode_wav(sound: np.ndarray[Any, Any], sample_rate: int) -> bytes:
    """A 16-bit PCM WAV file of float32 samples [frames, channels]; samples outside -1…1 are clipped.

    Raises:
      InvalidArgumentError: when the format has no room for the numbers.
    """
    frames, channels = sound.shape
    size = _WAV_HEADER.size + 2 * sound.size
    problem = ""
    if not 0 < sample_rate <= _UINT32_MAX:
        problem = f"sample_rate must be in (0, 2^32), got: {sample_rate}"
    elif not 0 < channels <= _UINT16_MAX:
        problem = f"num_channels must be in (0, 2^16), got: {channels}"
    elif not frames:
        problem = "num_frames must be positive."
    elif size > _UINT32_MAX:
        problem = "Provided channels and frames cannot be encoded as a WAV."
    if problem:
        raise InvalidArgumentError.of(problem)
    header = _WAV_HEADER.pack(
        b"RIFF", size - 8, b"WAVE",
        b"fmt ", 16, 1, channels, sample_rate, sample_rate * 2 * channels & _UINT32_MAX, 2 * channels, 16,
        b"data", 2 * sound.size,
    )  # fmt: skip
    scaled = sound.astype(np.float64) * 2**15
    rounded = np.trunc(scaled + np.copysign(0.5, scaled))  # halves away from zero
    return header + np.clip(rounded, -(2**15), 2**15 - 1).astype("<i2").tobytes()  # type: ignore[no-any-return]
