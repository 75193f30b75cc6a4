"""Reading a traced step, drawing it, and its numbers beside the inspector's."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import tfmini as tf
from tfmini import protos
from tfmini.graph import node
from tfmini.runtime import trace as labels
from tfmini.runtime.gathered_trace import set_times
from tfmini.show.inspection.api import inspect
from tfmini.show.inspection.pages import events, sentences, timeline, trace_page_data
from tfmini.show.inspection.text import show
from tfmini.show.inspection.trace import (
    CONTROL,
    OP,
    SEND,
    WAIT,
    WIRE,
    Span,
    StepTrace,
    covered,
    measure,
    read_trace,
    summary,
)
from tfmini.terminal import as_text

PS, WORKER = "/job:ps/replica:0/task:0/device:CPU:0", "/job:worker/replica:0/task:0/device:CPU:0"


def model() -> tuple[tf.Tensor, tf.Operation]:
    with tf.device("/job:ps/task:0"):
        weights = tf.Variable(tf.zeros([4, 2]), name="W")
    with tf.device("/job:worker/task:0"):
        loss = tf.reduce_sum(tf.matmul(tf.ones([3, 4]), weights, name="product"))
        return loss, tf.train.GradientDescentOptimizer(0.1).minimize(loss, name="train")


def stats_of_a_step() -> Any:
    """Microseconds 100 to 200: a read is sent to the worker in two tensors, used there, and sent back."""
    stats = protos.StepStats()
    devices = {name: stats.dev_stats.add(device=name) for name in (PS, WORKER)}

    def add(device: str, name: str, label: str, start: int, end: int, size: int = 0, thread: int = 0) -> None:
        entry = devices[device].node_stats.add(node_name=name, timeline_label=label, thread_id=thread)
        set_times(entry, start * 1000, start * 1000, end * 1000, end * 1000)
        if size:
            entry.output.add().tensor_description.allocation_description.requested_bytes = size

    def travel(edge: str, source: str, target: str, sent: int, came: int, size: int) -> None:
        add(source, f"{edge}_send", labels.transfer_label("s", node.SEND, edge, target), sent, sent + 5, size)
        add(target, f"{edge}_recv", labels.transfer_label("r", node.RECEIVE, edge, source), came, came + 1, size)
        add(target, labels.WIRE, labels.wire_label(size, 1e-5, edge, source, target), sent, came, size)

    add(WORKER, labels.STEP, labels.op_label(labels.STEP, labels.STEP, ["step 1"]), 100, 200)
    add(WORKER, labels.CLOCK, labels.clock_label("/job:worker/replica:0/task:0", 0, 0), 100, 100)
    add(PS, labels.CLOCK, labels.clock_label("/job:ps/replica:0/task:0", -4000, 30_000), 100, 100)
    add(PS, labels.REQUEST, labels.op_label(labels.REQUEST, labels.REQUEST, ["RunGraph"]), 100, 110)
    travel("edge_3_W/read", PS, WORKER, 110, 120, 32)
    travel("edge_4_b/read", PS, WORKER, 110, 120, 8)
    add(WORKER, labels.WAIT, labels.op_label(labels.WAIT, labels.WAIT, ["W/read"]), 105, 120)
    add(WORKER, "product", labels.op_label("product", "MatMul", ["ones", "W/read"]), 121, 150, 24)
    add(WORKER, "loop", labels.op_label("loop", "_Loop", []), 121, 160)
    add(WORKER, "late", labels.op_label("late", "QueueDequeueV2", ["queue"]), 140, 180)
    travel("edge_9_gradients/product_grad/tuple/control_dependency_1", WORKER, PS, 160, 190, 32)
    return stats


def test_what_a_device_has_compiled_is_among_the_longest() -> None:
    stats = protos.StepStats()
    device = stats.dev_stats.add(device=WORKER)
    for name, op, end in (("step", labels.STEP, 200), ("stretch_7", "_Stretch", 190), ("loop", "_Loop", 180)):
        label = labels.op_label(labels.STEP if op == labels.STEP else name, op, [])
        entry = device.node_stats.add(node_name=op if op == labels.STEP else name, timeline_label=label)
        set_times(entry, 100_000, 100_000, end * 1000, end * 1000)
    text = StepTrace.of(stats).text()
    assert ["stretch_7", "compiled", "ops", "worker/0", "0.090", "0"] in [line.split() for line in text.splitlines()]
    assert "loop" not in text


def test_spans_and_attributed_time() -> None:
    trace = StepTrace.of(stats_of_a_step())
    assert (trace.start, trace.end, trace.duration) == (100, 200, 100)
    assert trace.tasks == ["/job:ps/replica:0/task:0", "/job:worker/replica:0/task:0"]
    assert trace.clocks["/job:ps/replica:0/task:0"].correction == -4.0
    assert trace.clocks["/job:ps/replica:0/task:0"].error == 30.0
    [product] = [span for span in trace.of_kind(OP) if span.name == "product"]
    assert (product.op, product.inputs, product.bytes, product.duration) == ("MatMul", ("ones", "W/read"), 24, 29)
    first = trace.of_kind(WIRE)[0]
    assert (first.name, first.peer, first.device, first.bytes) == ("W/read", PS, WORKER, 32)
    # All but the last 9 µs; the wait does not count, though here it hides nothing.
    assert trace.attributed() == pytest.approx(0.91)
    assert trace.busy(trace.tasks[0]) == 6.0
    assert {span.kind for span in trace.spans} >= {SEND, WAIT, CONTROL}


def test_covered_counts_overlaps_once_and_stops_at_the_ends() -> None:
    spans = [Span(OP, "", "", PS, start, end) for start, end in ((0, 4), (2, 6), (3, 4), (8, 20))]
    assert covered(spans, 1, 10) == 7


def test_empty_stats_raise_an_error_with_the_remedy() -> None:
    with pytest.raises(ValueError, match="trace_level=FULL_TRACE"):
        StepTrace.of(protos.StepStats())


def test_bars_are_disjoint_or_nested_and_arrows_start_on_them() -> None:
    trace = StepTrace.of(stats_of_a_step())
    found = events(trace)
    bars = [event for event in found if event["ph"] == "X"]
    rows: dict[Any, list[tuple[float, float]]] = {}
    for bar in bars:
        rows.setdefault((bar["pid"], bar["tid"]), []).append((bar["ts"], bar["ts"] + bar["dur"]))
    for row in rows.values():
        row.sort(key=lambda bar: (bar[0], -bar[1]))
        for number, (_, end) in enumerate(row):
            assert all(later >= end or later_end <= end for later, later_end in row[number + 1 :]), row
    processes = {e["pid"]: e["args"]["name"] for e in found if e["name"] == "process_name"}
    assert processes == {0: "ps/0 (clock within 30 µs)", 1: "worker/0"}
    tracks = {(e["pid"], e["tid"]): e["args"]["name"] for e in found if e["name"] == "thread_name"}
    titles = {(processes[b["pid"]][:4], tracks[b["pid"], b["tid"]], b["name"]) for b in bars}
    assert ("work", "in flight to here", "W/read and 1 more from ps/0") in titles
    assert ("ps/0", "send", "W/read and 1 more to worker/0") in titles
    assert ("work", "ops (2)", "QueueDequeueV2") in titles
    assert ("work", "wait and dispatch", "waits for W/read") in titles
    flows: dict[int, list[dict[str, Any]]] = {}
    for event in found:
        if event["ph"] in "stf":
            flows.setdefault(event["id"], []).append(event)
    assert len(flows) == 3
    for flow in flows.values():
        assert [event["ph"] for event in flow] == ["s", "t", "f"]
        for event in flow:
            assert any(
                bar["pid"] == event["pid"] and bar["tid"] == event["tid"] and bar["ts"] == event["ts"] for bar in bars
            )


def test_a_timeline_and_a_metadata_file_can_be_read_again(tmp_path: Path) -> None:
    stats = stats_of_a_step()
    trace = StepTrace.of(stats)
    drawn = tmp_path / "timeline.json"
    drawn.write_text(timeline(trace))
    assert read_trace(drawn).spans == trace.spans
    about = json.loads(drawn.read_text())["otherData"]
    assert about["attributed"] == 0.91 and about["clocks"]["/job:ps/replica:0/task:0"]["error_us"] == 30.0
    metadata = tmp_path / "metadata"
    metadata.write_bytes(protos.RunMetadata(step_stats=stats).SerializeToString())
    assert read_trace(metadata).spans == trace.spans
    for wrong in (b"{}", b"\xff\xff\xff", b""):
        metadata.write_bytes(wrong)
        with pytest.raises(ValueError, match="neither a timeline"):
            read_trace(metadata)


def test_the_inspector_shows_measured_times_and_bytes() -> None:
    model()
    metadata = protos.RunMetadata(step_stats=stats_of_a_step())
    found = inspect(ps=1, workers=1, fetches="train", trace=metadata)
    wire = show(found, "wire")
    assert "in flight ms" in wire and "0.010" in wire and "0.030" in wire
    tasks = show(found, "tasks").splitlines()
    assert tasks[0].split()[-4:] == ["sent", "B", "computed", "ms"]
    assert tasks[2].split()[0] == "worker/0" and tasks[2].split()[-2:] == ["32", "0.039"]
    report = found.to_json()
    [read] = [row for row in report["transfers"] if row["tensor"] == "W/read:0"]
    assert (read["measured_bytes"], read["measured_us"]) == (32, 10.0)
    assert report["measured"]["ops"]["product"] == 29.0 and report["measured"]["step_us"] == 100.0
    assert not any(warning.kind == "trace" for warning in found.warnings)
    with tf.Graph().as_default():
        tf.constant(1.0, name="alone")
        other = inspect(ps=1, workers=1, fetches="alone", trace=metadata)
    assert [warning.kind for warning in other.warnings] == ["trace"]
    assert "in flight ms" not in show(inspect(ps=1, workers=1, fetches="train"), "wire")


def test_the_values_of_the_client_inside_run_graph_and_its_reply_count_as_sent() -> None:
    with tf.device("/job:ps/task:0"):
        x, y = (tf.placeholder(tf.float32, [4], name=name) for name in "xy")
        total, words = tf.add(x, y, name="total"), tf.as_string(x, name="words")
    stats = protos.StepStats()
    add_call = ((PS, labels.REQUEST, "RunGraph", WORKER, 32), (WORKER, labels.ANSWER, "done", PS, 21))
    for device, kind, what, source, nbytes in add_call:
        label = labels.call_label(kind, what, source, device)
        entry = stats.dev_stats.add(device=device).node_stats.add(node_name=kind, timeline_label=label)
        set_times(entry, 1000, 1000, 2000, 2000)
        entry.output.add().tensor_description.allocation_description.requested_bytes = nbytes
    trace = StepTrace.of(stats)
    assert [trace.received(task)[0] for task in trace.tasks] == [32, 21]
    rows = [line.split() for line in trace.text().splitlines() if line.startswith(("ps/0", "worker/0"))]
    assert [(row[6], row[7]) for row in rows] == [("21", "32"), ("32", "21")]
    assert "Tensors between tasks: 53 B." in sentences(trace)
    found = inspect(ps=1, workers=1, fetches=[total, words], trace=trace)
    assert "; 53 B were sent" in found.text("wire")
    measured = {row["tensor"]: row.get("measured_bytes") for row in found.to_json()["transfers"]}
    # The feeds have the bytes that were expected; how many of the 21 are those of the texts nobody has measured.
    assert measured == {"x:0": 16, "y:0": 16, "total:0": None, "words:0": None}


def test_an_op_that_waits_for_others_does_not_compute() -> None:
    """An all-reduce counted as computing for as long as it waited for the slowest rank."""
    device = "/job:worker/replica:0/task:0/device:CPU:0"
    spans = [
        Span("step", "", "", device, 0.0, 100.0), Span("op", "mul", "Mul", device, 0.0, 10.0),
        Span("op", "sum", "CollectiveReduce", device, 10.0, 90.0),
        Span("op", "take", "QueueDequeueV2", device, 90.0, 95.0),
    ]  # fmt: skip
    trace = StepTrace(spans, {}, 0.0, 100.0)
    assert trace.busy("/job:worker/replica:0/task:0") == 10.0
    assert measure(trace, []).busy(device) == 10.0
    assert trace.waited("/job:worker/replica:0/task:0") == 85.0
    assert sentences(trace)[1:] == ["worker/0 waited 0.085 ms in all, longest for sum (0.080 ms)."]
    kinds = [bar["kind"] for track in trace_page_data(trace)["tasks"][0]["tracks"] for bar in track["bars"]]
    assert kinds == ["step", "op", "wait", "wait"]


def test_what_ranks_receive_is_what_the_others_have_sent() -> None:
    """The column of received bytes was 0 beside an all-reduce."""
    one, other = (f"/job:worker/replica:0/task:{i}/device:CPU:0" for i in (0, 1))
    sent = [Span("exchange", "sum", "all-reduce", one, 0.0, 9.0, 800, other), Span("op", "mul", "Mul", one, 0.0, 10.0)]
    assert StepTrace(sent, {}, 0.0, 10.0).received("/job:worker/replica:0/task:0") == (0, True)
    assert "0 + ?" in as_text(summary(StepTrace(sent, {}, 0.0, 10.0)))
    back = Span("exchange", "sum", "all-reduce", other, 0.0, 9.0, 700, one)
    assert StepTrace([*sent, back], {}, 0.0, 10.0).received("/job:worker/replica:0/task:0") == (700, False)


def test_a_wait_for_many_tensors_is_told_in_a_few_words() -> None:
    wait = Span("wait", "w/read, b/read, c/read from /job:ps/replica:0/task:0", "", WORKER, 0.0, 4.0)
    assert sentences(StepTrace([wait], {}, 0.0, 10.0))[1].endswith(
        "longest for w/read and 2 more from ps/0 (0.004 ms)."
    )


def test_a_trace_is_read_from_what_a_run_has_recorded_and_written_again(tmp_path: Path) -> None:
    metadata = tf.RunMetadata(step_stats=stats_of_a_step())
    trace = tf.StepTrace.of(metadata)
    assert len(trace.spans) == len(tf.StepTrace.of(metadata.step_stats).spans) and tf.StepTrace.of(trace) is trace
    assert "the step took 0.100 ms" in trace.text(width=100)
    trace.save(tmp_path / "timeline.json")
    assert tf.StepTrace.of(str(tmp_path / "timeline.json")).spans == trace.spans
    trace.save(tmp_path / "page.html")
    assert "<html" in (tmp_path / "page.html").read_text()
    with pytest.raises(ValueError, match=r"can be written as .json, .html, by the ending of its name"):
        trace.save(tmp_path / "timeline.txt")
