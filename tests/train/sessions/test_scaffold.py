"""Scaffolds: the ops and the saver that a session needs."""

from __future__ import annotations

import pytest

import tfmini as tf


def test_a_scaffold_finds_or_makes_its_ops() -> None:
    tf.get_variable("v", initializer=1.0)
    tf.get_variable("local", initializer=2.0, collections=[tf.GraphKeys.LOCAL_VARIABLES])
    mine = tf.no_op(name="mine")
    tf.add_to_collection(tf.GraphKeys.LOCAL_INIT_OP, mine)
    scaffold = tf.train.Scaffold()
    assert scaffold.init_op is None and scaffold.saver is None
    scaffold.finalize()
    assert scaffold.local_init_op is mine and scaffold.summary_op is None
    for key in (tf.GraphKeys.INIT_OP, tf.GraphKeys.READY_OP, tf.GraphKeys.READY_FOR_LOCAL_INIT_OP, tf.GraphKeys.SAVERS):
        assert len(tf.get_collection(key)) == 1
    with tf.Session() as session:
        assert session.run(scaffold.ready_op).tolist() == [b"v", b"local"]
        assert session.run(scaffold.ready_for_local_init_op).tolist() == [b"v"]
        session.run(scaffold.init_op)
        assert session.run(scaffold.ready_for_local_init_op).tolist() == []
    assert tf.get_default_graph().finalized


def test_two_candidates_for_one_op_are_refused() -> None:
    for _ in range(2):
        tf.add_to_collection(tf.GraphKeys.INIT_OP, tf.no_op())
    with pytest.raises(RuntimeError, match='More than one item in the collection "init_op"'):
        tf.train.Scaffold().finalize()


def test_scaffolds_can_be_copied() -> None:
    calls = []
    first = tf.train.Scaffold(init_fn=lambda *arguments: calls.append(arguments), init_feed_dict={1: 2})
    own = tf.no_op()
    second = tf.train.Scaffold(init_op=own, copy_from_scaffold=first)
    assert second.init_op is own and second.init_feed_dict == {1: 2}
    assert second.init_fn is not None
    second.init_fn("session")
    assert calls == [(second, "session")]
    with pytest.raises(TypeError, match="copy_from_scaffold is not a Scaffold instance."):
        tf.train.Scaffold(copy_from_scaffold=1)  # type: ignore[arg-type]
