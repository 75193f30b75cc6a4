"""Constants of Python values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tfmini as tf
from tests.ops.session_run import run


def test_a_list_of_text_and_bytes_becomes_strings() -> None:
    assert run(tf.constant(["ab", b"\xff"])).tolist() == [b"ab", b"\xff"]


def test_a_bool_is_a_number_where_a_number_is_wanted() -> None:
    assert run(tf.constant(True, tf.float32)).item() == 1.0
    assert run(tf.constant([True, False], tf.int32)).tolist() == [1, 0]
    assert run(tf.constant(1.5) + True).item() == 2.5
    with pytest.raises(TypeError, match="Expected string"):
        tf.constant(True, tf.string)


def test_a_large_constant_of_one_value_is_stored_once() -> None:
    with tf.Graph().as_default() as graph:
        filled = tf.constant(0.1, shape=[1000, 1000], name="filled")
        given = tf.constant(np.broadcast_to(np.float32(2), (1000, 1000)), name="given")
        text = tf.constant("a\0", shape=[100_000], name="text")
        accumulators = tf.get_variable("v", [1000, 1000], initializer=tf.constant_initializer(0.5))
        assert graph.as_graph_def().ByteSize() < 2000
        added = tf.assign_add(accumulators, filled)
        with tf.Session() as session:
            session.run(tf.global_variables_initializer())
            assert (session.run(added) == np.float32(0.6)).all()
            assert (session.run(filled + given) == np.float32(2.1)).all()
            assert set(session.run(text)) == {b"a\0"}


def test_a_constant_keeps_the_value_of_an_array_that_changes() -> None:
    one = np.ones((), np.float32)
    with tf.Graph().as_default():
        kept = tf.constant(np.broadcast_to(one, (300, 300)))
        one[...] = 7
        with tf.Session() as session:
            assert (session.run(kept) == 1).all()


@pytest.mark.parametrize("wrap", [tf.convert_to_tensor, tf.constant, lambda op: tf.stack([op, op])])
def test_an_operation_is_no_value(wrap: Any) -> None:
    with pytest.raises(TypeError, match=r"^Can't convert Operation 'all' to Tensor .*: it has no outputs"):
        wrap(tf.no_op(name="all"))
    with pytest.raises(TypeError, match=r"^Can't convert Operation 'one' to Tensor .*: use its output, 'one:0'\.$"):
        wrap(tf.constant(1.0, name="one").op)
