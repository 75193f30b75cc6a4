"""What comes into an iteration together."""

from __future__ import annotations

from typing import Any

import numpy as np

import tfmini as tf
from tfmini.graph.node import Node
from tfmini.runtime.compiler.loops import split_entries, split_rounds


def _loop(*nodes: tuple[str, str]) -> dict[str, Node]:
    return {name: Node(name, "NoOp", inputs=[(s, 0) for s in sources.split()]) for name, sources in nodes}


def test_what_one_segment_computes_goes_round_together() -> None:
    """A counter, two values that wait for one answer, and one that is made of both of them."""
    nodes = _loop(
        ("i", ""), ("a", ""), ("b", ""), ("c", ""), ("wait", "i"), ("i+", "i"), ("a+", "a wait"), ("b+", "a wait"),
        ("c+", "a b"),
    )  # fmt: skip
    variables = {name: (0, f"{name}+") for name in "iabc"}
    rounds, leads = split_rounds(nodes, variables, {}, lambda node: node.name == "wait", one_decides=False)
    assert sorted(map(sorted, rounds)) == [["a", "b"], ["c"], ["i"]]
    assert not leads


def test_a_round_that_all_need_leads() -> None:
    nodes = _loop(("i", ""), ("a", ""), ("wait", "i"), ("i+", "i"), ("a+", "i a wait"))
    variables = {"a": (0, "a+"), "i": (0, "i+")}
    assert split_rounds(nodes, variables, {}, lambda node: node.name == "wait", True) == ([["i"], ["a"]], True)
    assert split_rounds(nodes, variables, {}, lambda node: False, True)[1]


def test_inputs_enter_with_those_that_may_be_as_late() -> None:
    assert split_entries([frozenset({-1}), frozenset(), frozenset({-1}), frozenset({-2, 3})]) == [1, 0, 1, 2]


def test_a_loop_that_is_lowered_twice_computes_what_is_alike_in_one_iteration_only_twice() -> None:
    """An Enter without a Merge has a value in the first iteration, so what is multiplied by it has one there only."""
    ops = tf.raw_ops

    def enter(value: Any, is_constant: bool) -> tf.Tensor:
        return ops.Enter(data=value, frame_name="f", is_constant=is_constant, parallel_iterations=1)

    with tf.Graph().as_default(), tf.Session() as session:
        x = tf.placeholder(tf.float32, [])
        first = [enter(tf.constant(0), False), enter(x, False), enter(x, False)]
        limit, one = enter(tf.constant(3), True), enter(tf.constant(1), True)
        later = [tf.placeholder(value.dtype, []) for value in first]
        merged = [ops.Merge(inputs=[value, next_value])[0] for value, next_value in zip(first, later, strict=True)]
        goes_on = ops.LoopCond(input=ops.Less(x=merged[0], y=limit))
        (_, i), (last, y), (last_other, other) = (ops.Switch(data=value, pred=goes_on) for value in merged)
        in_the_first = ops.Tanh(x=ops.Mul(x=y, y=enter(tf.constant(1.0), False)))
        following = [
            ops.Add(x=i, y=one), ops.Add(x=y, y=ops.Tanh(x=y)), ops.Merge(inputs=[in_the_first, other])[0]
        ]  # fmt: skip
        tf.contrib.graph_editor.reroute_ts([ops.NextIteration(data=made) for made in following], later)
        found, _ = session.run([ops.Exit(data=last), ops.Exit(data=last_other)], {x: 0.5})
    expected = np.float32(0.5)
    for _ in range(3):
        expected += np.tanh(expected)
    np.testing.assert_allclose(found, expected, rtol=1e-6)
