"""Encoded images."""

from __future__ import annotations

import io
import struct
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import tfmini as tf
from tests.ops.session_run import run


def test_an_encoded_png_decodes_to_the_same_pixels() -> None:
    random = np.random.RandomState(0)
    for channels in (1, 2, 3, 4):
        for dtype in (np.uint8, np.uint16):
            image = random.randint(0, np.iinfo(dtype).max, (5, 7, channels)).astype(dtype)
            assert (run(tf.image.decode_png(tf.image.encode_png(image), dtype=dtype)) == image).all()
    with pytest.raises(tf.errors.InvalidArgumentError, match="Invalid PNG data"):
        run(tf.image.decode_png(b"\x89PNG\r\n\x1a\nnothing"))


def test_a_png_is_converted_to_the_requested_channels() -> None:
    png = tf.image.encode_png(np.full((2, 3, 1), 7, np.uint8))
    assert run(tf.image.decode_png(png, channels=3)).tolist() == [[[7] * 3] * 3] * 2
    assert run(tf.image.decode_png(png, channels=4))[0, 0].tolist() == [7, 7, 7, 255]
    assert run(tf.image.decode_image(png, dtype=tf.float32))[0, 0, 0] == pytest.approx(7 / 255)
    assert not run(tf.image.is_jpeg(png))


def test_a_gif_of_many_frames_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    frames = [Image.new("L", (100, 100), 5 * i) for i in range(50)]
    file = io.BytesIO()
    frames[0].save(file, "GIF", save_all=True, append_images=frames[1:])
    assert run(tf.image.decode_gif(file.getvalue())).shape == (50, 100, 100, 3)
    monkeypatch.setenv("TFMINI_INFLATE_LIMIT", "1000000")
    with pytest.raises(tf.errors.ResourceExhaustedError, match="A GIF file of 50 frames inflates to more than 1000000"):
        run(tf.image.decode_gif(file.getvalue()))


def test_an_image_that_pillow_holds_for_a_bomb_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    file = io.BytesIO()
    Image.new("RGB", (100, 100)).save(file, "JPEG")
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 1000)
    with pytest.raises(tf.errors.ResourceExhaustedError, match="JPEG data of"):
        run(tf.image.decode_jpeg(file.getvalue()))


def _saved(kind: str, mode: str = "RGB", size: tuple[int, int] = (100, 100)) -> bytes:
    file = io.BytesIO()
    Image.new(mode, size).save(file, kind)
    return file.getvalue()


@pytest.mark.parametrize("name", ["decode_png", "decode_jpeg", "decode_gif", "decode_image"])
def test_only_tensorflows_formats_are_read(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pillow hands PostScript to the program gs."""
    called = tmp_path / "called"
    (tmp_path / "gs").write_text(f"#!/bin/sh\ntouch {called}\n")
    (tmp_path / "gs").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    eps = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 4 4\n%%EndComments\nshowpage\n%%EOF\n"
    for data in (eps, _saved("TIFF"), _saved("PPM"), _saved("WEBP"), b"", b"no image"):
        with pytest.raises(tf.errors.InvalidArgumentError, match="got unknown format starting with"):
            run(getattr(tf.image, name)(data))
    assert not called.exists()


def test_the_limit_of_inflation_holds_for_each_format(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TFMINI_INFLATE_LIMIT", "20000")
    for kind in ("PNG", "JPEG", "GIF", "BMP"):
        with pytest.raises(tf.errors.ResourceExhaustedError, match="inflates to more than 20000 bytes"):
            run(tf.image.decode_image(_saved(kind)))
    with pytest.raises(tf.errors.ResourceExhaustedError, match="A JPEG file inflates"):
        run(tf.image.decode_jpeg(_saved("JPEG"), ratio=2))
    monkeypatch.delenv("TFMINI_INFLATE_LIMIT")
    fields = (200, 0, 118, 40, 8000, 8000, 1, 8, 1, 82, 1, 1, 0, 0)  # 8000 x 8000, with run lengths
    with pytest.raises(tf.errors.InvalidArgumentError, match="Invalid BMP data"):
        run(tf.image.decode_image(b"BM" + struct.pack("<IIIIiiHHIIiiII", *fields) + bytes(82)))


def test_damaged_files_are_errors_of_the_argument() -> None:
    file = io.BytesIO()
    frames = [Image.new("L", (20, 10), 50 * i) for i in range(3)]
    frames[0].save(file, "GIF", save_all=True, append_images=frames[1:])
    for data in (file.getvalue(), _saved("JPEG"), _saved("PNG"), _saved("BMP")):
        for cut in (4, 12, 30, len(data) // 2):
            with pytest.raises(tf.errors.InvalidArgumentError, match="Invalid .* data, size|unknown format"):
                run(tf.image.decode_image(data[:cut]))
    wide = bytearray(file.getvalue())
    at = bytes(wide).rindex(b"\x2c\0\0\0\0")  # the last frame's place: to the right of the image
    wide[at + 1 : at + 3] = struct.pack("<H", 4000)
    with pytest.raises(tf.errors.InvalidArgumentError, match="Invalid GIF data"):
        run(tf.image.decode_gif(bytes(wide)))


def test_the_first_bytes_of_a_bmp_file_may_be_others() -> None:
    data = _saved("BMP")
    with tf.Session() as session:
        one, other = session.run([tf.image.decode_bmp(data), tf.image.decode_bmp(b"B@" + data[2:])])
    assert one.tolist() == other.tolist()
