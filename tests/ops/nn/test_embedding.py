"""Where the rows of embedding tables are taken and used."""

from __future__ import annotations

import pytest

import tfmini as tf


@pytest.mark.parametrize("resource", [False, True])
def test_rows_are_taken_beside_the_table_and_end_beside_the_model(resource: bool) -> None:
    setter = tf.train.replica_device_setter(ps_tasks=1, worker_device="/job:worker/task:0")
    with tf.device(setter), tf.variable_scope("", use_resource=resource):
        rows = tf.nn.embedding_lookup(tf.get_variable("table", [10, 2]), tf.constant([1, 2]))
    gather = next(op for op in tf.get_default_graph().get_operations() if op.type in ("GatherV2", "ResourceGather"))
    assert (gather.device, rows.device) == ("/job:ps/task:0", "/job:worker/task:0")
