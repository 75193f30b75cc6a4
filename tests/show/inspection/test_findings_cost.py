"""The cost of ops, computed from static shapes."""

from __future__ import annotations

from typing import Any

import pytest

import tfmini as tf
from tfmini.graph.operation import node_of
from tfmini.show.inspection.findings import flops


def _flops(make: Any) -> int | None:
    """Of the last op that ``make`` adds."""
    with tf.Graph().as_default() as graph:
        make()
    operations = graph.get_operations()
    shapes = {(op.name, i): out.raw_shape for op in operations for i, out in enumerate(op.outputs)}
    return flops(node_of(operations[-1]), shapes)


def _update(resource: bool, sparse: bool) -> Any:
    variables = [tf.get_variable(name, [1000, 8], use_resource=resource) for name in ("weights", "slot")]
    weights, slot = [v.handle if resource else v.op.outputs[0] for v in variables]
    rows = {"grad": tf.zeros([3, 8]), "indices": tf.constant([1, 2, 3])} if sparse else {"grad": tf.zeros([1000, 8])}
    op_type = ("Resource" if resource else "") + ("SparseApplyAdagrad" if sparse else "ApplyAdagrad")
    return getattr(tf.raw_ops, op_type)(var=weights, accum=slot, lr=tf.constant(0.1), **rows)


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda: tf.matmul(tf.ones([2, 3]), tf.ones([3, 4])), 2 * 2 * 3 * 4),
        (lambda: tf.nn.conv2d(tf.ones([1, 5, 5, 2]), tf.ones([3, 3, 2, 7]), 1, "VALID"), 2 * 9 * 9 * 2 * 7),
        (lambda: tf.nn.conv3d(tf.ones([1, 3, 3, 3, 2]), tf.ones([2, 2, 2, 2, 5]), [1] * 5, "VALID"), 2 * 8 * 8 * 2 * 5),
        (lambda: tf.reduce_sum(tf.ones([10, 20])), 200),
        (lambda: tf.exp(tf.ones([10, 20])), 200),
        (lambda: tf.transpose(tf.ones([10, 20])), 0),
        (lambda: tf.reshape(tf.ones([10, 20]), [200]), 0),
        (lambda: tf.shape(tf.ones([10, 20])), 0),
        (lambda: _update(resource=False, sparse=False), 8000),
        (lambda: _update(resource=True, sparse=False), 8000),
        (lambda: _update(resource=False, sparse=True), 24),
        (lambda: _update(resource=True, sparse=True), 24),
    ],
)
def test_floating_point_operations_are_counted(make: Any, expected: int) -> None:
    assert _flops(make) == expected


def test_a_product_of_unknown_shapes_has_unknown_cost() -> None:
    assert _flops(lambda: tf.matmul(tf.placeholder(tf.float32, [None, 3]), tf.ones([3, 4]))) is None
