"""Nothing that comes from a graph becomes source text."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tfmini import dtypes
from tfmini.errors import InvalidArgumentError
from tfmini.graph.node import Node
from tfmini.rpc import messages as m
from tfmini.rpc.codec import decode, encode
from tfmini.runtime.compiler import codegen
from tfmini.runtime.compiler.program import compile_program
from tfmini.runtime.resources import ResourceManager

PS, WORKER = (f"/job:{job}/replica:0/task:0/device:CPU:0" for job in ("ps", "worker"))
INJECTED = '(__import__("builtins").injected.append(1), 0)[1]'


def graph(group: Any) -> list[Node]:
    send = {"T": dtypes.float32, "tensor_name": b"c", "client_terminated": False, "_group": group}
    devices = {"send_device": PS.encode(), "recv_device": WORKER.encode()}
    constant = Node("c", "Const", PS, attrs={"value": np.float32(1), "dtype": dtypes.float32})
    return [constant, Node("s", "_Send", PS, [("c", 0)], attrs={**send, **devices})]


def sent(nodes: list[Node]) -> list[Any]:
    """The graph of a RegisterGraph as the worker reads it."""
    parts = encode(m.RegisterGraph("h", [node.to_wire() for node in nodes], {}), 5)
    return decode([bytes(part) for part in parts])[0].graph


@pytest.mark.parametrize("group", [INJECTED, 1.5, None, [1], True])
def test_a_group_that_is_no_integer_is_refused_when_the_node_is_read(group: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="'_group' of node 's'"):
        [Node.from_wire(fields) for fields in sent(graph(group))]


def test_the_code_generator_itself_refuses_text_as_a_key() -> None:
    with pytest.raises(InvalidArgumentError, match="has the key"):
        compile_program(graph(INJECTED), task_of=lambda d: d[: d.index("/device:")], resources=ResourceManager("ps"))


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"name": 1}, "malformed"),
        ({"inputs": [("c", -1)]}, "malformed input"),
        ({"inputs": [("c", "0")]}, "malformed input"),
        ({"controls": [1]}, "control inputs"),
        ({"attrs": {"T": "float"}}, "'T' of node 's'"),
        ({"attrs": {"tensor_name": "text"}}, "'tensor_name' of node 's'"),
    ],
)
def test_fields_and_attrs_of_wrong_types_are_refused(change: dict[str, Any], match: str) -> None:
    node = graph(0)[1]
    changed = node.replace(**{**change, "attrs": {**node.attrs, **change.get("attrs", {})}})
    with pytest.raises(InvalidArgumentError, match=match):
        [Node.from_wire(fields) for fields in sent([changed])]


def test_every_attr_of_a_real_graph_is_accepted() -> None:
    assert [Node.from_wire(fields).attrs.keys() for fields in sent(graph(3))] == [n.attrs.keys() for n in graph(3)]


def test_the_text_of_a_node_names_the_outputs_that_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """A node of a few bytes may have many outputs; the work for it must not grow with them."""
    texts: list[str] = []

    def compile_text(text: str, *args: Any) -> Any:
        texts.append(text)
        return compile(text, *args)

    monkeypatch.setattr(codegen, "compile", compile_text, raising=False)
    attrs = {"num": 1 << 16, "T": dtypes.float32, "axis": 0}
    feed = {"tensor_type": dtypes.float32, "tensor_name": b"x:0", "client_terminated": True}
    fetch = {"T": dtypes.float32, "client_terminated": True}
    nodes = [
        Node("x", "_Recv", PS, attrs=feed),
        Node("u", "Unpack", PS, [("x", 0)], attrs=attrs),
        *(Node(f"s{i}", "_Send", PS, [("u", i)], attrs={**fetch, "tensor_name": b"u:%d" % i}) for i in (7, 65535)),
        Node("n", "Neg", PS, [("u", 9)], attrs={"T": dtypes.float32}),
        Node("s", "_Send", PS, [("n", 0)], attrs={**fetch, "tensor_name": b"n:0"}),
    ]
    program = compile_program(
        nodes, task_of=lambda device: device, resources=ResourceManager("ps"), feeds=["x:0"],
        fetches=["u:7", "u:65535", "n:0"],
    )  # fmt: skip
    slots = list(program.template)
    slots[program.feeds[0]] = np.arange(1 << 16, dtype=np.float32)
    program.segments[0].run(None, slots)
    assert [float(slots[slot]) for slot in program.fetches] == [7.0, 65535.0, -9.0]
    assert max(map(len, texts)) < 1000
