"""`tensorflow.python.client.timeline`, also compared with TensorFlow's own on the same step stats."""

from __future__ import annotations

import json
from typing import Any

import pytest

import tfmini as tf
from tests.oracle import Oracle
from tests.train.summaries import oracle_timeline
from tfmini import protos
from tfmini.train.timeline import Timeline

FULL = protos.RunOptions(trace_level=protos.RunOptions.FULL_TRACE)


def drawn(text: str) -> list[dict[str, Any]]:
    return json.loads(text)["traceEvents"]  # type: ignore[no-any-return]


def two_ops() -> Any:
    stats = protos.StepStats()
    device = stats.dev_stats.add(device="/cpu:0")
    one = device.node_stats.add(node_name="a", timeline_label="a = Const()", all_start_micros=10, all_end_rel_micros=15)
    allocation = one.output.add().tensor_description.allocation_description
    allocation.requested_bytes, allocation.allocator_name = 100, "cpu"
    device.node_stats.add(node_name="b", timeline_label="b = Neg(a)", all_start_micros=20, all_end_rel_micros=10)
    return stats


def test_a_timeline_has_bars_arrows_and_memory() -> None:
    analysis = Timeline(two_ops()).analyze_step_stats()
    found = drawn(analysis.chrome_trace.format_to_string())
    bars = {e["args"]["name"]: (e["name"], e["tid"], e["ts"], e["dur"]) for e in found if e["ph"] == "X"}
    assert bars == {"a": ("Const", 0, 10, 15), "b": ("Neg", 1, 20, 10)}
    assert [(e["ph"], e["tid"], e["ts"]) for e in found if e["ph"] in "st"] == [("s", 0, 25), ("t", 1, 20)]
    assert [e["args"]["cpu"] for e in found if e["ph"] == "C"] == [100, 0]
    assert analysis.allocator_maximums == {"cpu": (10, 100, {"a"})}


def test_arrows_and_memory_can_be_left_out() -> None:
    plain = drawn(Timeline(two_ops()).generate_chrome_trace_format(show_dataflow=False))
    assert {event["ph"] for event in plain} == {"M", "X"}
    everything = drawn(Timeline(two_ops()).generate_chrome_trace_format(show_memory=True))
    assert {event["ph"] for event in everything} == set("MXstNODC")


def metadata_of_a_step() -> Any:
    v = tf.Variable([1.0, 2.0], name="v")
    total = tf.while_loop(lambda i, a: i < 2, lambda i, a: (i + 1, a * 2.0), [0, v + 1.0])[1]
    values, indices = tf.nn.top_k(total, 1)
    metadata = tf.RunMetadata()
    with tf.Session() as session:
        session.run(v.initializer)
        session.run([values, indices, v.assign_add(total)], options=FULL, run_metadata=metadata)
    return metadata


@pytest.mark.oracle
def test_tensorflow_reads_our_stats_and_draws_the_same(oracle: Oracle) -> None:
    metadata = metadata_of_a_step()
    theirs = drawn(oracle.call(oracle_timeline.drawn, metadata.SerializeToString()))
    ours = drawn(Timeline(metadata.step_stats).generate_chrome_trace_format(show_memory=True))
    assert comparable(ours) == comparable(theirs)


def comparable(found: list[dict[str, Any]]) -> list[str]:
    """The events in an order that does not depend on who drew them; texts of messages differ in detail."""
    for event in found:
        event.get("args", {}).pop("snapshot", None)
    return sorted(json.dumps(event, sort_keys=True) for event in found)
