"""Losses and decoders of sequences."""

from __future__ import annotations

import numpy as np
import pytest

import tfmini as tf
from tests.ops.session_run import run

layers, slim = tf.contrib.layers, tf.contrib.slim


def test_losses_are_averaged_over_time_and_batch() -> None:
    logits = np.log(np.array([[[0.5, 0.5], [0.25, 0.75]]], np.float32))
    weights = np.array([[1.0, 0.5]], np.float32)
    each = -np.log([0.5, 0.25]) * weights[0]
    loss = tf.contrib.seq2seq.sequence_loss
    found = run(
        [
            loss(logits, [[0, 0]], weights),
            loss(logits, [[0, 0]], weights, average_across_timesteps=False),
            loss(logits, [[0, 0]], weights, False, False, True, True),
            loss(logits, [[0, 0]], weights, False, False),
            tf.contrib.legacy_seq2seq.sequence_loss_by_example(
                [logits[:, 0], logits[:, 1]], [[0], [0]], list(weights.T)
            ),
        ]
    )
    wanted = [each.sum() / 1.5, each / weights[0], each.sum() / 2, each[None], [each.sum() / 1.5]]
    for value, expected in zip(found, wanted, strict=True):
        np.testing.assert_allclose(value, expected, rtol=1e-5)
    with pytest.raises(ValueError, match=r"Targets must be a \[batch_size x sequence_length\] tensor"):
        loss(logits, [0], weights)


def test_a_decoder_feeds_its_output_back() -> None:
    cell = tf.contrib.rnn.BasicRNNCell(2)
    steps = [tf.ones([1, 2])] * 3
    outputs, _ = tf.contrib.legacy_seq2seq.rnn_decoder(steps, tf.zeros([1, 2]), cell, lambda last, i: last * 0)
    assert len(outputs) == 3 and len(tf.trainable_variables()) == 2
    assert not np.allclose(*run([outputs[0], outputs[1]]))
