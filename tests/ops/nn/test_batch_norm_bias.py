"""Biases."""

from __future__ import annotations

import tfmini as tf
from tests.ops.session_run import run


def test_the_gradient_of_a_bias_of_no_channels_is_empty() -> None:
    bias = tf.zeros([0])
    assert run(tf.gradients(tf.nn.bias_add(tf.zeros([2, 0]), bias), bias)[0]).shape == (0,)
