"""Copies of loops (``tf.contrib.graph_editor``): TensorFlow 1.15.5 cannot run its own, so no program compares them."""

from __future__ import annotations

import tfmini as tf


def test_the_copy_of_a_loop_runs_with_another_start() -> None:
    ge = tf.contrib.graph_editor
    with tf.Graph().as_default() as graph, tf.Session() as session:
        start = tf.constant(0)
        last = tf.while_loop(lambda i: i < 5, lambda i: i + 2, [start], name="loop")
        _, info = ge.copy_with_input_replacements(
            ge.sgv("loop/.*", graph=graph), {start: tf.constant(3)}, dst_scope="copied"
        )
        assert session.run([last, info.transformed(last)]) == [6, 5]


def test_a_loop_is_copied_to_another_graph() -> None:
    with tf.Graph().as_default() as graph:
        last = tf.while_loop(lambda i: i < 5, lambda i: i + 2, [tf.constant(0)], name="loop")
    with tf.Graph().as_default() as other:
        _, info = tf.contrib.graph_editor.copy(graph, other)
    with tf.Session(graph=other) as session:
        assert session.run(info.transformed(last)) == 6
