"""PNG files."""

from __future__ import annotations

import resource
import struct
import zlib

import numpy as np
import pytest

from tfmini import errors
from tfmini.numerics import images
from tfmini.numerics.images import LIMIT_ENV


def _chunk(kind: bytes, data: bytes, checksum_off: int = 0) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data) ^ checksum_off)


def _header(width: int, height: int, bits: int = 8, colour: int = 0, interlaced: int = 0) -> bytes:
    return _chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, bits, colour, 0, 0, interlaced))


def _file(*chunks: bytes) -> bytes:
    return images.SIGNATURE + b"".join(chunks) + _chunk(b"IEND", b"")


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
    found = images.decode_png(_file(_header(5, 4, colour=2), _chunk(b"IDAT", body)))
    assert (found == pixels).all()


# Two lines of four samples of 16 bits, and what TensorFlow 1.15 reads from them.
_LINES = b"\0\x01\x02\x80\x00\xff\xff\x12\x34" + b"\2" + bytes(8)
_FORMS = {
    "grey": (4, 16, 0, b"", 0, True, [[[0x0102], [0x8000], [0xFFFF], [0x1234]]] * 2),
    "grey as 8 bits": (4, 16, 0, b"", 0, False, [[[1], [0x80], [0xFF], [0x12]]] * 2),
    "grey with a key": (4, 16, 0, b"\x80\0", 4, False,
                        [[[1, 1, 1, 255], [128, 128, 128, 0], [255, 255, 255, 255], [18, 18, 18, 255]]] * 2),
    "grey and alpha": (2, 16, 4, b"", 0, True, [[[0x0102, 0x8000], [0xFFFF, 0x1234]]] * 2),
    "colours and alpha": (1, 16, 6, b"", 0, True, [[[0x0102, 0x8000, 0xFFFF, 0x1234]]] * 2),
    "one bit": (64, 1, 0, b"", 0, False, None),
}  # fmt: skip


@pytest.mark.parametrize("form", _FORMS)
def test_forms_are_decoded_as_libpng_does(form: str) -> None:
    width, bits, colour, key, channels, wide, wanted = _FORMS[form]
    transparency = [_chunk(b"tRNS", key)] if key else []
    data = _file(_header(width, 2, bits, colour), *transparency, _chunk(b"IDAT", zlib.compress(_LINES)))
    found = images.decode_png(data, channels, wide)
    if wanted is None:
        first = np.unpackbits(np.frombuffer(_LINES[1:9], np.uint8)) * 255
        assert (found[:, :, 0] == first).all()
        assert images.decode_png(data, 4)[0, 0].tolist() == [0, 0, 0, 1]  # TensorFlow's alpha of one bit
    else:
        assert found.tolist() == wanted


def test_an_interlaced_image_is_decoded() -> None:
    """Adam7 of 3 by 2 pixels: the passes hold the pixels (0, 0); (2, 0); (1, 0); then the second line."""
    body = zlib.compress(b"\0\1" + b"\0\3" + b"\0\2" + b"\0\4\5\6")
    found = images.decode_png(_file(_header(3, 2, interlaced=1), _chunk(b"IDAT", body)))
    assert found[:, :, 0].tolist() == [[1, 2, 3], [4, 5, 6]]


def test_checksums_count_as_in_libpng() -> None:
    """A critical chunk with a wrong one makes the file invalid; another one is as if it were not there."""
    header, body = _header(2, 1, colour=3), zlib.compress(b"\0\0\1")
    palette, alpha = b"\1\2\3\4\5\6", b"\7"
    image = _chunk(b"IDAT", body)
    sound = _file(header, _chunk(b"PLTE", palette), _chunk(b"tRNS", alpha), image)
    assert images.decode_png(sound).tolist() == [[[1, 2, 3, 7], [4, 5, 6, 255]]]
    odd = _file(header, _chunk(b"PLTE", palette), _chunk(b"tRNS", alpha, 1), image)
    assert images.decode_png(odd).tolist() == [[[1, 2, 3], [4, 5, 6]]]
    for data in (
        _file(header, _chunk(b"PLTE", palette, 1), image),
        _file(header, _chunk(b"PLTE", palette), _chunk(b"IDAT", body, 1)),
        sound[:-1] + b"\0",
    ):
        with pytest.raises(ValueError, match="has a wrong checksum"):
            images.decode_png(data)
    for at in range(len(sound) * 8):  # no flipped bit changes the picture in silence; one in tRNS takes its alpha
        damaged = bytearray(sound)
        damaged[at // 8] ^= 1 << at % 8
        try:
            found = images.decode_png(bytes(damaged))
        except ValueError:
            continue
        assert found[:, :, :3].tolist() == [[[1, 2, 3], [4, 5, 6]]]


def test_a_long_line_is_decoded_in_little_memory() -> None:
    """It once took a Python loop per byte and 24 bytes of lists: 16 MB took seconds and half a gigabyte."""
    width = 4 << 20
    body = zlib.compress(b"\4" + bytes(4 * width), 9)
    data = _file(_header(width, 1, colour=6), _chunk(b"IDAT", body))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert not images.decode_png(data).any()
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200 << 10  # KiB


def _grey(width: int, height: int, body: bytes) -> bytes:
    return _file(_header(width, height), _chunk(b"IDAT", body))


def test_a_small_file_inflates_to_no_more_than_its_image() -> None:
    """TensorFlow's limit of the size holds, and what is behind the image stays compressed."""
    bomb = zlib.compress(bytes(300 << 20), 9)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    found = images.decode_png(_grey(10, 10, bomb))
    assert found.shape == (10, 10, 1)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss < before + (100 << 10)  # KiB
    for width, height in ((1 << 27, 1), (1 << 15, 1 << 14), (0, 1)):
        with pytest.raises(ValueError, match=f"PNG size too large for int: {width} by {height}"):
            images.decode_png(_grey(width, height, bomb))


def test_an_image_above_the_limit_of_inflation_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(LIMIT_ENV, "100")
    with pytest.raises(errors.ResourceExhaustedError, match="A PNG image of"):
        images.decode_png(_grey(10, 10, zlib.compress(bytes(110))))


def test_an_image_that_is_cut_short_is_an_error() -> None:
    for body in (zlib.compress(bytes(109)), zlib.compress(bytes(110))[:-1]):
        with pytest.raises(ValueError, match="cut short"):
            images.decode_png(_grey(10, 10, body))
