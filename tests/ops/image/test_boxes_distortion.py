"""Random parts of images, and boxes drawn into them; the numbers are TensorFlow's."""

from __future__ import annotations

import numpy as np
import pytest

import tfmini as tf

BOXES = [[[0.1, 0.2, 0.6, 0.7], [0.5, 0.5, 0.9, 0.95]]]


@pytest.mark.parametrize(
    ("seeds", "covered", "ratio", "area", "begins", "sizes"),
    [
        ((3, 7), 0.1, (0.75, 1.33), (0.05, 1.0), [[51, 38], [74, 20], [14, 30]], [[52, 61], [112, 144], [109, 111]]),
        ((1, 0), 0.5, (0.5, 2.0), (0.1, 0.6), [[107, 7], [13, 23], [125, 12]], [[92, 158], [135, 134], [82, 151]]),
        ((0, 9), 0.9, (0.9, 1.1), (0.3, 0.4), [[78, 57], [12, 32], [86, 42]], [[104, 108], [113, 117], [109, 120]]),
    ],
)
def test_random_boxes_are_tensorflows(seeds, covered, ratio, area, begins, sizes) -> None:
    with tf.Graph().as_default(), tf.Session() as session:
        found = tf.image.sample_distorted_bounding_box(tf.constant([211, 173, 3]), BOXES, *seeds, covered, ratio, area)
        for begin, size in zip(begins, sizes, strict=True):
            first, length, corners = session.run(found)
            assert first.tolist() == [*begin, 0] and length.tolist() == [*size, -1]
            ends = np.array([*begin, begin[0] + size[0], begin[1] + size[1]]) / [211, 173, 211, 173]
            np.testing.assert_allclose(corners, ends.reshape(1, 1, 4), rtol=1e-6)


@pytest.mark.parametrize(
    ("boxes", "settings", "told"),
    [
        ([[[0.0, 0.0, 1.0, 1.5]]], {}, r"All bounding box coordinates must be in \[0.0, 1.0\]: 1.5"),
        (np.zeros((1, 0, 4)), {}, "No bounding boxes provided as input"),
        (BOXES, {"area_range": [0.5, 2.0]}, "Area range must be less then or equal to 1.0"),
        (BOXES, {"aspect_ratio_range": [1.0]}, "Aspect ratio range field must specify 2 dimensions"),
        (BOXES, {"min_object_covered": -1.0}, "Min object covered must be non-negative"),
    ],
)
def test_invalid_boxes_are_refused(boxes, settings, told: str) -> None:
    with tf.Graph().as_default(), tf.Session() as session:
        found = tf.image.sample_distorted_bounding_box([20, 20, 3], boxes, **settings)
        with pytest.raises(tf.errors.InvalidArgumentError, match=told):
            session.run(found)


def test_the_whole_image_may_stand_in_for_missing_boxes() -> None:
    with tf.Graph().as_default(), tf.Session() as session:
        begin, size, _ = tf.image.sample_distorted_bounding_box(
            [20, 30, 3], np.zeros((1, 0, 4)), use_image_if_no_bounding_boxes=True, area_range=[0.9, 1.0]
        )
        top, height = session.run([begin, size])
        assert top[0] + height[0] <= 20 and top[1] + height[1] <= 30


def test_boxes_are_drawn_with_the_colours_in_turn() -> None:
    images = np.linspace(0, 1, 2 * 9 * 11 * 3).reshape(2, 9, 11, 3).astype(np.float32)
    boxes = [
        [[0.1, 0.2, 0.6, 0.7], [0.5, 0.5, 1.2, 0.95]],
        [[-0.5, 0.2, 0.6, 0.7], [0.9, 0.2, 0.3, 0.3]],  # one reaches outside, one is inside out
    ]
    with tf.Graph().as_default(), tf.Session() as session:
        drawn = session.run(tf.image.draw_bounding_boxes(images, boxes))
        grey = session.run(tf.image.draw_bounding_boxes(images[..., :1], [boxes[0][:1]] * 2, colors=[[0.3, 0.2]]))
        with pytest.raises(tf.errors.InvalidArgumentError, match="Channel depth should be either 1"):
            session.run(tf.image.draw_bounding_boxes(images[..., :2], boxes))
    wanted = [[33.419895, 33.539627, 31.659357], [78.7909, 78.93424, 65.07757]]
    np.testing.assert_allclose(drawn.sum(axis=(1, 2)), wanted, rtol=1e-5)
    assert grey.sum() == pytest.approx(95.624626)
