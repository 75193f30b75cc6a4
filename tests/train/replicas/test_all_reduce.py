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
from tfmini.compat import horovod
from tfmini.compat.horovod_world import World
from tfmini.tools.ports import reserve_cluster
from tfmini.tools.supervision import TaskId
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


def test_horovods_collectives_are_named_after_their_tensors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(horovod, "world", lambda: World(["localhost"] * 2, 0, None))
    with tf.Graph().as_default() as graph:
        x, y = tf.placeholder(tf.float32, [3], "x"), tf.placeholder(tf.float32, [3], "y")
        rows = tf.IndexedSlices(y, tf.placeholder(tf.int64, [3], "i"))
        horovod.allreduce(x, op=horovod.Sum, compression=horovod.Compression.fp16)
        horovod.allreduce(rows)
        horovod.allgather(y)
        horovod.broadcast(x, 1)
        horovod.broadcast(x, 1, "mine")
        names = [op.get_attr("_collective_name") for op in graph.get_operations() if op.type.startswith("Collective")]
    assert names == [b"x", b"y/values", b"y/indices", b"y", b"x", b"mine"]


def test_horovods_factors_hold_for_slices_and_integers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(horovod, "world", lambda: World(["localhost"], 0, None))
    rows = tf.IndexedSlices(tf.fill([1, 2], 3.0), tf.constant([0]), tf.constant([4, 2]))
    bytes_ = tf.IndexedSlices(tf.fill([1, 2], tf.constant(7, tf.uint8)), tf.constant([0]), tf.constant([4, 2]))
    sums = [
        horovod.allreduce(rows, op=horovod.Sum, prescale_factor=10.0, postscale_factor=0.5).values,
        horovod.allreduce(tf.constant([-3]), op=horovod.Sum, prescale_factor=0.5),
        horovod.allreduce(bytes_).values,
    ]
    with tf.Session() as session:
        assert [value.tolist() for value in session.run(sums)] == [[[15.0, 15.0]], [-1], [[7, 7]]]


_SCRIPT = """
import numpy as np
import tensorflow as tf
import horovod.tensorflow as hvd
hvd.init()
assert hvd.local_rank() == hvd.rank() and hvd.local_size() == hvd.size() == 2
x = tf.constant([[1.0], [3.0]])[hvd.rank()]
w = tf.get_variable("w", initializer=tf.constant([float(hvd.rank())]))
flag = tf.get_variable("flag", initializer=tf.constant(hvd.rank() == 0), trainable=False)
opt = hvd.DistributedOptimizer(tf.train.GradientDescentOptimizer(0.5), compression=hvd.Compression.fp16)
train = opt.minimize(tf.reduce_sum(w * x), tf.train.get_or_create_global_step())
mean, total = hvd.allreduce(x), hvd.allreduce(x, average=False, name="x")
rows = hvd.allgather(tf.fill([1 + hvd.rank(), 1], hvd.rank()))
sent = hvd.broadcast(x, 1)
both = hvd.allreduce(tf.constant([hvd.rank() + 1], tf.uint8), op=hvd.Max)
gradients = [
    tf.gradients(y * (hvd.rank() + 1), z)[0]
    for y, z in ((total, x), (sent, x))
]
own = tf.fill([1 + hvd.rank(), 1], 1.0)
gradients.append(tf.gradients(hvd.allgather(own) * tf.constant([[1.0], [2.0], [3.0]]), own)[0])
for wrong in (lambda: hvd.callbacks, lambda: hvd.allreduce(x, op=hvd.Adasum), lambda: hvd.DistributedOptimizer(3)):
    try:
        wrong()
    except (AttributeError, NotImplementedError, ValueError) as error:
        assert "Keras" in str(error) or "Adasum" in str(error) or "inherit" in str(error), error
    else:
        raise AssertionError(wrong)
try:
    import horovod.keras
except ImportError as error:
    assert "out of its scope" in str(error)
from horovod.tensorflow.compression import Compression
assert Compression is hvd.Compression and not hvd.nccl_built() and hvd.cross_size() == 1
config = tf.ConfigProto()
config.gpu_options.visible_device_list = str(hvd.local_rank())
hooks = [hvd.BroadcastGlobalVariablesHook(0), tf.train.StopAtStepHook(last_step=2)]
with tf.train.MonitoredTrainingSession(hooks=hooks, config=config) as session:
    values = session.run([mean, total, rows, sent])
    assert [v.ravel().tolist() for v in values] == [[2], [4], [0, 1, 1], [3]], values
    assert session.run(both).tolist() == [2]
    slopes = [v.ravel().tolist() for v in session.run(gradients)]
    assert slopes == [[3], [3 * hvd.rank()], [[2], [4, 6]][hvd.rank()]], slopes
    while not session.should_stop():
        _, value, yes = session.run([train, w, flag])
with tf.Session() as session:
    assert session.run(w).tolist() == [-2.0]
print("reached", value.dtype, yes, flush=True)
"""


@pytest.mark.cluster
def test_a_horovod_script_runs_under_launch(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(_SCRIPT)
    command = [sys.executable, "-m", "tfmini", "launch", "--workers", "2", str(script)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("reached float32 True") == 2  # the ps serves, and ends with the workers


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
