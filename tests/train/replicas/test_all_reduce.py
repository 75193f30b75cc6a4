"""`AllReduceOptimizer` and the Horovod shim: the same parameters as one process with the whole batch."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

import tfmini as tf
from tfmini.launch.local import reserve_cluster
from tfmini.launch.supervision import TaskId
from tfmini.train.replicas.all_reduce import buckets

WORKERS, STEPS = 2, 5
_rng = np.random.RandomState(0)
XS = _rng.randn(WORKERS * 8, 3).astype(np.float32)
YS = (XS @ np.array([[1.0], [-2.0], [0.5]], np.float32)) + 1
ROWS = np.array([[0, 2]] * 8 + [[1, 1]] * 8)


def build(seed: int, optimizer: tf.train.Optimizer):
    x, y = tf.placeholder(tf.float32, [None, 3]), tf.placeholder(tf.float32, [None, 1])
    rows = tf.placeholder(tf.int64, [None, 2])
    w = tf.get_variable("w", initializer=np.full([3, 1], seed, np.float32))
    b = tf.get_variable("b", initializer=np.zeros([1], np.float32))
    table = tf.get_variable("table", initializer=np.full([4, 1], 0.1 * seed, np.float32))
    looked_up = tf.reduce_sum(tf.nn.embedding_lookup(table, rows), axis=1)
    loss = tf.reduce_mean(tf.square(tf.matmul(x, w) + b + looked_up - y))
    return x, y, rows, [w, b, table], optimizer.minimize(loss, tf.train.get_or_create_global_step())


def train(session, model, part: slice) -> list[np.ndarray]:
    x, y, rows, variables, step = model
    for _ in range(STEPS):
        session.run(step, {x: XS[part], y: YS[part], rows: ROWS[part]})
    return session.run([*variables, tf.train.get_global_step()])


@pytest.mark.parametrize("bucket_bytes", [0, 1 << 20])
def test_workers_reach_the_parameters_of_one_process(bucket_bytes: int) -> None:
    with tf.Graph().as_default():
        model = build(1, tf.train.MomentumOptimizer(0.05, 0.9))
        with tf.train.MonitoredTrainingSession() as session:
            expected = train(session, model, slice(None))
    reserved = reserve_cluster([TaskId("worker", i) for i in range(WORKERS)])
    reserved.close()
    cluster = [tf.train.Server(reserved.spec, job_name="worker", task_index=i) for i in range(WORKERS)]
    results: dict[int, list[np.ndarray]] = {}

    def work(rank: int) -> None:
        with tf.Graph().as_default():
            optimizer = tf.train.AllReduceOptimizer(
                tf.train.MomentumOptimizer(0.05, 0.9), WORKERS, rank, bucket_bytes=bucket_bytes
            )
            model = build(1 + rank, optimizer)  # the broadcast must undo the difference
            hooks = [optimizer.make_session_run_hook()]
            with tf.train.MonitoredTrainingSession(cluster[rank].target, hooks=hooks) as session:
                results[rank] = train(session, model, slice(8 * rank, 8 * rank + 8))

    threads = [threading.Thread(target=work, args=(rank,)) for rank in range(WORKERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for server in cluster:
        server.stop()
    for mine, others, alone in zip(results[0], results[1], expected):
        assert mine.tobytes() == others.tobytes()
        np.testing.assert_allclose(mine, alone, rtol=1e-4, atol=1e-6)


def test_buckets_hold_neighbours_of_one_dtype_up_to_a_limit() -> None:
    with tf.Graph().as_default():
        grads = [tf.zeros([n]) for n in (10, 20, 1000, 5, 5)] + [tf.zeros([3], tf.float64), None]
        pairs = [(grad, None) for grad in grads]
        assert buckets(pairs, 200) == [[0, 1], [2], [3, 4], [5]]
        assert buckets(pairs, 0) == [[0], [1], [2], [3], [4], [5]]


def test_buckets_are_in_the_order_of_back_propagation() -> None:
    """Whatever the order of the variables; and one that is used twice comes when the first use has been reached."""
    with tf.Graph().as_default():
        names = ["last", "first", "twice", "middle"]
        last, first, twice, middle = (tf.get_variable(name, [4, 4]) for name in names)
        hidden = tf.ones([2, 4])
        for weights in (first, twice, middle, twice, last):
            hidden = tf.tanh(tf.matmul(hidden, weights))
        pairs = tf.train.GradientDescentOptimizer(0.1).compute_gradients(tf.reduce_sum(hidden))
        order = [pairs[i][1].op.name for [i] in buckets(pairs, 0)]
    assert order == ["last", "middle", "twice", "first"]


def test_one_worker_needs_no_cluster() -> None:
    with tf.Graph().as_default():
        optimizer = tf.train.AllReduceOptimizer(tf.train.GradientDescentOptimizer(0.1), 1)
        model = build(1, optimizer)
        with tf.train.MonitoredTrainingSession(hooks=[optimizer.make_session_run_hook()]) as session:
            assert train(session, model, slice(None))[-1] == STEPS
    with pytest.raises(ValueError, match="rank must be in"):
        tf.train.AllReduceOptimizer(optimizer, 2, rank=2)


@pytest.mark.cluster
def test_digits_reach_the_parameters_of_one_process_with_the_whole_batch() -> None:
    script = Path(__file__).parents[3] / "examples" / "digits_allreduce.py"
    pytest.importorskip("sklearn")
    command = [sys.executable, "-m", "tfmini", "launch", "--ps", "0", "--workers", "3", str(script), "--steps=20"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stdout + done.stderr
    apart = re.search(r"largest difference to one process (\S+)", done.stdout)
    assert apart is not None and float(apart[1]) < 1e-5, done.stdout


def test_dense_gradients_are_reduced_and_sparse_ones_go_to_a_ps() -> None:
    with tf.Graph().as_default():
        model = build(1, tf.train.GradientDescentOptimizer(0.05))
        with tf.train.MonitoredTrainingSession() as session:
            expected = train(session, model, slice(None))
    reserved = reserve_cluster([TaskId("ps", 0), *(TaskId("worker", i) for i in range(WORKERS))])
    reserved.close()
    server = tf.train.Server(reserved.spec, job_name="ps", task_index=0)
    cluster = [tf.train.Server(reserved.spec, job_name="worker", task_index=i) for i in range(WORKERS)]
    results: dict[int, list[np.ndarray]] = {}
    together = threading.Barrier(WORKERS)

    def work(rank: int) -> None:
        def place(op: tf.Operation) -> str:
            return "/job:ps/task:0" if op.name.startswith("table") else f"/job:worker/task:{rank}"

        with tf.Graph().as_default(), tf.device(place):
            optimizer = tf.train.AllReduceOptimizer(tf.train.GradientDescentOptimizer(0.05), WORKERS, rank)
            x, y, rows, variables, step = build(1, optimizer)
            hooks = [optimizer.make_session_run_hook()]
            part = slice(8 * rank, 8 * rank + 8)
            with tf.train.MonitoredTrainingSession(cluster[rank].target, hooks=hooks) as session:
                for _ in range(STEPS):
                    session.run(step, {x: XS[part], y: YS[part], rows: ROWS[part]})
                    together.wait(60)  # the ps applies shares as they come
                results[rank] = session.run(variables)

    threads = [threading.Thread(target=work, args=(rank,)) for rank in range(WORKERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for one in [*cluster, server]:
        one.stop()
    for mine, others, alone in zip(results[0], results[1], expected):
        np.testing.assert_allclose(mine, others, rtol=1e-6)
        np.testing.assert_allclose(mine, alone, rtol=1e-3, atol=1e-5)
