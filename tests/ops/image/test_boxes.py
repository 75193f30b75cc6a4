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


def test_an_overlap_over_the_threshold_drops_a_box_also_with_a_sigma() -> None:
    """As in TensorFlow 1.15; it was kept with the score 0."""
    boxes = np.array([[0, 0, 1, 1], [0, 0.1, 1, 1.1], [0, 2, 1, 3], [0, 0.4, 1, 1.4]], np.float32)
    found = tf.image.non_max_suppression_with_scores(boxes, [0.9, 0.8, 0.3, 0.7], 4, 0.5, soft_nms_sigma=0.5)
    with tf.Session() as session:
        indices, scores = session.run(found)
    assert indices.tolist() == [0, 3, 2]
    np.testing.assert_allclose(scores, [0.9, 0.583, 0.3], atol=1e-3)
