"""Nodes of constants: which of them are computed at compile time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tfmini as tf
from tfmini.graph.node import Node
from tfmini.graph.operation import node_of
from tfmini.placement.task_graph import TaskGraph
from tfmini.runtime.compiler import lowering as folding
from tfmini.runtime.compiler.kernels import op_facts
from tfmini.runtime.compiler.loops import lower_loop
from tfmini.runtime.compiler.lowering import INPUT_BYTES, Compilation, Folding, Lowering
from tfmini.runtime.resources import ResourceManager


def program_lowering(nodes: list[Node]) -> Lowering:
    """The nodes of a task, lowered."""
    graph = TaskGraph({node.name: node for node in nodes})
    lowering = Lowering(Compilation(graph, ResourceManager(""), "CPU", True, lower_loop), graph.nodes, {})
    lowering.run()
    return lowering


def fold(tensor: Any, *values: Any, again: int = 1) -> tuple[bool, dict[Any, Any]]:
    """Whether a tensor's node is folded if these are the values of its inputs, and the constants afterwards."""
    node: Node = node_of(tensor.op)
    facts = op_facts(node.op, "CPU")
    assert facts is not None
    constants = dict(zip(node.inputs, map(np.asarray, values)))
    known = Folding(constants)
    return all(known.folds(node, facts, list(node.inputs)) for _ in range(again)), constants


def test_a_small_node_is_folded() -> None:
    with tf.Graph().as_default():
        total = tf.placeholder(tf.float32, []) + tf.placeholder(tf.float32, [])
        folded, constants = fold(total, np.float32(1), np.float32(2))
        assert folded and constants[total.op.name, 0] == 3.0


def test_small_inputs_that_make_a_large_output_are_not_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread that compiles answers other tasks."""
    monkeypatch.setattr(folding, "make_callable", lambda *_: pytest.fail("it is computed"))
    with tf.Graph().as_default():
        dims = tf.placeholder(tf.int32, [2])
        number = tf.placeholder(tf.int32, [])
        assert not fold(tf.fill(dims, 1.0), np.int32([100_000, 100_000]), np.float32(1))[0]
        assert not fold(tf.tile(tf.placeholder(tf.float32, [1, 1]), dims), [[1.0]], np.int32([1, 1 << 30]))[0]
        assert not fold(tf.range(0, number, 1), 0, np.int32(1 << 30), 1)[0]
        step = tf.placeholder(tf.float32, [])
        assert not fold(tf.range(0.0, 1.0, step), *map(np.float32, (0.0, 1.0, 1e-9)))[0]
        column, row = tf.placeholder(tf.float32, [None, 1]), tf.placeholder(tf.float32, [1, None])
        values = np.zeros([100_000, 1], np.float32), np.zeros([1, 100_000], np.float32)
        for outer in (column * row, tf.matmul(column, row)):
            assert not fold(outer, *values)[0]
        rows = tf.gather(row, tf.placeholder(tf.int32, [None]))
        assert not fold(rows, values[1], np.zeros(100_000, np.int32), np.int32(0))[0]
        assert not fold(tf.tile(row, tf.constant([1, 1000])), values[1], np.int32([1, 1000]))[0]
        assert not fold(tf.diag(tf.placeholder(tf.float32, [None])), values[0][:, 0])[0]
        assert not fold(tf.unique(tf.placeholder(tf.float32, [None]))[0], np.zeros(2_000_000, np.int8))[0]


def test_large_inputs_and_many_nodes_are_left_to_the_step(monkeypatch: pytest.MonkeyPatch) -> None:
    with tf.Graph().as_default():
        negative = -tf.placeholder(tf.float32, [None])
        assert fold(negative, np.zeros(INPUT_BYTES // 4, np.float32))[0]
        assert not fold(negative, np.zeros(INPUT_BYTES // 4 + 1, np.float32))[0]
        assert fold(negative, np.zeros(INPUT_BYTES // 4, np.float32), again=64)[0]
        assert not fold(negative, np.zeros(INPUT_BYTES // 4, np.float32), again=65)[0]


def test_results_together_are_bounded() -> None:
    """A program keeps them as long as its session lives."""
    with tf.Graph().as_default():
        zeros = tf.fill(tf.placeholder(tf.int32, [1]), 0.0)
        assert fold(zeros, np.int32([1 << 20]), np.float32(0), again=16)[0]
        assert not fold(zeros, np.int32([1 << 20]), np.float32(0), again=17)[0]


def test_large_constants_of_equal_shape_are_folded() -> None:
    with tf.Graph().as_default():
        total = tf.placeholder(tf.float32, [None]) + tf.placeholder(tf.float32, [None])
        assert fold(total, np.zeros(100_000, np.float32), np.zeros(100_000, np.float32))[0]
        joined = tf.concat([tf.placeholder(tf.float32, [None])] * 2, tf.placeholder(tf.int32, []))
        assert fold(joined, np.zeros(100_000, np.float32), np.zeros(100_000, np.float32), np.int32(0))[0]


def test_what_is_not_folded_runs_in_the_step() -> None:
    with tf.Graph().as_default(), tf.Session() as session:
        assert session.run(tf.fill(tf.constant([4000, 4000]), np.int8(1))).sum() == 16_000_000


def gated() -> tuple[Any, Any, Any]:
    """A variable, an assignment of 5 to it, and a folded value that waits for the assignment."""
    v = tf.Variable(0.0)
    with tf.control_dependencies([v.assign(5.0)]):
        one = tf.identity(tf.constant(1.0))
    return v, one, -one


def test_nodes_of_constants_behind_control_edges_are_folded() -> None:
    with tf.Graph().as_default(), tf.Session() as session:
        v, one, minus = gated()
        nodes = [node_of(op) for op in tf.get_default_graph().get_operations()]
        lowering = program_lowering(nodes)
        assert lowering.constants[minus.op.name, 0] == -1.0
        assert not {one.op.name, minus.op.name} & {unit.node.name for unit in lowering.units}
        session.run(v.initializer)
        assert session.run(minus) == -1.0
        assert session.run(v) == 5.0  # a fetch of a folded node runs what is behind it


@pytest.mark.parametrize("devices", ["/cpu:0 /cpu:0", "/cpu:0 /cpu:1", "/cpu:1 /cpu:0"])
def test_what_waits_for_a_folded_node_waits_for_what_is_behind_it(devices: str) -> None:
    first, second = devices.split()
    with tf.Graph().as_default(), tf.Session(config=tf.ConfigProto(device_count={"CPU": 2})) as session:
        with tf.device(first):
            v, _, minus = gated()
        with tf.device(second), tf.control_dependencies([tf.identity(minus)]):
            behind = tf.no_op()
        with tf.device(first), tf.control_dependencies([behind]):
            late = v.read_value()
        session.run(v.initializer)
        assert session.run(late) == 5.0


def test_gated_gradients_of_constants_are_folded() -> None:
    """An optimizer gates the gradients of a sum of losses, which are constants until they meet the variables."""
    with tf.Graph().as_default():
        loss = tf.add_n([tf.reduce_sum(tf.Variable(tf.ones([3]))) for _ in range(4)])
        tf.train.GradientDescentOptimizer(0.1).minimize(loss)
        nodes = [node_of(op) for op in tf.get_default_graph().get_operations()]
        assert any(node.controls and node.op == "Identity" for node in nodes)
        computed = {unit.node.op for unit in program_lowering(nodes).units}
        assert "ApplyGradientDescent" in computed and not computed & {"Reshape", "BroadcastTo", "Tile", "Fill"}


def units_of(make: Any) -> list[str]:
    """The ops of the units for what ``make`` builds, placeholders and constants apart."""
    with tf.Graph().as_default() as graph:
        make()
        nodes = [node_of(operation) for operation in graph.get_operations()]
    return [unit.node.op for unit in program_lowering(nodes).units if unit.node.op != "Placeholder"]


def test_a_product_with_1_and_a_sum_with_0_leave_no_code() -> None:
    def make() -> None:
        x = tf.placeholder(tf.float32, [2])
        tf.exp((x * 1.0 + -0.0 - 0.0) / 1.0)
        tf.exp(tf.cast(tf.placeholder(tf.int32, [2]) + 0, tf.float32))
        tf.exp(tf.random_uniform([2]))

    assert units_of(make) == ["Exp", "Cast", "Exp", "RandomUniform", "Exp"]


@pytest.mark.parametrize(("zero", "sign"), [(0.0, 1.0), (-0.0, -1.0)])
def test_a_sum_with_0_has_the_sign_of_real_numbers(zero: float, sign: float) -> None:
    with tf.Graph().as_default(), tf.Session() as session:
        x = tf.placeholder(tf.float32, [1])
        assert session.run(1.0 / (x + zero), {x: [-0.0]}) == sign * np.inf


def test_only_a_scalar_that_changes_nothing_is_left_out() -> None:
    def make() -> None:
        x = tf.placeholder(tf.float32, [2])
        tf.exp(x * 2.0)
        tf.exp(x + [[0.0, 0.0]])  # of another shape
        tf.exp(tf.constant(0.0) - x)

    assert units_of(make) == ["Mul", "Exp", "Add", "Exp", "Sub", "Exp"]


@pytest.mark.parametrize("use_resource", [False, True])
def test_a_product_of_a_variable_with_1_keeps_its_value(use_resource: bool) -> None:
    with tf.Graph().as_default(), tf.Session() as session:
        variable = tf.get_variable("v", initializer=[1.0, 2.0], use_resource=use_resource)
        before = variable.read_value() * 1.0 if use_resource else variable * 1.0
        with tf.control_dependencies([before]), tf.control_dependencies([tf.assign_add(variable, [5.0, 5.0]).op]):
            after = before + variable.read_value()
        session.run(tf.global_variables_initializer())
        assert session.run([before, after])[0].tolist() == [1.0, 2.0]


def test_a_fed_value_that_is_handed_on_is_not_the_callers_array() -> None:
    fed = np.array([1.0, 2.0], np.float32)
    with tf.Graph().as_default(), tf.Session() as session:
        x = tf.placeholder(tf.float32, [2])
        found = session.run(x * 1.0, {x: fed})
    found += 1
    assert fed.tolist() == [1.0, 2.0]


def test_what_is_computed_twice_of_the_same_values_leaves_code_once() -> None:
    def make() -> None:
        x = tf.placeholder(tf.float32, [2])
        for _ in range(3):
            tf.add(tf.exp(x) * 2.0, tf.nn.top_k(x, 2)[0])
        tf.reduce_sum(x, keepdims=True)
        tf.reduce_sum(x, keepdims=False)

    assert units_of(make) == ["Exp", "Mul", "TopKV2", "Add", "Sum", "Sum"]


def test_each_of_several_computations_of_a_value_leaves_code_once() -> None:
    def make() -> None:
        x = tf.placeholder(tf.float32, [2])
        for factor in (2.0, 3.0, 3.0, 2.0):
            tf.add(factor, tf.exp(x * factor))

    assert units_of(make) == ["Mul", "Exp", "Add"] * 2


def test_what_changes_or_waits_is_computed_each_time() -> None:
    def make() -> None:
        x, before, one = tf.placeholder(tf.float32, [4]), tf.placeholder(tf.float32, [4]), tf.constant(1.0)
        variable = tf.get_variable("v", shape=[4])
        for _ in range(2):
            tf.exp(variable)  # of a reference
            tf.random_uniform([4])
            with tf.control_dependencies([before]):
                tf.exp(x)
                tf.multiply(x, one)

    units = units_of(make)
    assert units.count("Exp") == 4 and units.count("Mul") == 3  # the variable's own initial value has one
    assert units.count("RandomUniform") == 3  # and this


def test_branches_compute_the_same_each_in_its_own() -> None:
    with tf.Graph().as_default(), tf.Session() as session:
        x, which = tf.placeholder(tf.float32, [2]), tf.placeholder(tf.bool, [])
        found = tf.cond(which, lambda: tf.exp(x) + 1.0, lambda: tf.exp(x) + 2.0)
        for value, more in ((True, 1), (False, 2)):
            np.testing.assert_allclose(session.run(found, {x: [0.0, 0.0], which: value}), [1 + more] * 2)
