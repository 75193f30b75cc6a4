"""Recurrent networks over sequences."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import tfmini as tf


def test_lengths_that_are_no_vector_are_refused() -> None:
    cell = tf.nn.rnn_cell.BasicRNNCell(2)
    for run_cell, inputs in ((tf.nn.dynamic_rnn, tf.ones([3, 4, 2])), (tf.nn.static_rnn, [tf.ones([3, 2])])):
        with pytest.raises(ValueError, match="must be a vector"):
            run_cell(cell, inputs, sequence_length=[[3], [2], [1]], dtype=tf.float32)


def _on_a_ps(build: Callable[[], object], resource: bool = False) -> dict[str, str]:
    """The device of each read of a variable, where ``build`` adds the ops of a worker."""
    setter = tf.train.replica_device_setter(ps_tasks=1, worker_device="/job:worker/task:0")
    with tf.device(setter), tf.variable_scope("model", use_resource=resource):
        build()
    reads = ("/read", "/ReadVariableOp")
    return {op.name: op.device for op in tf.get_default_graph().get_operations() if op.name.endswith(reads)}


@pytest.mark.parametrize("unroll", ["dynamic", "static", "raw"])
def test_weights_are_read_where_they_are_used_as_in_tensorflow(unroll: str) -> None:
    def build() -> None:
        cell, x = tf.nn.rnn_cell.BasicRNNCell(3), tf.ones([2, 5, 4])
        if unroll == "dynamic":
            tf.nn.dynamic_rnn(cell, x, dtype=tf.float32)
        elif unroll == "static":
            tf.nn.static_rnn(cell, tf.unstack(x, axis=1), dtype=tf.float32)
        else:
            tf.nn.raw_rnn(cell, lambda t, out, state, _: (
                tf.fill([2], t >= 3), x[:, 0], cell.zero_state(2, tf.float32) if out is None else state, out, None
            ))  # fmt: skip

    assert set(_on_a_ps(build).values()) == {"/job:worker/task:0"}


def test_a_loop_does_not_read_resource_variables_in_each_iteration() -> None:
    cell = tf.nn.rnn_cell.BasicRNNCell(3)
    reads = _on_a_ps(lambda: tf.nn.dynamic_rnn(cell, tf.ones([2, 5, 4]), dtype=tf.float32), resource=True)
    assert not [name for name in reads if "/while/" in name]


def test_in_a_loop_of_the_caller_weights_are_read_in_each_iteration() -> None:
    cell = tf.nn.rnn_cell.BasicRNNCell(3)

    def body(i: Any) -> Any:
        outputs, _ = tf.nn.dynamic_rnn(cell, tf.ones([2, 5, 4]), dtype=tf.float32)
        return i + 1 + 0 * tf.cast(outputs[0, 0, 0], tf.int32)

    reads = _on_a_ps(lambda: tf.while_loop(lambda i: i < 2, body, [0]), resource=True)
    assert [name for name in reads if "/while/rnn/" in name]
