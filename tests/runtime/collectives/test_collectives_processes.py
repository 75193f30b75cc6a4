"""All-reduce between real processes: in shared memory and over tcp, the same bits everywhere."""

from __future__ import annotations

import json

import pytest

from tfmini.testing import ProcessCluster

pytestmark = pytest.mark.cluster

_WORKER = """
import hashlib, json, sys
import numpy as np
import tfmini as tf
from tfmini.train.replicas.elastic import Ranks
cluster, index = json.loads(sys.argv[1]), int(sys.argv[3])
count = len(cluster["worker"])
server = tf.train.Server(cluster, job_name="worker", task_index=index)
print("ready", flush=True)
groups = [Ranks(count, index), Ranks(count, index, group_key=2)]
outs, expected = [], []
for dtype in (tf.float32, tf.float16, tf.float64, tf.int32, tf.int64):
    for size in (0, 1, 7, 1009, 20_011):
        random = [np.random.RandomState(r + size).randint(-4, 5, size) for r in range(count)]
        values = [value.astype(dtype.as_numpy_dtype) for value in random]
        for i, group in enumerate(groups):
            outs.append(group.all_reduce(tf.constant(values[index]), merge=("Add", "Max")[i]))
            expected.append(np.max(values, axis=0) if i else sum(values))
large = [np.random.RandomState(r).randn(700_001).astype(np.float32) for r in range(count)]
alone = groups[0].all_reduce(tf.constant(large[index]), mean=True)
with tf.Session(server.target) as session:
    digest = hashlib.sha256()
    for _ in range(3):
        for got, want in zip(session.run(outs), expected):  # all in flight at once
            assert got.dtype == want.dtype and np.array_equal(got, want)
    for _ in range(3):
        got = session.run(alone)
        np.testing.assert_allclose(got, np.mean(large, axis=0), rtol=1e-4, atol=1e-6)
        digest.update(got.tobytes())
    before = server.collective_traffic().bytes
    session.run(alone.op)
    sent = server.collective_traffic().bytes - before
    shares = any(member.stages for member in server.worker.collectives.members.values())
    print(json.dumps([digest.hexdigest(), sent, shares]), flush=True)
    server.join()
"""


@pytest.mark.parametrize("lane", ["on", "off"])
def test_processes_get_the_same_bits(lane: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TFMINI_LANE", lane)
    with ProcessCluster(ps=0, workers=3, program=_WORKER) as cluster:
        for i in range(3):
            cluster.wait_ready("worker", i)
        outcomes = []
        for process in cluster.processes.values():
            assert process.stdout is not None
            outcomes.append(json.loads(process.stdout.readline()))
    digests, sent, shares = zip(*outcomes)
    assert len(set(digests)) == 1
    assert set(shares) == {lane == "on"}
    total = 2 * 2 * 4 * 700_001  # each rank sends 2 (N - 1) / N of the tensor, and not more
    assert sum(sent) == total
    assert all(abs(nbytes - total / 3) <= 4 * 2 * 3 for nbytes in sent)


_RESTARTED = """
import json, sys
import tfmini as tf
from tfmini.train.replicas.elastic import Ranks
cluster, index = json.loads(sys.argv[1]), int(sys.argv[3])
server = tf.train.Server(cluster, job_name="worker", task_index=index)
total = Ranks(2, index).all_reduce(tf.ones([3]) * (index + 1), "t")
session = tf.Session(server.target)
print("ready", flush=True)
for _ in range(3 if index == 0 else 1):
    try:
        print("GOT", session.run(total).tolist(), flush=True)
    except tf.errors.UnavailableError as error:
        print("LOST", "rank 1 (/job:worker/replica:0/task:1" in str(error), flush=True)
server.join()
"""


@pytest.mark.parametrize("lane", ["on", "off"])
def test_a_restarted_rank_takes_part_again(lane: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TFMINI_LANE", lane)
    with ProcessCluster(ps=0, workers=2, program=_RESTARTED) as cluster:
        for i in range(2):
            cluster.wait_ready("worker", i)
        first, second = (process.stdout for process in cluster.processes.values())
        assert first is not None and second is not None
        assert first.readline() == second.readline() == "GOT [3.0, 3.0, 3.0]\n"
        cluster.kill("worker", 1)
        assert first.readline() == "LOST True\n"
        cluster.start_task("worker", 1)
        cluster.wait_ready("worker", 1)
        assert first.readline() == "GOT [3.0, 3.0, 3.0]\n"
