"""Batch normalisation with renormalisation, virtual batches and adjustments."""

from __future__ import annotations

import numpy as np
import pytest

import tfmini as tf


def trained(training: bool, steps: int = 1, **arguments: object) -> np.ndarray:
    x = np.random.RandomState(0).rand(6, 3).astype(np.float32) * 5
    out = tf.layers.batch_normalization(x, training=training, epsilon=0.01, **arguments)
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        for _ in range(steps):
            found, _ = session.run([out, tf.get_collection(tf.GraphKeys.UPDATE_OPS)])
        return found


def test_virtual_batches_are_normalised_separately() -> None:
    x = np.random.RandomState(0).rand(6, 3).astype(np.float32) * 5
    parts = x.reshape(2, 3, 3)
    wanted = (parts - parts.mean(0)) / np.sqrt(parts.var(0) + 0.01)
    np.testing.assert_allclose(trained(True, virtual_batch_size=2), wanted.reshape(6, 3), rtol=1e-4, atol=1e-5)
    with pytest.raises(ValueError, match="must be a positive integer"):
        trained(True, virtual_batch_size=-1)


def test_renorm_corrects_towards_the_averages() -> None:
    x = np.random.RandomState(0).rand(6, 3).astype(np.float32) * 5
    # The averages begin at mean 0 and deviation 1, so without clipping nothing but those is left.
    np.testing.assert_allclose(trained(True, renorm=True), x, rtol=1e-4)
    with tf.Graph().as_default():
        clipped = trained(True, renorm=True, renorm_clipping={"rmax": 1.0, "rmin": 1.0, "dmax": 0.0})
    np.testing.assert_allclose(clipped, (x - x.mean(0)) / np.sqrt(x.var(0) + 0.01), rtol=1e-4, atol=1e-5)
    with pytest.raises(ValueError, match="contains keys not in"):
        trained(True, renorm=True, renorm_clipping={"max": 1.0})


def test_contrib_batch_norm_passes_the_clipping_on() -> None:
    x = np.random.RandomState(0).rand(6, 3).astype(np.float32) * 5
    clipping = {"rmax": 1.0, "rmin": 1.0, "dmax": 0.0}
    out = tf.contrib.layers.batch_norm(x, epsilon=0.01, renorm=True, renorm_clipping=clipping)
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        wanted = (x - x.mean(0)) / np.sqrt(x.var(0) + 0.01)
        np.testing.assert_allclose(session.run(out), wanted, rtol=1e-4, atol=1e-5)


def test_an_adjustment_counts_in_training_only() -> None:
    def adjustment(shape: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        return tf.fill([1, 3], 2.0), tf.fill([1, 3], 1.0)

    x = np.random.RandomState(0).rand(6, 3).astype(np.float32) * 5
    wanted = 2 * (x - x.mean(0)) / np.sqrt(x.var(0) + 0.01) + 1
    np.testing.assert_allclose(trained(True, adjustment=adjustment), wanted, rtol=1e-4, atol=1e-5)
    with tf.Graph().as_default():
        np.testing.assert_allclose(trained(False, adjustment=adjustment), x / np.sqrt(1.01), rtol=1e-4)
