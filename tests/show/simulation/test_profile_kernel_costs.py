"""What an op costs."""

from __future__ import annotations

from dataclasses import replace

import tfmini as tf
from tests.show.simulation.profiles import plain
from tfmini.show.simulation.profile import SHIPPED, Curve, KernelCosts, class_of, read_profile, with_bounds, work_of


def test_classes_and_work_of_ops() -> None:
    with tf.Graph().as_default() as graph:
        x = tf.placeholder(tf.float32, [8, 100], name="x")
        table = tf.get_variable("table", [1000, 4], use_resource=False)
        tf.matmul(x, tf.ones([100, 3]), name="product")
        tf.add(x, 1.0, name="sum")
        tf.gather(table, tf.constant([1, 2, 3]), name="rows")
        tf.reshape(x, [800], name="view")
        tf.assign_sub(table, tf.ones([1000, 4]), name="update")
        tf.random_normal([50], name="noise")
    found = tf.inspect(graph, fetches=["update:0"])
    kinds = {name: class_of(found.nodes[name]) for name in ("product", "sum", "rows", "view", "update")}
    assert kinds == {"product": "matmul", "sum": "elementwise", "rows": "rows", "view": "view", "update": "update"}
    assert class_of(found.nodes["noise/RandomStandardNormal"]) == "random"
    assert work_of(found.nodes["product"], found.shapes, "matmul") == 8 * 100 * 3 * 2 + 6 * 4 * (800 + 300 + 24)
    assert work_of(found.nodes["rows"], found.shapes, "rows") == 2 * 3 * 4 * 4
    costs = KernelCosts(plain().machine, found.nodes, found.shapes, {"sum": 7e-6})
    assert costs.seconds(found.nodes["sum"]) == 7e-6
    assert costs.seconds(found.nodes["product"]) == plain().machine.kernels["matmul"](4800 + 24 * 1124)


def test_a_product_has_work_for_the_bytes_of_its_matrices() -> None:
    with tf.Graph().as_default() as graph:
        tf.matmul(tf.ones([64, 100]), tf.ones([100, 20]), name="one")
        tf.matmul(tf.ones([3, 8, 64, 100]), tf.ones([3, 8, 100, 20]), name="batch")
    found = tf.inspect(graph, fetches=["one:0", "batch:0"])
    work = {name: work_of(found.nodes[name], found.shapes, "matmul") for name in ("one", "batch")}
    one = 2 * 64 * 100 * 20 + 6 * 4 * (64 * 100 + 100 * 20 + 64 * 20)
    assert work == {"one": one, "batch": 24 * one}


def test_a_sparse_update_costs_as_if_no_id_came_twice() -> None:
    with tf.Graph().as_default() as graph:
        table = tf.get_variable("table", [1000, 4])
        rows = tf.nn.embedding_lookup(table, tf.placeholder(tf.int64, [50], name="ids"))
        train = tf.train.AdagradOptimizer(0.1).minimize(tf.reduce_sum(tf.square(rows)))
    found = tf.inspect(graph, fetches=train)
    (update,) = (node for node in found.nodes.values() if node.op == "SparseApplyAdagrad")
    assert work_of(update, found.shapes, "update") == 0
    assert work_of(update, with_bounds(found.nodes, found.shapes), "update") == 50 * 4 * 4 + 50 * 4


def test_a_collective_costs_nothing_beside_what_its_members_send() -> None:
    with tf.Graph().as_default() as graph:
        total = tf.collective_ops.all_reduce(tf.ones([1000]), 2, 1, 1, "Add", "Id")
    found = tf.inspect(graph, fetches=total)
    (node,) = (each for each in found.nodes.values() if each.op == "CollectiveReduce")
    assert class_of(node) == "view" and work_of(node, found.shapes, "view") == 0


def test_an_op_grows_as_its_class_beyond_what_was_measured_of_it() -> None:
    with tf.Graph().as_default() as graph:
        x = tf.placeholder(tf.float32, [64, 100], name="x")
        tf.subtract(x, 1.0, name="difference")
        tf.add(x, 1.0, name="sum")
    found = tf.inspect(graph, fetches=["difference:0", "sum:0"])
    machine = plain().machine
    small = Curve(((12.0, 2.5e-6),))  # as calibrate finds for an op that its workloads hardly use
    machine = replace(machine, kernels={**machine.kernels, "Sub": small})
    costs = KernelCosts(machine, found.nodes, found.shapes, {})
    like = costs.seconds(found.nodes["sum"])
    assert like / 2 < costs.seconds(found.nodes["difference"]) < 20 * like


def test_the_profiles_that_are_shipped_give_each_op_a_time_like_that_of_its_class() -> None:
    for path in SHIPPED.values():
        with tf.Graph().as_default() as graph:
            x = tf.placeholder(tf.float32, [64, 1000], name="x")
            tf.subtract(x, 1.0, name="difference")
            tf.add(x, 1.0, name="sum")
        found = tf.inspect(graph, fetches=["difference:0", "sum:0"])
        costs = KernelCosts(read_profile(path).machine, found.nodes, found.shapes, {})
        assert costs.seconds(found.nodes["difference"]) < 10 * costs.seconds(found.nodes["sum"])
