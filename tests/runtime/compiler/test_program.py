"""Compilation and the step state machine, without a network."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import tfmini as tf
from tests.runtime.task_graphs import Row, feed, fetch, receive, send, task_graph
from tfmini import dtypes, errors
from tfmini.graph.node import Node
from tfmini.runtime.compiler import codegen
from tfmini.runtime.compiler.kernels import make_callable
from tfmini.runtime.compiler.levels import Program
from tfmini.runtime.compiler.program import compile_program
from tfmini.runtime.executor.dataflow_run import DataflowRun
from tfmini.runtime.executor.registered_graph import FunctionRun, RegisteredGraph
from tfmini.runtime.resources import ResourceManager

assert tf  # registers the ops
_PS, _WORKER = "/job:ps/replica:0/task:0/device:CPU:0", "/job:worker/replica:0/task:0/device:CPU:0"
F = dtypes.float32


def _const(name: str, value: Any, controls: tuple[str, ...] = ()) -> Node:
    return Node(name, "Const", _PS, controls=controls, attrs={"value": np.float32(value), "dtype": F})


def _add(name: str, *sources: str, controls: tuple[str, ...] = ()) -> Node:
    return Node(name, "Add", _PS, [(s, 0) for s in sources], controls, {"T": F})


def _feed(name: str) -> Row:
    return feed(name, _PS, f"_recv_{name}")


def _fetch(source: str) -> Row:
    return fetch((source, 0), _PS)


def _recv(name: str, group: int) -> Row:
    return receive(name, group, _PS, _WORKER)


def _send(name: str, source: str, group: int) -> Row:
    return send(name, source, group, _PS, _WORKER)


def _compile(rows: Sequence[Row], **options: Any) -> Program:
    return compile_program(task_graph(rows), resources=ResourceManager("ps"), **options)


class _Owner:
    task = "/job:ps/replica:0/task:0"
    reactor = None
    now = staticmethod(time.monotonic)
    threads = SimpleNamespace(schedule=lambda activation, segment: False)

    def __init__(self) -> None:
        self.sent: list[tuple[int, tuple[Any, ...]]] = []

    def send_group(self, run: Any, group: int, values: tuple[Any, ...], path: tuple[int, ...]) -> None:
        self.sent.append((group, values))


def _graph(program: Program) -> RegisteredGraph:
    return RegisteredGraph(0, "", program, ResourceManager("ps"))


def _execute(program: Program, feeds: list[Any]) -> list[Any]:
    return FunctionRun(_Owner(), _graph(program), 7, feeds).execute()


def _run(program: Program, feeds: list[Any] | None = None) -> tuple[DataflowRun, _Owner, list[Any]]:
    owner, outcome = _Owner(), []
    run = DataflowRun(owner, _graph(program), 7, feeds or [])
    run.start(lambda error, values: outcome.append((error, values)))
    return run, owner, outcome


def test_a_program_without_a_network_is_one_function() -> None:
    program = _compile([_feed("x"), _const("c", 2), _add("y", "_recv_x", "c"), _fetch("y")])
    assert program.is_simple
    assert _execute(program, [np.float32(3)]) == [5.0]


def test_constant_parts_are_computed_once() -> None:
    nodes = [_const("a", 1), _const("b", 2), _add("c", "a", "b"), _add("d", "c", "c"), _fetch("d")]
    assert _execute(_compile(nodes), []) == [6.0]
    assert not any(k.startswith("k") for k in _compile(nodes).namespace)


def test_a_segment_runs_when_its_inputs_have_arrived() -> None:
    nodes = [_recv("r0", 0), _recv("r1", 1), _add("a", "r0", "r0"), _add("b", "a", "r1"), _fetch("b")]
    run, _, outcome = _run(_compile(nodes))
    assert not outcome and "group 0 and group 1" in run.describe_wait()
    run.deliver(1, [np.float32(10)])
    assert not outcome
    run.deliver(0, [np.float32(1)])
    assert outcome == [(None, [12.0])]


def test_tensors_that_arrive_early_are_kept() -> None:
    program = _compile([_recv("r0", 0), _fetch("r0")])
    outcome: list[Any] = []
    run = DataflowRun(_Owner(), _graph(program), 1, [])
    run.deliver(0, [np.float32(4)])
    run.start(lambda error, values: outcome.append(values))
    assert outcome == [[4.0]]


def test_a_group_is_sent_once_in_the_order_of_its_names() -> None:
    nodes = [_const("a", 1), _feed("x"), _add("b", "a", "_recv_x"), _send("s2", "b", 3), _send("s1", "_recv_x", 3)]
    _, owner, outcome = _run(_compile(nodes), [np.float32(5)])
    assert owner.sent == [(3, (5.0, 6.0))] and outcome == [(None, [])]


def test_a_control_edge_is_sent_after_its_op_has_run() -> None:
    check = Node("check", "CheckNumerics", _PS, [("_recv_x", 0)], attrs={"T": F, "message": b"bad"})
    program = _compile([_feed("x"), check, _const("ctl", 0, ("check",)), _send("s", "ctl", 0)])
    _, owner, outcome = _run(program, [np.float32("nan")])
    assert not owner.sent and isinstance(outcome[0][0], errors.InvalidArgumentError)
    _, owner, outcome = _run(program, [np.float32(1)])
    assert len(owner.sent) == 1 and outcome == [(None, [])]


def test_an_abort_ends_a_waiting_step_once() -> None:
    run, _, outcome = _run(_compile([_recv("r0", 0), _fetch("r0")]))
    run.abort(errors.CancelledError.of("stop"))
    run.abort(errors.CancelledError.of("again"))
    run.deliver(0, [np.float32(1)])
    ((error, values),) = outcome
    assert error.message == "stop" and values == []


def test_unexpected_groups_are_refused() -> None:
    run, _, _ = _run(_compile([_recv("r0", 0), _recv("r1", 1), _add("a", "r0", "r1")]))
    run.deliver(0, [np.float32(1)])
    with pytest.raises(errors.InternalError, match="twice"):
        run.deliver(0, [np.float32(1)])
    with pytest.raises(errors.InternalError, match="does not expect"):
        run.deliver(9, [])


def test_long_segments_are_cut_into_blocks() -> None:
    nodes: list[Row] = [_feed("x"), _const("one", 1)]
    source = "_recv_x"
    for i in range(3500):
        nodes.append(_add(f"n{i}", source, "one"))
        source = f"n{i}"
    nodes += [_add("sum", source, "n10"), _fetch("sum")]
    program = _compile(nodes)
    assert _execute(program, [np.float32(0)]) == [3500 + 11]


def test_an_op_without_a_kernel_is_named() -> None:
    with pytest.raises(errors.InvalidArgumentError, match="NoSuchOp.*node odd"):
        _compile([Node("odd", "NoSuchOp", _PS)])
    with pytest.raises(errors.InvalidArgumentError, match="Op '_Recv' used by {{node foreign}}"):
        _compile([Node("foreign", "_Recv", _PS, attrs={"tensor_type": F})])


def test_an_abort_before_the_start_is_not_lost() -> None:
    outcome: list[Any] = []
    run = DataflowRun(_Owner(), _graph(_compile([_recv("r0", 0), _fetch("r0")])), 1, [])
    run.abort(errors.CancelledError.of("early"))
    run.start(lambda error, values: outcome.append(error))
    assert [e.message for e in outcome] == ["early"]


def test_segments_that_work_on_files_are_long_from_the_start() -> None:
    attrs = {"delete_old_dirs": True}
    merge = Node("merge", "MergeV2Checkpoints", _PS, [("names", 0), ("target", 0)], (), attrs)
    texts = [
        Node(name, "Const", _PS, attrs={"value": np.array(value, object), "dtype": dtypes.string})
        for name, value in (("names", [b"a"]), ("target", b"b"))
    ]
    assert [segment.seconds for segment in _compile([*texts, merge]).segments] == [1.0]
    assert [segment.seconds for segment in _compile([_const("a", 1)]).segments] == [0.0]


def test_programs_that_are_compiled_at_once_share_a_kernel_with_a_state(monkeypatch: pytest.MonkeyPatch) -> None:
    made = threading.Barrier(2)  # both threads have found no kernel, and each makes one

    def make(*args: Any) -> Any:
        kernel = make_callable(*args)
        made.wait(60)
        return kernel

    monkeypatch.setattr(codegen, "make_callable", make)
    attrs = {"dtype": F, "T": dtypes.int32, "seed": 7, "seed2": 0}
    random = Node("random", "RandomUniform", _PS, [("shape", 0)], attrs=attrs)
    rows = [feed("shape", _PS), random, _fetch("random")]
    kernels: dict[str, Any] = {}
    with ThreadPoolExecutor(2) as threads:
        compiled = [threads.submit(_compile, rows, kernels=kernels) for _ in range(2)]
        one, other = (_graph(each.result(60)) for each in compiled)
    shape = np.array([2], np.int32)
    first, second = (FunctionRun(_Owner(), graph, 7, [shape]).execute()[0] for graph in (one, other))
    assert not np.array_equal(first, second)  # one sequence
