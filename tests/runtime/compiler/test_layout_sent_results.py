"""Results that only a message takes are computed in the memory of its connection, and no others."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.runtime.task_graphs import Row, feed, fetch, send, task_graph
from tfmini import dtypes
from tfmini.graph.node import Node
from tfmini.ops.math import sums
from tfmini.runtime.compiler import kernels
from tfmini.runtime.compiler.layout import sent_results
from tfmini.runtime.compiler.lowering import Compilation, Lowering
from tfmini.runtime.compiler.program import compile_program
from tfmini.runtime.resources import ResourceManager

HERE, THERE = "/job:worker/replica:0/task:0/device:CPU:0", "/job:ps/replica:0/task:0/device:CPU:0"
F = dtypes.float32


def found(*rows: Row) -> dict[Any, int]:
    graph = task_graph(rows)
    lowering = Lowering(Compilation(graph, ResourceManager("worker"), "CPU", False, lambda *_: None), graph.nodes, {})
    lowering.run()
    return sent_results(lowering)


def computed(op: str, name: str, *sources: str, controls: tuple[str, ...] = (), **attrs: Any) -> Node:
    return Node(name, op, HERE, [(s, 0) for s in sources], controls, {"T": F, **attrs})


def sent(source: str, group: int) -> Row:
    return send(f"send_{source}_{group}", source, group, HERE, THERE)


X = feed("x", HERE)


def test_a_result_that_is_only_sent() -> None:
    nodes = [X, computed("Mul", "a", "x", "x"), computed("Neg", "b", "a"), sent("b", 3)]
    assert found(*nodes) == {("b", 0): 3}


def test_a_result_that_waits_for_control_edges_before_it_is_sent() -> None:
    late = computed("Identity", "late", "a", controls=("b",))
    nodes = [X, computed("Mul", "a", "x", "x"), computed("Neg", "b", "x"), late, sent("late", 3), sent("b", 4)]
    assert found(*nodes) == {("a", 0): 3, ("b", 0): 4}


@pytest.mark.parametrize("other", [sent("a", 4), computed("Neg", "n", "a"), fetch(("a", 0), HERE)])
def test_a_result_that_somebody_else_takes_is_left_alone(other: Row) -> None:
    assert found(X, computed("Mul", "a", "x", "x"), sent("a", 3), other) == {}


def test_an_op_without_a_rule_or_whose_type_has_none_is_left_alone() -> None:
    integer = computed("RealDiv", "d", "x", "x", T=dtypes.int32)
    assert found(X, computed("Exp", "e", "x"), sent("e", 1), integer, sent("d", 2)) == {}


@pytest.mark.parametrize("count", [16, 17])
def test_a_message_of_many_tensors_is_left_alone(count: int) -> None:
    names = [f"a{i}" for i in range(count)]
    nodes = [X, *(computed("Mul", name, "x", "x") for name in names), *(sent(name, 5) for name in names)]
    assert len(found(*nodes)) == (count if count == 16 else 0)


class Step:
    """Takes the place of a run: it provides the memory and takes what is sent."""

    def __init__(self) -> None:
        self.memory: list[tuple[int, Any]] = []
        self.sent: list[tuple[int, Any]] = []

    def sent_array(self, group: int, shape: tuple[int, ...], dtype: Any) -> Any:
        self.memory.append((group, np.full(shape, 99, dtype)))
        return self.memory[-1][1]

    def send(self, group: int, values: Any) -> None:
        self.sent.append((group, values))


@pytest.mark.parametrize("is_checked", [False, True])
def test_the_kernel_writes_into_the_memory(monkeypatch: pytest.MonkeyPatch, is_checked: bool) -> None:
    monkeypatch.setattr(kernels, "ENABLED", is_checked)
    monkeypatch.setattr(sums, "INTO_FROM", 0)
    nodes = [
        X, computed("Sub", "d", "x", "x"), computed("AddN", "s", "x", "d", N=2), sent("s", 3),
        computed("MatMul", "p", "x", "x", transpose_a=True, transpose_b=False), sent("p", 4),
    ]  # fmt: skip
    program = compile_program(task_graph(nodes), resources=ResourceManager("worker"), fold_constants=False)
    step, slots = Step(), list(program.template)
    slots[0] = x = np.arange(4, dtype=np.float32).reshape(2, 2)
    for segment in program.segments:
        segment.run(step, slots)
    sent_arrays = {group: values[0] for group, values in step.sent}
    assert {group: array is sent_arrays[group] for group, array in step.memory} == {3: True, 4: True}
    np.testing.assert_array_equal(sent_arrays[3], x)
    np.testing.assert_array_equal(sent_arrays[4], x.T @ x)
