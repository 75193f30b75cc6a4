"""Functions of a GraphDef's library: calls, conditionals and loops of them become ops."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tfmini as tf
from tfmini import protos
from tfmini.graph.functions import body_of, function_def, without_calls

FLOAT, BOOL = tf.float32.as_datatype_enum, tf.bool.as_datatype_enum


def _function(name: str, build: Any, *kinds: Any, ends: tuple[str, ...] = ()) -> Any:
    """The FunctionDef of a Python function of scalar tensors."""
    with tf.Graph().as_default() as graph:
        given = {f"X_{number}": tf.placeholder(kind, []) for number, kind in enumerate(kinds)}
        results = [tf.identity(result) for result in build(*given.values())]
    return function_def(name, graph.get_operations(), given, results, ends)


def _node(graph_def: Any, name: str, op: str, inputs: list[str], **attrs: Any) -> Any:
    node = graph_def.node.add(name=name, op=op, input=inputs)
    for key, value in attrs.items():
        if isinstance(value, str):
            node.attr[key].func.name = value
        else:
            node.attr[key].list.type.extend(value)
    return node


def _graph(*functions: Any) -> Any:
    with tf.Graph().as_default() as graph:
        tf.placeholder(tf.float32, [], "x")
        tf.placeholder(tf.bool, [], "p")
    graph_def = graph.as_graph_def()
    graph_def.library.function.extend(functions)
    return graph_def


def _run(graph_def: Any, fetch: str, **feeds: Any) -> Any:
    with tf.Graph().as_default(), tf.Session() as session:
        tf.import_graph_def(graph_def, name="")
        return session.run(fetch, {f"{name}:0": value for name, value in feeds.items()})


def test_a_call_has_the_results_of_the_body() -> None:
    both = _function("both", lambda x, y: (x + y, tf.split(tf.stack([x, y]), 2)[1]), tf.float32, tf.float32)
    assert [argument.name for argument in both.signature.input_arg] == ["x_0", "x_1"]
    assert "split:output:1" in {text for node in both.node_def for text in node.input}
    graph_def = _graph(both)
    _node(graph_def, "call", "PartitionedCall", ["x", "x"], f="both", Tin=[FLOAT] * 2, Tout=[FLOAT] * 2)
    _node(graph_def, "named", "both", ["call", "x", "^call"])
    assert _run(graph_def, "named:0", x=3.0) == 9.0
    np.testing.assert_array_equal(_run(graph_def, "call:1", x=3.0), [3.0])
    assert not without_calls(graph_def).library.function


def test_a_call_inside_a_function_is_expanded_too() -> None:
    double = _function("double", lambda x: [x * 2.0], tf.float32)
    outer: Any = protos.FunctionDef()
    outer.signature.CopyFrom(double.signature)
    outer.signature.name = "outer"
    inner = outer.node_def.add(name="inner", op="StatefulPartitionedCall", input=["x_0"])
    inner.attr["f"].func.name = "double"
    outer.ret["identity"] = "inner:output:0"
    outer.control_ret["inner"] = "inner"
    graph_def = _graph(double, outer)
    _node(graph_def, "call", "outer", ["x"])
    assert _run(graph_def, "call:0", x=3.0) == 6.0


def test_a_conditional_runs_one_branch() -> None:
    fine = _function("fine", lambda x: [x + 1.0], tf.float32)

    def failing(x: Any) -> Any:
        with tf.control_dependencies([tf.Assert(x < 0.0, [x])]):
            return [tf.constant(7.0)]

    graph_def = _graph(fine, _function("failing", failing, tf.float32))
    branches = {"then_branch": "fine", "else_branch": "failing"}
    _node(graph_def, "c", "If", ["p", "x"], Tin=[FLOAT], Tout=[FLOAT], **branches)
    assert _run(graph_def, "c:0", x=3.0, p=True) == 4.0
    assert _run(graph_def, "c:0", x=-3.0, p=False) == 7.0
    with pytest.raises(tf.errors.InvalidArgumentError, match="assertion failed"):
        _run(graph_def, "c:0", x=3.0, p=False)


def test_a_loop_keeps_what_its_body_does_not_change() -> None:
    condition = _function("condition", lambda x, step: [x < 10.0], tf.float32, tf.float32)
    body = _function("body", lambda x, step: [x + step * tf.constant(1.0), step], tf.float32, tf.float32)
    graph_def = _graph(condition, body)
    _node(graph_def, "w", "StatelessWhile", ["x", "x"], T=[FLOAT] * 2, cond="condition", body="body")
    assert _run(graph_def, "w:0", x=4.0) == 12.0
    assert _run(graph_def, "w:1", x=4.0) == 4.0
    enters = [node for node in without_calls(graph_def).node if node.op == "Enter"]
    assert [node.attr["is_constant"].b for node in enters] == [False, True]


def test_a_body_tells_its_arguments_results_and_ends() -> None:
    def build(x: Any) -> Any:
        with tf.control_dependencies([tf.Assert(x > 0.0, [x])]):
            tf.no_op("end")
        return [x * 2.0]

    body, arguments, results, ends = body_of(_graph(_function("f", build, tf.float32, ends=("end",))).library, "f")
    assert (arguments, results, ends) == (["argument/x_0"], ["Identity:0"], ["end"])
    assert "Assert" in {node.op for node in body.node}


@pytest.mark.parametrize(
    ("name", "op", "inputs", "message"),
    [
        ("c", "PartitionedCall", ["x"], "is not defined in the library"),
        ("c", "itself", ["x"], "calls itself"),
        ("c", "itself", [], "gets 0 of 1 arguments"),
    ],
)
def test_calls_that_are_wrong_are_refused(name: str, op: str, inputs: list[str], message: str) -> None:
    itself: Any = protos.FunctionDef()
    itself.signature.name = "itself"
    itself.signature.input_arg.add(name="x", type=FLOAT)
    itself.node_def.add(name="again", op="itself", input=["x"])
    graph_def = _graph(itself)
    _node(graph_def, name, op, inputs, f="absent")
    with pytest.raises(ValueError, match=message):
        _run(graph_def, name)
