"""Encoded images."""

from __future__ import annotations

import io

import numpy as np
import pytest

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
    image = pytest.importorskip("PIL.Image")
    frames = [image.new("L", (100, 100), 5 * i) for i in range(50)]
    file = io.BytesIO()
    frames[0].save(file, "GIF", save_all=True, append_images=frames[1:])
    assert run(tf.image.decode_gif(file.getvalue())).shape == (50, 100, 100, 3)
    monkeypatch.setenv("TFMINI_INFLATE_LIMIT", "1000000")
    with pytest.raises(tf.errors.ResourceExhaustedError, match="A GIF file of 50 frames inflates to more than 1000000"):
        run(tf.image.decode_gif(file.getvalue()))


def test_an_image_that_pillow_holds_for_a_bomb_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    image = pytest.importorskip("PIL.Image")
    file = io.BytesIO()
    image.new("RGB", (100, 100)).save(file, "JPEG")
    monkeypatch.setattr(image, "MAX_IMAGE_PIXELS", 1000)
    with pytest.raises(tf.errors.ResourceExhaustedError, match="JPEG data of"):
        run(tf.image.decode_jpeg(file.getvalue()))
