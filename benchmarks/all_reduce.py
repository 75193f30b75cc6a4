"""All-reduce of float32 tensors between processes of this machine: tfmini beside TensorFlow's collective ops.

    python benchmarks/all_reduce.py --ranks 2,4 --sizes 4096,65536,1048576,67108864
    TFMINI_ORACLE=/path/to/python/with/tensorflow python benchmarks/all_reduce.py

Each rank is a server with a session of its own (between-graph). Printed: the median over the steps of the slowest
rank. The targets take turns, and only the ratio means something on a shared machine.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import socket
import statistics
import subprocess
import sys
import time
from typing import Any

HERE = os.path.abspath(__file__)


def rank_main(target: str, addresses: list[str], rank: int, nbytes: int, steps: int) -> None:
    """One rank: prints its median seconds and the megabytes that its memory grew by."""
    import numpy as np

    leader = "/job:worker/replica:0/task:0"
    if target == "tfmini":
        import tfmini as tf

        collective_ops = tf.collective_ops
        options = None
    else:
        import tensorflow.compat.v1 as tf
        from tensorflow.python.ops import collective_ops

        tf.disable_v2_behavior()
        options = tf.RunOptions()
        options.experimental.collective_graph_key = 1
    config: Any = tf.ConfigProto()
    config.experimental.collective_group_leader = leader
    server = tf.train.Server({"worker": addresses}, job_name="worker", task_index=rank, config=config)
    with tf.Graph().as_default(), tf.device(f"/job:worker/task:{rank}/cpu:0"):
        value = tf.Variable(np.full(nbytes // 4, rank + 1, np.float32))
        total = collective_ops.all_reduce(value.value(), len(addresses), 1, 1, "Add", "Id")
        with tf.Session(server.target, config=config) as session:
            session.run(value.initializer)
            before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            times = []
            for _ in range(steps + 3):
                begin = time.perf_counter()
                session.run(total.op, options=options)
                times.append(time.perf_counter() - begin)
            grown_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
            print(json.dumps([statistics.median(times[3:]), grown_kb / 1024]), flush=True)
            sys.stdin.readline()  # nobody leaves before all have finished
    os._exit(0)


def measure(python: str, target: str, ranks: int, nbytes: int, steps: int) -> tuple[float, float]:
    """(seconds, grown MB) of the slowest rank."""
    reserved = [socket.create_server(("127.0.0.1", 0)) for _ in range(ranks)]
    addresses = [f"127.0.0.1:{s.getsockname()[1]}" for s in reserved]
    for s in reserved:
        s.close()
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": ""}
    processes = []
    for rank in range(ranks):
        about = json.dumps([target, addresses, rank, nbytes, steps])
        processes.append(
            subprocess.Popen(
                [python, HERE, "--rank", about], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                env=environment, stderr=None if target == "tfmini" else subprocess.DEVNULL,
            )
        )  # fmt: skip
    try:
        results = [json.loads(p.stdout.readline()) for p in processes if p.stdout]
    finally:
        for p in processes:
            p.kill()
            p.wait()
    return max(r[0] for r in results), max(r[1] for r in results)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rank", help=argparse.SUPPRESS)
    parser.add_argument("--ranks", default="2,4")
    parser.add_argument("--sizes", default="4096,65536,1048576,67108864")
    args = parser.parse_args()
    if args.rank:
        rank_main(*json.loads(args.rank))
    oracle = os.environ.get("TFMINI_ORACLE")
    print("ranks      bytes    tfmini ms (MB)  TensorFlow ms (MB)   ratio", flush=True)
    for ranks in map(int, args.ranks.split(",")):
        for nbytes in map(int, args.sizes.split(",")):
            steps = 200 if nbytes <= 1 << 17 else 50 if nbytes <= 1 << 22 else 8
            ours = measure(sys.executable, "tfmini", ranks, nbytes, steps)
            line = f"{ranks:5} {nbytes:10} {1e3 * ours[0]:9.2f} ({ours[1]:.0f})"
            if oracle:
                theirs = measure(oracle, "tensorflow", ranks, nbytes, steps)
                line += f" {1e3 * theirs[0]:12.2f} ({theirs[1]:.0f}) {ours[0] / theirs[0]:11.3f}"
            print(line, flush=True)


if __name__ == "__main__":
    main()
