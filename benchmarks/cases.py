"""One benchmark case on one target: prints a JSON object ``{"value": …, "unit": …}``.

    python benchmarks/cases.py --target tfmini|tensorflow CASE

The same code runs on both; only the import differs. Times are medians inside the process.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from typing import Any

import numpy as np
from clusters import between_graph, cluster_of, load, median, resident_mb
from models import batch, chain, cnn, embedding, lstm, mlp, sum_of_squares, towers

# ---- one process ----------------------------------------------------------------------------


def case_import(target: str) -> tuple[float, str]:
    code = "import time; b = time.perf_counter(); " + (
        "import tfmini" if target == "tfmini" else "import tensorflow.compat.v1"
    )
    env = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": ""}
    timed = code + "; print(time.perf_counter() - b)"
    out = subprocess.run([sys.executable, "-c", timed], env=env, capture_output=True, text=True, check=True)
    return float(out.stdout.split()[-1]) * 1e3, "ms"


def case_build_20000_ops(target: str) -> tuple[float, str]:
    tf = load(target)
    with tf.Graph().as_default():
        begin = time.perf_counter()
        chain(tf)
        return (time.perf_counter() - begin) * 1e3, "ms"


def case_first_run_20000_ops(target: str) -> tuple[float, str]:
    tf = load(target)
    x, y = chain(tf)
    with tf.Session() as session:
        begin = time.perf_counter()
        session.run(y, {x: 1.0})
        return (time.perf_counter() - begin) * 1e3, "ms"


def case_run_20000_dependent_ops(target: str) -> tuple[float, str]:
    tf = load(target)
    x, y = chain(tf)
    with tf.Session() as session:
        return median(lambda: session.run(y, {x: 1.0}), 30) * 1e3, "ms"


def case_run_scalar_op(target: str) -> tuple[float, str]:
    tf = load(target)
    x = tf.placeholder(tf.float32, [])
    y = x + 1.0
    with tf.Session() as session:
        return median(lambda: session.run(y, {x: 1.0}), 2000, 50) * 1e6, "us"


def _local_step(tf: Any, train: Any, feed: Any, repeats: int) -> float:
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        return median(lambda: session.run(train, feed), repeats)


def case_mlp_1024_step(target: str) -> tuple[float, str]:
    tf = load(target)
    x, y, _, train = mlp(tf, hidden=1024)
    return _local_step(tf, train, dict(zip((x, y), batch(100))), 100) * 1e3, "ms"


def case_mlp_100_step(target: str) -> tuple[float, str]:
    tf = load(target)
    x, y, _, train = mlp(tf, hidden=100)
    return _local_step(tf, train, dict(zip((x, y), batch(100))), 300) * 1e6, "us"


def case_cnn_step(target: str) -> tuple[float, str]:
    tf = load(target)
    x, y, train = cnn(tf)
    images, labels = batch(32)
    return _local_step(tf, train, {x: images.reshape(-1, 28, 28, 1), y: labels}, 40) * 1e3, "ms"


def case_sparse_embedding_step(target: str) -> tuple[float, str]:
    tf = load(target)
    ids, train = embedding(tf)
    rng = np.random.RandomState(0)
    return _local_step(tf, train, {ids: rng.randint(0, 50_000, 512)}, 200) * 1e6, "us"


def case_two_devices_step(target: str) -> tuple[float, str]:
    tf = load(target)
    total, feeds = towers(tf, 2)
    with tf.Session(config=tf.ConfigProto(device_count={"CPU": 2})) as session:
        session.run(tf.global_variables_initializer())
        return median(lambda: session.run(total, feeds), 60) * 1e3, "ms"


# ---- clusters -------------------------------------------------------------------------------


LARGE = 16 << 20  # float32 numbers of 64 MB


def case_remote_op(target: str) -> tuple[float, str]:
    with cluster_of(target, 1, 1) as (tf, server, _):
        x = tf.placeholder(tf.float32, [])
        with tf.device("/job:ps/task:0"):
            y = x + 1.0
        with tf.Session(server.target) as session:
            return median(lambda: session.run(y, {x: 1.0}), 1000, 50) * 1e6, "us"


def case_ps_training_step(target: str) -> tuple[float, str]:
    with cluster_of(target, 1, 1) as (tf, server, _):
        with tf.device(tf.train.replica_device_setter(ps_tasks=1, worker_device="/job:worker/task:0")):
            x, y, _, train = mlp(tf)
        feed = dict(zip((x, y), batch(100)))
        with tf.Session(server.target) as session:
            session.run(tf.global_variables_initializer())
            return median(lambda: session.run(train, feed), 300, 30) * 1e6, "us"


def _pull_and_push(tf: Any, server: Any, floats: int) -> tuple[Any, Any, Any]:
    """A session, and ops that read a variable of a ps into the worker and write it from there."""
    with tf.device("/job:ps/task:0"):
        v = tf.Variable(tf.zeros([floats]), name="v")
    with tf.device("/job:worker/task:0"):
        pulled = tf.identity(v)
        made = tf.fill([floats], tf.placeholder_with_default(1.0, []))
    with tf.device("/job:ps/task:0"):
        pushed = tf.assign(v, made)
    session = tf.Session(server.target)
    session.run(v.initializer)
    return session, pulled.op, pushed.op


def _moved(target: str, floats: int, repeats: int, is_pushed: bool = False) -> float:
    """Seconds to pull a variable, or to push it."""
    with cluster_of(target, 1, 1) as (tf, server, _):
        session, pulled, pushed = _pull_and_push(tf, server, floats)
        with session:
            return median(lambda: session.run(pushed if is_pushed else pulled), repeats)


def case_pull_4_kb(target: str) -> tuple[float, str]:
    return _moved(target, 1 << 10, 1000) * 1e6, "us"


def case_push_4_kb(target: str) -> tuple[float, str]:
    return _moved(target, 1 << 10, 1000, is_pushed=True) * 1e6, "us"


def case_pull_1_mb(target: str) -> tuple[float, str]:
    return _moved(target, 1 << 18, 500) * 1e6, "us"


def case_push_1_mb(target: str) -> tuple[float, str]:
    return _moved(target, 1 << 18, 500, is_pushed=True) * 1e6, "us"


def case_pull_64_mb(target: str) -> tuple[float, str]:
    return _moved(target, LARGE, 15) * 1e3, "ms"


def case_push_64_mb(target: str) -> tuple[float, str]:
    return _moved(target, LARGE, 15, is_pushed=True) * 1e3, "ms"


def case_pull_64_mb_over_tcp(target: str) -> tuple[float, str]:
    os.environ["TFMINI_LANE"] = "off"
    return case_pull_64_mb(target)


def case_ps_memory_64_mb(target: str) -> tuple[float, str]:
    with cluster_of(target, 1, 1) as (tf, server, processes):
        with tf.device("/job:ps/task:0"):
            v = tf.Variable(tf.zeros([LARGE]), name="v")
        with tf.Session(server.target) as session:
            session.run(v.initializer)
            return resident_mb(processes[0].pid), "MB"


def case_worker_memory_64_mb(target: str) -> tuple[float, str]:
    with cluster_of(target, 1, 1) as (tf, server, _):
        session, pulled, pushed = _pull_and_push(tf, server, LARGE)
        with session:
            for _ in range(3):
                session.run(pulled)
                session.run(pushed)
            return resident_mb("self"), "MB"


def case_global_step_1_ps_2_workers(target: str) -> tuple[float, str]:
    return between_graph(target, 1, 2), "us"


def case_global_step_2_ps_4_workers(target: str) -> tuple[float, str]:
    return between_graph(target, 2, 4), "us"


def case_sync_step_1_ps_2_workers(target: str) -> tuple[float, str]:
    return between_graph(target, 1, 2, synchronous=True), "us"


# ---- many tasks, many variables -------------------------------------------------------------


def _step_of_many(target: str, ps: int, variables: int, repeats: int, tasks_per_process: int) -> tuple[float, float]:
    """Seconds of the first step and of a later one that updates variables of 10 numbers, spread over the ps."""
    with cluster_of(target, ps, 1, tasks_per_process) as (tf, server, _):
        with tf.device(tf.train.replica_device_setter(ps_tasks=ps, worker_device="/job:worker/task:0")):
            train = sum_of_squares(tf, variables)
        with tf.Session(server.target) as session:
            session.run(tf.global_variables_initializer())
            begin = time.perf_counter()
            session.run(train)
            first = time.perf_counter() - begin
            return first, median(lambda: session.run(train), repeats, 2)


def case_step_over_64_ps(target: str) -> tuple[float, str]:
    return _step_of_many(target, 64, 64, 50, tasks_per_process=16)[1] * 1e3, "ms"


def case_step_of_10000_variables(target: str) -> tuple[float, str]:
    return _step_of_many(target, 4, 10_000, 5, tasks_per_process=1)[1] * 1e3, "ms"


def case_first_step_of_10000_variables(target: str) -> tuple[float, str]:
    return _step_of_many(target, 4, 10_000, 1, tasks_per_process=1)[0], "s"


# ---- checkpoints ----------------------------------------------------------------------------


def _save_and_restore(target: str, repeats: int = 3) -> tuple[float, float]:
    """Median seconds of a save and of a restore of 500 MB in ten variables, from and to the page cache."""
    tf = load(target)
    for i in range(10):
        tf.get_variable(f"v{i}", initializer=tf.fill([1250, 10_000], float(i)))
    saver = tf.train.Saver(max_to_keep=1)
    saves, restores = [], []
    with tempfile.TemporaryDirectory() as directory, tf.Session() as session:
        session.run(tf.global_variables_initializer())
        for step in range(repeats + 1):
            begin = time.perf_counter()
            prefix = saver.save(session, os.path.join(directory, "model"), step, write_meta_graph=False)
            saved = time.perf_counter()
            saver.restore(session, prefix)
            saves.append(saved - begin)
            restores.append(time.perf_counter() - saved)
    return statistics.median(saves[1:]), statistics.median(restores[1:])


def case_save_500_mb(target: str) -> tuple[float, str]:
    return _save_and_restore(target)[0] * 1e3, "ms"


def case_restore_500_mb(target: str) -> tuple[float, str]:
    return _save_and_restore(target)[1] * 1e3, "ms"


# ---- loops, recurrent nets and queues -------------------------------------------------------


def case_while_loop_1000(target: str) -> tuple[float, str]:
    tf = load(target)
    x = tf.placeholder(tf.float32, [])
    _, total = tf.while_loop(lambda i, a: i < 1000, lambda i, a: (i + 1, a * 0.5 + x), [0, 0.0])
    with tf.Session() as session:
        run = session.make_callable(total, [x])
        return median(lambda: run(1.0), 50) * 1e6, "us"


def _lstm_step(target: str, unrolled: bool) -> tuple[float, str]:
    tf = load(target)
    train = lstm(tf, 20, unrolled, width=256)
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        return median(lambda: session.run(train), 60, 10) * 1e6, "us"


def case_unrolled_lstm_step(target: str) -> tuple[float, str]:
    return _lstm_step(target, unrolled=True)


def case_dynamic_rnn_step(target: str) -> tuple[float, str]:
    return _lstm_step(target, unrolled=False)


def case_remote_queue(target: str) -> tuple[float, str]:
    with cluster_of(target, 1, 1) as (tf, server, _):
        with tf.device("/job:ps/task:0"):
            queue = tf.FIFOQueue(10, [tf.float32], shapes=[[]])
            put, take = queue.enqueue(1.0), queue.dequeue()
        with tf.Session(server.target) as session:
            return median(lambda: (session.run(put), session.run(take)), 200, 20) * 1e6, "us"


_PREFIX = "case_"
# Without `removeprefix`: TensorFlow 1.15 has a Python 3.7.
CASES = {name[len(_PREFIX) :]: function for name, function in list(globals().items()) if name.startswith(_PREFIX)}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--target", choices=["tfmini", "tensorflow"], required=True)
    parser.add_argument("case")
    args = parser.parse_args()
    value, unit = CASES[args.case](args.target)
    print(json.dumps({"value": value, "unit": unit}), flush=True)
    os._exit(0)  # TensorFlow's servers cannot be stopped


if __name__ == "__main__":
    main()
