"""Convolution and pooling over one and three axes."""

from __future__ import annotations

import numpy as np
import pytest

import tfmini as tf
from tests.ops.session_run import run

layers, slim = tf.contrib.layers, tf.contrib.slim


def test_convolution_and_pooling_work_over_one_and_three_axes() -> None:
    ones = tf.ones_initializer()
    line, volume = np.ones((1, 5, 2), np.float32), np.ones((1, 4, 4, 4, 1), np.float32)
    with slim.arg_scope([slim.conv1d, slim.conv3d], weights_initializer=ones, activation_fn=None):
        found = run([
            slim.conv1d(line, 3, 2, padding="VALID"), slim.conv3d(volume, 1, 2, padding="VALID"),
            slim.max_pool3d(volume, 2), slim.avg_pool3d(volume, 2, stride=1), slim.pool(line, 3, "AVG"),
        ])  # fmt: skip
    assert [f.shape for f in found] == [(1, 4, 3), (1, 3, 3, 3, 1), (1, 2, 2, 2, 1), (1, 3, 3, 3, 1), (1, 3, 2)]
    assert [f.ravel()[0] for f in found] == [4, 8, 1, 1, 1]
    with pytest.raises(ValueError, match="expects input with rank 3, got 5"):
        slim.conv1d(volume, 3, 2)
