"""The list of transfers and its table."""

from __future__ import annotations

import pytest

from tests.placement.letters import DEVICE, cut, graph, node
from tfmini import dtypes
from tfmini.graph.node import Node
from tfmini.placement.wire_table import format_transfers, transfers

PS, WORKER = DEVICE["A"], DEVICE["B"]


@pytest.fixture
def table():
    nodes = graph(
        node("W", "VariableV2"),
        node("W/read", "Identity", "W"),
        node("global_step", "VariableV2"),
        node("y", "Add", "W/read", "global_step"),
        node("gradients/y_grad", "Read", "y", "^W"),
        node("rate", "Const"),
        node("lr", "Read", "rate"),
        node("update", "ApplyGradientDescent", "W", "lr", "gradients/y_grad"),
        node("raw", "Read", "y"),
    )
    for name in ("W", "global_step"):
        nodes[name].attrs["dtype"] = dtypes.float32
    on_ps = {"W", "W/read", "global_step", "update", "raw"}
    placement = {name: PS if name in on_ps else WORKER for name in nodes}
    parts = cut(nodes, placement)
    return transfers(parts, {("W/read", 0): (784, 100), ("lr", 0): (), ("y", 0): (None, 3)})


@pytest.fixture(autouse=True)
def _types(monkeypatch):
    def one_float(nd: Node) -> list[dtypes.DType]:
        return [dtypes.float32]

    monkeypatch.setattr("tfmini.placement.partition.output_dtypes", one_float)


def test_rows_have_roles_and_sizes(table):
    found = {t.tensor: (t.role, t.bytes) for t in table}
    assert found == {
        "W/read:0": ("variable read", 313600),
        "global_step:0": ("global step", None),
        "^W": ("control edge", 0),
        "lr:0": ("hyper-parameter", 4),
        "gradients/y_grad:0": ("gradient of W", None),
        "y:0": ("tensor", None),
    }
    assert [t.shape for t in table if t.tensor == "y:0"] == [(None, 3)]


def test_table_is_aligned_with_totals(table):
    lines = format_transfers(table).splitlines()
    assert lines[0] == f"{PS} -> {WORKER}"
    assert lines[1] == "  W/read:0            float32  [784,100]  313,600 B  variable read"
    assert "  3 transfers in 1 message, 313,600 B and 1 of unknown size" in lines
    assert lines[-1].startswith("all links: 6 transfers in 3 messages")


def test_the_table_of_a_local_step_is_empty():
    assert format_transfers([]) == "no transfers between devices\n"
