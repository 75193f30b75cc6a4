"""What comes into an iteration together."""

from __future__ import annotations

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
