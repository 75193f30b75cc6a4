"""Clusters of processes for the benchmarks: passive tasks, and workers that train.

    python benchmarks/clusters.py --target tfmini|tensorflow serve SPEC JOB TASKS
    python benchmarks/clusters.py --target tfmini|tensorflow train SPEC TASK STEPS SYNCHRONOUS

The processes are started by the cases. One process may have several tasks: sixty-four of TensorFlow would not fit.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

from models import batch, mlp

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


def serve(target: str, cluster: dict[str, list[str]], job: str, tasks: list[int]) -> None:
    """The whole of a process with passive tasks."""
    tf = load(target)
    servers = [tf.train.Server(tf.train.ClusterSpec(cluster), job_name=job, task_index=task) for task in tasks]
    print("ready", flush=True)
    servers[0].join()


def free_addresses(count: int) -> list[str]:
    """Addresses of ports that nobody has; all are held until the last is found."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for found in sockets:
            found.bind(("localhost", 0))
        return [f"localhost:{found.getsockname()[1]}" for found in sockets]
    finally:
        for found in sockets:
            found.close()


@contextmanager
def cluster_of(
    target: str, ps: int, workers: int, tasks_per_process: int = 1
) -> Iterator[tuple[Any, Any, list[subprocess.Popen[str]]]]:
    """Passive processes for all tasks but worker 0, which is this process: (tf, server, processes)."""
    addresses = free_addresses(ps + workers)
    spec = {"ps": addresses[:ps], "worker": addresses[ps:]}
    groups = [("ps", range(ps)[i : i + tasks_per_process]) for i in range(0, ps, tasks_per_process)]
    groups += [("worker", range(i, i + 1)) for i in range(1, workers)]
    processes = [
        subprocess.Popen(
            [sys.executable, HERE, "--target", target, "serve", json.dumps(spec), job, ",".join(map(str, tasks))],
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        )
        for job, tasks in groups
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


def resident_mb(pid: int | str) -> float:
    """The resident memory of a process."""
    with open(f"/proc/{pid}/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS")) / 1024


def trainer(target: str, cluster: dict[str, list[str]], task: int, steps: int, synchronous: bool) -> None:
    """A between-graph worker: trains, then prints seconds per local step."""
    tf = load(target)
    server = tf.train.Server(tf.train.ClusterSpec(cluster), job_name="worker", task_index=task)
    with tf.device(tf.train.replica_device_setter(cluster=cluster, worker_device=f"/job:worker/task:{task}")):
        workers = len(cluster["worker"])
        optimizer = tf.train.AdagradOptimizer(0.01)
        if synchronous:
            optimizer = tf.train.SyncReplicasOptimizer(optimizer, workers, workers)
        x, y, _, train = mlp(tf, optimizer=optimizer)
    feed = dict(zip((x, y), batch(100)))
    if synchronous:
        hooks = [optimizer.make_session_run_hook(task == 0)]
        session = tf.train.MonitoredTrainingSession(server.target, task == 0, hooks=hooks)
    else:
        session = tf.Session(server.target)
        if task == 0:
            session.run(tf.global_variables_initializer())
    print("ready", flush=True)
    sys.stdin.readline()
    if synchronous:
        train_together(tf, session, train, feed, steps)
    for _ in range(10):
        session.run(train, feed)
    begin = time.perf_counter()
    for _ in range(steps):
        session.run(train, feed)
    print((time.perf_counter() - begin) / steps, flush=True)
    sys.stdin.readline()


def train_together(tf: Any, session: Any, train: Any, feed: Any, steps: int) -> NoReturn:
    """Prints the seconds per global step and trains on until it is killed: the others would wait for one that ends."""
    step, seen = tf.train.get_global_step(), []
    while True:
        seen.append((session.run([train, step], feed)[1], time.perf_counter()))
        if len(seen) > 10 and seen[-1][0] - seen[10][0] >= steps:
            print((seen[-1][1] - seen[10][1]) / (seen[-1][0] - seen[10][0]), flush=True)
            steps = sys.maxsize


def between_graph(target: str, ps: int, workers: int, steps: int = 150, synchronous: bool = False) -> float:
    """Microseconds per step of training: per update where it is asynchronous, else per round of all workers."""
    addresses = free_addresses(ps + workers)
    spec = {"ps": addresses[:ps], "worker": addresses[ps:]}
    me = [sys.executable, HERE, "--target", target]
    quiet = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, "stdin": subprocess.PIPE, "text": True}
    servers = [subprocess.Popen([*me, "serve", json.dumps(spec), "ps", str(i)], **quiet) for i in range(ps)]
    rest = [str(steps), str(int(synchronous))]
    trainers = [subprocess.Popen([*me, "train", json.dumps(spec), str(i), *rest], **quiet) for i in range(workers)]
    try:
        for process in servers + trainers:
            assert process.stdout.readline().strip() == "ready"
        for process in trainers:
            process.stdin.write("go\n")
            process.stdin.flush()
        seconds = [float(process.stdout.readline()) for process in trainers]
        return 1e6 * statistics.mean(seconds) if synchronous else 1e6 / sum(1 / s for s in seconds)
    finally:
        for process in servers + trainers:
            process.kill()
            process.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target", choices=["tfmini", "tensorflow"], required=True)
    parser.add_argument("role", choices=["serve", "train"])
    parser.add_argument("rest", nargs="*")
    args = parser.parse_args()
    spec = json.loads(args.rest[0])
    if args.role == "serve":
        serve(args.target, spec, args.rest[1], [int(task) for task in args.rest[2].split(",")])
    else:
        trainer(args.target, spec, int(args.rest[1]), int(args.rest[2]), args.rest[3] == "1")


if __name__ == "__main__":
    main()
