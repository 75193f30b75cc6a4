"""Wrappers of recurrent cells."""

from __future__ import annotations

import numpy as np
import pytest

import tfmini as tf


def test_wrapped_cells_run_in_a_dynamic_rnn() -> None:
    cells = tf.nn.rnn_cell
    cell = cells.DropoutWrapper(cells.BasicLSTMCell(3), output_keep_prob=0.5, seed=1)
    cell = cells.MultiRNNCell([cell, cells.ResidualWrapper(cells.GRUCell(3))])
    outputs, state = tf.nn.dynamic_rnn(cell, tf.ones([2, 4, 3]), dtype=tf.float32)
    grads = tf.gradients(outputs, tf.trainable_variables())
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        values, last, derived = sess.run([outputs, state, grads])
    assert values.shape == (2, 4, 3) and last[0].c.shape == (2, 3) and len(derived) == 6
    names = [v.op.name for v in tf.trainable_variables()]
    assert names[0] == "rnn/multi_rnn_cell/cell_0/basic_lstm_cell/kernel"


def test_variational_dropout_has_one_mask_for_all_steps_and_examples() -> None:
    cells = tf.nn.rnn_cell
    still = cells.BasicRNNCell(50, activation=tf.ones_like)
    with pytest.raises(ValueError, match="dtype must be provided"):
        cells.DropoutWrapper(still, output_keep_prob=0.5, variational_recurrent=True)
    with pytest.raises(ValueError, match="input_size must be provided"):
        cells.DropoutWrapper(still, 0.5, variational_recurrent=True, dtype=tf.float32)
    cell = cells.DropoutWrapper(still, output_keep_prob=0.5, variational_recurrent=True, dtype=tf.float32)
    outputs, _ = tf.nn.dynamic_rnn(cell, tf.ones([2, 4, 3]), dtype=tf.float32)
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        values, again = sess.run(outputs), sess.run(outputs)
    assert set(np.unique(values)) == {0.0, 2.0} and (values == values[:1, :1]).all()
    assert (values != again).any()


def test_a_visitor_chooses_the_parts_of_a_state_that_are_dropped() -> None:
    cells = tf.nn.rnn_cell
    cell = cells.MultiRNNCell([cells.BasicLSTMCell(40), cells.GRUCell(40)])
    seen = []

    def visitor(state):
        seen.append(type(state).__name__)
        return [True, False] if type(state) is tuple else True

    wrapped = cells.DropoutWrapper(cell, state_keep_prob=0.5, dropout_state_filter_visitor=visitor)
    _, state = wrapped(tf.ones([1, 3]), wrapped.zero_state(1, tf.float32))
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        (c, h), gru = sess.run(state)
    assert seen == ["tuple", "LSTMStateTuple", "Tensor", "Tensor"]
    assert (c == 0).any() and (h == 0).any() and not (gru == 0).any()


def test_variational_dropout_drops_the_same_units_in_every_step() -> None:
    cell = tf.nn.rnn_cell.DropoutWrapper(
        tf.nn.rnn_cell.BasicRNNCell(50), output_keep_prob=0.5, variational_recurrent=True, dtype=tf.float32
    )
    outputs, _ = tf.nn.dynamic_rnn(cell, tf.ones([1, 4, 2]), dtype=tf.float32)
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        zero = session.run(outputs)[0] == 0
    assert (zero == zero[0]).all() and 5 < zero[0].sum() < 45
