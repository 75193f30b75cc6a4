"""Weights that must fit the values that they weigh."""

from __future__ import annotations

import numpy as np
import pytest

import tfmini as tf
from tests.ops.session_run import run


def test_weights_of_unknown_rank_are_checked_in_the_step() -> None:
    weights = tf.placeholder(tf.float32)
    loss = tf.losses.absolute_difference(tf.ones([3, 2]), tf.zeros([3, 2]), weights)
    assert run(loss, {weights: [[2.0], [2.0], [2.0]]}) == 2
    with pytest.raises(tf.errors.InvalidArgumentError, match="weights can not be broadcast"):
        run(loss, {weights: [[2.0], [2.0]]})


def test_weights_are_checked_in_the_step_when_shapes_are_not_known() -> None:
    weights = tf.placeholder(tf.float32, [None, 1])
    loss = tf.losses.mean_squared_error(tf.ones([4, 3]), tf.ones([4, 3]), weights)
    with tf.Session() as sess:
        assert sess.run(loss, {weights: np.ones((4, 1))}) == 0
        with pytest.raises(tf.errors.InvalidArgumentError, match="can not be broadcast"):
            sess.run(loss, {weights: np.ones((3, 1))})
