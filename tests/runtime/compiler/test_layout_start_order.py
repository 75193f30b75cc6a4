"""What goes on elsewhere (sends, collectives) sets out before what it does not need is computed."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import tfmini as tf
from tests.runtime.task_graphs import Row, feed, receive, send, task_graph
from tfmini import dtypes
from tfmini.graph.node import Node
from tfmini.graph.operation import node_of
from tfmini.graph.prune import step_graph
from tfmini.ops import collectives as collective_ops
from tfmini.placement.task_graph import INNER, TaskGraph
from tfmini.runtime.compiler.layout import starts_first
from tfmini.runtime.compiler.lowering import Compilation, Lowering
from tfmini.runtime.compiler.units import Form, Unit
from tfmini.runtime.resources import ResourceManager

_HERE, _THERE = "/job:worker/replica:0/task:0/device:CPU:0", "/job:worker/replica:0/task:1/device:CPU:0"
F = dtypes.float32


def _lowered(graph: TaskGraph) -> Lowering:
    lowering = Lowering(Compilation(graph, ResourceManager("worker"), "CPU", False, lambda *_: None), graph.nodes, {})
    lowering.run()
    return lowering


def _lowered_graph(graph: tf.Graph, wanted: list[str]) -> Lowering:
    """What comes of the ops of a graph that these need, when x is fed."""
    nodes = {op.name: node_of(op) for op in graph.get_operations()}
    step = step_graph(nodes, [(name, 0) for name in wanted], [], [("x", 0)], _HERE)
    for node in step.nodes.values():
        node.device = _HERE
    return _lowered(TaskGraph.of_step(step))


def _feed(name: str) -> Row:
    return feed(name, _HERE)


def _add(name: str, *sources: str, controls: tuple[str, ...] = ()) -> Node:
    return Node(name, "Add", _HERE, [(s, 0) for s in sources], controls, {"T": F})


def _send(name: str, source: str, group: int, controls: tuple[str, ...] = ()) -> Row:
    return send(name, source, group, _HERE, _THERE, controls)


def _reduce(name: str, source: str) -> Node:
    attrs: dict[str, Any] = {
        "T": F, "group_size": 2, "group_key": 1, "instance_key": 1, "merge_op": b"Add", "final_op": b"Id",
        "subdiv_offsets": [0], "wait_for": [], "communication_hint": b"auto",
    }  # fmt: skip
    return Node(name, "CollectiveReduce", _HERE, [(source, 0)], attrs=attrs)


def _names(rows: Sequence[Row]) -> list[str]:
    return [unit.node.name for unit in starts_first(_lowered(task_graph(rows)))]


def test_an_asynchronous_op_starts_before_ops_that_it_does_not_need() -> None:
    nodes = [_feed("x"), _add("a", "x", "x"), _add("b", "a", "a"), _add("c", "b", "b"), _add("d", "x", "x")]
    starts = [_reduce("far", "c"), _send("s", "a", 0), _reduce("near", "a")]
    assert _names([*nodes, *starts]) == ["a", "s", "near", "b", "c", "far", "d"]


def test_a_program_without_asynchronous_ops_keeps_its_order() -> None:
    rows = [_feed("x"), _add("a", "x", "x"), _add("b", "x", "x"), _add("c", "a", "a")]
    lowering = _lowered(task_graph(rows))
    assert starts_first(lowering) is lowering.units


def test_control_edges_hold_through_nodes_without_code() -> None:
    group = Node("group", "NoOp", _HERE, controls=["late"])
    late = Node("late", "CheckNumerics", _HERE, [("e", 0)], attrs={"T": F, "message": b"bad"})
    nodes = [_feed("x"), _add("e", "x", "x"), late, group, _add("a", "x", "x", controls=("group",))]
    assert _names([*nodes, _add("z", "x", "x"), _reduce("r", "a")]) == ["e", "late", "a", "r", "z"]


def test_values_that_leave_together_wait_for_all_of_them() -> None:
    check = Node("check", "CheckNumerics", _HERE, [("a", 0)], attrs={"T": F, "message": b"bad"})
    nodes = [_feed("x"), _add("a", "x", "x"), check, _add("z", "x", "x"), _add("last", "z", "z")]
    sends = [_send("s1", "a", 0, ("check",)), _send("s2", "a", 0)]
    assert _names([*nodes, *sends]) == ["a", "check", "s2", "z", "last"]


def test_control_edges_hold_from_device_to_device() -> None:
    other = _HERE.replace("CPU:0", "CPU:1")
    check = Node("check", "CheckNumerics", _HERE, [("x", 0)], attrs={"T": F, "message": b"bad"})
    edge = Node("edge", "Const", _HERE, controls=["check"], attrs={"value": np.float32(0), "dtype": F})
    between = [
        send("send", "edge", INNER, _HERE, other, tensor="edge"), receive("recv", INNER, other, _HERE, tensor="edge"),
    ]  # fmt: skip
    nodes = [_feed("x"), _add("z", "x", "x"), check, edge, *between, _add("a", "x", "x", controls=("recv",))]
    assert _names([*nodes, _reduce("r", "a")]) == ["check", "a", "r", "z"]


def test_a_variable_that_decides_is_looked_at_before_all_that_it_decides() -> None:
    with tf.Graph().as_default() as graph, tf.device(_HERE):
        x = tf.placeholder(F, [], "x")
        decides = tf.Variable(True, use_resource=False).op.outputs[0]
        for i in (1.0, 2.0):
            left, right = tf.raw_ops.Switch(data=x, pred=decides)
            result = tf.raw_ops.Merge(inputs=[left * i, right + i])[0]
        total = collective_ops.all_reduce(result, 2, 1, 1, "Add", "Id")
    lowering = _lowered_graph(graph, [total.op.name, "Merge"])
    made: set[str] = set()
    for unit in starts_first(lowering):
        assert {name for name, _ in unit.reads()} & {u.node.name for u in lowering.units} <= made | {unit.node.name}
        made.add(unit.node.name)


def _random_rows(seed: int) -> list[Row]:
    rng = random.Random(seed)
    rows, values = [_feed("x")], ["x"]
    names = ["x"]
    for i in range(rng.randrange(3, 30)):
        kind, name = rng.random(), f"n{i}"
        controls = tuple(rng.sample(names, 1)) if rng.random() < 0.3 else ()
        names.append(name)
        if kind < 0.5:
            rows.append(_add(name, rng.choice(values), rng.choice(values), controls=controls))
        elif kind < 0.6:
            rows.append(Node(name, "NoOp", _HERE, controls=list(controls)))
            continue
        elif kind < 0.7:
            rows.append(Node(name, "Identity", _HERE, [(rng.choice(values), 0)], controls, {"T": F}))
        elif kind < 0.8:
            rows.append(_reduce(name, rng.choice(values)))
        elif kind < 0.9:
            rows.append(receive(name, 100 + i, _HERE, _THERE, controls))
        elif kind < 0.95:
            attrs = {"T": F, "message": b""}
            rows.append(Node(name, "CheckNumerics", _HERE, [(rng.choice(values), 0)], controls, attrs))
        else:
            rows.append(_send(name, rng.choice(values), i % 3, controls))
            continue
        values.append(name)
    return rows


def _before(lowering: Lowering, unit: Unit) -> set[str]:
    """All nodes that a unit needs, directly or not."""
    found: set[str] = set()
    stack = [*unit.node.controls, *(source for source, _ in unit.node.inputs)]
    while stack:
        name = stack.pop()
        if name not in found:
            found.add(name)
            stack += [*lowering.nodes[name].controls, *(source for source, _ in lowering.nodes[name].inputs)]
    return found


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10_000))
def test_every_unit_comes_after_those_of_its_wave_that_it_needs(seed: int) -> None:
    lowering = _lowered(task_graph(_random_rows(seed)))
    order = starts_first(lowering)
    assert sorted(map(id, order)) == sorted(map(id, lowering.units))
    done: dict[int, set[str]] = {}
    for unit in order:
        same = {u.node.name for u in lowering.units if u.wave == unit.wave and u is not unit}
        assert _before(lowering, unit) & same <= done.setdefault(unit.wave, set())
        done[unit.wave].add(unit.node.name)


def test_back_propagation_goes_on_while_buckets_are_reduced() -> None:
    with tf.Graph().as_default() as graph, tf.device(_HERE):
        hidden = tf.placeholder(F, [2, 8], "x")
        for i in range(3):
            weights = tf.get_variable(f"w{i}", initializer=np.ones([8, 8], np.float32))
            hidden = tf.tanh(tf.matmul(hidden, weights))
        optimizer = tf.train.AllReduceOptimizer(tf.train.GradientDescentOptimizer(0.1), 2, bucket_bytes=0)
        grads = [grad for grad, _ in optimizer.compute_gradients(tf.reduce_sum(hidden))]
    order = starts_first(_lowered_graph(graph, [grad.op.name for grad in grads]))
    kinds = [unit.node.op for unit in order if unit.node.op in ("MatMul", "CollectiveReduce")]
    # Forward; then per layer, from the last one on, the weights' gradient and the layer's below it.
    back = ["MatMul", "MatMul", "CollectiveReduce"]
    assert kinds == ["MatMul"] * 3 + back * 2 + ["MatMul", "CollectiveReduce"]


def test_gradients_are_reduced_in_the_order_in_which_they_are_ready() -> None:
    """Also where a script asks for them in the order of the variables."""
    with tf.Graph().as_default() as graph, tf.device(_HERE):
        hidden = tf.placeholder(F, [2, 8], "x")
        weights = [tf.get_variable(f"w{i}", initializer=np.ones([8, 8], np.float32)) for i in range(3)]
        for w in weights:
            hidden = tf.tanh(tf.matmul(hidden, w))
        sums = [
            collective_ops.all_reduce(grad, 2, 1, i, "Add", "Id")
            for i, grad in enumerate(tf.gradients(hidden, weights))
        ]
    order = starts_first(_lowered_graph(graph, [total.op.name for total in sums]))
    assert [u.node.attrs["instance_key"] for u in order if u.form is Form.BEGIN] == [2, 1, 0]
