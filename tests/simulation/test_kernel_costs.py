"""What an op costs."""

from __future__ import annotations

import pytest

import tfmini as tf
from tests.simulation.profiles import plain
from tfmini.simulation.kernel_costs import KernelCosts, class_of, work_of


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
    assert work_of(found.nodes["product"], found.shapes, "matmul") == 2 * 8 * 100 * 3
    assert work_of(found.nodes["rows"], found.shapes, "rows") == 2 * 3 * 4 * 4
    costs = KernelCosts(plain().machine, found.nodes, found.shapes, {"sum": 7e-6})
    assert costs.seconds(found.nodes["sum"]) == 7e-6
    assert costs.seconds(found.nodes["product"]) == pytest.approx(plain().machine.kernels["matmul"](4800))
