"""Losses over sampled classes."""

from __future__ import annotations

import numpy as np
import pytest

import tfmini as tf


def test_sampled_losses_leave_out_accidental_hits() -> None:
    weights, biases = tf.constant(np.eye(6, 3, dtype="f")), tf.zeros([6])
    values = (tf.constant([1, 2], tf.int64), tf.constant([[0.5]]), tf.constant([0.5, 0.5]))
    labels = tf.constant([[1]], tf.int64)
    args = (weights, biases, labels, tf.ones([1, 3]), 2, 6)
    kept = tf.nn.sampled_softmax_loss(*args, sampled_values=values, remove_accidental_hits=False)
    without = tf.nn.sampled_softmax_loss(*args, sampled_values=values)
    with tf.Session() as sess:
        assert sess.run(kept) == pytest.approx(np.log(3), rel=1e-5)
        assert sess.run(without) == pytest.approx(np.log(2), rel=1e-5)
