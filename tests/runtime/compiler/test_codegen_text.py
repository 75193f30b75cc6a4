"""Nothing that comes from a graph becomes source text."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.runtime.task_graphs import F, feed, fetch, receive, send, task_graph
from tfmini.errors import InvalidArgumentError
from tfmini.graph.node import Node
from tfmini.placement.task_graph import INNER, TaskGraph
from tfmini.rpc import messages as m
from tfmini.rpc.codec import decode, encode
from tfmini.runtime.compiler import codegen
from tfmini.runtime.compiler.program import compile_program
from tfmini.runtime.resources import ResourceManager

PS, WORKER = (f"/job:{job}/replica:0/task:0/device:CPU:0" for job in ("ps", "worker"))
MISSING = object()
INJECTED = '(__import__("builtins").injected.append(1), 0)[1]'


def graph(group: Any) -> TaskGraph:
    constant = Node("c", "Const", PS, attrs={"value": np.float32(1), "dtype": F})
    arrived = receive("r", 5, PS, WORKER, tensor="edge_1_x", incarnation=9)
    return task_graph([feed("x", PS), arrived, constant, send("s", "c", group, PS, WORKER), fetch(("c", 0), PS)])


def sent(fields: Any) -> Any:
    """The graph of a RegisterGraph as the worker reads it."""
    return decode([bytes(part) for part in encode(m.RegisterGraph("h", fields, True, False), 5)])[0].graph


def changed(path: tuple[Any, ...], value: Any) -> dict[str, Any]:
    """The fields of a graph with one of them changed, or removed."""
    fields = place = graph(3).to_wire()
    for key in path[:-1]:
        place = place[key]
    if value is MISSING:
        del place[path[-1]]
    else:
        place[path[-1]] = value
    return sent(fields)  # type: ignore[no-any-return]


def test_a_graph_travels() -> None:
    found, was = TaskGraph.from_wire(sent(graph(3).to_wire())), graph(3)
    assert (found.sends, found.receives) == (was.sends, was.receives)
    assert (found.feeds, found.fetches) == (was.feeds, was.fetches)
    assert [(n.name, n.op, n.inputs, n.attrs) for n in found.nodes.values()] == [
        (n.name, n.op, n.inputs, n.attrs) for n in was.nodes.values()
    ]


@pytest.mark.parametrize("group", [INJECTED, 1.5, None, [1], True])
def test_a_group_that_is_no_integer_is_refused_when_the_graph_is_read(group: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="The sends of the graph have a malformed row"):
        TaskGraph.from_wire(sent(graph(group).to_wire()))


def test_the_code_generator_itself_refuses_text_as_a_key() -> None:
    with pytest.raises(InvalidArgumentError, match="has the key"):
        compile_program(graph(INJECTED), resources=ResourceManager("ps"))


@pytest.mark.parametrize(
    ("path", "value", "match"),
    [
        (("nodes",), 5, "graph of a task is malformed"),
        (("nodes", 3, 0), 1, "malformed"),
        (("nodes", 3, 3), [["c", -1]], "malformed input"),
        (("nodes", 3, 3), [["c", "0"]], "malformed input"),
        (("nodes", 3, 4), [1], "control inputs"),
        (("nodes", 2, 4), ["nobody"], "Node 'c' needs 'nobody', which is not in the graph"),
        (("nodes", 3, 3), [["nobody", 0]], "Node 's' needs 'nobody', which is not in the graph"),
        (("nodes", 0, 5), {"T": "float"}, "'T' of node 'x'"),
        (("nodes", 1, 5), {"tensor_type": "float"}, "'tensor_type' of node 'r'"),
        (("nodes", 1, 5), {}, "Node 'r' .* has no attr 'tensor_type'"),
        (("nodes", 3, 3), [], "Node 's' .* has 0 inputs"),
        (("places",), MISSING, "The places of the graph have a malformed row: None"),
        (("places", 0), [PS], "The places of the graph have a malformed row"),
        (("sends", 0, 1), b"c", "The sends of the graph have a malformed row"),
        (("sends", 0, 2), 2, "no place 2, only 2"),
        (("sends", 0, 2), -1, "no place -1, only 2"),
        (("sends", 0, 3), -2, "Node 's' has the group -2; groups count from 0"),
        (("sends", 0), MISSING, "does not say what node 's' .* is for"),
        (("sends", 0, 0), "c", "no node 'c' of the op _Send"),
        (("receives", 0, 3), INNER, "No device of the task sends 'edge_1_x' to node 'r'"),
        (("receives", 0, 5), 1, "The receives of the graph have a malformed row"),
        (("receives", 0, 0), "nobody", "no node 'nobody' of the op _Recv"),
        (("feeds", 0, 1), 1, "The feeds of the graph have a malformed row"),
        (("feeds",), [], "does not say what node 'x' .* is for"),
        (("fetches",), {"c": 0}, "The fetches of the graph have a malformed row"),
    ],
)  # fmt: skip
def test_a_malformed_graph_is_refused_by_name(path: tuple[Any, ...], value: Any, match: str) -> None:
    with pytest.raises(InvalidArgumentError, match=match):
        TaskGraph.from_wire(changed(path, value))


def test_the_text_of_a_node_names_the_outputs_that_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """A node of a few bytes may have many outputs; the work for it must not grow with them."""
    texts: list[str] = []

    def compile_text(text: str, *args: Any) -> Any:
        texts.append(text)
        return compile(text, *args)

    monkeypatch.setattr(codegen, "compile", compile_text, raising=False)
    attrs = {"num": 1 << 16, "T": F, "axis": 0}
    rows = [
        feed("x", PS), Node("u", "Unpack", PS, [("x", 0)], attrs=attrs), *(fetch(("u", i), PS) for i in (7, 65535)),
        Node("n", "Neg", PS, [("u", 9)], attrs={"T": F}), fetch(("n", 0), PS),
    ]  # fmt: skip
    program = compile_program(task_graph(rows), resources=ResourceManager("ps"))
    slots = list(program.template)
    slots[0] = np.arange(1 << 16, dtype=np.float32)
    program.segments[0].run(None, slots)
    assert [float(slots[slot]) for slot in program.fetches] == [7.0, 65535.0, -9.0]
    assert max(map(len, texts)) < 1000
