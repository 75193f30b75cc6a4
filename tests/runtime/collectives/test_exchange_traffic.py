"""What collectives have sent is counted, by task, and is in the trace of a step."""

from __future__ import annotations

import threading
from typing import Any

import pytest

import tfmini as tf
from tests.runtime.collectives.test_collectives import local_config, servers
from tfmini import protos
from tfmini.ops import collectives as collective_ops
from tfmini.show.inspection.trace import EXCHANGE, OP, StepTrace

FULL = protos.RunOptions(trace_level=protos.RunOptions.FULL_TRACE)


def test_a_traced_step_with_a_collective_says_what_each_rank_has_sent() -> None:
    """It died (`'TracedLocalStep' object has no attribute 'begin'`)."""
    with tf.Graph().as_default():
        outs = []
        for i in range(3):
            with tf.device(f"/cpu:{i}"):
                outs.append(collective_ops.all_reduce(tf.fill([5], i + 1.0), 3, 7, 1, "Add", "Id"))
        metadata = tf.RunMetadata()
        with tf.Session(config=local_config(3)) as session:
            for value in session.run(outs, options=FULL, run_metadata=metadata):
                assert value.tolist() == [6] * 5
    trace = StepTrace.of(metadata.step_stats)
    sent = trace.of_kind(EXCHANGE)
    names = {out.op.name for out in outs}
    assert {(s.name, s.op, s.way, s.bytes, s.messages) for s in sent} == {
        (name, "all-reduce", "messages", 20, 1) for name in names
    }
    assert len({(s.device, s.peer) for s in sent}) == 6
    assert {s.name for s in trace.of_kind(OP) if s.op == "CollectiveReduce"} == names
    assert all(trace.start <= s.start <= s.end <= trace.end for s in sent)


def run_ranks(cluster: list[tf.train.Server], **options: Any) -> None:
    def work(rank: int) -> None:
        with tf.Graph().as_default(), tf.device(f"/job:worker/task:{rank}"):
            total = collective_ops.all_reduce(tf.fill([300_000], rank + 1.0), len(cluster), 1, 2, "Add", "Id")
            with tf.Session(cluster[rank].target) as session:
                session.run(total.op, **(options if rank == 0 else {}))

    threads = [threading.Thread(target=work, args=(rank,)) for rank in range(len(cluster))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


@pytest.mark.parametrize("lane", ["on", "off"])
def test_a_server_counts_what_it_has_sent_to_each_task(lane: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TFMINI_LANE", lane)
    cluster = servers(2)
    assert cluster[0].collective_traffic().bytes == 0
    metadata = tf.RunMetadata()
    run_ranks(cluster, options=FULL, run_metadata=metadata)
    (span,) = StepTrace.of(metadata.step_stats).of_kind(EXCHANGE)
    assert (span.device, span.peer) == tuple(f"/job:worker/replica:0/task:{i}/device:CPU:0" for i in (0, 1))
    assert span.bytes == 1_200_000  # 2 (N - 1) / N of the tensor
    for rank, server in enumerate(cluster):
        traffic = server.collective_traffic()
        other = f"/job:worker/replica:0/task:{1 - rank}"
        assert traffic.bytes_to == {other: 1_200_000} and traffic.bytes == 1_200_000
        assert traffic.messages_to == {other: traffic.messages}
        server.stop()
