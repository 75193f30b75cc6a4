"""Biases."""

from __future__ import annotations

import tfmini as tf
from tests.ops.session_run import run


def test_the_gradient_of_a_bias_of_no_channels_is_empty() -> None:
    bias = tf.zeros([0])
    assert run(tf.gradients(tf.nn.bias_add(tf.zeros([2, 0]), bias), bias)[0]).shape == (0,)


def test_what_a_bias_gradient_was_does_not_matter_to_its_own_gradient() -> None:
    """Products with a Jacobian come of two gradients, of which the first is of NaN, as in K-FAC."""
    with tf.Graph().as_default():
        bias = tf.constant([1.0, 2.0])
        unused = tf.fill([3, 2], float("nan"))
        first = tf.gradients(tf.nn.bias_add(tf.ones([3, 2]), bias), bias, grad_ys=unused)
        (product,) = tf.gradients(first, unused, grad_ys=[tf.constant([4.0, 5.0])])
        assert run(product).tolist() == [[4.0, 5.0]] * 3
