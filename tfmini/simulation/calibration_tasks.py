"""Clusters of processes of this machine that repeat a step, and how long it takes them."""

from __future__ import annotations

import importlib
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

from tfmini.simulation.calibration_cluster import free_addresses
from tfmini.simulation.calibration_models import Model, dense, recurrent

tf: Any = importlib.import_module("tfmini")  # whose public names are looked up when they are used
#: Models that a ps and workers train, beside each other.
TRAINED: Mapping[str, Model] = {
    "short": dense(24, 48, 1), "long": dense(96, 160, 0), "recurrent": recurrent(48, 80, 6),
}  # fmt: skip
#: Bytes of the tensors that ranks reduce.
REDUCED: Mapping[str, int] = {"reduce medium": 256_000, "reduce large": 16_000_000}
CORES = 2  # of those that train: workers, and cores on which they and their ps must take turns
_SECONDS, _WARM_UP = 1.0, 20
_TASK = "import sys; from tfmini.simulation.calibration_tasks import run_task; run_task(*sys.argv[1:])"


def training(name: str, task: int, ps: int) -> tuple[Any, dict[Any, Any]]:
    """The training op of a worker in the default graph, and what it feeds."""
    with tf.device(tf.train.replica_device_setter(ps_tasks=ps, worker_device=f"/job:worker/task:{task}")):
        return TRAINED[name](tf)


def _reducing(name: str, task: int, ranks: int) -> tuple[Any, dict[Any, Any]]:
    with tf.device(f"/job:worker/task:{task}"):
        value = tf.get_variable("value", [REDUCED[name] // 4])
        return tf.collective_ops.all_reduce(value.value(), ranks, 1, 1, "Add", "Id").op, {}


def measured_s(name: str, workers: int, ps: int = 0) -> float:
    """Median seconds of a step of ``workers``.

    Args:
      name: in `TRAINED` or `REDUCED`.
      ps: how many serve those that train.

    Raises:
      RuntimeError: the processes did not start.
    """
    addresses = free_addresses(ps + workers)
    cluster = json.dumps({"worker": addresses[ps:], **({"ps": addresses[:ps]} if ps else {})})
    processes = [_start(f"worker:{i}", cluster, name) for i in range(workers)]
    servers = [_start(f"ps:{i}", cluster, name) for i in range(ps)]
    try:
        for process in processes:
            if _line(process) != "trains":
                raise RuntimeError("the processes that are measured did not start; does `tfmini run` work here?")
        for process in processes:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        return statistics.median(float(_line(process)) for process in processes)
    finally:
        for process in (*processes, *servers):
            process.kill()
            process.communicate()


def _start(task: str, cluster: str, name: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", _TASK, task, cluster, name, str(_SECONDS)], stdin=subprocess.PIPE,
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    )  # fmt: skip


def _line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def run_task(task: str, cluster: str, name: str, seconds: str) -> None:
    """The whole of a process: a ps, or a worker that prints that it trains, is told to measure, prints its median step,
    and trains on until it is killed.
    """
    if name in TRAINED and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:CORES])
    job, index = task.split(":")
    spec = json.loads(cluster)
    server = tf.train.Server(spec, job_name=job, task_index=int(index))
    if job == "ps":
        server.join()
    reduces = name in REDUCED
    count = len(spec["worker"] if reduces else spec["ps"])
    op, feeds = (_reducing if reduces else training)(name, int(index), count)
    is_chief = index == "0" or reduces
    with tf.train.MonitoredTrainingSession(server.target, is_chief, log_step_count_steps=None) as session:

        def step() -> None:
            session.run(op, feeds)

        for _ in range(_WARM_UP):
            step()
        print("trains", flush=True)
        sys.stdin.readline()
        print(_median_s(step, float(seconds)), flush=True)
        while True:
            step()


def _median_s(step: Callable[[], None], seconds: float) -> float:
    times = []
    until = time.perf_counter() + seconds
    while (begin := time.perf_counter()) < until:
        step()
        times.append(time.perf_counter() - begin)
    return statistics.median(times)
