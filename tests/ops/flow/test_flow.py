"""Conds and loops: how they are built, how they travel, and how they run."""

from __future__ import annotations

import collections
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

import tfmini as tf
from tests.ops.flow import flow_cases
from tests.ops.session_run import run

PAIR = collections.namedtuple("PAIR", "a b")


def types(graph: Any = None) -> collections.Counter[str]:
    return collections.Counter(op.type for op in (graph or tf.get_default_graph()).get_operations())


# ---- building ---------------------------------------------------------------------------------


def test_conds_and_loops_return_the_structure_that_tensorflow_returns() -> None:
    p, x = tf.constant(True), tf.constant(1.0)
    assert isinstance(tf.cond(p, lambda: [x], lambda: [x]), tf.Tensor)
    assert isinstance(tf.cond(p, lambda: [x], lambda: [x], strict=True), list)
    pair = tf.cond(p, lambda: PAIR(x, x), lambda: PAIR(x, x))
    assert isinstance(pair, PAIR)
    less, more = (lambda *v: v[0] < 3), (lambda i: i + 1)
    assert isinstance(tf.while_loop(less, more, [0]), tf.Tensor)
    assert isinstance(tf.while_loop(less, more, [0], return_same_structure=True), list)
    assert isinstance(tf.while_loop(less, lambda i, j: (i + 1, j), (0, x)), tuple)
    assert isinstance(tf.while_loop(less, lambda i, j: (i + 1, j), (0, x), maximum_iterations=2), tuple)
    assert isinstance(tf.while_loop(less, more, [0], maximum_iterations=2), tf.Tensor)


def test_control_dependencies_none_creates_ops_outside_the_branch() -> None:
    made: list[Any] = []

    def branch() -> Any:
        with tf.control_dependencies(None):
            made.append(tf.constant(1.0))
        return tf.identity(made[0])

    tf.cond(tf.placeholder(tf.bool, []), branch, lambda: tf.constant(2.0))
    assert not made[0].op.control_inputs  # those of a branch wait for its pivot
    assert run(made[0]) == 1.0


def test_a_switch_is_colocated_with_its_input() -> None:
    with tf.device("/device:CPU:0"):
        x = tf.constant(1.0)
    with tf.device("/job:worker"):
        tf.cond(tf.placeholder(tf.bool, []), lambda: x + 1.0, lambda: x)
    switch = tf.get_default_graph().get_operation_by_name("cond/add/Switch")
    assert switch.colocation_groups() == [b"loc:@Const"] and switch.device == "/device:CPU:0"


def test_device_functions_see_flow_ops() -> None:
    seen = []
    with tf.device(lambda op: seen.append(op.type) or ""):
        tf.while_loop(lambda i: i < 3, lambda i: i + 1, [0])
    assert {"Enter", "Merge", "LoopCond", "NextIteration", "Exit"} <= set(seen)


def test_summaries_stay_in_their_branch() -> None:
    graph = tf.get_default_graph()
    tf.add_to_collection("_SUMMARY_V2", tf.constant("outside"))

    def branch() -> Any:
        tf.add_to_collection("_SUMMARY_V2", tf.identity("inside"))
        return tf.constant(1)

    tf.cond(tf.placeholder(tf.bool, []), branch, lambda: tf.constant(2))
    assert [t.op.name for t in graph.get_collection("_SUMMARY_V2")] == ["Const"]


def test_assert_asks_for_its_data_only_when_it_fails() -> None:
    x = tf.placeholder(tf.float32, [2])
    check = tf.Assert(tf.reduce_all(x > 0.0), [x])
    assert check.name == "Assert/AssertGuard/Merge" and types()["Switch"] == 3
    run(check, {x: [1.0, 2.0]})
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"assertion failed: \[-?1.* 2"):
        run(check, {x: [-1.0, 2.0]})
    assert tf.Assert(tf.constant(True), ["text", tf.constant(1)]).type == "Assert"


def test_smart_cond_of_a_constant_builds_one_branch_only() -> None:
    smart = tf.contrib.framework.smart_cond
    assert smart(True, lambda: 1, lambda: 2) == 1
    assert smart(tf.constant(False), lambda: 1, lambda: 2) == 2
    assert "Switch" not in types()
    p = tf.placeholder(tf.bool, [])
    assert run(smart(p, lambda: tf.constant(1), lambda: tf.constant(2)), {p: False}) == 2


@pytest.mark.parametrize("index, result", [(0, 10), (1, 21), (2, -1), (7, -1)])
def test_switch_case_runs_the_branch_of_the_index_or_the_default(index: int, result: int) -> None:
    i = tf.constant(index)
    branches = [lambda: tf.constant(10), lambda: tf.constant(21)]
    assert run(tf.switch_case(i, branches, default=lambda: tf.constant(-1))) == result


@pytest.mark.parametrize("index", [-1, 0, 149, 299, 300])
def test_switch_case_of_three_hundred_branches(index: int) -> None:
    i = tf.placeholder(tf.int32, [])
    branches = [lambda k=k: tf.constant(k) for k in range(300)]
    fetches = [tf.switch_case(i, branches), tf.switch_case(i, branches, default=lambda: tf.constant(-7))]
    inside = 0 <= index < 300
    assert run(fetches, {i: index}) == [index if inside else 299, index if inside else -7]


def test_case_of_many_branches() -> None:
    """Each is a cond in the branch of the one before."""
    x = tf.placeholder(tf.int32, [])
    y = tf.case([(tf.equal(x, k), lambda k=k: tf.constant(k * k)) for k in range(150)], lambda: tf.constant(-1))
    with tf.Session() as session:
        assert [session.run(y, {x: value}) for value in (0, 20, 100, 149, 150)] == [0, 400, 10000, 22201, -1]


def _nested_switches(x: Any, depth: int) -> Any:
    """``x`` plus the number of thresholds 0, 1, … below it, in conds that are nested in each other."""
    value, left = x, []
    for k in range(depth):
        lower, value = tf.raw_ops.Switch(data=value, pred=x > float(k))
        left.append(lower)
        value = value + 1.0
    return tf.raw_ops.Merge(inputs=[*left, value])[0]


@pytest.mark.parametrize("in_loop", [False, True])
def test_three_hundred_nested_conditionals_compile(in_loop: bool) -> None:
    x = tf.placeholder(tf.float32, [])
    if in_loop:
        y = tf.while_loop(lambda i, _: i < 2, lambda i, a: (i + 1, _nested_switches(a, 300)), [0, x])[1]
    else:
        y = _nested_switches(x, 300)
    expected = {-1.0: -1.0, 0.5: 3.5, 150.5: 601.5, 900.0: 1500.0}
    if not in_loop:
        expected = {-1.0: -1.0, 0.5: 1.5, 150.5: 301.5, 900.0: 1200.0}
    with tf.Session() as session:
        assert {value: session.run(y, {x: value}) for value in expected} == expected


@pytest.mark.parametrize("name", ["cond_nested", "while_nested", "cond_in_while", "while_in_cond", "while"])
@pytest.mark.parametrize("scope", ["", "scope"])
def test_contexts_are_exported_to_a_meta_graph_and_imported(name: str, scope: str) -> None:
    """What is imported can be differentiated, which needs the contexts."""
    source = flow_cases.CASES[name]
    fetches, feeds = flow_cases.build(source, tf, np)
    expected = run(fetches, feeds)
    y, x = fetches[-2].name, (list(feeds) or [tf.get_default_graph().get_tensor_by_name("Const:0")])[0].name
    meta = tf.train.export_meta_graph()
    with tf.Graph().as_default() as graph:
        tf.train.import_meta_graph(meta, import_scope=scope)
        prefix = f"{scope}/" if scope else ""
        y, x = (graph.get_tensor_by_name(prefix + element) for element in (y, x))
        grad = tf.gradients(y, x)[0]
        again = run([y, grad], {graph.get_tensor_by_name(prefix + t.name): v for t, v in feeds.items()})
    np.testing.assert_allclose(again, expected[-2:])


def test_a_graph_can_be_imported_into_conds_and_loops() -> None:
    with tf.Graph().as_default() as source:
        x = tf.placeholder(tf.float32, [], name="x")
        tf.while_loop(lambda y: y < 20.0, lambda y: y * x, [x], name="loop")
    text = source.as_graph_def()

    def imported(x: Any) -> Any:
        (found,) = tf.import_graph_def(text, {"x": x}, ["loop/Exit:0"])
        found.set_shape([])
        return found

    _, y = tf.while_loop(lambda i, y: i < 2, lambda i, y: (i + 1, imported(y) / 8.0), [0, tf.constant(2.0)])
    p = tf.placeholder(tf.bool, [])
    z = tf.cond(p, lambda: imported(tf.constant(3.0)), lambda: tf.constant(0.0))
    assert run(y) == 8.0  # 2 -> 32 / 8 = 4 -> 64 / 8
    assert run(z, {p: True}) == 27.0 and run(z, {p: False}) == 0.0


# ---- the executor -----------------------------------------------------------------------------


def test_a_control_input_of_a_loop_may_be_fed() -> None:
    b = tf.placeholder(tf.bool)
    with tf.control_dependencies([b]):
        loop = tf.while_loop(lambda x: x < 10, lambda x: x + 1, [tf.constant(0)])
    assert run(loop, {b: True}) == 10


def test_an_inner_loop_may_start_with_a_loop_invariant() -> None:
    n = tf.constant(0)

    def inner(s: Any) -> Any:
        return tf.while_loop(lambda i, s: i < 10, lambda i, s: (i + 1, i + s), [n, s])[1]

    assert run(tf.while_loop(lambda x: x < 200, lambda x: x + inner(n), [n])) == 225


def test_a_loop_of_raw_ops_may_have_a_constant_predicate() -> None:
    raw = tf.raw_ops
    stop = raw.Enter(data=tf.constant(False), frame_name="f")
    n = raw.Enter(data=tf.constant(10), frame_name="f")
    merged = raw.Merge(inputs=[n, n])[0]
    switched = raw.Switch(data=merged, pred=stop)
    merged.op._update_input(1, raw.NextIteration(data=switched[0]))
    assert run(raw.Exit(data=switched[0])) == 10


def test_a_loop_without_end_is_ended() -> None:
    forever = tf.while_loop(lambda x: True, lambda x: x + 1, [0])
    with tf.Session() as session, pytest.raises(tf.errors.DeadlineExceededError, match="task:0 runs a while loop"):
        session.run(forever, options=tf.RunOptions(timeout_in_ms=20))


def test_a_loop_body_may_wait_for_a_queue() -> None:
    queue = tf.FIFOQueue(-1, tf.int32, shapes=[[]])

    def body(i: Any) -> Any:
        with tf.control_dependencies([queue.enqueue(i)]):
            return i + 1

    loop = tf.while_loop(lambda i: i < 4, body, [0], parallel_iterations=1)
    taken = queue.dequeue_many(4)
    with tf.Session() as session:
        assert session.run(loop) == 4
        assert session.run(taken).tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("quietly", [True, False])
def test_abort_ends_the_process(quietly: bool) -> None:
    text = f"import tfmini as tf; tf.Session().run(tf.raw_ops.Abort(error_msg='why', exit_without_error={quietly}))"
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, timeout=200, check=False)
    assert (done.returncode == 0) is quietly and b"why" in done.stderr
