"""`tf.contrib.layers.optimize_loss`."""

from __future__ import annotations

import pytest

import tfmini as tf
from tests.train.loops.square import square

slim, training = tf.contrib.slim, tf.contrib.training


@pytest.mark.parametrize("optimizer", ["SGD", "Adam", "Momentum", "RMSProp", "Adagrad", "Ftrl"])
def test_a_loss_is_optimized_by_the_name_of_the_optimizer(optimizer: str) -> None:
    _, loss = square()
    step = tf.train.get_or_create_global_step()
    op = tf.contrib.layers.optimize_loss(
        loss, step, 0.1, optimizer, clip_gradients=1.0, summaries=tf.contrib.layers.OPTIMIZER_SUMMARIES,
        learning_rate_decay_fn=lambda rate, at: tf.train.exponential_decay(rate, at, 10, 0.5),
    )  # fmt: skip
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        assert session.run(op) == 4 and session.run(op) < 4
        assert session.run(step) == 2
        tags = {v.tag for v in tf.Summary.FromString(session.run(tf.summary.merge_all())).value}
    assert {"OptimizeLoss/loss", "OptimizeLoss/gradients/x_0", "OptimizeLoss/global_norm/gradient_norm"} <= tags


def test_wrong_arguments_of_optimize_loss_are_refused() -> None:
    _, loss = square()
    optimize = tf.contrib.layers.optimize_loss
    tf.train.get_or_create_global_step()
    for arguments, told in (
        ((tf.ones([2]), None, 0.1, "SGD"), "Expected scalar shape"),
        ((loss, None, "fast", "SGD"), "Learning rate should be 0d Tensor or float"),
        ((loss, None, None, "SGD"), "Learning rate is None, but should be specified if optimizer is string"),
        ((loss, None, 0.1, "Best"), "Optimizer name should be one of"),
        ((loss, None, 0.1, 7), "Unrecognized optimizer"),
    ):
        with pytest.raises(ValueError, match=told):
            optimize(*arguments)
