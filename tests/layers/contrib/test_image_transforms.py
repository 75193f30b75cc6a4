"""What ``tf.contrib.image`` refuses; its results beside those of 1.15.5 are in `tests.programs.era_learning`."""

from __future__ import annotations

import pytest

import tfmini as tf


def test_wrong_lengths_are_named() -> None:
    image = tf.zeros([2, 3, 4, 1])
    with pytest.raises(ValueError, match="Transforms should have 8 numbers each"):
        tf.contrib.image.transform(image, [1.0, 0.0, 0.0])
    with pytest.raises(ValueError, match="output_shape should be the rows and columns of the result"):
        tf.contrib.image.transform(image, [1.0, 0, 0, 0, 1, 0, 0, 0], output_shape=[2, 2, 2])
