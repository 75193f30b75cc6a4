"""``tf.graph_util``: frozen and trimmed GraphDefs."""

from __future__ import annotations

import numpy as np
import pytest

import tfmini as tf


@pytest.mark.parametrize("resource", [False, True])
def test_variables_become_constants(resource: bool) -> None:
    x = tf.placeholder(tf.float32, [None, 2], name="x")
    weights = tf.get_variable("w", initializer=np.eye(2, dtype=np.float32) * 3, use_resource=resource)
    tf.check_numerics(tf.matmul(x, weights), "bad", name="y")
    tf.gather(weights, [0], name="row")
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        graph_def = tf.get_default_graph().as_graph_def()
        frozen = tf.graph_util.convert_variables_to_constants(session, graph_def, ["y", "row"])
    assert not any("Var" in node.op for node in frozen.node)
    with tf.Graph().as_default(), tf.Session() as session:
        y, row = tf.import_graph_def(frozen, return_elements=["y:0", "row:0"], name="")
        assert session.run(y, {"x:0": [[1, 2]]}).tolist() == [[3, 6]]
        assert session.run(row).tolist() == [[3, 0]]
    trimmed = tf.graph_util.remove_training_nodes(frozen, protected_nodes=["row"])
    assert "CheckNumerics" not in {node.op for node in trimmed.node}


@pytest.mark.parametrize("kind", ["cond", "while"])
def test_variables_that_control_flow_reads_become_constants(kind: str) -> None:
    x = tf.placeholder(tf.float32, [], name="x")
    v = tf.get_variable("v", initializer=3.0, use_resource=True)
    if kind == "cond":
        y = tf.cond(x > 0, lambda: v * x, lambda: v + x)
    else:
        y = tf.while_loop(lambda a: a < 50.0, lambda a: a * v, [x])
    tf.identity(y, name="y")
    with tf.Session() as session:
        session.run(v.initializer)
        frozen = tf.graph_util.convert_variables_to_constants(session, session.graph_def, ["y"])
    assert not any("Var" in node.op for node in frozen.node)
    with tf.Graph().as_default(), tf.Session() as session:
        tf.import_graph_def(frozen, name="")
        assert session.run("y:0", {"x:0": 2.0}) == {"cond": 6.0, "while": 54.0}[kind]


def test_a_sub_graph_contains_the_nodes_that_its_ends_need() -> None:
    a = tf.constant(1.0, name="a")
    tf.constant(2.0, name="unused")
    tf.add(a, 1.0, name="b")
    graph_def = tf.get_default_graph().as_graph_def()
    assert {n.name for n in tf.graph_util.extract_sub_graph(graph_def, ["b"]).node} == {"a", "b/y", "b"}
    with pytest.raises(AssertionError, match="nothing is not in graph"):
        tf.graph_util.extract_sub_graph(graph_def, ["nothing"])
    with pytest.raises(TypeError, match="must be a list"):
        tf.graph_util.extract_sub_graph(graph_def, "b")
    shape = tf.graph_util.tensor_shape_from_node_def_name(tf.get_default_graph(), "b")
    assert shape.as_list() == []


def test_ops_that_must_run_on_a_cpu() -> None:
    """The answers are TensorFlow's."""
    numbers, text, real = tf.constant([1, 2]), tf.constant("x"), tf.constant(1.0)
    variable = tf.get_variable("v", [2], use_resource=False)
    handle = tf.get_variable("r", [2], use_resource=True)
    stitched = tf.dynamic_stitch([[0, 1]], [[1, 2]])
    assert all(tf.graph_util.must_run_on_cpu(t.op) for t in (numbers, text, stitched, tf.cast(numbers, tf.float32)))
    reals = tf.dynamic_stitch([[0, 1]], [[1.0, 2.0]])
    assert not any(tf.graph_util.must_run_on_cpu(t.op) for t in (real, reals, variable, tf.truncated_normal([2])))
    pinned = [tf.graph_util.must_run_on_cpu(t.op, True) for t in (variable, variable.initializer.outputs[0], handle)]
    assert pinned == [True, True, False]


def test_a_sub_graph_keeps_colocated_nodes() -> None:
    anchor = tf.constant("x", name="anchor")
    with tf.colocate_with(anchor):
        tf.identity(tf.constant(1.0, name="a"), name="b")
    found = tf.graph_util.extract_sub_graph(tf.get_default_graph().as_graph_def(), ["b"])
    assert {n.name for n in found.node} == {"anchor", "a", "b"}
