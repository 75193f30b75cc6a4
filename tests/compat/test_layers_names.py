"""The private names of TensorFlow's recurrent cells."""

from __future__ import annotations

import numpy as np

import tfmini as tf
from tfmini.compat import internals


def test_libraries_make_zero_states_and_linear_maps() -> None:
    impl = internals.module("python.ops.rnn_cell_impl")
    batch = tf.placeholder_with_default(4, [])
    state = impl._zero_state_tensors(tf.nn.rnn_cell.LSTMStateTuple(2, 3), batch, tf.float32)
    assert state.h.shape.as_list() == [None, 3]
    with tf.variable_scope("cell"):
        found = impl._linear([tf.ones([2, 3]), tf.ones([2, 1])], 5, True, kernel_initializer=tf.ones_initializer())
    assert [v.name for v in tf.global_variables()] == ["cell/kernel:0", "cell/bias:0"]
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        assert session.run([found, state])[0].tolist() == np.full([2, 5], 4.0).tolist()
    assert impl._concat(4, [2, 3], static=True) == [4, 2, 3]
    assert impl._like_rnncell(tf.nn.rnn_cell.GRUCell(2)) and not impl._like_rnncell("cell")
