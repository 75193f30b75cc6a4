"""Where the rows of embedding tables are taken and used."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tfmini as tf
from tests.ops.evaluate import evaluate


@pytest.mark.parametrize("resource", [False, True])
def test_rows_are_taken_beside_the_table_and_end_beside_the_model(resource: bool) -> None:
    setter = tf.train.replica_device_setter(ps_tasks=1, worker_device="/job:worker/task:0")
    with tf.device(setter), tf.variable_scope("", use_resource=resource):
        rows = tf.nn.embedding_lookup(tf.get_variable("table", [10, 2]), tf.constant([1, 2]))
    gather = next(op for op in tf.get_default_graph().get_operations() if op.type in ("GatherV2", "ResourceGather"))
    assert (gather.device, rows.device) == ("/job:ps/task:0", "/job:worker/task:0")


@pytest.mark.parametrize("lookup", [tf.nn.embedding_lookup_sparse, tf.nn.safe_embedding_lookup_sparse])
def test_an_id_that_occurs_often_crosses_the_wire_once_and_has_one_gradient(lookup: Any) -> None:
    table = tf.constant(np.arange(12, dtype=np.float32).reshape(6, 2))
    ids = tf.SparseTensor([[0, 0], [0, 1], [1, 0], [2, 1]], tf.constant([4, 1, 4, 4], tf.int64), [3, 2])
    rows = lookup(table, ids, None, combiner="sum")
    (grad,) = tf.gradients(rows, table)
    found, ids_of_grad, values = evaluate([rows, grad.indices, grad.values])
    np.testing.assert_array_equal(found, [[10, 12], [8, 9], [8, 9]])
    assert ids_of_grad.tolist() == [4, 1] and values.tolist() == [[3, 3], [1, 1]]


def test_halves_are_combined_in_single_precision() -> None:
    table = tf.constant([[2048.0], [1.0]], tf.float16)
    ids = tf.SparseTensor([[0, 0], [0, 1]], np.int64([0, 1]), [1, 2])
    found = tf.nn.embedding_lookup_sparse(table, ids, None, combiner="sum")
    assert found.dtype is tf.float32 and evaluate(found).tolist() == [[2049.0]]
