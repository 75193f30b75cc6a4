"""The image family: values are TensorFlow's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tfmini as tf
from tests.expressions import check, outcome

IMAGES = "tf.reshape(tf.sin(tf.range(288.)) / 2 + .5, [2, 12, 12, 1])"
OTHERS = "tf.reshape(tf.cos(tf.range(288.)) / 2 + .5, [2, 12, 12, 1])"
RGB = "tf.reshape(tf.sin(tf.range(24.)) / 2 + .5, [2, 4, 3])"
BOXES = "[[0., 0., .5, .5], [.1, .1, .6, .6], [.5, .5, 1., .9], [0., .2, .4, .7]]"
SCORES = "[.9, .8, .7, .95]"
PATCHED = "tf.sin(tf.reshape(tf.range(60.), [2, 5, 3, 2]))"
CASES = [
    f"tf.image.rgb_to_yiq({RGB})", f"tf.image.yiq_to_rgb({RGB})", f"tf.image.rgb_to_yuv({RGB})",
    f"tf.image.yuv_to_rgb({RGB})", f"tf.image.sobel_edges({IMAGES})", f"tf.image.total_variation({IMAGES})",
    f"tf.image.image_gradients({IMAGES})[0]", f"tf.image.psnr({IMAGES}, {OTHERS}, 1.0)",
    f"tf.image.ssim({IMAGES}, {OTHERS}, 1.0)",
    f"tf.image.crop_and_resize({IMAGES}, {BOXES}, [0, 1, 0, 1], [3, 4])",
    f"tf.image.crop_and_resize({IMAGES}, {BOXES}, [0, 1, 0, 1], [1, 2], 'nearest', 7.0)",
    f"tf.image.non_max_suppression({BOXES}, {SCORES}, 3, .3)",
    f"tf.image.non_max_suppression_padded({BOXES}, {SCORES}, 4, .3, .5, True)[0]",
    f"tf.image.non_max_suppression_with_scores({BOXES}, {SCORES}, 4, .9, .1, .5)[1]",
    f"tf.extract_image_patches({PATCHED}, [1, 3, 2, 1], [1, 2, 1, 1], [1, 2, 1, 1], 'SAME')",
    f"tf.extract_image_patches({PATCHED}, [1, 3, 2, 1], [1, 2, 1, 1], [1, 1, 1, 1], 'VALID')",
    "(lambda x: tf.gradients(tf.extract_image_patches(x, [1, 3, 2, 1], [1, 2, 1, 1], [1, 1, 1, 1], 'SAME') ** 2, x)[0])"
    f"({PATCHED})",
]  # fmt: skip


@pytest.mark.oracle
@pytest.mark.parametrize("case", CASES)
def test_values_are_tensorflows(case: str, theirs: dict[str, Any]) -> None:
    check(outcome(tf, case), theirs[case], rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize("op", ["ResizeBilinear", "ResizeBicubic", "ResizeNearestNeighbor"])
def test_a_resize_takes_one_rule_for_coordinates(op: str) -> None:
    images = tf.placeholder(tf.float32, [1, 2, 2, 1])
    both = {"align_corners": True, "half_pixel_centers": True}
    made = getattr(tf.raw_ops, op)(images=images, size=[3, 3], **both)
    with tf.Session() as session:
        for fetch in (made, tf.gradients(made, images)):
            with pytest.raises(tf.errors.InvalidArgumentError, match="If half_pixel_centers is True, align_corners"):
                session.run(fetch, {images: [[[[1.0]] * 2] * 2]})


@pytest.mark.parametrize("times", [-1, 0, 1, 2, 3, 5])
@pytest.mark.parametrize("shape", [(2, 3, 1), (2, 2, 3, 1)])
def test_a_tensor_says_how_often_an_image_is_turned(times: int, shape: tuple[int, ...]) -> None:
    image, k = np.arange(np.prod(shape)).reshape(shape), tf.placeholder(tf.int32, [])
    with tf.Session() as session:
        found = session.run(tf.image.rot90(image, k), {k: times})
    np.testing.assert_array_equal(found, np.rot90(image, times, axes=(-3, -2)))
