"""The cell of the architecture search."""

from __future__ import annotations

import numpy as np

import tfmini as tf


def test_a_step_is_that_of_the_paper() -> None:
    cell = tf.contrib.rnn.NASCell(1, use_bias=True)
    x, state = tf.constant([[0.5]]), tf.nn.rnn_cell.LSTMStateTuple(tf.constant([[0.2]]), tf.constant([[0.3]]))
    output, after = cell(x, state)
    variables = tf.global_variables()
    assert [v.op.name for v in variables] == [
        "nas_cell/recurrent_kernel", "nas_cell/kernel", "nas_cell/bias",
    ]  # fmt: skip
    weights = np.random.RandomState(0).uniform(-2, 2, [3, 8])  # of each gate, so that none can take another's place
    with tf.Session() as session:
        for variable, values in zip(variables, weights):
            variable.load(values.reshape(variable.shape.as_list()), session)
        found = session.run([output, after.c])

    def sigmoid(value: float) -> float:
        return float(1 / (1 + np.exp(-value)))

    tanh = np.tanh
    m, x_ = 0.3 * weights[0] + weights[2], 0.5 * weights[1]
    s = m + x_
    c = tanh(tanh(sigmoid(s[0]) * max(s[1], 0)) + 0.2) * tanh(sigmoid(s[2]) + max(x_[3] * m[3], 0))
    gate = tanh(tanh(s[4]) * sigmoid(s[5])) + sigmoid(tanh(s[6]) + sigmoid(s[7]))
    assert np.allclose(np.ravel(found), [tanh(c * tanh(gate)), c], atol=1e-6)


def test_the_output_may_be_projected() -> None:
    cell = tf.contrib.rnn.NASCell(4, num_proj=3)
    outputs, state = tf.nn.dynamic_rnn(cell, tf.ones([2, 5, 6]), dtype=tf.float32)
    assert outputs.shape.as_list() == [2, 5, 3] and [part.shape.as_list() for part in state] == [[2, 4], [2, 3]]
