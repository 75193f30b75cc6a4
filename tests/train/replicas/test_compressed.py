"""Compressed gradients in graphs: nothing is lost, all ranks agree, and the inspector shows the bytes."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tfmini as tf
from tests.launch.programs import launched
from tfmini.compat import horovod as hvd
from tfmini.launch.local import reserve_cluster
from tfmini.launch.supervision import TaskId

WAYS = ["fp16", "int8", "topk:0.1"]
ROWS, STEPS, REST = 50, 8, 30
LATE_S = 90.0
_random = np.random.RandomState(0)
PUSHED = _random.randn(2, STEPS, ROWS, 3).astype(np.float32)  # of two workers


def _model(optimizer: Any, step: Any = None) -> tuple[Any, Any, Any]:
    """(placeholder of the gradient of w, the update, w), of a model with other gradients, too."""
    w = tf.get_variable("w", [ROWS, 3], initializer=tf.zeros_initializer())
    half = tf.get_variable("half", [4], tf.float64, initializer=tf.zeros_initializer(), use_resource=True)
    table = tf.get_variable("table", [10, 2], initializer=tf.zeros_initializer())
    gradient = tf.placeholder(tf.float32, [ROWS, 3])
    loss = tf.reduce_sum(w * gradient) + tf.reduce_sum(tf.gather(table, [3]))
    loss += tf.cast(tf.reduce_sum(half * tf.cast(gradient[:4, 0], tf.float64)), tf.float32)
    return gradient, optimizer.minimize(loss, step), [w, half, table]


def _check(found: list[Any], expected: Any, pushes: int) -> None:
    w, half, table = found
    np.testing.assert_allclose(w, -expected, atol=2e-3)
    np.testing.assert_allclose(half, -expected[:4, 0], atol=2e-3)
    assert table[3].tolist() == [-pushes, -pushes]  # rows are not compressed


@pytest.mark.parametrize("way", WAYS)
def test_a_ps_gets_all_in_the_end(way: str) -> None:
    def train(task: Any) -> Any:
        setter = tf.train.replica_device_setter(cluster=task.cluster_spec, worker_device=task.device)
        with tf.Graph().as_default(), tf.device(setter):
            optimizer = tf.train.CompressedGradientOptimizer(tf.train.GradientDescentOptimizer(1.0), way)
            step = tf.train.get_or_create_global_step()
            gradient, update, variables = _model(optimizer, step)
            residuals = [v for v in tf.local_variables() if v.op.name.endswith("_residual")]
            assert len(residuals) == 2 and all("worker" in v.device for v in residuals) and "ps" in variables[0].device
            with tf.train.MonitoredTrainingSession(task.target, is_chief=task.is_chief) as session:
                for each in (*PUSHED[task.index], *np.zeros((REST, ROWS, 3))):
                    session.run(update, {gradient: each})
                both.wait(LATE_S)
                return session.run(variables)

    both = threading.Barrier(2)
    with tf.LocalCluster(ps=1, workers=2, processes=False) as cluster:
        for found in cluster.run(train, timeout_s=LATE_S):
            _check(found, PUSHED.sum((0, 1)), 2 * (STEPS + REST))


@pytest.mark.parametrize("way", WAYS)
def test_synchronous_workers_apply_the_mean_of_all_in_the_end(way: str) -> None:
    def train(task: Any) -> Any:
        setter = tf.train.replica_device_setter(cluster=task.cluster_spec, worker_device=task.device)
        with tf.Graph().as_default(), tf.device(setter):
            optimizer = tf.train.SyncReplicasOptimizer(tf.train.GradientDescentOptimizer(1.0), 2, compression=way)
            step = tf.train.get_or_create_global_step()
            gradient, update, variables = _model(optimizer, step)
            hook = optimizer.make_session_run_hook(task.is_chief, num_tokens=0)  # or the second gradient may be stale
            with tf.train.MonitoredTrainingSession(task.target, is_chief=task.is_chief, hooks=[hook]) as session:
                for each in (*PUSHED[task.index], *np.zeros((REST, ROWS, 3))):
                    both.wait(LATE_S)  # so that none takes the token of another one
                    session.run(update, {gradient: each})
                both.wait(LATE_S)
                return session.run(variables)

    both = threading.Barrier(2)
    with tf.LocalCluster(ps=1, workers=2, processes=False) as cluster:
        for found in cluster.run(train, timeout_s=LATE_S):
            _check(found, PUSHED.sum((0, 1)) / 2, STEPS + REST)


def _ranks(way: str, mean: bool, bucket_bytes: int) -> list[Any]:
    """What two ranks of an all-reduce come to."""
    reserved = reserve_cluster([TaskId("worker", i) for i in range(2)])
    reserved.close()
    servers = [tf.train.Server(reserved.spec, job_name="worker", task_index=i) for i in range(2)]
    results: dict[int, list[Any]] = {}

    def work(rank: int) -> None:
        with tf.Graph().as_default():
            optimizer = tf.train.AllReduceOptimizer(
                tf.train.GradientDescentOptimizer(1.0), 2, rank, mean=mean, bucket_bytes=bucket_bytes, compression=way
            )
            gradient, update, variables = _model(optimizer)
            hooks = [optimizer.make_session_run_hook()]
            with tf.train.MonitoredTrainingSession(servers[rank].target, hooks=hooks) as session:
                for each in (*PUSHED[rank], *np.zeros((REST, ROWS, 3))):
                    session.run(update, {gradient: each})
                results[rank] = session.run(variables)

    threads = [threading.Thread(target=work, args=(rank,)) for rank in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LATE_S)
    for server in servers:
        server.stop()
    return [results[rank] for rank in range(2)]


@pytest.mark.parametrize(
    ("way", "bucket_bytes"), [("fp16", 1 << 20), ("int8", 0), ("int8", 1 << 20), ("topk:0.1", 1 << 20)]
)
def test_ranks_apply_the_same_mean_of_all_in_the_end(way: str, bucket_bytes: int) -> None:
    one, other = _ranks(way, True, bucket_bytes)
    for mine, others in zip(one, other):
        assert mine.tobytes() == others.tobytes()
    _check(one, PUSHED.sum((0, 1)) / 2, STEPS + REST)


def test_ranks_may_apply_the_sum() -> None:
    one, _ = _ranks("int8", False, 1 << 20)
    _check(one, PUSHED.sum((0, 1)), 2 * (STEPS + REST))


@pytest.mark.parametrize(("way", "size"), [(None, 4800), ("fp16", 2400), ("int8", 1204), ("topk:0.01", 96)])
def test_the_inspector_shows_the_compressed_bytes(way: str | None, size: int) -> None:
    def sent(make: Any, **cluster: int) -> list[tuple[int | None, str]]:
        with tf.Graph().as_default() as graph:
            setter = tf.train.replica_device_setter(cluster={"ps": ["a:1"], "worker": ["b:1"]})
            with tf.device(setter if cluster["ps"] else None):
                w = tf.get_variable("w", [1200])
                loss = tf.reduce_sum(tf.square(w))
                make(tf.train.GradientDescentOptimizer(0.1)).minimize(loss, tf.train.get_or_create_global_step())
        rows = tf.inspect(graph, **cluster).transfers
        return [(row.bytes, row.role) for row in rows if "worker/task:0" in f"{row.src}|" or "task:0" in row.src]

    def bytes_of(rows: list[tuple[int | None, str]]) -> int:
        return sum(nbytes or 0 for nbytes, role in rows if "of w" in role and "all-" in role or "gradient of w" in role)

    if way is not None:
        asynchronous = sent(lambda opt: tf.train.CompressedGradientOptimizer(opt, way), ps=1, workers=1)
        assert bytes_of(asynchronous) == size, asynchronous
    synchronous = sent(lambda opt: tf.train.SyncReplicasOptimizer(opt, 1, compression=way), ps=1, workers=1)
    assert bytes_of(synchronous) == size, synchronous
    reduced = sent(lambda opt: tf.train.AllReduceOptimizer(opt, 2, compression=way), ps=0, workers=2)
    assert bytes_of(reduced) == size, reduced


@pytest.mark.parametrize(("way", "roles"), [
    ("int8", {"gradient of v", "gradient of w"}),
    ("topk:0.1", {f"{part}gradient of {name}" for name in "vw" for part in ("", "ids of the ")}),
])  # fmt: skip
def test_the_inspector_names_the_parts_of_each_gradient(way: str, roles: set[str]) -> None:
    with tf.Graph().as_default() as graph, tf.device(tf.train.replica_device_setter(1)):
        loss = sum(tf.reduce_sum(tf.square(tf.get_variable(name, [20]))) for name in "vw")
        tf.train.CompressedGradientOptimizer(tf.train.GradientDescentOptimizer(0.1), way).minimize(loss)
    rows = tf.inspect(graph, ps=1, workers=1).transfers
    assert {row.role for row in rows if "gradient" in row.role} == roles


def test_what_makes_no_sense_is_refused() -> None:
    opt = tf.train.GradientDescentOptimizer(0.1)
    for make in (
        lambda: tf.train.CompressedGradientOptimizer(opt, "fp8"),
        lambda: tf.train.SyncReplicasOptimizer(opt, 2, compression="fp8"),
        lambda: tf.train.AllReduceOptimizer(opt, 2, compression="topk:2"),
        lambda: tf.train.DiLoCoOptimizer(opt, 2, compression="topk"),
        lambda: hvd.Compression.topk(2),
    ):
        with pytest.raises(ValueError, match="compression is 'fp16', 'int8' or 'topk:FRACTION'"):
            make()
    with pytest.raises(ValueError, match="the argument compression, not a CompressedGradientOptimizer"):
        tf.train.SyncReplicasOptimizer(tf.train.CompressedGradientOptimizer(opt), 2)


_SCRIPT = """
import numpy as np
import tensorflow as tf
import horovod.tensorflow as hvd
hvd.init()
rank = hvd.rank()
for compression in (hvd.Compression.int8, hvd.Compression.topk(0.25)):
    for passes in (1, 2):
        with tf.Graph().as_default(), tf.Session() as session:
            w = tf.get_variable("w", initializer=tf.zeros([8]))
            x = tf.placeholder(tf.float32, [8])
            opt = hvd.DistributedOptimizer(
                tf.train.GradientDescentOptimizer(1.0), compression=compression, backward_passes_per_step=passes)
            train = opt.minimize(-tf.reduce_sum(w * x))
            session.run([tf.global_variables_initializer(), tf.local_variables_initializer()])
            values = np.linspace(-1, 1, 8) * (rank + 1)
            for each in [values] * 8 + [0 * values] * 24:
                session.run(train, {x: each})
            np.testing.assert_allclose(session.run(w), np.linspace(-1, 1, 8) * 1.5 * 8, atol=1e-2)
            try:
                hvd.allreduce(x, compression=compression)
            except ValueError as error:
                assert "Give it to hvd.DistributedOptimizer" in str(error)
            else:
                raise AssertionError("it was not refused")
print("all as expected", flush=True)
"""


@pytest.mark.cluster
def test_horovods_optimizer_compresses_with_error_feedback(tmp_path: Path) -> None:
    assert launched(tmp_path, _SCRIPT, "--ps", "0", "--workers", "2").count("all as expected") == 2
