"""Conds and loops: what they refuse, how they are built, gradients by differences, and variables in them."""

from __future__ import annotations

import collections
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tfmini as tf
from tests.ops import flow_cases

PAIR = collections.namedtuple("PAIR", "a b")


def run(fetches: Any, feeds: Any = None) -> Any:
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        return session.run(fetches, feeds)


def types(graph: Any = None) -> collections.Counter[str]:
    return collections.Counter(op.type for op in (graph or tf.get_default_graph()).get_operations())


# ---- refusals ---------------------------------------------------------------------------------


def refusals() -> dict[str, tuple[type, str, Callable[[Any, Any, Any], Any]]]:
    shape = tf.TensorShape
    return {
        "pred is a bool": (
            TypeError,
            "pred must not be a Python bool",
            lambda p, x, i: tf.cond(True, tf.no_op, tf.no_op),
        ),
        "no true_fn": (TypeError, "true_fn argument required", lambda p, x, i: tf.cond(p)),
        "no false_fn": (TypeError, "false_fn argument required", lambda p, x, i: tf.cond(p, tf.no_op)),
        "both": (
            TypeError,
            "may not be set simultaneously",
            lambda p, x, i: tf.cond(p, tf.no_op, tf.no_op, fn1=tf.no_op),
        ),
        "not callable": (TypeError, "false_fn must be callable", lambda p, x, i: tf.cond(p, tf.no_op, 3)),
        "nothing returned": (
            ValueError,
            "true_fn must have a return value",
            lambda p, x, i: tf.cond(p, lambda: None, tf.no_op),
        ),
        "no result": (ValueError, "at least one result", lambda p, x, i: tf.cond(p, lambda: [], lambda: [])),
        "branch types": (
            ValueError,
            "Outputs of true_fn and false_fn must have the same type: float32, int32",
            lambda p, x, i: tf.cond(p, lambda: x, lambda: i),
        ),
        "branch structures": (
            ValueError,
            "Incompatible return values of true_fn and false_fn: The two structures don't have"
            " the same nested structure",
            lambda p, x, i: tf.cond(p, lambda: [x, x], lambda: x),
        ),
        "branch sequences": (
            TypeError,
            "Incompatible return types of true_fn and false_fn",
            lambda p, x, i: tf.cond(p, lambda: [x, x], lambda: (x, x)),
        ),
        "strict": (
            ValueError,
            "Incompatible return values",
            lambda p, x, i: tf.cond(p, lambda: [x], lambda: x, strict=True),
        ),
        "pred type": (
            TypeError,
            "type float32 that does not match expected type of bool",
            lambda p, x, i: tf.cond(x, lambda: x, lambda: x),
        ),
        "no pairs": (ValueError, "at least one pair", lambda p, x, i: tf.case([])),
        "case no list": (TypeError, "fns must be a list, tuple, or dict", lambda p, x, i: tf.case(3)),
        "case no pair": (TypeError, "must be a 2-tuple", lambda p, x, i: tf.case([3])),
        "case pred": (TypeError, "pred must be a Tensor", lambda p, x, i: tf.case([(True, tf.no_op)])),
        "case fn": (TypeError, "must be callable", lambda p, x, i: tf.case([(p, 3)])),
        "switch index": (TypeError, "must an integer Tensor", lambda p, x, i: tf.switch_case(x, [tf.no_op])),
        "switch keys": (ValueError, "contiguous range", lambda p, x, i: tf.switch_case(i, {1: tf.no_op, 2: tf.no_op})),
        "cond not callable": (TypeError, "cond must be callable", lambda p, x, i: tf.while_loop(3, lambda i: i, [i])),
        "body not callable": (TypeError, "body must be callable", lambda p, x, i: tf.while_loop(lambda i: p, 3, [i])),
        "no loop variables": (
            ValueError,
            "No loop variables provided",
            lambda p, x, i: tf.while_loop(lambda: p, lambda: 1, []),
        ),
        "parallel": (
            TypeError,
            "must be a positive integer",
            lambda p, x, i: tf.while_loop(lambda i: p, lambda i: i, [i], parallel_iterations=0),
        ),
        "maximum": (
            ValueError,
            "must be a scalar",
            lambda p, x, i: tf.while_loop(lambda i: p, lambda i: i, [i], maximum_iterations=[1]),
        ),
        "body structure": (
            ValueError,
            "don't have the same number of elements",
            lambda p, x, i: tf.while_loop(lambda i: p, lambda i: (i, i), [i]),
        ),
        "variable type": (
            TypeError,
            "must keep its type",
            lambda p, x, i: tf.while_loop(lambda i: p, lambda i: x, [i]),
        ),
        "variable shape": (
            ValueError,
            "use the `shape_invariants` argument",
            lambda p, x, i: tf.while_loop(lambda m: p, lambda m: tf.concat([m, m], 0), [tf.constant([1, 2])]),
        ),
        "invariant": (
            ValueError,
            "specified shape invariant is (3,)",
            lambda p, x, i: tf.while_loop(lambda m: p, lambda m: m, [tf.constant([1, 2])], [shape([3])]),
        ),
        "invariant kind": (
            ValueError,
            "list of shapes",
            lambda p, x, i: tf.while_loop(lambda m: p, lambda m: m, [tf.constant([1, 2])], [3]),
        ),
        "condition shape": (
            ValueError,
            "must be rank 0 but is rank 1",
            lambda p, x, i: tf.while_loop(lambda m: m > 0, lambda m: m, [tf.constant([1, 2])]),
        ),
        "map fn": (TypeError, "fn must be callable", lambda p, x, i: tf.map_fn(3, [1])),
        "map scalar": (
            ValueError,
            "must be a 1+ dimensional Tensor, not a scalar",
            lambda p, x, i: tf.map_fn(lambda a: a, x),
        ),
        "map sparse": (
            TypeError,
            "values of a sparse tensor",
            lambda p, x, i: tf.map_fn(lambda a: a, tf.SparseTensor([[0]], [1], [1])),
        ),
        "map structure": (
            ValueError,
            "same nested structure",
            lambda p, x, i: tf.map_fn(lambda a: (a, a), tf.constant([1])),
        ),
        "scan structure": (
            ValueError,
            "same nested structure",
            lambda p, x, i: tf.scan(lambda a, b: (a, b), tf.constant([1])),
        ),
        "merge None": (
            ValueError,
            "merge inputs is None",
            lambda p, x, i: __import__("tfmini.ops.control_flow_ops", fromlist=["merge"]).merge([None, x]),
        ),
        "smart_cond": (
            TypeError,
            "`true_fn` must be callable",
            lambda p, x, i: tf.contrib.framework.smart_cond(p, 1, 2),
        ),
    }


@pytest.mark.parametrize("what", refusals())
def test_refuses(what: str) -> None:
    kind, text, build = refusals()[what]
    with pytest.raises(kind) as caught:
        build(tf.placeholder(tf.bool, []), tf.constant(1.0), tf.constant(1))
    assert text in str(caught.value)


def test_values_stay_in_their_loop() -> None:
    inside: list[Any] = []

    def body(i: Any) -> Any:
        inside.append(i * 2)
        return i + 1

    loop = tf.while_loop(lambda i: i < 3, body, [tf.constant(0)])
    with pytest.raises(
        ValueError, match="Cannot use 'while/mul' as input to 'add' because 'while/mul' is in a while loop."
    ):
        tf.add(inside[0], 1, name="add")
    with pytest.raises(ValueError, match="because they are in different while loops"):
        tf.while_loop(lambda i: i < 3, lambda i: i + inside[0], [tf.constant(0)])
    with pytest.raises(ValueError, match="not fetchable"):
        run(inside[0])
    with pytest.raises(ValueError, match="may not be fed"):
        run(loop, {tf.get_default_graph().get_tensor_by_name("while/Enter:0"): 1})


def test_gradients_that_tensorflow_refuses() -> None:
    x = tf.constant(2.0)
    y = tf.while_loop(lambda y: y < 100.0, lambda y: y * x, [x])
    with pytest.raises(TypeError, match="Second-order gradient for while loops not supported."):
        tf.gradients(tf.gradients(y, x)[0], x)
    with pytest.raises(ValueError, match="We do not support taking the gradient wrt or through the initial value"):
        tf.while_loop(lambda y: y < 3.0, lambda y: tf.gradients(y * y, x), [x])


def test_case_checks_at_run_time() -> None:
    x = tf.placeholder(tf.int32, [])
    both = tf.case([(x > 1, lambda: x), (x > 2, lambda: -x)], default=lambda: x, exclusive=True)
    none = tf.case([(x > 1, lambda: x), (x > 2, lambda: -x)])
    assert run(both, {x: 2}) == 2
    with pytest.raises(tf.errors.InvalidArgumentError, match="more than 1 conditions"):
        run(both, {x: 3})
    with pytest.raises(tf.errors.InvalidArgumentError, match="None of conditions evaluated as True"):
        run(none, {x: 0})


# ---- building ---------------------------------------------------------------------------------


def test_return_structures() -> None:
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


def test_control_dependencies_none_leaves_the_branch() -> None:
    made: list[Any] = []

    def branch() -> Any:
        with tf.control_dependencies(None):
            made.append(tf.constant(1.0))
        return tf.identity(made[0])

    tf.cond(tf.placeholder(tf.bool, []), branch, lambda: tf.constant(2.0))
    assert made[0].op._get_control_flow_context() is None
    assert run(made[0]) == 1.0


def test_enters_and_switches_stay_with_their_source() -> None:
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


def test_smart_cond() -> None:
    smart = tf.contrib.framework.smart_cond
    assert smart(True, lambda: 1, lambda: 2) == 1
    assert smart(tf.constant(False), lambda: 1, lambda: 2) == 2
    assert "Switch" not in types()
    p = tf.placeholder(tf.bool, [])
    assert run(smart(p, lambda: tf.constant(1), lambda: tf.constant(2)), {p: False}) == 2


@pytest.mark.parametrize("index, result", [(0, 10), (1, 21), (2, -1), (7, -1)])
def test_switch_case(index: int, result: int) -> None:
    i = tf.constant(index)
    branches = [lambda: tf.constant(10), lambda: tf.constant(21)]
    assert run(tf.switch_case(i, branches, default=lambda: tf.constant(-1))) == result


@pytest.mark.parametrize("name", ["cond_nested", "while_nested", "cond_in_while", "while_in_cond", "while"])
@pytest.mark.parametrize("scope", ["", "scope"])
def test_contexts_travel_in_a_meta_graph(name: str, scope: str) -> None:
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


def test_imports_into_conds_and_loops() -> None:
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


# ---- gradients --------------------------------------------------------------------------------


GRADIENT_CASES = {
    "cond": lambda x: tf.cond(x[0] > 1.0, lambda: x * x, lambda: tf.sin(x)),
    "cond other branch": lambda x: tf.cond(x[0] > 9.0, lambda: x * x, lambda: tf.sin(x)),
    "nested cond": lambda x: tf.cond(x[0] > 1.0, lambda: tf.cond(x[1] > 9.0, lambda: x, lambda: x * x[0]), lambda: -x),
    "while": lambda x: tf.while_loop(lambda i, y: i < 4, lambda i, y: (i + 1, y * x + tf.sin(y)), [0, x])[1],
    "while shape": lambda x: tf.while_loop(
        lambda i, y: i < 3,
        lambda i, y: (i + 1, tf.concat([y, x * y[:1]], 0)),
        [0, x],
        shape_invariants=[tf.TensorShape([]), tf.TensorShape([None])],
    )[1],
    "nested while": lambda x: tf.while_loop(
        lambda i, y: i < 3,
        lambda i, y: (i + 1, tf.while_loop(lambda j, z: j < i, lambda j, z: (j + 1, z * x), [0, y])[1] + x),
        [0, x],
    )[1],
    "cond in while": lambda x: tf.while_loop(
        lambda i, y: i < 4,
        lambda i, y: (i + 1, tf.cond(tf.equal(i % 2, 0), lambda: y * x, lambda: y + tf.exp(x))),
        [0, x],
    )[1],
    "while in cond": lambda x: tf.cond(
        x[0] > 1.0, lambda: tf.while_loop(lambda y: y[0] < 20.0, lambda y: y * x, [x]), lambda: x
    ),
    "nested cond in while": lambda x: tf.while_loop(
        lambda i, y: i < 4,
        lambda i, y: (i + 1, tf.cond(i < 2, lambda: tf.cond(i < 1, lambda: y * x, lambda: y * y), lambda: y + x * x)),
        [0, x],
    )[1],
    "while in cond in while": lambda x: tf.while_loop(
        lambda i, y: i < 3,
        lambda i, y: (
            i + 1,
            tf.cond(
                i > 0, lambda: tf.while_loop(lambda j, z: j < i, lambda j, z: (j + 1, z * x), [0, y])[1], lambda: y + x
            ),
        ),
        [0, x],
    )[1],
    "gather in while": lambda x: tf.while_loop(
        lambda i, y: i < 3, lambda i, y: (i + 1, y * tf.gather(x, [i % 2, 1])), [0, x]
    )[1],
    "map_fn": lambda x: tf.map_fn(lambda a: a * a * x[0], x),
    "nested map_fn": lambda x: tf.map_fn(lambda a: tf.map_fn(lambda b: a * b * b, x), x),
    "scan": lambda x: tf.scan(lambda a, b: a * b + tf.sin(a), x),
    "scan reverse": lambda x: tf.scan(lambda a, b: a * b + x[0], x, initializer=x[1], reverse=True),
    "foldl": lambda x: tf.foldl(lambda a, b: a * b + b, x),
    "foldr": lambda x: tf.foldr(lambda a, b: a * b + b, x, initializer=x[0]),
    "tensor array": lambda x: tf.TensorArray(tf.float64, 3).write(0, x).write(2, x * x).write(1, tf.sin(x)).concat(),
    "tensor array read twice": lambda x: (lambda array: array.read(0) * array.read(1) + array.read(0))(
        tf.TensorArray(tf.float64, 2, clear_after_read=False).unstack(x)
    ),
}


@pytest.mark.parametrize("name", GRADIENT_CASES)
@pytest.mark.parametrize("known_shape", [True, False])
def test_gradient_agrees_with_differences(name: str, known_shape: bool) -> None:
    x = tf.placeholder(tf.float64, [2] if known_shape else [None])
    y = GRADIENT_CASES[name](x)
    weights = tf.constant(np.linspace(0.3, 1.1, 60))
    flat = tf.reshape(y, [-1])
    loss = tf.reduce_sum(flat * weights[: tf.size(flat)])
    (grad,) = tf.gradients(loss, [x])
    if isinstance(grad, tf.IndexedSlices):
        grad = tf.convert_to_tensor(grad)
    point, step = np.array([1.3, 0.7]), 1e-6
    with tf.Session() as session:
        found = session.run(grad, {x: point})
        for axis in np.eye(2):
            ends = [session.run(loss, {x: point + side * step * axis}) for side in (1, -1)]
            np.testing.assert_allclose(found @ axis, (ends[0] - ends[1]) / (2 * step), rtol=1e-5, atol=1e-7)


def test_second_order_through_conds() -> None:
    x = tf.placeholder(tf.float64, [])
    y = tf.cond(x > 1.0, lambda: x**3.0, lambda: tf.cond(x > 0.0, lambda: x * x, lambda: x))
    first = tf.gradients(y, x)[0]
    second = tf.gradients(first, x)[0]
    assert run([first, second], {x: 2.0}) == [12.0, 12.0]
    assert run([first, second], {x: 0.5}) == [1.0, 2.0]


def test_two_gradients_of_one_loop() -> None:
    x = tf.constant([1.0, 2.0])
    y = tf.map_fn(lambda a: a * a, x)
    first, second = tf.gradients(y, x)[0], tf.gradients(y * 3.0, x)[0]
    np.testing.assert_allclose(run([first, second, first]), [[2.0, 4.0], [6.0, 12.0], [2.0, 4.0]])


# ---- variables --------------------------------------------------------------------------------


@pytest.mark.parametrize("use_resource", [False, True])
def test_variables_in_loops(use_resource: bool) -> None:
    with tf.variable_scope("s", use_resource=use_resource):
        v = tf.get_variable("v", initializer=[1.0, 2.0])
    _, y = tf.while_loop(lambda i, y: i < 3, lambda i, y: (i + 1, y * v), [0, tf.constant([1.0, 1.0])])
    (grad,) = tf.gradients(y, [v])
    np.testing.assert_allclose(run([y, grad]), [[1.0, 8.0], [3.0, 12.0]])


@pytest.mark.parametrize("use_resource", [False, True])
@pytest.mark.parametrize("taken, expected", [(True, [2.0, 4.0]), (False, [0.0, 0.0])])
def test_variables_in_conds(use_resource: bool, taken: bool, expected: list[float]) -> None:
    with tf.variable_scope("s", use_resource=use_resource):
        v = tf.get_variable("v", initializer=[1.0, 2.0])
    p = tf.placeholder(tf.bool, [])
    y = tf.cond(p, lambda: v * v, lambda: tf.constant([1.0, 1.0]))
    (grad,) = tf.gradients(y, [v])
    np.testing.assert_allclose(run(grad, {p: taken}), expected)


@pytest.mark.parametrize("use_resource", [False, True])
def test_assignments_in_loops_and_conds(use_resource: bool) -> None:
    with tf.variable_scope("s", use_resource=use_resource):
        v = tf.get_variable("v", initializer=1.0)

    def body(i: Any) -> Any:
        change = tf.cond(i < 2, lambda: tf.assign_add(v, 1.0), lambda: tf.assign(v, v.read_value() * 2.0))
        with tf.control_dependencies([change]):
            return i + 1

    loop = tf.while_loop(lambda i: i < 4, body, [0])
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        assert session.run(loop) == 4
        assert session.run(v) == 12.0


def test_a_loop_sees_what_it_assigns() -> None:
    v = tf.Variable(0)

    def body(i: Any) -> Any:
        with tf.control_dependencies([tf.assign_add(v, 2)]):
            return tf.identity(i + 1)

    loop = tf.while_loop(lambda i: v < 10, body, [0], parallel_iterations=1)
    assert run(loop) == 5


def test_embedding_in_a_loop_has_sparse_gradients() -> None:
    v = tf.get_variable("v", initializer=np.arange(6.0, dtype=np.float32).reshape(3, 2), use_resource=True)
    _, y = tf.while_loop(
        lambda i, y: i < 3, lambda i, y: (i + 1, y + tf.reduce_sum(tf.gather(v, [i, 0]))), [0, tf.constant(0.0)]
    )
    (grad,) = tf.gradients(y, [v])
    assert isinstance(grad, tf.IndexedSlices)
    np.testing.assert_allclose(run(tf.convert_to_tensor(grad)), [[4.0, 4.0], [1.0, 1.0], [1.0, 1.0]])


def test_training_through_a_loop() -> None:
    w = tf.get_variable("w", initializer=0.5)
    _, y = tf.while_loop(lambda i, y: i < 3, lambda i, y: (i + 1, y * w), [0, tf.constant(1.0)])
    loss = tf.square(y - 8.0)
    train = tf.train.GradientDescentOptimizer(0.001).minimize(loss)
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        for _ in range(300):
            session.run(train)
        assert abs(session.run(w) - 2.0) < 1e-3


# ---- the executor -----------------------------------------------------------------------------


def test_a_control_input_of_a_loop_may_be_fed() -> None:
    b = tf.placeholder(tf.bool)
    with tf.control_dependencies([b]):
        loop = tf.while_loop(lambda x: x < 10, lambda x: x + 1, [tf.constant(0)])
    assert run(loop, {b: True}) == 10


def test_an_inner_loop_that_starts_with_an_invariant() -> None:
    n = tf.constant(0)

    def inner(s: Any) -> Any:
        return tf.while_loop(lambda i, s: i < 10, lambda i, s: (i + 1, i + s), [n, s])[1]

    assert run(tf.while_loop(lambda x: x < 200, lambda x: x + inner(n), [n])) == 225


def test_a_loop_of_raw_ops_whose_predicate_is_there_once() -> None:
    raw = tf.raw_ops
    stop = raw.Enter(data=tf.constant(False), frame_name="f")
    n = raw.Enter(data=tf.constant(10), frame_name="f")
    merged = raw.Merge(inputs=[n, n])[0]
    switched = raw.Switch(data=merged, pred=stop)
    merged.op._update_input(1, raw.NextIteration(data=switched[0]))
    assert run(raw.Exit(data=switched[0])) == 10


def test_ref_select_and_ref_identity() -> None:
    a, b = tf.Variable([1.0, 2.0]), tf.Variable([3.0, 4.0])
    index = tf.placeholder(tf.int32, [])
    chosen = tf.raw_ops.RefSelect(index=index, inputs=[a._ref(), b._ref()])
    assert chosen.shape == [2]
    change = tf.raw_ops.AssignAdd(ref=tf.raw_ops.RefIdentity(input=chosen), value=[1.0, 1.0])
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        session.run(change, {index: 1})
        np.testing.assert_allclose(session.run([a, b]), [[1.0, 2.0], [4.0, 5.0]])
        with pytest.raises(tf.errors.InvalidArgumentError, match=r"Index must be in the range \[0, 2\) but got 2"):
            session.run(chosen, {index: 2})


def test_a_loop_without_end_is_ended() -> None:
    forever = tf.while_loop(lambda x: True, lambda x: x + 1, [0])
    with tf.Session() as session, pytest.raises(tf.errors.DeadlineExceededError, match="a while loop is under way"):
        session.run(forever, options=tf.RunOptions(timeout_in_ms=20))


def test_a_loop_that_waits() -> None:
    queue = tf.FIFOQueue(-1, tf.int32, shapes=[[]])

    def body(i: Any) -> Any:
        with tf.control_dependencies([queue.enqueue(i)]):
            return i + 1

    loop = tf.while_loop(lambda i: i < 4, body, [0], parallel_iterations=1)
    taken = queue.dequeue_many(4)
    with tf.Session() as session:
        assert session.run(loop) == 4
        assert session.run(taken).tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("taken, expected", [(True, 8.0), (False, 0.0)])
def test_gradients_on_another_device_than_their_loop(taken: bool, expected: float) -> None:
    pred, x = tf.placeholder(tf.bool, []), tf.constant(1.0)
    with tf.device("/cpu:0"):
        _, z = tf.while_loop(
            lambda i, _: i < 3, lambda i, x: (i + 1, tf.cond(pred, lambda: x * 2.0, lambda: 10.0)), [0, x]
        )
    with tf.device("/cpu:1"):
        (grad,) = tf.gradients(z, x)
    with tf.Session(config=tf.ConfigProto(device_count={"CPU": 2})) as session:
        assert session.run(grad, {pred: taken}) == expected


def test_a_loop_variable_may_go_on_as_a_reference() -> None:
    v = tf.Variable([3.0, 4.0, 5.0])
    _, last = tf.while_loop(
        lambda i, _: i < 3, lambda i, _: (i + 1, tf.scatter_update(v, i, 10.0)), [0, tf.identity(v)]
    )
    assert run(last).tolist() == [10.0, 10.0, 10.0]


@pytest.mark.parametrize("quietly", [True, False])
def test_abort_ends_the_process(quietly: bool) -> None:
    text = f"import tfmini as tf; tf.Session().run(tf.raw_ops.Abort(error_msg='why', exit_without_error={quietly}))"
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, timeout=60, check=False)
    assert (done.returncode == 0) is quietly and b"why" in done.stderr
