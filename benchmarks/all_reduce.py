"""All-reduce of float32 tensors between processes of this machine, by tfmini, gloo and TensorFlow.

    python benchmarks/all_reduce.py --ranks 2,4 --sizes 4096,65536,1048576,67108864
    TFMINI_TORCH=/python/with/torch TFMINI_ORACLE=/python/with/tensorflow python benchmarks/all_reduce.py

Targets: ``tfmini`` (shared memory), ``tfmini-tcp`` (loopback tcp only), ``gloo`` (torch.distributed) and
``tensorflow`` (its collective ops). Each rank is a process. The ranks of tfmini and TensorFlow are servers with a
session each, and the benchmark times ``session.run``. All processes of all targets live at the same time; the targets
take turns for a few dozen steps each. A round's time is the median step of the slowest rank. The table shows the
medians over the rounds of the times and of the ratios to gloo and TensorFlow, and the growth of a rank's resident
memory in megabytes.
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
from collections.abc import Callable
from typing import Any, NamedTuple

HERE = os.path.abspath(__file__)


def rank_main(target: str, addresses: list[str], rank: int, nbytes: int) -> None:
    """One rank: reads numbers of steps; prints for each the median seconds and by how many megabytes it has grown."""
    step = _gloo_step(addresses, rank, nbytes) if target == "gloo" else _session_step(target, addresses, rank, nbytes)
    before = _resident_mb()
    print("ready", flush=True)
    for line in sys.stdin:
        times = []
        for _ in range(int(line)):
            begin = time.perf_counter()
            step()
            times.append(time.perf_counter() - begin)
        print(json.dumps([statistics.median(times), _resident_mb() - before]), flush=True)
    os._exit(0)


def _resident_mb() -> float:
    """The peak of the resident memory, in MB."""
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmHWM")) / 1024


def _gloo_step(addresses: list[str], rank: int, nbytes: int) -> Callable[[], Any]:
    import torch
    import torch.distributed as dist

    dist.init_process_group("gloo", init_method=f"tcp://{addresses[0]}", rank=rank, world_size=len(addresses))
    tensor = torch.zeros(nbytes // 4)
    return lambda: dist.all_reduce(tensor)


def _session_step(target: str, addresses: list[str], rank: int, nbytes: int) -> Callable[[], Any]:
    import numpy as np

    options = None
    if target == "tensorflow":
        import tensorflow.compat.v1 as tf
        from tensorflow.python.ops import collective_ops

        tf.disable_v2_behavior()
        options = tf.RunOptions()
        options.experimental.collective_graph_key = 1
    else:
        import tfmini as tf

        collective_ops = tf.collective_ops
    config: Any = tf.ConfigProto()
    config.experimental.collective_group_leader = "/job:worker/replica:0/task:0"
    server = tf.train.Server({"worker": addresses}, job_name="worker", task_index=rank, config=config)
    with tf.device(f"/job:worker/task:{rank}/cpu:0"):
        value = tf.Variable(np.full(nbytes // 4, rank + 1, np.float32))
        total = collective_ops.all_reduce(value.value(), len(addresses), 1, 1, "Add", "Id")
    session = tf.Session(server.target, config=config)
    session.run(value.initializer)
    return lambda: session.run(total.op, options=options)


class Ranks:
    """The processes of one target."""

    def __init__(self, python: str, target: str, ranks: int, nbytes: int) -> None:
        reserved = [socket.create_server(("127.0.0.1", 0)) for _ in range(ranks)]
        addresses = [f"127.0.0.1:{s.getsockname()[1]}" for s in reserved]
        for s in reserved:
            s.close()
        environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
        if target == "tfmini-tcp":
            environment["TFMINI_LANE"] = "off"
        self.processes = [
            subprocess.Popen(
                [python, HERE, "--rank", json.dumps([target, addresses, rank, nbytes])],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1, env=environment,
                stderr=None if target.startswith("tfmini") else subprocess.DEVNULL,
            )
            for rank in range(ranks)
        ]  # fmt: skip
        self.grown_mb = 0.0

    def wait_ready(self) -> None:
        """Blocks until all ranks can begin."""
        for process in self.processes:
            assert process.stdout is not None
            while process.stdout.readline() not in ("ready\n", ""):
                pass

    def measure(self, steps: int) -> float:
        """Median seconds of the slowest rank."""
        for process in self.processes:
            assert process.stdin is not None
            process.stdin.write(f"{steps}\n")
        results = [json.loads(process.stdout.readline()) for process in self.processes if process.stdout]
        self.grown_mb = max(grown for _, grown in results)
        return max(seconds for seconds, _ in results)

    def end(self) -> None:
        """Kills the processes."""
        for process in self.processes:
            process.kill()
            process.wait()


class Figures(NamedTuple):
    """Of one target: seconds of each round, and by how many megabytes a rank has grown at most."""

    seconds: list[float]
    grown_mb: float


def measure(pythons: dict[str, str], ranks: int, nbytes: int, rounds: int) -> dict[str, Figures]:
    """Measures targets in turn.

    Args:
      pythons: target -> the Python that runs it.
    """
    steps = 100 if nbytes <= 1 << 17 else 20 if nbytes <= 1 << 22 else 4
    targets: dict[str, Ranks] = {}
    try:
        for target, python in pythons.items():
            targets[target] = Ranks(python, target, ranks, nbytes)
            targets[target].wait_ready()
            targets[target].measure(3)
        times: dict[str, list[float]] = {target: [] for target in targets}
        for _ in range(rounds):
            for target, processes in targets.items():
                times[target].append(processes.measure(steps))
        return {target: Figures(times[target], processes.grown_mb) for target, processes in targets.items()}
    finally:
        for processes in targets.values():
            processes.end()


def ratio(ours: Figures, theirs: Figures) -> float:
    """The median of the rounds' ratios."""
    return statistics.median(a / b for a, b in zip(ours.seconds, theirs.seconds))


def row(pythons: dict[str, str], ranks: int, nbytes: int, rounds: int) -> str:
    """A line of the table."""
    found = measure(pythons, ranks, nbytes, rounds)
    cells = [f"{ranks} | {nbytes:,}"]
    cells += [f"{1e3 * statistics.median(each.seconds):.2f} ({each.grown_mb:.0f})" for each in found.values()]
    for other in ("gloo", "tensorflow"):
        for ours in ("tfmini", "tfmini-tcp"):
            if other in found and ours in found:
                cells.append(f"{ratio(found[ours], found[other]):.2f}")
    return "| " + " | ".join(cells) + " |"


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rank", help=argparse.SUPPRESS)
    parser.add_argument("--ranks", default="2,4")
    parser.add_argument("--sizes", default="4096,65536,1048576,67108864")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--targets", default="tfmini,tfmini-tcp,gloo,tensorflow")
    args = parser.parse_args()
    if args.rank:
        rank_main(*json.loads(args.rank))
    known = {
        "tfmini": sys.executable, "tfmini-tcp": sys.executable,
        "gloo": os.environ.get("TFMINI_TORCH"), "tensorflow": os.environ.get("TFMINI_ORACLE"),
    }  # fmt: skip
    pythons = {target: python for target in args.targets.split(",") if (python := known[target])}
    ratios = [f"{a}/{b}" for b in ("gloo", "tensorflow") for a in ("tfmini", "tfmini-tcp") if {a, b} <= set(pythons)]
    columns = ["ranks", "bytes", *(f"{target} ms (MB)" for target in pythons), *ratios]
    print(f"| {' | '.join(columns)} |\n|{'---|' * len(columns)}", flush=True)
    for ranks in map(int, args.ranks.split(",")):
        for nbytes in map(int, args.sizes.split(",")):
            print(row(pythons, ranks, nbytes, args.rounds), flush=True)


if __name__ == "__main__":
    main()
