"""Types along the edges of graphs from another process."""

from __future__ import annotations

import pytest

import tfmini as tf
from tfmini.graph.node import FunctionBody, Node, check_edges

FLOAT = Node("x", "Placeholder", "", [], [], {"dtype": tf.float32, "shape": None})
VARIABLE = Node("v", "VariableV2", "", [], [],
                {"dtype": tf.float32, "shape": (), "container": b"", "shared_name": b""})  # fmt: skip
RECEIVED = Node("r", "_Recv", "", [], [], {"tensor_type": tf.int32})


def unary(op: str, source: str, dtype: tf.DType, index: int = 0) -> Node:
    return Node("n", op, "", [(source, index)], [], {"T": dtype})


def check(node: Node) -> None:
    nodes = [FLOAT, VARIABLE, RECEIVED, node]
    check_edges(nodes, {each.name: each for each in nodes})


def test_an_input_has_the_type_that_the_attrs_say() -> None:
    for right in (unary("Neg", "x", tf.float32), unary("Neg", "v", tf.float32), unary("Neg", "r", tf.int32),
                  unary("Neg", "elsewhere", tf.int32)):  # fmt: skip
        check(right)
    for wrong, text in (
        (unary("Neg", "x", tf.int32), "Input 0 of node n was passed float32 from x:0 incompatible with expected int32"),
        (unary("Neg", "r", tf.float32), "was passed int32 from r:0"),
        (unary("Neg", "x", tf.float32, 3), "takes output 3 of 'x', which has 1 outputs"),
        (unary("RefIdentity", "x", tf.float32), "expected float32_ref"),
    ):
        with pytest.raises(tf.errors.InvalidArgumentError, match=text):
            check(wrong)


def test_so_it_is_inside_functions() -> None:
    body = FunctionBody("f", [FLOAT, unary("Neg", "x", tf.int32)], ["x"], [("n", 0)], [])
    with pytest.raises(tf.errors.InvalidArgumentError, match="incompatible with expected int32"):
        FunctionBody.from_wire(body.to_wire())
