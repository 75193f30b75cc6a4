"""Helpers alone; `test_decoders` runs them in a loop."""

from __future__ import annotations

import tfmini as tf


def test_samples_follow_the_logits_at_a_temperature() -> None:
    helper = tf.contrib.seq2seq.SampleEmbeddingHelper(tf.ones([2, 3]), [0] * 200, 1, softmax_temperature=0.1, seed=1)
    ids = helper.sample(tf.constant(0), tf.tile([[0.0, 0.5]], [200, 1]), None)
    with tf.Session() as session:
        assert session.run(ids).mean() > 0.95  # sigmoid(5) of them
