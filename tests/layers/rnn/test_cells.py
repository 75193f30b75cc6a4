"""Recurrent cells."""

from __future__ import annotations

import tfmini as tf


def test_the_kernels_of_an_lstm_can_be_partitioned() -> None:
    cell = tf.nn.rnn_cell.LSTMCell(3, num_proj=2, num_unit_shards=2, num_proj_shards=3)
    outputs, _ = tf.nn.dynamic_rnn(cell, tf.ones([2, 4, 2]), dtype=tf.float32)
    assert [v.op.name.removeprefix("rnn/lstm_cell/") for v in tf.trainable_variables()] == [
        "kernel/part_0", "kernel/part_1", "bias",
        "projection/kernel/part_0", "projection/kernel/part_1", "projection/kernel/part_2",
    ]  # fmt: skip
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        assert sess.run(outputs).shape == (2, 4, 2)
