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


def _accumulated(sparse: bool) -> Any:
    if sparse:
        sums: Any = tf.SparseConditionalAccumulator(tf.float32, shape=[1000, 8])
        return sums.apply_grad([1, 2, 3], tf.zeros([3, 8]))
    return tf.ConditionalAccumulator(tf.float32, shape=[1000, 8]).apply_grad(tf.zeros([1000, 8]))


@pytest.mark.parametrize(("sparse", "expected"), [(False, 8000), (True, 24)])
def test_an_accumulator_adds_each_gradient(sparse: bool, expected: int) -> None:
    assert _flops(lambda: _accumulated(sparse)) == expected


def test_what_the_sum_leaves_out_is_said() -> None:
    """Rows of which nobody knows how many are distinct, and the branches of a conditional, of which one is taken."""
    with tf.device(tf.train.replica_device_setter(ps_tasks=1, worker_device="/job:worker/task:0")):
        table = tf.get_variable("table", [10, 4], use_resource=False)
        rows = tf.gather(table, tf.placeholder(tf.int32, [6], name="ids"))
        takes = tf.placeholder(tf.bool, [], name="takes")
        loss = tf.reduce_sum(tf.cond(takes, lambda: tf.square(rows), lambda: tf.exp(rows)))
        train = tf.train.AdagradOptimizer(0.1).minimize(loss)
    found = tf.inspect(fetches=train, ps=1, workers=1)
    assert [(each.leaves_out_flops, each.flops_at_most) for each in found.devices] == [(True, False), (False, True)]
    lines = {line.split()[0]: line for line in found.text("tasks").splitlines()[:3]}
    assert " 0 + ? " in lines["ps/0"] and " at most " in lines["worker/0"]
