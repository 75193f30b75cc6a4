"""Powers, and the next number after another."""

from __future__ import annotations

import tfmini as tf


def test_the_gradient_of_nextafter_goes_to_its_first_argument() -> None:
    x, y = tf.constant([1.0, 2.0]), tf.constant([3.0])
    with tf.Session() as session:
        gx, gy = session.run(tf.gradients(tf.math.nextafter(x, y), [x, y]))
    assert gx.tolist() == [1, 1] and gy.tolist() == [0]
