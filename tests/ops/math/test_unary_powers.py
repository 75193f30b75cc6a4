"""Powers, and the next number after another."""

from __future__ import annotations

import numpy as np

import tfmini as tf


def test_the_gradient_of_nextafter_goes_to_its_first_argument() -> None:
    x, y = tf.constant([1.0, 2.0]), tf.constant([3.0])
    with tf.Session() as session:
        gx, gy = session.run(tf.gradients(tf.math.nextafter(x, y), [x, y]))
    assert gx.tolist() == [1, 1] and gy.tolist() == [0]


def test_the_logarithm_of_half_floats_is_rounded_before_the_product() -> None:
    rng = np.random.RandomState(0)
    x, y = rng.uniform(-3, 3, 200).astype(np.float16), rng.uniform(0.01, 50, 200).astype(np.float16)
    with tf.Session() as session:
        assert session.run(tf.math.xlogy(x, y)).tolist() == (x * np.log(y)).tolist()
