"""Clusters of processes of this machine that repeat a step, and how long it takes them."""

from __future__ import annotations

import importlib
import json
import os
import select
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from tfmini.simulation.calibration_cluster import free_addresses
from tfmini.simulation.calibration_models import Model, convolutions, dense, recurrent

tf: Any = importlib.import_module("tfmini")  # whose public names are looked up when they are used
#: Models that a ps and workers train, beside each other.
TRAINED: Mapping[str, Model] = {
    "short": dense(24, 48, 1), "long": dense(96, 160, 0), "recurrent": recurrent(48, 80, 6),
    "convolutional": convolutions(24, 20, 16, 3),
}  # fmt: skip
#: Bytes of the tensors that ranks reduce.
REDUCED: Mapping[str, int] = {"reduce medium": 256_000, "reduce large": 16_000_000}
CORES = 2  # of those that train: workers, and cores on which they and their ps must take turns
_TURNS, _SECONDS, _WARM_UP = 5, 0.4, 20
_TASK = "import sys; from tfmini.simulation.calibration_tasks import run_task; run_task(*sys.argv[1:])"


def training(name: str, task: int, ps: int) -> tuple[Any, dict[Any, Any]]:
    """The training op of a worker in the default graph, and what it feeds."""
    with tf.device(tf.train.replica_device_setter(ps_tasks=ps, worker_device=f"/job:worker/task:{task}")):
        return TRAINED[name](tf)


def _reducing(name: str, task: int, ranks: int) -> tuple[Any, dict[Any, Any]]:
    with tf.device(f"/job:worker/task:{task}"):
        value = tf.get_variable("value", [REDUCED[name] // 4])
        return tf.collective_ops.all_reduce(value.value(), ranks, 1, 1, "Add", "Id").op, {}


def trained(name: str, workers: int, ps: int = 0) -> Training:
    """Processes that train or reduce one of `TRAINED` or `REDUCED`; those that reduce need no ps."""
    return Training(lambda task, cluster: [sys.executable, "-c", _TASK, task, cluster, name], workers, ps)


class Training:
    """Processes that train while they are told to: workers, which call `train_when_told`, and ps that serve them.

    Args:
      command: of a process, for its task (`"worker:0"`) and its cluster (in JSON).

    Raises:
      RuntimeError: on entry, the processes did not start.
    """

    def __init__(self, command: Callable[[str, str], list[str]], workers: int, ps: int) -> None:
        self._command, self._workers, self._ps = command, workers, ps
        self._processes: list[subprocess.Popen[str]] = []

    def __enter__(self) -> Training:
        addresses = free_addresses(self._ps + self._workers)
        jobs = {"worker": addresses[self._ps :], **({"ps": addresses[: self._ps]} if self._ps else {})}
        tasks = [*(f"worker:{i}" for i in range(self._workers)), *(f"ps:{i}" for i in range(self._ps))]
        try:
            self._processes.extend(_start(self._command(task, json.dumps(jobs))) for task in tasks)
            self._lines()
            self._tell("wait")
        except BaseException:
            self.__exit__()
            raise
        return self

    def measured_s(self) -> list[float]:
        """Trains for some time; the seconds of the steps of all workers. Otherwise the processes wait.

        Raises:
          RuntimeError: a worker has ended.
        """
        self._tell("train")
        found = [seconds for line in self._lines() for seconds in json.loads(line)]
        self._tell("wait")
        return found

    def _tell(self, what: str) -> None:
        for worker in self._processes[: self._workers]:
            assert worker.stdin is not None
            worker.stdin.write(what + "\n")
            worker.stdin.flush()

    def _lines(self) -> list[str]:
        """The next line of each worker."""
        found = []
        for worker in self._processes[: self._workers]:
            assert worker.stdout is not None
            found.append(worker.stdout.readline())
            if not found[-1]:
                raise RuntimeError(
                    f"a process that is measured has ended: {worker.args!r}. Does `tfmini run` work on this machine?"
                )
        return found

    def __exit__(self, *_: object) -> None:
        for process in self._processes:
            process.kill()
            process.communicate()


def medians_s(trainings: Sequence[Training]) -> list[float]:
    """Median seconds of a step of each. They take turns, since a machine's speed may change from second to second."""
    found: list[list[float]] = [[] for _ in trainings]
    for _ in range(_TURNS):
        for times, each in zip(found, trainings):
            times += each.measured_s()
    return [statistics.median(times) for times in found]


def _start(command: list[str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )


def run_task(task: str, cluster: str, name: str) -> None:
    """The whole of a process that `trained` has started."""
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
        train_when_told(partial(session.run, op, feeds))


def train_when_told(step: Callable[[], Any]) -> None:
    """The rest of a worker of a `Training`: says when it is ready; then, whenever it is told to, trains, and prints the
    times of its steps. It trains on until it is told to wait, since another worker's step may need it.

    Args:
      step: makes one.
    """
    for _ in range(_WARM_UP):
        step()
    print("ready", flush=True)
    _train_until_told(step)
    for _ in sys.stdin:
        for _ in range(_WARM_UP):
            step()
        times: list[float] = []
        until = time.perf_counter() + _SECONDS
        while (begin := time.perf_counter()) < until:
            step()
            times.append(time.perf_counter() - begin)
        print(json.dumps(times), flush=True)
        _train_until_told(step)


def _train_until_told(step: Callable[[], Any]) -> None:
    while not select.select([sys.stdin], [], [], 0)[0]:
        step()
    sys.stdin.readline()
