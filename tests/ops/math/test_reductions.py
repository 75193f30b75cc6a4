"""Reductions."""

from __future__ import annotations

import numpy as np

import tfmini as tf


def test_the_gradient_of_a_complex_product_is_conjugate() -> None:
    x = tf.constant([1 + 3j, 2 - 1j], tf.complex64)
    (grad,) = tf.gradients(tf.reduce_prod(x), [x], grad_ys=[tf.constant(1, tf.complex64)])
    with tf.Session() as session:
        np.testing.assert_allclose(session.run(grad), np.conj([2 - 1j, 1 + 3j]))
