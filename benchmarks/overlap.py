"""How much of a training step's communication is hidden behind back-propagation.

    python benchmarks/overlap.py --ranks 2 --rounds 5

Each rank computes the gradients of a 784-1024-1024-10 network (7.4 MB) for 128 rows, with one BLAS thread. The
benchmark times in turn, as medians: the gradients alone (a), the same gradients reduced over all ranks (b), and the
all-reduce of constants of the same shapes (c). The hidden share is (a + c - b) / c: 0 when communication only adds to
the step, 1 when the step takes no longer with it.

Each case also reduces one number, so that the ranks start together and the same executor runs (a) and (b). All
tensors are targets, because a `tf.group` would not compute gradients that no op uses. The benchmark also measures a
rank's CPU time (of all its threads). Where ranks have one core each, the core cannot do the CPU work of (c) beside
the gradients: at most (wall - CPU) / wall of (c) can be hidden.
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
from typing import Any

import numpy as np

HERE = os.path.abspath(__file__)
SIZES = (784, 1024, 1024, 10)


def gradients(tf: Any, optimizer: Any) -> list[Any]:
    """(gradient, variable) pairs of the network."""
    hidden = tf.constant(np.random.RandomState(0).rand(128, SIZES[0]).astype(np.float32))
    for i, (rows, columns) in enumerate(zip(SIZES, SIZES[1:])):
        weights = tf.get_variable(f"w{i}", initializer=tf.random_normal([rows, columns], stddev=0.05))
        hidden = tf.tanh(tf.matmul(hidden, weights) + tf.get_variable(f"b{i}", initializer=tf.zeros([columns])))
    return optimizer.compute_gradients(tf.reduce_mean(tf.square(hidden)))  # type: ignore[no-any-return]


def rank_main(addresses: list[str], rank: int) -> None:
    """Answers each line on standard input with the seconds (median wall, mean CPU) of that many steps of a, b and c."""
    import tfmini as tf

    server = tf.train.Server({"worker": addresses}, job_name="worker", task_index=rank)
    plain = tf.train.GradientDescentOptimizer(0.1)
    optimizer = tf.train.AllReduceOptimizer(plain, len(addresses), rank)
    with tf.variable_scope("net"):
        alone = [grad for grad, _ in gradients(tf, plain)]
    with tf.variable_scope("net", reuse=True):
        pairs = gradients(tf, optimizer)
    constants = [tf.constant(np.zeros(grad.shape.as_list(), np.float32)) for grad, _ in pairs]
    plain.compute_gradients = lambda: [(c, v) for c, (_, v) in zip(constants, pairs)]  # type: ignore[method-assign]
    only = optimizer.compute_gradients()
    cases: list[list[Any]] = []
    for tensors in (alone, [g for g, _ in pairs], [g for g, _ in only]):
        cases.append([t.op for t in (*tensors, optimizer.ranks.all_reduce(tf.zeros([])))])
    session = tf.Session(server.target)
    session.run(tf.global_variables_initializer())
    print("ready", flush=True)
    for line in sys.stdin:
        print(json.dumps([timed(session, case, int(line)) for case in cases]), flush=True)
    os._exit(0)


def timed(session: Any, case: Any, steps: int) -> tuple[float, float]:
    """Seconds per step: wall, the median; CPU, the mean."""
    times = []
    cpu = time.process_time()
    for _ in range(steps):
        begin = time.perf_counter()
        session.run(case)
        times.append(time.perf_counter() - begin)
    return statistics.median(times), (time.process_time() - cpu) / steps


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rank", help=argparse.SUPPRESS)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    if args.rank:
        rank_main(*json.loads(args.rank))
    reserved = [socket.create_server(("127.0.0.1", 0)) for _ in range(args.ranks)]
    addresses = [f"127.0.0.1:{s.getsockname()[1]}" for s in reserved]
    for s in reserved:
        s.close()
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    processes = [
        subprocess.Popen(
            [sys.executable, HERE, "--rank", json.dumps([addresses, rank])], env=environment, text=True, bufsize=1,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )
        for rank in range(args.ranks)
    ]  # fmt: skip

    def measure(steps: int) -> list[float]:
        """Wall times of a, b and c, then CPU times."""
        for process in processes:
            assert process.stdin is not None
            process.stdin.write(f"{steps}\n")
        found = [json.loads(process.stdout.readline()) for process in processes if process.stdout]
        return [max(rank[case][kind] for rank in found) for kind in range(2) for case in range(3)]

    try:
        for process in processes:
            assert process.stdout is not None
            process.stdout.readline()
        measure(2)
        rounds = [measure(8) for _ in range(args.rounds)]
    finally:
        for process in processes:
            process.kill()
            process.wait()
    hidden = statistics.median((a + c - b) / c for a, b, c, *_ in rounds)
    most = statistics.median(1 - cpu / c for _, _, c, _, _, cpu in rounds)
    times = [1e3 * statistics.median(column) for column in zip(*rounds)]
    for name, wall, cpu in zip(("gradients", "reduced gradients", "all-reduce alone"), times[:3], times[3:]):
        print(f"{name:18} {wall:6.1f} ms, CPU {cpu:6.1f} ms")
    cores = len(os.sched_getaffinity(0))
    print(f"hidden {100 * hidden:.0f} %; waiting in the all-reduce alone: {100 * most:.0f} %", end="")
    print(f" (the most that can be hidden by {args.ranks} ranks on {cores} cores)" if args.ranks >= cores else "")


if __name__ == "__main__":
    main()
