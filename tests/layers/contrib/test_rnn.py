"""Recurrent cells and networks of `tf.contrib.rnn`."""

from __future__ import annotations

import numpy as np
import pytest

import tfmini as tf
from tests.ops.session_run import run

layers, slim = tf.contrib.layers, tf.contrib.slim


X = np.random.default_rng(0).normal(size=(2, 4, 3, 6)).astype(np.float32)


def test_bidirectional_networks_are_stacked() -> None:
    cells = [[tf.contrib.rnn.LSTMBlockCell(n) for n in (3, 2)] for _ in range(2)]
    outputs, forward, backward = tf.contrib.rnn.stack_bidirectional_dynamic_rnn(*cells, X[:, :, 0], dtype=tf.float32)
    assert run(outputs).shape == (2, 4, 4) and len(forward) == len(backward) == 2
    assert "stack_bidirectional_rnn/cell_1/bidirectional_rnn/fw/lstm_cell/kernel" in {
        v.op.name for v in tf.global_variables()
    }
    with pytest.raises(ValueError, match="must have the same depth"):
        tf.contrib.rnn.stack_bidirectional_dynamic_rnn(cells[0], cells[1][:1], X[:, :, 0], dtype=tf.float32)


def test_wrapped_cells_have_their_shapes_and_names() -> None:
    rnn = tf.contrib.rnn
    cell = rnn.InputProjectionWrapper(rnn.OutputProjectionWrapper(rnn.GRUBlockCellV2(3), 5), 4)
    outputs, state = tf.nn.dynamic_rnn(cell, X[:, :, 0], dtype=tf.float32)
    reader = rnn.EmbeddingWrapper(rnn.BasicRNNCell(2), 7, 3)
    words, _ = tf.nn.static_rnn(reader, [tf.constant([1, 6])], dtype=tf.float32)
    normed, _ = tf.nn.dynamic_rnn(rnn.LayerNormBasicLSTMCell(3), X[:, :, 0], dtype=tf.float32)
    assert [v.shape for v in run([outputs, state, words[0], normed])] == [(2, 4, 5), (2, 3), (2, 2), (2, 4, 3)]
    assert "rnn/layer_norm_basic_lstm_cell/forget/gamma" in {v.op.name for v in tf.global_variables()}
