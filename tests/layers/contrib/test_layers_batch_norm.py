"""Batch normalisation of `tf.contrib.layers`."""

from __future__ import annotations

import numpy as np

import tfmini as tf
from tests.layers.contrib.images import IMAGES, names

layers, slim = tf.contrib.layers, tf.contrib.slim


def test_moving_averages_are_updated_by_the_collected_ops() -> None:
    net = layers.batch_norm(IMAGES, decay=0.5, scope="bn")
    assert names() == ["bn/beta", "bn/moving_mean", "bn/moving_variance"]
    updates = tf.get_collection(tf.GraphKeys.UPDATE_OPS)
    assert len(updates) == 2
    mean = tf.global_variables()[1]
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        value = sess.run(net)
        sess.run(updates)
        np.testing.assert_allclose(sess.run(mean), IMAGES.mean((0, 1, 2)) / 2, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(value.mean((0, 1, 2)), 0, atol=1e-5)


def test_moving_averages_are_updated_in_the_step_without_a_collection() -> None:
    net = layers.batch_norm(IMAGES, decay=0.0, updates_collections=None)
    assert tf.get_collection(tf.GraphKeys.UPDATE_OPS) == []
    mean = next(v for v in tf.global_variables() if v.op.name.endswith("moving_mean"))
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        sess.run(net)
        np.testing.assert_allclose(sess.run(mean), IMAGES.mean((0, 1, 2)), rtol=1e-4, atol=1e-6)
