"""``tf.contrib.layers.GDN`` with channels second, which TensorFlow 1.15.5 cannot train on CPUs."""

from __future__ import annotations

import numpy as np

import tfmini as tf


def test_channels_second_are_normalized_as_channels_last() -> None:
    images = np.sin(np.arange(120)).reshape(2, 4, 5, 3).astype(np.float32)
    with tf.Graph().as_default(), tf.Session() as session:
        last = tf.contrib.layers.gdn(tf.constant(images), gamma_init=0.3)
        first = tf.contrib.layers.gdn(
            tf.constant(images.transpose(0, 3, 1, 2)), gamma_init=0.3, data_format="channels_first"
        )
        session.run(tf.global_variables_initializer())
        one, other = session.run([last, first])
    assert np.allclose(one, other.transpose(0, 2, 3, 1), atol=1e-6) and not np.allclose(one, images)
