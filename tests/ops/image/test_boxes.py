"""Boxes in images, and what is cut out of them."""

from __future__ import annotations

import numpy as np

import tfmini as tf


def test_the_gradient_of_crops_is_their_slope() -> None:
    image = tf.constant(np.random.RandomState(0).rand(1, 4, 5, 2), tf.float32)
    crops = tf.image.crop_and_resize(image, [[0.1, 0.0, 0.8, 1.0]], [0], [3, 3])
    with tf.Session():
        assert tf.test.compute_gradient_error(image, [1, 4, 5, 2], crops, [1, 3, 3, 2]) < 1e-3
