"""Collectives between devices of one process, and between servers."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tfmini as tf
from tfmini.ops import collectives as collective_ops
from tfmini.train.replicas.elastic import Ranks


def local_config(devices: int) -> tf.ConfigProto:
    return tf.ConfigProto(device_count={"CPU": devices})


@pytest.mark.parametrize(("merge", "final", "expected"), [("Add", "Id", 6), ("Add", "Div", 2), ("Max", "Id", 3)])
def test_devices_of_one_session_reduce(merge: str, final: str, expected: int) -> None:
    with tf.Graph().as_default():
        outs = []
        for i in range(3):
            with tf.device(f"/cpu:{i}"):
                for key, count in ((1, 5), (2, 100_000)):
                    value = tf.fill([count], float(i + 1))
                    outs.append(collective_ops.all_reduce(value, 3, 7, key, merge, final))
        with tf.Session(config=local_config(3)) as session:
            for _ in range(3):
                for value in session.run(outs):
                    assert (value == expected).all()


def test_devices_of_one_session_gather_and_broadcast() -> None:
    with tf.Graph().as_default():
        with tf.device("/cpu:0"):
            rows = tf.constant([[1.0, 2.0]])
            first = collective_ops.all_gather(rows, 2, 1, 1)
            sent = collective_ops.broadcast_send(rows, [1, 2], tf.float32, 2, 1, 2)
        with tf.device("/cpu:1"):
            second = collective_ops.all_gather(tf.constant([[3.0, 4.0]]), 2, 1, 1)
            got = collective_ops.broadcast_recv([1, 2], tf.float32, 2, 1, 2)
        assert first.shape == [2, 2]
        with tf.Session(config=local_config(2)) as session:
            for value in session.run([first, second]):
                assert value.tolist() == [[1, 2], [3, 4]]
            for value in session.run([sent, got]):
                assert value.tolist() == [[1, 2]]


def test_shapes_that_differ_between_devices_are_refused() -> None:
    with tf.Graph().as_default():
        outs = []
        for i in range(2):
            with tf.device(f"/cpu:{i}"):
                outs.append(collective_ops.all_reduce(tf.zeros([3 + i]), 2, 1, 1, "Add", "Id"))
        wrong = pytest.raises(tf.errors.FailedPreconditionError, match=r"Shape mismatch.*\[[34]\].*\[[34]\]")
        with tf.Session(config=local_config(2)) as session, wrong:
            session.run(outs)


def test_group_size_below_two_is_refused() -> None:
    with pytest.raises(ValueError, match="group_size"):
        collective_ops.all_reduce(tf.zeros([1]), 1, 1, 1, "Add", "Id")


def servers(count: int) -> list[tf.train.Server]:
    from tfmini.launch.local import reserve_cluster
    from tfmini.launch.supervision import TaskId

    reserved = reserve_cluster([TaskId("worker", i) for i in range(count)])
    spec = reserved.spec
    reserved.close()
    return [tf.train.Server(spec, job_name="worker", task_index=i) for i in range(count)]


@pytest.mark.parametrize("count", [2, 3])
def test_clients_with_graphs_of_their_own_reduce(count: int) -> None:
    cluster = servers(count)
    results: list[list[np.ndarray]] = [[] for _ in range(count)]

    def work(rank: int) -> None:
        with tf.Graph().as_default(), tf.device(f"/job:worker/task:{rank}"):
            small = collective_ops.all_reduce(tf.fill([3], rank + 1.0), count, 1, 1, "Add", "Id")
            large = collective_ops.all_reduce(tf.fill([300_001], rank + 1.0), count, 1, 2, "Add", "Div")
            with tf.Session(cluster[rank].target) as session:
                for _ in range(3):
                    results[rank] = session.run([small, large])

    threads = [threading.Thread(target=work, args=(rank,)) for rank in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for small, large in results:
        assert (small == count * (count + 1) / 2).all()
        assert (large == np.float32((count + 1) / 2)).all()
        assert large.tobytes() == results[0][1].tobytes()
    for server in cluster:
        sent = server.collective_traffic().bytes
        expected = 3 * (2 * (count - 1) / count * 4 * 300_001 + (count - 1) * 12)
        assert abs(sent - expected) < 1000
        server.stop()


def test_one_graph_reduces_over_several_tasks() -> None:
    cluster = servers(2)
    with tf.Graph().as_default():
        outs = []
        for i in range(2):
            with tf.device(f"/job:worker/task:{i}"):
                outs.append(collective_ops.all_reduce(tf.fill([50_000], float(i)), 2, 1, 1, "Add", "Id"))
        with tf.Session(cluster[0].target) as session:
            for value in session.run(outs):
                assert (value == 1).all()
    for server in cluster:
        server.stop()


def run_on_devices(make: Callable[[int], Any], count: int = 2) -> list[Any]:
    """What the op that each device makes gives, all in one step."""
    with tf.Graph().as_default():
        outs = []
        for i in range(count):
            with tf.device(f"/cpu:{i}"):
                outs.append(make(i))
        with tf.Session(config=local_config(count)) as session:
            return session.run(outs)


def test_different_divisions_of_a_tensor_are_refused() -> None:
    def make(rank: int) -> Any:
        return collective_ops.all_reduce(tf.zeros([50_000]), 2, 1, 1, "Add", "Id", [0] * (1 + 2 * rank))

    with pytest.raises(tf.errors.FailedPreconditionError, match=r"Op mismatch.*all-reduce\(Add, Id, 3 pieces\)"):
        run_on_devices(make)


def test_two_sources_of_a_broadcast_are_refused() -> None:
    def make(rank: int) -> Any:
        return collective_ops.broadcast_send(tf.fill([3], float(rank)), [3], tf.float32, 2, 1, 1)

    with pytest.raises(tf.errors.InvalidArgumentError, match="Ranks [01] and [01] are both the source of one"):
        run_on_devices(make)


def test_a_broadcast_without_a_source_fails() -> None:
    with pytest.raises(tf.errors.InvalidArgumentError, match="All 3 ranks wait in a broadcast without a source"):
        run_on_devices(lambda rank: collective_ops.broadcast_recv([3], tf.float32, 3, 1, 1), 3)


@pytest.mark.parametrize("roots", [(0, 1), (1, 0)])
def test_different_roots_are_refused(roots: tuple[int, int], monkeypatch: Any) -> None:
    monkeypatch.setattr(Ranks, "_identity", lambda ranks, name: (name, (ranks.size, ranks.group_key, 1)))

    def make(rank: int) -> Any:
        return Ranks(2, rank, device=f"/cpu:{rank}").broadcast(tf.zeros([3]), roots[rank], "w")

    text = r"Op mismatch.*\"w\" broadcast\(from rank [01]\).*\"w\" broadcast\(from rank [01]\)"
    with pytest.raises(tf.errors.FailedPreconditionError, match=text):
        run_on_devices(make)


def test_gather_of_empty_rows_keeps_their_number() -> None:
    assert [v.shape for v in run_on_devices(lambda i: collective_ops.all_gather(tf.zeros([3, 0]), 2, 1, 1))] == [
        (6, 0), (6, 0),
    ]  # fmt: skip


def test_devices_of_one_session_scatter_and_broadcast_unknown_shapes() -> None:
    with tf.Graph().as_default():
        sums, rows, counts, sent_to_all = [], [], [], []
        for i in range(3):
            with tf.device(f"/cpu:{i}"):
                unknown = tf.placeholder_with_default(np.full([2], i), [None])
                sent_to_all.append(collective_ops.broadcast_alike(unknown, i == 1, 3, 7, 3))
                sums.append(collective_ops.reduce_scatter(tf.range(8) * (i + 1), 3, 7, 1, "Add", "Id"))
                splits = [[2, 0, 1], [1, 1, 1], [0, 0, 2]][i]
                sent, received = collective_ops.all_to_all(tf.fill([4, 2], i), splits, 3, 7, 2)
                rows.append(sent)
                counts.append(received)
        with tf.Session(config=local_config(3)) as session:
            got = session.run([sums, rows, counts, sent_to_all])
    assert [value.tolist() for value in got[0]] == [[0, 6, 12], [18, 24, 30], [36, 42]]
    assert [value[:, 0].tolist() for value in got[1]] == [[0, 0, 1], [1], [0, 1, 2, 2]]
    assert [value.tolist() for value in got[2]] == [[2, 1, 0], [0, 1, 0], [1, 1, 2]]
    assert [value.tolist() for value in got[3]] == [[1, 1]] * 3


@pytest.mark.parametrize(
    ("rows", "splits", "message"),
    [(3, [], "cannot divide 3 rows evenly among 2"), (3, [1], "1 splits for 2"), (3, [2, 2], "at most 3"),
     (3, [-1, 2], "at most 3")],
)  # fmt: skip
def test_splits_that_do_not_fit_are_refused(rows: int, splits: list[int], message: str) -> None:
    with tf.Graph().as_default():
        outs = []
        for i in range(2):
            with tf.device(f"/cpu:{i}"):
                given = tf.constant(splits, tf.int32)
                outs.append(collective_ops.all_to_all(tf.zeros([rows]), given, 2, 1, 1))
        refused = pytest.raises(tf.errors.InvalidArgumentError, match=message)
        with tf.Session(config=local_config(2)) as session, refused:
            session.run(outs)


def test_tensors_of_several_devices_are_reduced_to_each_of_them() -> None:
    parts = []
    for index in range(4):
        with tf.device(f"/cpu:{index}"):
            parts.append(tf.constant([1.0, 2.0]) * (index + 1))
    half = lambda total: total / 2.0  # noqa: E731
    found = [
        collective_ops.build_ring_all_reduce(parts, 1, 1, [0, 1, 2, 3], tf.add, half),
        collective_ops.build_recursive_hd_all_reduce(parts, tf.maximum),
        collective_ops.build_shuffle_all_reduce(parts, ["/cpu:1"], tf.add_n),
    ]
    assert [tensor.device for tensor in found[0]] == [tensor.device for tensor in parts]
    with tf.Session(config=tf.ConfigProto(device_count={"CPU": 4})) as session:
        values = session.run(found)
    for value, wanted in zip(values, ([5.0, 10.0], [4.0, 8.0], [10.0, 20.0])):
        assert [array.tolist() for array in value] == [wanted] * 4
    with pytest.raises(ValueError, match="2 or longer"):
        collective_ops.build_ring_all_reduce(parts[:1], 1, 1, [0], tf.add)
    with pytest.raises(ValueError, match="power of 2"):
        collective_ops.build_recursive_hd_all_reduce(parts[:3], tf.add)
