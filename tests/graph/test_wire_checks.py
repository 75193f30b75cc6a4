"""Nodes from another process whose attrs do not fit their inputs, or ask for too much."""

from __future__ import annotations

from typing import Any

import pytest

import tfmini as tf
from tfmini.graph.node import Node


def received(op: str, inputs: int, **attrs: Any) -> Node:
    return Node.from_wire(Node("n", op, "", [("a", 0)] * inputs, (), attrs).to_wire())


def unpack(num: int, inputs: int = 1) -> Node:
    return received("Unpack", inputs, num=num, T=tf.float32, axis=0)


def test_a_node_may_ask_for_many_outputs_but_not_for_any_number() -> None:
    assert unpack(0).attrs["num"] == 0 and unpack(1 << 16).attrs["num"] == 1 << 16
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"'num' of the node 'n' \(Unpack\) asks for 65537"):
        unpack((1 << 16) + 1)
    with pytest.raises(tf.errors.InvalidArgumentError, match="negative length"):
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
