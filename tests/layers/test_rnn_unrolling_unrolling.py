"""Recurrent networks over sequences."""

from __future__ import annotations

import pytest

import tfmini as tf


def test_lengths_that_are_no_vector_are_refused() -> None:
    cell = tf.nn.rnn_cell.BasicRNNCell(2)
    for run_cell, inputs in ((tf.nn.dynamic_rnn, tf.ones([3, 4, 2])), (tf.nn.static_rnn, [tf.ones([3, 2])])):
        with pytest.raises(ValueError, match="must be a vector"):
            run_cell(cell, inputs, sequence_length=[[3], [2], [1]], dtype=tf.float32)
