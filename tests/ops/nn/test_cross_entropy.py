"""Cross-entropies of logits and labels."""

from __future__ import annotations

import numpy as np

import tfmini as tf


def test_labels_of_another_rank_are_compared_row_by_row() -> None:
    logits = np.arange(6.0, dtype=np.float32).reshape(2, 3)
    labels = np.eye(3, dtype=np.float32)[:2]
    with tf.Graph().as_default(), tf.Session() as session:
        rows = tf.placeholder(tf.float32, [None, 3])
        loss = tf.nn.softmax_cross_entropy_with_logits
        losses = [loss(labels=given, logits=rows) for given in (labels, [labels])]
        plain, stacked, one = session.run([*losses, loss(labels=labels[0], logits=rows[:1])], {rows: logits})
    np.testing.assert_array_equal(plain, stacked)
    np.testing.assert_array_equal(plain[:1], one)
