"""Training ops of `tf.contrib.training` and slim."""

from __future__ import annotations

import pytest

import tfmini as tf
from tests.train.loops.square import square

slim, training = tf.contrib.slim, tf.contrib.training


def test_the_train_op_runs_updates_scales_and_clips() -> None:
    x, loss = square()
    count = tf.get_variable("count", initializer=0, trainable=False)
    tf.add_to_collection(tf.GraphKeys.UPDATE_OPS, tf.assign_add(count, 1))
    optimizer = tf.train.GradientDescentOptimizer(1.0)
    op = slim.learning.create_train_op(
        loss, optimizer, clip_gradient_norm=0.5, gradient_multipliers={"x": 10.0}, summarize_gradients=True
    )
    assert tf.get_collection(tf.GraphKeys.TRAIN_OP)[-1] is op
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        assert session.run(op) == 4
        assert session.run([x, count, tf.train.get_global_step()]) == [1.5, 1, 1]
    with pytest.raises(ValueError, match="Requested multiple of `None` gradient."):
        training.multiply_gradients([(None, x)], {x: 2.0})


def test_a_loss_that_is_not_finite_is_an_error() -> None:
    x, _ = square()
    op = training.create_train_op(x / 0.0, tf.train.GradientDescentOptimizer(1.0))
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        with pytest.raises(tf.errors.InvalidArgumentError, match="LossTensor is inf or nan"):
            session.run(op)
