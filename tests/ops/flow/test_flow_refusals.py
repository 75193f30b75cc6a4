"""What conds, loops and the functions made of them refuse, when they are built and when they run."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

import tfmini as tf
from tests.ops.session_run import run
from tfmini.ops.flow.flow_ops import merge

# What is refused: the error, what it says, and the call, of a bool placeholder, a float and an int.
Refusal = tuple[type, str, Callable[[Any, Any, Any], Any]]

CONDS: dict[str, Refusal] = {
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
        "Incompatible return values of true_fn and false_fn: The two structures don't have the same nested structure",
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
}

LOOPS: dict[str, Refusal] = {
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
        lambda p, x, i: tf.while_loop(lambda m: p, lambda m: m, [tf.constant([1, 2])], [tf.TensorShape([3])]),
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
}

OTHERS: dict[str, Refusal] = {
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
        lambda p, x, i: merge([None, x]),
    ),
    "smart_cond": (
        TypeError,
        "`true_fn` must be callable",
        lambda p, x, i: tf.contrib.framework.smart_cond(p, 1, 2),
    ),
}

REFUSALS = CONDS | LOOPS | OTHERS


@pytest.mark.parametrize("what", REFUSALS)
def test_what_tensorflow_refuses_is_refused_with_its_text(what: str) -> None:
    kind, text, build = REFUSALS[what]
    with pytest.raises(kind) as caught:
        build(tf.placeholder(tf.bool, []), tf.constant(1.0), tf.constant(1))
    assert text in str(caught.value)


def test_a_value_cannot_be_used_outside_its_loop() -> None:
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
    with pytest.raises(
        ValueError, match=r"not fetchable\. It is inside of a tf.cond or tf.while_loop, .*: return it from"
    ):
        run(inside[0])
    with pytest.raises(ValueError, match="may not be fed"):
        run(loop, {tf.get_default_graph().get_tensor_by_name("while/Enter:0"): 1})


def test_gradients_that_tensorflow_refuses_are_refused() -> None:
    x = tf.constant(2.0)
    y = tf.while_loop(lambda y: y < 100.0, lambda y: y * x, [x])
    with pytest.raises(TypeError, match="Second-order gradient for while loops not supported."):
        tf.gradients(tf.gradients(y, x)[0], x)
    with pytest.raises(ValueError, match="We do not support taking the gradient wrt or through the initial value"):
        tf.while_loop(lambda y: y < 3.0, lambda y: tf.gradients(y * y, x), [x])


def test_case_checks_in_the_step_how_many_conditions_are_true() -> None:
    x = tf.placeholder(tf.int32, [])
    both = tf.case([(x > 1, lambda: x), (x > 2, lambda: -x)], default=lambda: x, exclusive=True)
    none = tf.case([(x > 1, lambda: x), (x > 2, lambda: -x)])
    assert run(both, {x: 2}) == 2
    with pytest.raises(tf.errors.InvalidArgumentError, match="more than 1 conditions"):
        run(both, {x: 3})
    with pytest.raises(tf.errors.InvalidArgumentError, match="None of conditions evaluated as True"):
        run(none, {x: 0})


def test_inputs_from_different_frames_are_named() -> None:
    data = tf.placeholder(tf.float32, [])
    enters = [tf.raw_ops.Enter(data=data, frame_name=name) for name in ("one", "two")]
    pattern = "has inputs from different frames.*node Enter .*'one'.*node Enter_1 .*'two'"
    with tf.Session() as session, pytest.raises(tf.errors.InvalidArgumentError, match=pattern):
        session.run(tf.add(*enters), {data: 1.0})


def test_a_value_that_is_fed_into_a_loop_is_refused() -> None:
    """A client's value has no iterations; the compiler had looked for it in vain (KeyError)."""
    with tf.Graph().as_default() as graph:
        tf.while_loop(lambda i: i < tf.placeholder_with_default(3, [], name="limit"), lambda i: i + 1, [0], name="loop")
        copy = tf.Graph()
        with copy.as_default():  # as in an imported graph, whose loops are only nodes
            tf.import_graph_def(graph.as_graph_def(), name="")
    limit = next(op for op in copy.get_operations() if op.name.endswith("limit")).outputs[0]
    exit_op = next(op for op in copy.get_operations() if op.type == "Exit")
    with tf.Session(graph=copy) as session:
        assert session.run(exit_op.outputs[0]) == 3
        with pytest.raises(tf.errors.InvalidArgumentError, match="has inputs from different frames"):
            session.run(exit_op.outputs[0], {limit: 5})


def _loop_with_an_update(where: Any) -> tuple[tf.Operation, tf.Tensor, tf.Variable]:
    """The update in a loop's body, the loop's result, and the weight that the body multiplies with."""
    found = []
    weight = tf.get_variable("weight", [], initializer=tf.ones_initializer())
    count = tf.get_variable("count", [], initializer=tf.zeros_initializer(), trainable=False, use_resource=where)

    def body(i: Any, a: Any) -> Any:
        update = tf.assign_add(count, 1.0, name="update")
        found.append(update if isinstance(update, tf.Operation) else update.op)
        return i + 1, a * weight

    result = tf.while_loop(lambda i, a: i < 3, body, [0, 1.0], name="loop")[1]
    return found[0], result, weight


@pytest.mark.parametrize("use_resource", [False, True])
def test_an_op_outside_that_waits_for_one_inside_names_both_and_their_frames(use_resource: bool) -> None:
    update, result, _ = _loop_with_an_update(use_resource)
    with tf.control_dependencies([update]):
        outside = tf.identity(result, name="outside")
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        with pytest.raises(tf.errors.InvalidArgumentError) as caught:
            session.run(outside)
    text = caught.value.message
    assert "node outside (" in text and "has inputs from different frames" in text
    assert re.search(r"node loop/Exit_1 \(.*is in frame ''", text)
    assert re.search(rf"node {update.name} \(.*is in frame 'loop/while_context'", text)


@pytest.mark.parametrize("use_resource", [False, True])
def test_training_after_an_update_in_a_loop_says_what_to_do(use_resource: bool) -> None:
    update, result, weight = _loop_with_an_update(use_resource)
    with tf.control_dependencies([update]):
        train = tf.train.GradientDescentOptimizer(0.1).minimize(result, var_list=[weight])
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        with pytest.raises(tf.errors.InvalidArgumentError) as caught:
            session.run(train)
    text = caught.value.message
    assert "is in frame ''" in text and "is in frame 'loop/while_context'" in text
    assert f"'{update.name}' changes a variable in each iteration of a while loop" in text
    assert "leave it out of the control dependencies of the train op" in text


@pytest.mark.parametrize("loop", ["while_loop", "map_fn", "dynamic_rnn"])
def test_batch_normalization_in_a_loop_says_what_to_do(loop: str) -> None:
    def normalize(x: Any) -> Any:
        return tf.layers.batch_normalization(x, training=True, name="norm", reuse=tf.AUTO_REUSE)

    class Cell(tf.nn.rnn_cell.BasicRNNCell):  # type: ignore[misc]
        def call(self, inputs: Any, state: Any) -> Any:
            output, state = super().call(inputs, state)
            return normalize(output), state

    x = tf.ones([3, 4])
    if loop == "while_loop":
        y = tf.while_loop(lambda i, a: i < 3, lambda i, a: (i + 1, normalize(a)), [0, x])[1]
    elif loop == "map_fn":
        y = tf.map_fn(lambda row: normalize(tf.reshape(row, [2, 2])), x)
    else:
        y = tf.nn.dynamic_rnn(Cell(2), tf.ones([2, 3, 4]), dtype=tf.float32)[0]
    with tf.control_dependencies(tf.get_collection(tf.GraphKeys.UPDATE_OPS)):
        train = tf.train.GradientDescentOptimizer(0.1).minimize(tf.reduce_sum(y))
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        with pytest.raises(tf.errors.InvalidArgumentError, match=r"AssignMovingAvg.*UPDATE_OPS \(batch normalisation"):
            session.run(train)


def _imported_beside_a_loop(op: str, inputs: list[str]) -> None:
    """Imports a loop together with a node ``out`` outside of it, which can use what is inside."""
    with tf.Graph().as_default() as graph:
        step = lambda i, a: (i + 1, tf.add(a, 1.0, name="inner"))  # noqa: E731
        tf.while_loop(lambda i, a: i < 3, step, [0, 0.0], name="loop")
        tf.constant(2.0, name="two")
    node = graph.as_graph_def()
    out = node.node.add(name="out", op=op, input=inputs)
    if op != "NoOp":
        out.attr["T"].type = tf.float32.as_datatype_enum
    tf.import_graph_def(node, name="")


@pytest.mark.parametrize(
    ("op", "inputs"),
    [("Mul", ["loop/inner", "two"]), ("Mul", ["two", "loop/inner"]), ("Neg", ["two", "^loop/inner"]),
     ("NoOp", ["^loop/Exit", "^loop/inner"])],
)  # fmt: skip
def test_imported_ops_outside_a_loop_that_need_one_inside(op: str, inputs: list[str]) -> None:
    _imported_beside_a_loop(op, inputs)
    with tf.Session() as session, pytest.raises(tf.errors.InvalidArgumentError) as caught:
        session.run("out" if op == "NoOp" else "out:0")
    assert "node out (" in caught.value.message and "node loop/inner (" in caught.value.message
    assert "is in frame ''" in caught.value.message and "is in frame 'loop/while_context'" in caught.value.message


def test_a_fetch_inside_a_loop_is_refused() -> None:
    _imported_beside_a_loop("Neg", ["loop/inner"])
    with tf.Session() as session, pytest.raises(tf.errors.InvalidArgumentError, match="out .*fetch the loop's result"):
        session.run("out:0")
