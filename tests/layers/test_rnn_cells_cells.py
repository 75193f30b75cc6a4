"""Recurrent cells."""

from __future__ import annotations

import pytest

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


def test_a_state_that_is_no_tuple_is_refused_with_what_is_expected() -> None:
    cells = tf.nn.rnn_cell.MultiRNNCell([tf.nn.rnn_cell.GRUCell(2) for _ in range(2)])
    with pytest.raises(ValueError, match="Expected state to be a tuple of length 2, but received"):
        cells(tf.zeros([1, 2]), tf.zeros([1, 4]))


def test_a_wrapper_tells_the_cell_that_it_wraps() -> None:
    cell = tf.nn.rnn_cell.GRUCell(2)
    assert tf.nn.rnn_cell.DropoutWrapper(cell, 0.5).wrapped_cell is cell
    assert tf.nn.rnn_cell.ResidualWrapper(cell).wrapped_cell is cell
    assert tf.nn.rnn_cell.DeviceWrapper(cell, "/cpu:0").wrapped_cell is cell
