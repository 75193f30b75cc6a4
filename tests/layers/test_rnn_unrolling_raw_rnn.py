"""`raw_rnn`: loops over a cell that the caller controls."""

from __future__ import annotations

from typing import Any

import numpy as np

import tfmini as tf


def test_a_loop_function_controls_each_step() -> None:
    cell = tf.nn.rnn_cell.BasicRNNCell(2, activation=tf.identity)
    inputs = tf.ones([3, 1, 2])

    def step(time: Any, output: Any, state: Any, loop_state: Any) -> Any:
        state = cell.zero_state(1, tf.float32) if output is None else state
        return tf.fill([1], time >= 3), inputs[0], state, output, loop_state

    with tf.variable_scope("", initializer=tf.ones_initializer()):
        emitted, state, loop_state = tf.nn.raw_rnn(cell, step)
    assert loop_state is None
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        values, last = session.run([emitted.stack(), state])
    assert values.shape == (3, 1, 2) and np.array_equal(values[2], last)
