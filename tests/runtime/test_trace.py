"""Traced steps: what they record, that other steps' programs stay as they are, and that all time is explained."""

from __future__ import annotations

import contextlib
import re
import socket
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import tfmini as tf
from tfmini import protos
from tfmini.graph import node as node_types
from tfmini.graph.node import Node
from tfmini.runtime import trace as labels
from tfmini.runtime import trace as traces
from tfmini.runtime.compiler.codegen import BlockWriter
from tfmini.runtime.gathered_trace import Gap, GatheredTrace, TaskRecord, gaps
from tfmini.runtime.trace import Alignment, AnswerEvent, ArrivalEvent, KeptTraces, StepLog, Trace, UnitEvent, alignment
from tfmini.show.inspection.trace import DISPATCH, OP, RECEIVE, SEND, WAIT, WIRE, StepTrace
from tfmini.testing import ProcessCluster

FULL = protos.RunOptions(trace_level=protos.RunOptions.FULL_TRACE)
_A, _B = "/job:a/replica:0/task:0", "/job:b/replica:0/task:0"


def traced(session: tf.Session, fetches: Any, feed_dict: Any = None) -> tuple[Any, StepTrace]:
    metadata = tf.RunMetadata()
    found = session.run(fetches, feed_dict, options=FULL, run_metadata=metadata)
    return found, StepTrace.of(metadata.step_stats)


def spans(trace: StepTrace, name: str) -> list[Any]:
    return [span for span in trace.spans if span.kind == OP and span.name == name]


@contextlib.contextmanager
def two_servers() -> Iterator[list[tf.train.Server]]:
    """Tasks a/0 and b/0 in this process."""
    with socket.socket() as one, socket.socket() as other:
        one.bind(("localhost", 0))
        other.bind(("localhost", 0))
        spec = {"a": [f"localhost:{one.getsockname()[1]}"], "b": [f"localhost:{other.getsockname()[1]}"]}
    with tf.train.Server(spec, "a", 0) as a, tf.train.Server(spec, "b", 0) as b:
        yield [a, b]


# ---- programs -------------------------------------------------------------------------------


def every_form() -> tuple[list[tf.Tensor], dict[tf.Tensor, Any]]:
    """A graph with all forms of units that a local program has."""
    x = tf.placeholder(tf.float32, [2], name="x")
    v = tf.Variable([1.0, 2.0], name="v")
    branch = tf.cond(tf.reduce_sum(x) > 0, lambda: x * 2.0, lambda: tf.exp(x, name="not_taken"))
    loop = tf.while_loop(lambda i, a: i < 3, lambda i, a: (i + 1, tf.sin(a, name="sine")), [0, x])[1]
    queue = tf.FIFOQueue(10, tf.float32, name="queue")
    with tf.control_dependencies([queue.enqueue(3.0)]):
        taken = queue.dequeue(name="taken")
    values, indices = tf.nn.top_k(x, 1)
    return [branch, loop, taken, v.assign_add(x), values, indices], {x: [1.0, 2.0]}


def lines_of(monkeypatch: pytest.MonkeyPatch, options: Any) -> list[str]:
    """The text of the programs of a step, without numbers of kernels and constants."""
    lines: list[str] = []
    original = BlockWriter.emit

    def emit(self: BlockWriter, line: str, node: Node | None = None) -> None:
        lines.append(re.sub(r"\b([kc])\d+\b", r"\1", line))
        original(self, line, node)

    with tf.Graph().as_default(), tf.Session() as session:
        fetches, feeds = every_form()
        session.run(tf.global_variables_initializer())
        monkeypatch.setattr(BlockWriter, "emit", emit)
        session.run(fetches, feeds, options=options, run_metadata=tf.RunMetadata())
        monkeypatch.undo()
    return lines


def test_a_traced_program_is_the_usual_one_with_stamps_between(monkeypatch: pytest.MonkeyPatch) -> None:
    usual, stamped = lines_of(monkeypatch, None), lines_of(monkeypatch, FULL)
    stamp = re.compile(r"note = step\.run\.trace\.note|b = t = clock\(\)|t = clock\(\)|t = note\(.*\)")
    assert len(usual) > 10 and usual == [line for line in stamped if not stamp.fullmatch(line)]
    assert not any("clock" in line or "note" in line for line in usual)


def test_an_untraced_step_runs_code_that_knows_no_clock() -> None:
    x = tf.placeholder(tf.float32, [])
    y = tf.exp(x) + 1.0
    with tf.Session() as session:
        traced(session, y, {x: 0.0})
        assert session.run(y, {x: 0.0}) == 2.0
        program = session.master.prepare(((x.name,), (y.name,), ())).local.program
        for segment in program.segments:
            assert not {"clock", "note", "trace"} & set(segment.run.__code__.co_names)
        assert program.trace is None


# ---- what is recorded -----------------------------------------------------------------------


def test_local_ops_are_recorded_with_times_sizes_and_labels() -> None:
    x = tf.placeholder(tf.float32, [None, 4], name="x")
    w = tf.Variable(tf.ones([4, 3]), name="w")
    y = tf.matmul(x, w, name="y")
    with tf.Session() as session:
        session.run(w.initializer)
        metadata = tf.RunMetadata()
        session.run(y, {x: np.ones((5, 4))}, options=FULL, run_metadata=metadata)
    [device] = metadata.step_stats.dev_stats
    assert device.device == "/job:localhost/replica:0/task:0/device:CPU:0"
    entries = {entry.node_name: entry for entry in device.node_stats}
    entry = entries["y"]
    assert entry.timeline_label == "y = MatMul(x, w/read)"
    assert entry.all_start_micros == entry.all_start_nanos // 1000 >= entry.scheduled_micros > 1e15
    assert 0 == entry.op_start_rel_nanos < entry.op_end_rel_nanos <= entry.all_end_rel_nanos
    [output] = entry.output
    assert [dim.size for dim in output.tensor_description.shape.dim] == [5, 3]
    assert output.tensor_description.dtype == tf.float32.as_datatype_enum
    assert output.tensor_description.allocation_description.requested_bytes == 60
    assert entry.memory[0].total_bytes == 60
    # What needs no code takes part in the step, too.
    assert entries["w"].timeline_label == "w = VariableV2()" and entries["w/read"].all_end_rel_nanos == 0


def test_loops_branches_and_waits_of_a_local_step_are_recorded() -> None:
    fetches, feeds = every_form()
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        values, trace = traced(session, fetches, feeds)
        np.testing.assert_allclose(values[0], [2.0, 4.0])
        assert values[2] == 3.0 and list(values[3]) == [2.0, 4.0]
    assert len(spans(trace, "while/sine")) == 3
    assert not spans(trace, "cond/not_taken") and spans(trace, "cond/mul")
    [taken] = spans(trace, "taken")
    assert taken.op == "QueueDequeueV2" and taken.bytes == 4
    assert {span.op for span in trace.of_kind(OP)} >= {"TopKV2", "AssignAdd", "_Loop", "Merge"}


def test_a_wait_for_an_element_lasts_until_it_comes() -> None:
    queue = tf.FIFOQueue(10, tf.float32)
    element = tf.placeholder(tf.float32, [])
    enqueue, dequeue = queue.enqueue(element), queue.dequeue(name="late")
    with tf.Session() as session:
        metadata = tf.RunMetadata()
        answers: list[Any] = []
        coordinator = tf.train.Coordinator()

        def run() -> None:
            answers.append(session.run(dequeue, options=FULL, run_metadata=metadata))

        thread = threading.Thread(target=run)
        thread.start()
        session.run(enqueue, {element: 5.0})
        coordinator.join([thread])
        assert answers == [5.0]
        [late] = spans(StepTrace.of(metadata.step_stats), "late")
        assert late.duration > 0


def test_an_error_in_a_traced_step_names_the_node() -> None:
    x = tf.placeholder(tf.float32, [])
    check = tf.check_numerics(x, "not a number", name="check")
    with tf.Session() as session, pytest.raises(tf.errors.InvalidArgumentError, match="check"):
        traced(session, check, {x: float("nan")})


def test_a_traced_step_draws_the_next_random_numbers() -> None:
    x = tf.random_uniform([], seed=3)
    with tf.Session() as session:
        usual = [session.run(x) for _ in range(4)]
    with tf.Session() as session:
        mixed = [session.run(x), traced(session, x)[0], session.run([x, x + 1.0])[0], session.run(x)]
    assert mixed == usual


def test_without_a_trace_level_there_are_no_stats_and_old_ones_are_cleared() -> None:
    y = tf.placeholder_with_default(1.0, []) + 1.0
    metadata = tf.RunMetadata()
    with tf.Session() as session:
        session.run(y, options=FULL, run_metadata=metadata)
        assert metadata.step_stats.dev_stats
        session.run(y, options=tf.RunOptions(), run_metadata=metadata)
        assert not metadata.HasField("step_stats")
        session.run(y, options=FULL, run_metadata=metadata)
        session.run(y, run_metadata=metadata)
        assert not metadata.HasField("step_stats")
        session.run(y, options=FULL)  # nobody asks for what it would record


def test_a_traced_loop_ends_when_its_time_is_up() -> None:
    forever = tf.while_loop(lambda i: True, lambda i: i + 1, [0])
    options = protos.RunOptions(trace_level=3, timeout_in_ms=50)
    with tf.Session() as session, pytest.raises(tf.errors.DeadlineExceededError):
        session.run(forever, options=options, run_metadata=tf.RunMetadata())


# ---- between tasks --------------------------------------------------------------------------


def crossing() -> tf.Tensor:
    """Work on both tasks, with a tensor each way."""
    with tf.device("/job:b"):
        there = tf.matmul(tf.random_uniform([200, 200], name="noise"), tf.ones([200, 200]), name="there")
    with tf.device("/job:a"):
        here = tf.matmul(there, there, name="here")
    with tf.device("/job:b"):
        return tf.reduce_sum(here, name="total")


def check_crossing(trace: StepTrace) -> None:
    there = [s for s in trace.spans if s.name == "there" and s.kind in (SEND, WIRE, RECEIVE)]
    assert {(s.kind, s.device, s.peer, s.bytes) for s in there} == {
        (SEND, f"{_B}/device:CPU:0", f"{_A}/device:CPU:0", 160_000),
        (WIRE, f"{_A}/device:CPU:0", f"{_B}/device:CPU:0", 160_000),
        (RECEIVE, f"{_A}/device:CPU:0", f"{_B}/device:CPU:0", 160_000),
    }
    [send], [wire], [receive] = ([s for s in there if s.kind == kind] for kind in (SEND, WIRE, RECEIVE))
    assert send.start == wire.start <= wire.end == max(receive.start, send.start)
    assert [s.device for s in trace.of_kind(OP) if s.name in ("here", "total")] == [
        f"{_A}/device:CPU:0", f"{_B}/device:CPU:0",
    ]  # fmt: skip
    assert any("there" in s.name for s in trace.of_kind(WAIT) if s.task == _A)
    assert set(trace.clocks) == {_A, _B}
    # However slow the machine: it is the entries' causes that add up to the step, not their lengths.
    assert trace.attributed() > 0.95


def test_sends_transfers_receives_and_waits_of_two_tasks_are_recorded() -> None:
    total = crossing()
    with two_servers() as [a, b]:
        for server in (a, b):  # the master's part comes second, and first
            with tf.Session(server.target) as session:
                value, trace = traced(session, total)
                assert value > 0
                check_crossing(trace)


def test_a_master_without_a_part_of_the_step_keeps_the_time() -> None:
    with tf.device("/job:b"):
        total = tf.reduce_sum(tf.random_uniform([3]))
    with two_servers() as [a, _], tf.Session(a.target) as session:
        _, trace = traced(session, total.op)
    assert {span.task for span in trace.of_kind(OP)} == {_B}
    assert trace.clocks[_A].error == 0 < trace.clocks[_B].error
    assert trace.attributed() > 0.95


def test_strings_have_the_bytes_of_their_texts() -> None:
    """On all spans of a transfer; an array of strings has only eight bytes for each."""
    words = tf.placeholder(tf.string, [2])
    with tf.device("/job:b"):
        doubled = tf.string_join([words, words], name="doubled")
    with tf.device("/job:a"):
        ends = tf.string_join([doubled, "."], name="ends")
    with two_servers() as [a, _], tf.Session(a.target) as session:
        _, trace = traced(session, ends, {words: ["x" * 500, "yz"]})
    sent = [s for s in trace.spans if s.name == "doubled" and s.kind in (SEND, WIRE, RECEIVE, OP)]
    assert {s.kind for s in sent} == {SEND, WIRE, RECEIVE, OP} and {s.bytes for s in sent} == {1004}
    assert [s.bytes for s in spans(trace, "ends")] == [1006]


def test_a_loop_over_two_tasks_has_a_wire_per_iteration() -> None:
    with tf.device("/job:a"):
        start = tf.constant(0.0)

        def body(i: tf.Tensor) -> tf.Tensor:
            with tf.device("/job:b"):
                return tf.add(i, 1.0, name="next")

        count = tf.while_loop(lambda i: i < 4.0, body, [start])
    with two_servers() as [a, _], tf.Session(a.target) as session:
        value, trace = traced(session, count)
        assert value == 4.0
    added = [s for s in trace.of_kind(OP) if s.name == "while/next"]
    arrived = [s for s in trace.of_kind(WIRE) if s.name == "while/next"]
    assert len(added) == 4 and len(arrived) >= 4
    assert all(wire.start >= op.end - 1 for op, wire in zip(added, arrived))


@pytest.mark.cluster
def test_a_client_in_another_process_gets_stats_and_partition_graphs() -> None:
    with ProcessCluster(ps=1, workers=1) as cluster:
        with tf.device("/job:ps/task:0"):
            there = tf.add(tf.random_uniform([3]), 1.0, name="there")
        with tf.device("/job:worker/task:0"):
            here = tf.exp(there, name="here")
        options = protos.RunOptions(trace_level=protos.RunOptions.FULL_TRACE, output_partition_graphs=True)
        with tf.Session(cluster.target("worker", 0)) as session:
            metadata = tf.RunMetadata()
            session.run(here, options=options, run_metadata=metadata)
    trace = StepTrace.of(metadata.step_stats)
    assert {span.name: span.task for span in trace.of_kind(OP) if span.name in ("there", "here")} == {
        "there": "/job:ps/replica:0/task:0", "here": "/job:worker/replica:0/task:0",
    }  # fmt: skip
    assert trace.clocks["/job:ps/replica:0/task:0"].error > 0
    assert trace.attributed() > 0.95
    # A task may have begun before the call that told it to returned: that is the master's time.
    [telling] = [s for s in trace.spans if "telling /job:ps/replica:0/task:0" in s.name]
    worker = "/job:worker/replica:0/task:0"
    [begun] = [s for s in trace.spans if s.name.startswith(f"RunGraph from {worker}") and s.task == worker]
    assert telling.task == worker and telling.end == begun.start
    names = {node.name for graph in metadata.partition_graphs for node in graph.node}
    assert {"there", "here"} <= names


# ---- the parts ------------------------------------------------------------------------------


def test_clocks_are_aligned_by_the_shortest_round_trips() -> None:
    assert alignment(1000, 51_500, 2000) == Alignment(50_000, 500)
    assert alignment(1000, 1_900, 2000) == Alignment(0, 500)  # no difference that one could see
    assert alignment(1000, -7000, 1011) == Alignment(-8005, 6)


def test_a_wrong_clock_is_corrected() -> None:
    ours, theirs = protos.StepStats(), protos.StepStats()
    for stats, device, label, start in (
        (ours, _A, labels.transfer_label("s", node_types.SEND, "edge_1_x", f"{_B}/device:CPU:0"), 10_000_000),
        (theirs, _B, labels.transfer_label("r", node_types.RECEIVE, "edge_1_x", f"{_A}/device:CPU:0"), 5_012_000_000),
    ):
        entry = stats.dev_stats.add(device=f"{device}/device:CPU:0").node_stats.add(node_name="n", timeline_label=label)
        entry.all_start_nanos = entry.scheduled_nanos = start
        entry.all_end_rel_nanos = entry.op_end_rel_nanos = 1_000_000
    records = [
        TaskRecord(_A, ours.SerializeToString, Alignment(0, 0), 0),
        TaskRecord(_B, theirs.SerializeToString, Alignment(5_000_000_000, 7_000), 1),
    ]
    found = StepTrace.of(GatheredTrace(f"{_A}/device:CPU:0", StepLog(), records).step_stats())
    [wire] = found.of_kind(WIRE)
    assert (wire.start, wire.end) == (10_000, 12_000)
    [receive] = found.of_kind(RECEIVE)
    assert receive.start == 12_000


def test_a_label_is_parsed_as_it_was_written() -> None:
    assert labels.op_and_inputs(labels.op_label("a/b", "Add", ["x", "y:1", "^c"])) == ("Add", ["x", "y:1", "^c"])
    assert labels.op_and_inputs("[mklcpu 0.1MB] a = MatMul(x, y)") == ("MatMul", ["x", "y"])
    assert labels.op_and_inputs("nothing of the kind") == ("", [])
    held = labels.op_label("a/b", "VarHandleOp", ["^c"], "a] v")
    assert labels.op_and_inputs(held) == ("VarHandleOp", ["^c"]) and labels.variable_of(held) == "a] v"
    assert labels.variable_of("[mklcpu 0.1MB] a = VarHandleOp()") == ""
    label = labels.transfer_label("n", "_Send", "edge_3_x", "/job:ps/task:0/cpu:0")
    assert labels.edge_and_device(label) == ("edge_3_x", "/job:ps/task:0/cpu:0")
    wire = labels.wire_label(1_000_000, 0.5, "edge_3_x", "a", "b")
    assert wire == "[1000000B] [16Mb/s] edge_3_x from a to b"
    assert labels.wire_of(wire) == (1_000_000, "edge_3_x", "a", "b")
    assert labels.wire_of(labels.wire_label(0, 0.0, "e", "a", "b")) == (0, "e", "a", "b")
    assert labels.clock_of(labels.clock_label("/job:a", -5, 7)) == ("/job:a", -5, 7)


def test_gaps_are_waits_where_an_arrival_ends_them() -> None:
    trace = Trace()
    trace.started, trace.finished = 0, 100_000
    trace.units.append(UnitEvent(0, 1, 2_000, 2_000, 9_000, 10_000, ()))
    trace.arrivals.append(ArrivalEvent(7, 1, 30_000, 31_000, ()))
    trace.units.append(UnitEvent(1, 1, 35_000, 35_000, 40_000, 41_000, ()))
    trace.answers.append(AnswerEvent(-1, 1, 41_000, 90_000, ()))
    assert list(gaps(trace)) == [
        (0, 2_000, Gap.UNIT, 0),
        (10_000, 30_000, Gap.WAIT, 7),
        (31_000, 35_000, Gap.UNIT, 1),
        (90_000, 100_000, Gap.FINISH, 0),
    ]


def test_a_task_keeps_the_latest_traces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(traces, "EVENT_LIMIT", 10)
    kept = KeptTraces()
    for step in range(4):
        trace = Trace()
        trace.units = [UnitEvent(0, 1, 0, 0, 0, 0, ())] * 4
        kept.keep(step, trace, None)
    assert [kept.take(step) is not None for step in range(4)] == [False, False, True, True]
    assert kept.take(3) is None


def test_a_closed_session_leaves_no_traces() -> None:
    x = tf.placeholder(tf.float32, [])
    check = tf.check_numerics(x, "bad")
    with two_servers() as [a, _], tf.Session(a.target) as session:
        with pytest.raises(tf.errors.InvalidArgumentError):
            traced(session, check, {x: float("inf")})  # so nobody asks for the trace
        kept = a.worker.traces
        assert len(kept) == 1
        session.close()
        assert len(kept) == 0


def test_a_step_with_too_many_ops_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(traces, "EVENT_LIMIT", 5)
    loop = tf.while_loop(lambda i: i < 100, lambda i: i + 1, [0])
    with tf.Session() as session:
        metadata = tf.RunMetadata()
        assert session.run(loop, options=FULL, run_metadata=metadata) == 100
    text = " ".join(entry.timeline_label for entry in metadata.step_stats.dev_stats[0].node_stats)
    assert "ops not recorded" in text


def test_dispatch_is_the_time_between_ready_and_running() -> None:
    with tf.Session() as session:
        _, trace = traced(session, tf.random_uniform([2]) + 1.0)
    assert trace.attributed() > 0.95
    assert {span.kind for span in trace.spans} <= {OP, DISPATCH, "control", "task", "step"}


@pytest.mark.parametrize("asked", [False, True])
def test_the_cost_graph_comes_when_the_session_builds_a_cost_model(asked: bool) -> None:
    config = tf.ConfigProto(graph_options=tf.GraphOptions(build_cost_model=int(asked)))
    product = tf.matmul(tf.placeholder_with_default(np.ones([4, 4], np.float32), [4, 4]), tf.ones([4, 4]), name="mm")
    metadata = tf.RunMetadata()
    with tf.Session(config=config) as session:
        session.run(product, options=FULL, run_metadata=metadata)
    found = {node.name: node for node in metadata.cost_graph.node}
    assert bool(found) == asked
    if asked:
        assert found["ones"].id in [source.preceding_node for source in found["mm"].input_info]
        assert found["mm"].device.endswith("CPU:0")
