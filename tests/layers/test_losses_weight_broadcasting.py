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


def test_ranks_that_are_not_known_are_matched_in_the_step() -> None:
    """Labels [3, 1] and predictions [3] were broadcast to [3, 3]; 1.15.5 takes the last axis off."""
    labels, predictions = tf.placeholder(tf.float32), tf.placeholder(tf.float32)
    made = [
        tf.metrics.accuracy(labels, predictions)[1],
        tf.metrics.mean_squared_error(labels, predictions)[1],
        *tf.contrib.framework.remove_squeezable_dimensions(predictions, labels),
    ]
    row, column = np.float32([1, 2, 3]), np.float32([[1], [2], [3]])
    for given, asked in ((column, row), (row, column), (row, row)):
        with tf.Session() as session:
            session.run(tf.local_variables_initializer())
            accuracy, error, one, other = session.run(made, {labels: given, predictions: asked})
        assert (accuracy, error, one.shape, other.shape) == (1, 0, (3,), (3,))


def test_a_last_axis_that_is_not_one_is_not_taken_off() -> None:
    with pytest.raises(ValueError, match="Can not squeeze"):
        tf.metrics.accuracy(tf.zeros([3]), tf.zeros([3, 2]))
