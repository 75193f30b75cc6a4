"""Boxes in images, and what is cut out of them."""

from __future__ import annotations

import numpy as np
import pytest

import tfmini as tf


def test_the_gradient_of_crops_is_their_slope() -> None:
    image = tf.constant(np.random.RandomState(0).rand(1, 4, 5, 2), tf.float32)
    crops = tf.image.crop_and_resize(image, [[0.1, 0.0, 0.8, 1.0]], [0], [3, 3])
    with tf.Session():
        assert tf.test.compute_gradient_error(image, [1, 4, 5, 2], crops, [1, 3, 3, 2]) < 1e-3


@pytest.mark.parametrize("method", ["bilinear", "nearest"])
def test_the_boxes_of_crops_have_a_gradient(method: str) -> None:
    image = tf.constant(np.arange(24.0).reshape(1, 4, 6, 1) ** 2, tf.float32)
    boxes = tf.constant([[0.1, 0.05, 0.8, 0.9]])
    crops = tf.image.crop_and_resize(image, boxes, [0], [3, 1], method)
    with tf.Session() as session:
        found = session.run(tf.gradients(crops, boxes)[0])
    assert np.allclose(found, [[398.25, 159.0, 830.25, 159.0]], atol=0.01), found  # TensorFlow's, for both methods
