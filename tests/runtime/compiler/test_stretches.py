"""Which nodes of a device become one stretch, and what crosses its border."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import tfmini as tf
from tfmini.graph.device_types import FAKE_ENV
from tfmini.graph.node import Node
from tfmini.placement.task_graph import TaskGraph
from tfmini.runtime.compiler import stretches as module
from tfmini.runtime.compiler.stretches import UPDATES, Stretch, with_stretches

pytest.importorskip("jax")


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[TaskGraph, TaskGraph]]]:
    """The graphs that are compiled, before and after the pass."""
    monkeypatch.setenv(FAKE_ENV, "2")
    seen: list[tuple[TaskGraph, TaskGraph]] = []

    def noting(graph: TaskGraph, streams: Any, drive: Any) -> TaskGraph:
        seen.append((graph, with_stretches(graph, streams, drive)))
        return seen[-1][1]

    monkeypatch.setattr(module, "with_stretches", noting)
    yield seen


def stretches(graph: TaskGraph) -> list[Stretch]:
    return [node.attrs["stretch"] for node in graph.nodes.values() if node.op == "_Stretch"]


def ops(graph: TaskGraph) -> list[list[str]]:
    return [[node.op for node in stretch.nodes] for stretch in stretches(graph)]


def of_type(graph: TaskGraph, op: str) -> list[Node]:
    return [node for node in graph.nodes.values() if node.op == op]


def test_a_training_step_is_one_stretch_with_its_updates(compiled: list[Any]) -> None:
    with tf.Graph().as_default(), tf.device("/gpu:0"), tf.Session() as session:
        x, w = tf.placeholder(tf.float32, [None, 2]), tf.get_variable("w", [2, 3])
        step = tf.train.get_or_create_global_step()
        loss = tf.reduce_sum(tf.matmul(tf.reshape(x, [tf.shape(x)[0], 2]), w) ** 2)
        train = tf.train.GradientDescentOptimizer(0.1).minimize(loss, step)
        session.run(tf.global_variables_initializer())
        compiled.clear()
        session.run([train, loss], {x: [[1, 2]]})
    ((_, graph),) = compiled
    (stretch,) = stretches(graph)
    assert {"MatMul", "ApplyGradientDescent", "AssignAdd", "Shape"} <= {node.op for node in stretch.nodes}
    assert stretch.written == {("w", 0), ("global_step", 0)} and not stretch.statics and len(stretch.args) == 1
    (node,) = of_type(graph, "_Stretch")
    assert len(node.attrs[UPDATES]) == 2
    assert len(of_type(graph, "_ToHost")) == len(stretch.leaving) == 1  # the loss


def test_a_path_through_the_host_cuts(compiled: list[Any]) -> None:
    """Else the stretch would need its own result."""
    with tf.Graph().as_default(), tf.device("/gpu:0"), tf.Session() as session:
        x = tf.placeholder(tf.float32, [2])
        y = x * 2
        with tf.device("/cpu:0"):
            there = tf.sqrt(y)
        session.run(there + y, {x: [1, 2]})
    assert ops(compiled[-1][1]) == [["Mul"], ["Add"]]


def test_a_shape_that_depends_on_numbers_of_the_device_cuts(compiled: list[Any]) -> None:
    with tf.Graph().as_default(), tf.device("/gpu:0"), tf.Session() as session:
        x, n = tf.placeholder(tf.float32, [2]), tf.placeholder(tf.int32, [])
        known = tf.fill([n, tf.size(x)], 1.0)  # of integers of the client: static
        asked = tf.fill([tf.cast(tf.reduce_max(x), tf.int32)], 1.0)
        session.run([known, asked], {x: [1, 2], n: 2})
    found = stretches(compiled[-1][1])
    assert [len(stretch.statics) for stretch in found] == [1, 1]
    assert "Max" in [node.op for node in found[0].nodes] and "Fill" in [node.op for node in found[1].nodes]


def test_branches_have_stretches_of_their_own(compiled: list[Any]) -> None:
    with tf.Graph().as_default(), tf.device("/gpu:0"), tf.Session() as session:
        x, v = tf.placeholder(tf.float32, [2]), tf.get_variable("v", [2], initializer=tf.zeros_initializer())
        y = tf.cond(tf.reduce_sum(x) > 0, lambda: tf.exp(v.assign_add(x)) * 2, lambda: tf.sin(x) + 1) + 3
        session.run(v.initializer)
        assert session.run(y, {x: [0, -1]}).shape == (2,)
    branches = [part for part in ops(compiled[-1][1]) if {"Exp", "Sin"} & {*part}]
    assert len(branches) == 2 and not any({"Exp", "Sin"} <= {*part} for part in branches)


def test_branches_without_effects_are_one_node(compiled: list[Any]) -> None:
    with tf.Graph().as_default(), tf.device("/gpu:0"), tf.Session() as session:
        x = tf.placeholder(tf.float32, [2])
        y = tf.cond(tf.reduce_sum(x) > 0, lambda: tf.exp(x) * 2, lambda: tf.sin(x) + 1) + 3
        assert session.run(y, {x: [0, -1]}).shape == (2,)
    [part] = [part for part in ops(compiled[-1][1]) if "_Cond" in part]
    assert part[0] == "Sum" and part[-2:] == ["_Cond", "Add"]


def test_devices_have_stretches_of_their_own(compiled: list[Any]) -> None:
    with tf.Graph().as_default(), tf.Session() as session:
        with tf.device("/gpu:0"):
            x = tf.placeholder(tf.float32, [2]) * 2
        with tf.device("/gpu:1"):
            y = x + 1
        session.run(y, {x: [1, 2]})
        session.run(y, {x.op.inputs[0]: [1, 2]})
    found = stretches(compiled[-1][1])
    assert [stretch.device[-5:] for stretch in found] == ["GPU:0", "GPU:1"]
    assert found[1].foreign == {0}


def test_a_graph_of_cpus_has_none(compiled: list[Any]) -> None:
    with tf.Graph().as_default(), tf.device("/cpu:0"), tf.Session() as session:
        session.run(tf.matmul(tf.ones([2, 2]), tf.ones([2, 2])))
    assert compiled == []
