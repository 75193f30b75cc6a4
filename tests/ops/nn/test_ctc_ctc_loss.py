"""Connectionist temporal classification: the loss."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tfmini as tf
from tests.ops.session_run import run


def test_the_ctc_gradient_is_the_slope_of_the_loss() -> None:
    random = np.random.RandomState(0)
    value = random.randn(6, 2, 4)
    direction = random.randn(6, 2, 4)
    logits = tf.placeholder(tf.float64, value.shape)
    labels = tf.SparseTensor([[0, 0], [0, 1], [1, 0]], tf.constant([1, 1, 2]), [2, 2])
    for arguments in ({}, {"ctc_merge_repeated": False}, {"preprocess_collapse_repeated": True}):
        loss = tf.reduce_sum(tf.nn.ctc_loss(labels, logits, [6, 4], **arguments))
        slope = tf.reduce_sum(tf.gradients(loss, logits)[0] * direction)
        with tf.Session() as session:
            exact = session.run(slope, {logits: value})
            ahead, behind = (session.run(loss, {logits: value + sign * 1e-5 * direction}) for sign in (1, -1))
        assert exact == pytest.approx((ahead - behind) / 2e-5, rel=1e-6)


def test_labels_that_do_not_fit_are_refused() -> None:
    def loss(values: list[int], lengths: list[int]) -> Any:
        labels = tf.SparseTensor([[0, 0], [0, 1], [1, 0]], tf.constant(values), [2, 2])
        return tf.nn.ctc_loss(labels, tf.zeros([5, 2, 4]), lengths)

    for values, lengths, told in (
        ([1, 2, 2], [1, 5], "Not enough time"), ([3, 1, 2], [5, 5], "following a null label"),
        ([1, -1, 2], [5, 5], "nonnegative"), ([1, 2, 2], [6, 5], "sequence_length"),
    ):  # fmt: skip
        with pytest.raises(tf.errors.InvalidArgumentError, match=told):
            run(loss(values, lengths))
