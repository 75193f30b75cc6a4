"""One benchmark case on one target: prints a JSON object ``{"value": …, "unit": …}``.

    python benchmarks/cases.py --target tfmini|tensorflow CASE

The same code runs on both; only the import differs. Times are medians inside the process.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from models import batch, chain, cnn, lstm, mlp

HERE = os.path.abspath(__file__)


def load(target: str) -> Any:
    """The TF1 namespace of a target."""
    if target == "tfmini":
        import tfmini

        return tfmini
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
    import tensorflow.compat.v1 as tf

    tf.disable_v2_behavior()
    tf.logging.set_verbosity(tf.logging.ERROR)
    return tf


def median(action: Callable[[], Any], repeats: int, warm_up: int = 5) -> float:
    """Median seconds of one call."""
    for _ in range(warm_up):
        action()
    times = []
    for _ in range(repeats):
        begin = time.perf_counter()
        action()
        times.append(time.perf_counter() - begin)
    return statistics.median(times)


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


def case_local_mlp_step(target: str) -> tuple[float, str]:
    tf = load(target)
    x, y, _, train = mlp(tf, hidden=1024)
    feed = dict(zip((x, y), batch(100)))
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        return median(lambda: session.run(train, feed), 100) * 1e3, "ms"


def case_local_cnn_step(target: str) -> tuple[float, str]:
    tf = load(target)
    x, y, train = cnn(tf)
    images, labels = batch(32)
    feed = {x: images.reshape(-1, 28, 28, 1), y: labels}
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        return median(lambda: session.run(train, feed), 40) * 1e3, "ms"


# ---- clusters -------------------------------------------------------------------------------


def serve(target: str, cluster: dict[str, list[str]], job: str, task: int) -> None:
    """The whole of a passive task."""
    tf = load(target)
    server = tf.train.Server(tf.train.ClusterSpec(cluster), job_name=job, task_index=task)
    print("ready", flush=True)
    server.join()


def free_address() -> str:
    with socket.socket() as s:
        s.bind(("localhost", 0))
        return f"localhost:{s.getsockname()[1]}"


@contextmanager
def cluster_of(target: str, ps: int, workers: int) -> Iterator[tuple[Any, Any, list[subprocess.Popen[str]]]]:
    """Passive processes for all tasks but worker 0, which is this process: (tf, server, processes)."""
    spec = {"ps": [free_address() for _ in range(ps)], "worker": [free_address() for _ in range(workers)]}
    others = [("ps", i) for i in range(ps)] + [("worker", i) for i in range(1, workers)]
    processes = [
        subprocess.Popen(
            [sys.executable, HERE, "--target", target, "serve", json.dumps(spec), job, str(task)],
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        )
        for job, task in others
    ]  # fmt: skip
    try:
        for process in processes:
            assert process.stdout is not None and process.stdout.readline().strip() == "ready"
        tf = load(target)
        server = tf.train.Server(tf.train.ClusterSpec(spec), job_name="worker", task_index=0)
        yield tf, server, processes
    finally:
        for process in processes:
            process.kill()
            process.wait()


def case_remote_op(target: str) -> tuple[float, str]:
    with cluster_of(target, 1, 1) as (tf, server, _):
        x = tf.placeholder(tf.float32, [])
        with tf.device("/job:ps/task:0"):
            y = x + 1.0
        session = tf.Session(server.target)
        return median(lambda: session.run(y, {x: 1.0}), 1000, 50) * 1e6, "us"


def case_ps_training_step(target: str) -> tuple[float, str]:
    with cluster_of(target, 1, 1) as (tf, server, _):
        with tf.device(tf.train.replica_device_setter(ps_tasks=1, worker_device="/job:worker/task:0")):
            x, y, _, train = mlp(tf)
        feed = dict(zip((x, y), batch(100)))
        session = tf.Session(server.target)
        session.run(tf.global_variables_initializer())
        return median(lambda: session.run(train, feed), 300, 30) * 1e6, "us"


def case_pull_64_mb(target: str) -> tuple[float, str]:
    with cluster_of(target, 1, 1) as (tf, server, _):
        with tf.device("/job:ps/task:0"):
            v = tf.Variable(tf.zeros([16 << 20]), name="v")
        with tf.device("/job:worker/task:0"):
            pulled = tf.identity(v)
        session = tf.Session(server.target)
        session.run(v.initializer)
        return median(lambda: session.run(pulled.op), 15, 3) * 1e3, "ms"


def case_pull_64_mb_over_tcp(target: str) -> tuple[float, str]:
    os.environ["TFMINI_LANE"] = "off"
    return case_pull_64_mb(target)


def case_ps_memory_64_mb(target: str) -> tuple[float, str]:
    with cluster_of(target, 1, 1) as (tf, server, processes):
        with tf.device("/job:ps/task:0"):
            v = tf.Variable(tf.zeros([16 << 20]), name="v")
        session = tf.Session(server.target)
        session.run(v.initializer)
        with open(f"/proc/{processes[0].pid}/status") as status:
            kilobytes = next(int(line.split()[1]) for line in status if line.startswith("VmRSS"))
        return kilobytes / 1024, "MB"


def trainer(target: str, cluster: dict[str, list[str]], task: int, steps: int) -> None:
    """A between-graph worker: trains, then prints seconds per local step."""
    tf = load(target)
    server = tf.train.Server(tf.train.ClusterSpec(cluster), job_name="worker", task_index=task)
    with tf.device(tf.train.replica_device_setter(cluster=cluster, worker_device=f"/job:worker/task:{task}")):
        x, y, _, train = mlp(tf)
    feed = dict(zip((x, y), batch(100)))
    session = tf.Session(server.target)
    if task == 0:
        session.run(tf.global_variables_initializer())
    print("ready", flush=True)
    sys.stdin.readline()
    for _ in range(10):
        session.run(train, feed)
    begin = time.perf_counter()
    for _ in range(steps):
        session.run(train, feed)
    print((time.perf_counter() - begin) / steps, flush=True)
    sys.stdin.readline()


def between_graph(target: str, ps: int, workers: int, steps: int = 150) -> float:
    """Microseconds per global step of asynchronous training."""
    spec = {"ps": [free_address() for _ in range(ps)], "worker": [free_address() for _ in range(workers)]}
    me = [sys.executable, HERE, "--target", target]
    quiet = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, "stdin": subprocess.PIPE, "text": True}
    servers = [subprocess.Popen([*me, "serve", json.dumps(spec), "ps", str(i)], **quiet) for i in range(ps)]
    trainers = [
        subprocess.Popen([*me, "train", json.dumps(spec), str(i), str(steps)], **quiet) for i in range(workers)
    ]
    try:
        for process in servers + trainers:
            assert process.stdout.readline().strip() == "ready"
        for process in trainers:
            process.stdin.write("go\n")
            process.stdin.flush()
        seconds = [float(process.stdout.readline()) for process in trainers]
        return 1e6 / sum(1 / s for s in seconds)
    finally:
        for process in servers + trainers:
            process.kill()
            process.wait()


def case_global_step_1_ps_2_workers(target: str) -> tuple[float, str]:
    return between_graph(target, 1, 2), "us"


def case_global_step_2_ps_4_workers(target: str) -> tuple[float, str]:
    return between_graph(target, 2, 4), "us"


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
    train = lstm(tf, 20, unrolled)
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


CASES = {name.removeprefix("case_"): function for name, function in list(globals().items()) if name.startswith("case_")}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--target", choices=["tfmini", "tensorflow"], required=True)
    parser.add_argument("case")
    parser.add_argument("rest", nargs="*")
    args = parser.parse_args()
    if args.case == "serve":
        serve(args.target, json.loads(args.rest[0]), args.rest[1], int(args.rest[2]))
    elif args.case == "train":
        trainer(args.target, json.loads(args.rest[0]), int(args.rest[1]), int(args.rest[2]))
    else:
        value, unit = CASES[args.case](args.target)
        print(json.dumps({"value": value, "unit": unit}), flush=True)
        os._exit(0)  # TensorFlow's servers cannot be stopped


if __name__ == "__main__":
    main()
