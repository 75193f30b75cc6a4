"""Nodes from another process whose attrs do not fit their inputs, or ask for too much."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tfmini as tf
from tfmini.graph.graph_def import from_proto, to_proto
from tfmini.graph.node import FunctionBody, Node
from tfmini.graph.op_def import AttrDef
from tfmini.graph.op_types import OPS, load_ops


def received(op: str, inputs: int, **attrs: Any) -> Node:
    return Node.from_wire(Node("n", op, "", [("a", 0)] * inputs, (), attrs).to_wire())


def unpack(num: int, inputs: int = 1) -> Node:
    return received("Unpack", inputs, num=num, T=tf.float32, axis=0)


def test_a_node_may_ask_for_many_outputs_but_not_for_any_number() -> None:
    assert unpack(0).attrs["num"] == 0 and unpack(1 << 16).attrs["num"] == 1 << 16
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"'num' of the node 'n' \(Unpack\) asks for 65537"):
        unpack((1 << 16) + 1)
    with pytest.raises(tf.errors.InvalidArgumentError, match="'num' of node 'n' .* must be at least 0, got -1"):
        unpack(-1)


def test_a_node_has_as_many_inputs_as_its_attrs_say() -> None:
    assert len(received("Pack", 2, N=2, T=tf.float32, axis=0).inputs) == 2
    for count in (1, 10**9):
        with pytest.raises(tf.errors.InvalidArgumentError, match=f"has 2 inputs; by its attrs it has {count}"):
            received("Pack", 2, N=count, T=tf.float32, axis=0)
    with pytest.raises(tf.errors.InvalidArgumentError, match="has 0 inputs; by its attrs it has 1"):
        unpack(2, inputs=0)
    with pytest.raises(tf.errors.InvalidArgumentError, match="has no attr 'N'"):
        received("Pack", 2, T=tf.float32, axis=0)


def test_a_constant_has_the_type_that_it_says() -> None:
    text = np.array([b"a"], object)
    assert received("Const", 0, value=text, dtype=tf.string).attrs["value"].tolist() == [b"a"]
    wrong: list[tuple[Any, Any]] = [(np.ones(2), tf.float32), (text, tf.int32), (text, tf.resource), (3, tf.int64)]
    for value, dtype in wrong:
        with pytest.raises(tf.errors.InvalidArgumentError, match=f"says that it is {dtype.name}, but its value is"):
            received("Const", 0, value=value, dtype=dtype)


def test_no_attr_is_a_type_of_references() -> None:
    with pytest.raises(tf.errors.InvalidArgumentError, match="Attr 'T' of node 'n' .* must be of kind type"):
        received("Identity", 1, T=tf.as_dtype("float32_ref"))


def test_names_of_a_graph_are_different() -> None:
    nodes = [Node("n", "NoOp"), Node("n", "NoOp")]
    with pytest.raises(tf.errors.InvalidArgumentError, match="Node name 'n' already exists in the Graph"):
        FunctionBody.from_wire(FunctionBody("f", nodes, [], [], []).to_wire())


POOL = {"ksize": [1] * 4, "strides": [1] * 4, "padding": b"SAME", "T": tf.float32}


def test_an_attr_is_among_the_allowed_values_and_not_below_its_minimum() -> None:
    assert received("AvgPool", 1, **POOL).attrs["data_format"] == b"NHWC"  # the default of an attr that is absent
    wrong = {"ksize": [1] * 3, "strides": [], "padding": b"EXPLICIT", "T": tf.int32, "data_format": b"NCHWC"}
    for name, value in wrong.items():
        with pytest.raises(tf.errors.InvalidArgumentError, match=f"Attr '{name}' of node 'n'"):
            received("AvgPool", 1, **{**POOL, name: value})
    with pytest.raises(tf.errors.InvalidArgumentError, match="'padding'"):
        received("AvgPool", 1, **{name: value for name, value in POOL.items() if name != "padding"})


def test_so_it_is_inside_functions() -> None:
    body = FunctionBody("f", [Node("n", "AvgPool", "", [], [], {**POOL, "ksize": [1]})], [], [], [])
    for back in (lambda: FunctionBody.from_wire(body.to_wire()), lambda: from_proto(to_proto("func", body))):
        with pytest.raises(tf.errors.InvalidArgumentError, match="Attr 'ksize' of node 'n'"):
            back()


def test_every_declared_limit_is_checked() -> None:
    load_ops()
    limited = [
        (op, attr) for op in OPS for attr in OPS[op].op_def.attrs.values() if attr.allowed or (attr.minimum or 0) > 0
    ]
    assert len(limited) > 500
    for op, attr in limited:
        attrs = {other.name: outside(attr) for other in OPS[op].op_def.attrs.values() if other is attr}
        with pytest.raises(tf.errors.InvalidArgumentError, match=f"Attr '{attr.name}' of node 'n'"):
            received(op, 0, **attrs)


def outside(attr: AttrDef) -> Any:
    """A value of the right kind that the declaration excludes."""
    kind = attr.kind.removeprefix("list(").removesuffix(")")
    item = {"string": b"?", "type": tf.resource, "int": (attr.minimum or 0) - 1}.get(kind)
    if attr.kind == "list(type)" and attr.allowed is None:
        return []
    return item if not attr.kind.startswith("list(") else [] if attr.allowed is None else [item]
