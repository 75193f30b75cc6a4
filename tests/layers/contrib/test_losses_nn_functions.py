"""``tf.contrib.nn``."""

from __future__ import annotations

import numpy as np
import pytest

import tfmini as tf


def test_functions_of_contrib_nn() -> None:
    logits, labels = tf.constant([[1.0, 2.0]]), tf.constant([[0.0, 1.0]])
    nn = tf.contrib.nn
    pairs = [
        (nn.deprecated_flipped_softmax_cross_entropy_with_logits(logits, labels),
         tf.nn.softmax_cross_entropy_with_logits(labels=labels, logits=logits)),
        (nn.deprecated_flipped_sigmoid_cross_entropy_with_logits(logits, labels),
         tf.nn.sigmoid_cross_entropy_with_logits(labels=labels, logits=logits)),
        (nn.scaled_softplus(logits, 2.0, clip=1.5), tf.minimum(2.0 * tf.nn.softplus(logits / 2.0), 1.5)),
    ]  # fmt: skip
    with tf.Session() as session:
        for found, wanted in session.run(pairs):
            assert np.allclose(found, wanted)


def test_alpha_dropout_keeps_mean_and_variance() -> None:
    x = tf.random_normal([20000], seed=1)
    with tf.Session() as session:
        found = session.run(tf.contrib.nn.alpha_dropout(x, 0.8, seed=2))
    assert abs(found.mean()) < 0.05 and abs(found.std() - 1) < 0.05
    with pytest.raises(ValueError, match="keep_prob"):
        tf.contrib.nn.alpha_dropout(x, 0)
