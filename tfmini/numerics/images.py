"""Decodes PNG (as libpng does for TensorFlow) and BMP files, encodes PNG and WAV; the limit of what is inflated.

The chunks of a PNG file are read and checked here, so that the image's size is known before memory is taken and nothing
but the pixels reaches Pillow. Pillow, which is slow to import, is imported by the first image.
"""

from __future__ import annotations

import os
import struct
import zlib
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np

from tfmini import errors
from tfmini.core_types import Array
from tfmini.errors import InvalidArgumentError

# ---- inflation ----------------------------------------
# Decompression with a bound, since a small input can be made to inflate to gigabytes (a decompression bomb).

LIMIT_ENV = "TFMINI_INFLATE_LIMIT"
_DEFAULT_LIMIT = 1 << 30  # bytes


def inflate_limit() -> int:
    """The most bytes that one compressed value, line or record may inflate to, as ``TFMINI_INFLATE_LIMIT`` says.

    Raises:
      InvalidArgumentError: the variable is no positive number.
    """
    text = os.environ.get(LIMIT_ENV, "")
    if not text:
        return _DEFAULT_LIMIT
    if not text.isdecimal() or not int(text):
        raise errors.InvalidArgumentError.of(f"{LIMIT_ENV} must be a positive number of bytes, but is {text!r}.")
    return int(text)


def check_inflated(nbytes: int, what: str) -> None:
    """Refuses to inflate so many bytes.

    Raises:
      ResourceExhaustedError: they are more than `inflate_limit`.
    """
    limit = inflate_limit()
    if nbytes > limit:
        raise errors.ResourceExhaustedError.of(
            f"{what} inflates to more than {limit} bytes, the limit of one compressed value: it is very large, or made"
            f" to exhaust memory. If it can be trusted, set {LIMIT_ENV} to more bytes on the task that runs the op."
        )


def inflate(data: bytes, window_bits: int, what: str) -> bytes:
    """Decompresses a whole zlib or gzip stream.

    Args:
      window_bits: zlib's: 15 for a zlib header, 31 for a gzip one.
      what: the subject of the error.

    Raises:
      ResourceExhaustedError: it inflates to more than `inflate_limit`.
      zlib.error: the data are damaged or cut short.
    """
    decoder = zlib.decompressobj(window_bits)
    found = decoder.decompress(data, inflate_limit() + 1)
    check_inflated(len(found), what)
    if not decoder.eof:
        raise zlib.error("Error -5 while decompressing data: incomplete or truncated stream")
    return found


# ---- png decoding ------------------------------------------------------------


SIGNATURE = b"\x89PNG\r\n\x1a\n"
_LARGEST_SIDE, _MOST_PIXELS = 1 << 27, 1 << 29  # less than these, as in TensorFlow
_SAMPLES = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}  # per pixel, by colour type
_DEPTHS = {0: (1, 2, 4, 8, 16), 2: (8, 16), 3: (1, 2, 4, 8), 4: (8, 16), 6: (8, 16)}  # bits, by colour type
_PALETTE = 3  # the colour type
_CRITICAL = {b"IHDR", b"PLTE", b"IDAT", b"IEND"}  # a decoder must refuse others whose name starts with a capital
_PASSES = ((0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2))  # Adam7
# Red's, green's and blue's share of grey in units of 2**-15, by libpng's rounding of 0.299 and 0.587.
_GREY = np.array([9797, 19234, 3737], np.uint32)
_MODES = {1: "L", 2: "LA", 3: "RGB", 4: "RGBA"}


class _File(NamedTuple):
    """What a PNG file holds: its header's fields and the chunks that make the picture."""

    width: int
    height: int
    bits: int
    colour: int
    interlaced: int
    palette: bytes
    transparency: bytes  # empty: none that counts
    body: bytes


def decode_png(data: bytes, channels: int = 0, wide: bool = False) -> Array:
    """The pixels (rows, columns, channels) of uint8, or of uint16 if ``wide``.

    Args:
      channels: 0 for those of the file, or 1 to 4.

    Raises:
      ValueError: when the data are not a PNG file, or a checksum of a critical chunk does not match.
      ResourceExhaustedError: see `check_inflated`.
    """
    file = _read(data)
    samples = _samples(file)
    pixels = _converted(file, samples, channels)
    if wide:
        return pixels if pixels.dtype == np.uint16 else pixels.astype(np.uint16) * 257  # the 8 bits, repeated
    return pixels if pixels.dtype == np.uint8 else (pixels >> 8).astype(np.uint8)


# ---- chunks -------------------------------------------------------------------------------------


def _chunks(data: bytes) -> list[tuple[bytes, bytes]]:
    """Names and contents up to IEND; optional chunks whose checksum is wrong are left out, as libpng does."""
    found: list[tuple[bytes, bytes]] = []
    at = len(SIGNATURE)
    while True:
        if at + 12 > len(data):
            raise ValueError("the file is cut short")
        length, name = struct.unpack_from(">I4s", data, at)
        end = at + 12 + length
        if not (name.isalpha() and name.isascii()):
            raise ValueError("a chunk has an invalid name")
        if end > len(data):
            raise ValueError(f"the chunk {name.decode()} is cut short")
        sound = zlib.crc32(memoryview(data)[at + 4 : end - 4]) == int.from_bytes(data[end - 4 : end], "big")
        if name[:1].isupper() and not (sound and name in _CRITICAL):
            raise ValueError(f"the chunk {name.decode()} {'is unknown' if sound else 'has a wrong checksum'}")
        if name == b"IEND":
            return found
        if sound:
            found.append((name, data[at + 8 : end - 4]))
        at = end


def _read(data: bytes) -> _File:
    if data[: len(SIGNATURE)] != SIGNATURE:
        raise ValueError("no PNG signature")
    chunks = _chunks(data)
    names = [name for name, _ in chunks]
    if names[:1] != [b"IHDR"] or names.count(b"IHDR") > 1 or len(chunks[0][1]) != 13 or b"IDAT" not in names:
        raise ValueError("the header or the image is missing")
    width, height, bits, colour, *methods, interlaced = struct.unpack(">IIBBBBB", chunks[0][1])
    if bits not in _DEPTHS.get(colour, ()) or any(methods) or interlaced > 1:
        raise ValueError(f"unknown form: {bits} bits of colour type {colour}")
    if not (0 < width < _LARGEST_SIDE and 0 < height < _LARGEST_SIDE and width * height < _MOST_PIXELS):
        raise ValueError(f"PNG size too large for int: {width} by {height}")
    first = names.index(b"IDAT")
    count = names.count(b"IDAT")
    if names[first : first + count] != [b"IDAT"] * count:
        raise ValueError("the image's chunks do not follow one another")
    palette = _palette(chunks, first, bits) if colour == _PALETTE else b""
    transparency = _transparency(chunks[:first], colour, len(palette) // 3)
    return _File(
        width, height, bits, colour, interlaced, palette, transparency,
        b"".join(content for _, content in chunks[first : first + count]),
    )  # fmt: skip


def _palette(chunks: list[tuple[bytes, bytes]], first: int, bits: int) -> bytes:
    found = [i for i, (name, _) in enumerate(chunks) if name == b"PLTE"]
    palette = chunks[found[0]][1] if len(found) == 1 and found[0] < first else b""
    if not palette or len(palette) % 3 or len(palette) > 3 * 256:
        raise ValueError("the palette is missing or wrong")
    return palette[: 3 << bits]


def _transparency(before: list[tuple[bytes, bytes]], colour: int, colours: int) -> bytes:
    """The chunk tRNS, if it stands and has the length that count."""
    names = [name for name, _ in before]
    content = before[names.index(b"tRNS")][1] if b"tRNS" in names else b""
    if colour == _PALETTE:
        late = b"tRNS" in names and names.index(b"tRNS") > names.index(b"PLTE")
        return content if late and len(content) <= colours else b""
    return content if len(content) == {0: 2, 2: 6}.get(colour) else b""


# ---- samples ------------------------------------------------------------------------------------


def _samples(file: _File) -> Array:
    """The file's own samples, (rows, columns, samples) of uint8 or uint16; fewer than 8 bits are not scaled."""
    body = _inflated(file.body, sum(_pass_sizes(file)))
    count = _SAMPLES[file.colour]

    def unfiltered(mode: str, raw_mode: str) -> Array:
        image = import_module("PIL.Image").frombytes(
            mode, (file.width, file.height), body, "zip", raw_mode, file.interlaced
        )
        return np.asarray(image).reshape(file.height, file.width, -1)

    if file.bits < 8:
        return unfiltered("P", f"P;{file.bits}")
    if file.bits == 8:
        return unfiltered(_MODES[count], _MODES[count])
    if count <= 2:  # as many bytes as 2 or 4 samples of 8 bits
        return unfiltered(_MODES[2 * count], _MODES[2 * count]).view(">u2").astype(np.uint16)
    mode = _MODES[count]  # Pillow keeps one byte of each sample: ask for each
    return unfiltered(mode, f"{mode};16B").astype(np.uint16) << 8 | unfiltered(mode, f"{mode};16L")


def _pass_sizes(file: _File) -> list[int]:
    """The bytes of each pass over the image; a picture that is not interlaced has one."""
    sizes = []
    for x, y, across, down in _PASSES if file.interlaced else ((0, 0, 1, 1),):
        columns, rows = -(-(file.width - x) // across), -(-(file.height - y) // down)
        line = 1 + (columns * file.bits * _SAMPLES[file.colour] + 7) // 8
        sizes.append(rows * line if rows > 0 and columns > 0 else 0)
    return sizes


def _inflated(body: bytes, size: int) -> bytes:
    """All lines, as a zlib stream that is not compressed. What follows them in the file is not inflated."""
    check_inflated(size, f"A PNG image of {len(body)} compressed bytes")
    decoder = zlib.decompressobj()
    try:
        found = decoder.decompress(body, size + 1)  # one more, so that the checksum is read
    except zlib.error as error:
        raise ValueError(str(error)) from error
    if len(found) < size or (len(found) == size and not decoder.eof):
        raise ValueError("the image is cut short")
    return zlib.compress(found[:size], 0)


# ---- channels -----------------------------------------------------------------------------------


def _converted(file: _File, samples: Array, channels: int) -> Array:
    """The samples as so many channels."""
    colours, own_alpha = _colours(file, samples)
    channels = channels or colours.shape[2] + (own_alpha is not None and file.colour in (_PALETTE, 4, 6))
    if channels >= 3 and colours.shape[2] == 1:
        colours = np.repeat(colours, 3, axis=2)
    elif channels < 3 and colours.shape[2] == 3:
        wide = np.uint32(0 if colours.dtype == np.uint8 else 1 << 14)
        for i, share in enumerate(_GREY):
            wide = wide + colours[:, :, i] * share
        colours = (wide >> 15).astype(colours.dtype)[:, :, None]
    if channels in (1, 3):
        return colours
    # Where the file has no alpha TensorFlow fills in the file's largest sample, which is 15 for one of 4 bits.
    filled = np.full((*colours.shape[:2], 1), (1 << file.bits) - 1, colours.dtype)
    return np.concatenate([colours, filled if own_alpha is None else own_alpha], axis=2)


def _colours(file: _File, samples: Array) -> tuple[Array, Array | None]:
    """Grey or red, green and blue, and the alpha that the file gives (or None)."""
    if file.colour == _PALETTE:
        table = np.zeros((256, 4), np.uint8)  # a colour that is not in the palette is black, as in libpng
        table[:, 3] = 255
        table[: len(file.palette) // 3, :3] = np.frombuffer(file.palette, np.uint8).reshape(-1, 3)
        table[: len(file.transparency), 3] = np.frombuffer(file.transparency, np.uint8)
        looked_up = table[samples[:, :, 0]]
        return looked_up[:, :, :3], looked_up[:, :, 3:] if file.transparency else None
    if file.colour in (4, 6):
        return samples[:, :, :-1], samples[:, :, -1:]
    full = 65535 if file.bits == 16 else 255
    alpha = None
    if file.transparency:
        key = np.frombuffer(file.transparency, ">u2") & ((1 << file.bits) - 1)
        alpha = np.where((samples == key).all(axis=2, keepdims=True), 0, full).astype(samples.dtype)
    return (samples * np.uint8(full // ((1 << file.bits) - 1)) if file.bits < 8 else samples), alpha


# ---- BMP files without compression, as TensorFlow reads them: 8, 24 or 32 bits per pixel ---------------------------


def decode_bmp(data: bytes) -> np.ndarray[Any, Any]:
    """The pixels of a BMP file, uint8 of shape (rows, columns, 1, 3 or 4); palette indices stay indices.

    Raises:
      ValueError, struct.error: when the data are not an uncompressed BMP file.
      ResourceExhaustedError: see `check_inflated`.
    """
    start, _, columns, rows, _, bits = struct.unpack_from("<IIiiHH", data, 10)
    channels = bits // 8
    if channels not in (1, 3, 4) or columns <= 0:  # the first two bytes may be others, as in TensorFlow
        raise ValueError("not an uncompressed BMP file of 8, 24 or 32 bits per pixel")
    stride = (channels * columns + 3) // 4 * 4
    check_inflated(abs(rows) * columns * channels, "A BMP file")
    lines = np.frombuffer(data, np.uint8, stride * abs(rows), start).reshape(abs(rows), stride)
    pixels = lines[:, : channels * columns].reshape(abs(rows), columns, channels)
    order = {1: [0], 3: [2, 1, 0], 4: [2, 1, 0, 3]}[channels]
    return pixels[:: 1 if rows < 0 else -1, :, order]


# ---- Encodes arrays as PNG images and WAV sounds, in the forms that summaries and image ops need -------------------

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
    return SIGNATURE + _chunk(b"IHDR", header) + _chunk(b"IDAT", body) + _chunk(b"IEND", b"")


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
