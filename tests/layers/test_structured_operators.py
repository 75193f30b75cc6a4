"""Operators of several matrices whose rank nobody knows while the graph is built; the figures are those of 1.15.5."""

from __future__ import annotations

import tfmini as tf
from tests.ops.session_run import run


def test_blocks_of_unknown_rank() -> None:
    diagonal = tf.placeholder_with_default([[1.0, 2.0], [3.0, 4.0]], None)
    operator = tf.linalg.LinearOperatorBlockDiag(
        [tf.linalg.LinearOperatorDiag(diagonal), tf.linalg.LinearOperatorIdentity(1)]
    )
    dense = operator.to_dense()
    assert dense.shape.ndims is None
    assert run(dense).diagonal(axis1=1, axis2=2).tolist() == [[1, 2, 1], [3, 4, 1]]
    assert run(operator.solve(tf.ones([2, 3, 1])))[1, :, 0].tolist() == [tf.float32.as_numpy_dtype(1 / 3), 0.25, 1]


def test_blocks_whose_batches_differ_at_run_time() -> None:
    one, two = (tf.placeholder_with_default(value, [None, 1]) for value in ([[2.0]], [[3.0], [5.0]]))
    operator = tf.linalg.LinearOperatorBlockDiag([tf.linalg.LinearOperatorDiag(diagonal) for diagonal in (one, two)])
    assert run(operator.to_dense()).tolist() == [[[2, 0], [0, 3]], [[2, 0], [0, 5]]]


def test_zeros_of_a_batch_of_unknown_rank() -> None:
    batch = tf.placeholder_with_default([2], [None])
    operator = tf.linalg.LinearOperatorZeros(3, batch_shape=batch)
    assert operator.shape.ndims is None
    assert run(operator.matmul(tf.placeholder_with_default([[[1.0]] * 3], None))).shape == (2, 3, 1)
