"""Clusters of processes of this machine that repeat a step, and how long it takes them."""

from __future__ import annotations

import importlib
import json
import os
import select
import signal
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import partial
from typing import Any, NamedTuple

from tfmini.simulation.calibration_cluster import free_addresses
from tfmini.simulation.calibration_models import Model, convolutions, dense, recurrent, table
from tfmini.simulation.calibration_processes import Measured, answer, measured, tell

tf: Any = importlib.import_module("tfmini")  # whose public names are looked up when they are used
#: Models that workers train, beside ps or reducing their gradients.
TRAINED: Mapping[str, Model] = {
    "short": dense(24, 48, 1), "long": dense(96, 160, 0), "recurrent": recurrent(48, 80, 6),
    "convolutional": convolutions(24, 20, 16, 3), "wide": dense(128, 520, 1), "large": convolutions(56, 24, 32, 3),
    "sparse": table(30_000, 48, 150, 1),
}  # fmt: skip
#: Bytes of the tensors that ranks reduce.
REDUCED: Mapping[str, int] = {"reduce medium": 256_000, "reduce large": 16_000_000}
CORES = 2  # of those that train: they and their ps must take turns
_SECONDS, _WARM_UP = 0.4, 20
_TASK = "import sys; from tfmini.simulation.calibration_tasks import run_task; run_task(*sys.argv[1:])"


class Replicas(NamedTuple):
    """How many workers train and beside how many ps (none: each has variables of its own), and in which way."""

    workers: int
    ps: int
    mode: str = "async"  # or "sync" or "allreduce"

    def device(self, task: int) -> Any:
        """Where a worker has its ops and variables: for `tf.device`."""
        own = f"/job:worker/task:{task}"
        return tf.train.replica_device_setter(ps_tasks=self.ps, worker_device=own) if self.ps else own

    def optimizer(self, plain: Any, task: int, hooks: list[Callable[[], Any]]) -> Any:
        """The optimizer of a worker.

        Args:
          plain: the one of a model that trains alone.
          hooks: receives what makes the hook of the worker's session, once the graph has been built.
        """
        if self.mode == "sync":
            found = tf.train.SyncReplicasOptimizer(plain, self.workers, self.workers)
            hooks.append(partial(found.make_session_run_hook, task == 0))
        elif self.mode == "allreduce":
            found = tf.train.AllReduceOptimizer(plain, self.workers, task)
            hooks.append(found.make_session_run_hook)
        else:
            return plain
        return found


def training(name: str, replicas: Replicas, task: int) -> tuple[Any, dict[Any, Any], list[Any]]:
    """The training op of a worker in the default graph, what it feeds, and the hooks of its session.

    Args:
      name: of `TRAINED`.
      task: the worker's.
    """
    made: list[Callable[[], Any]] = []
    with tf.device(replicas.device(task)):
        op, feeds = TRAINED[name](tf, lambda optimizer: replicas.optimizer(optimizer, task, made))
    return op, feeds, [make() for make in made]


def _reducing(name: str, ranks: int, task: int) -> tuple[Any, dict[Any, Any], list[Any]]:
    with tf.device(f"/job:worker/task:{task}"):
        value = tf.get_variable("value", [REDUCED[name] // 4])
        return tf.collective_ops.all_reduce(value.value(), ranks, 1, 1, "Add", "Id").op, {}, []


def trained(name: str, replicas: Replicas) -> Training:
    """Processes that train or reduce one of `TRAINED` or `REDUCED`."""
    own = json.dumps(replicas)
    return Training(
        lambda task, cluster: [sys.executable, "-c", _TASK, task, cluster, name, own], replicas.workers, replicas.ps
    )


class Training:
    """Processes that train while they are told to: workers, which call `train_when_told`, and ps that serve them.

    Args:
      command: of a process, for its task (`"worker:0"`) and its cluster (in JSON).

    Attributes:
      times_s: of the measured steps of all workers.

    Raises:
      RuntimeError: on entry, the processes did not start.
    """

    def __init__(self, command: Callable[[str, str], list[str]], workers: int, ps: int) -> None:
        self._command, self._workers, self._ps = command, workers, ps
        self._processes: list[Measured] = []
        self._stack = ExitStack()
        self.times_s: list[float] = []

    def __enter__(self) -> Training:
        addresses = free_addresses(self._ps + self._workers)
        jobs = {"worker": addresses[self._ps :], **({"ps": addresses[: self._ps]} if self._ps else {})}
        tasks = [*(f"worker:{i}" for i in range(self._workers)), *(f"ps:{i}" for i in range(self._ps))]
        with ExitStack() as stack:
            for task in tasks:
                self._processes.append(stack.enter_context(measured(self._command(task, json.dumps(jobs)))))
            self._lines()
            self._pause()
            self._stack = stack.pop_all()
        return self

    def take_turn(self) -> None:
        """Trains for some time. Otherwise the processes stand still.

        Raises:
          RuntimeError: a worker has ended, or does not answer.
        """
        self._signal("SIGCONT")
        self._tell("train")
        self.times_s += [seconds for line in self._lines() for seconds in json.loads(line)]
        self._pause()

    @property
    def median_s(self) -> float:
        """Seconds of a step."""
        return statistics.median(self.times_s)

    def _pause(self) -> None:
        """Lets the processes stand still: the heartbeats of a hundred take a fifth of a core from those that train."""
        self._tell("wait")
        self._signal("SIGSTOP")

    def _signal(self, name: str) -> None:
        if hasattr(signal, name):
            for process in self._processes:
                process.send_signal(getattr(signal, name))

    def _tell(self, what: str) -> None:
        for worker in self._processes[: self._workers]:
            tell(worker, what)

    def _lines(self) -> list[str]:
        """The next line of each worker."""
        return [answer(worker) for worker in self._processes[: self._workers]]

    def __exit__(self, *_: object) -> None:
        self._stack.close()


def run_task(task: str, cluster: str, name: str, replicas: str) -> None:
    """The whole of a process that `trained` has started."""
    if name in TRAINED and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:CORES])
    own = Replicas(*json.loads(replicas))
    job, index = task.split(":")
    server = tf.train.Server(json.loads(cluster), job_name=job, task_index=int(index))
    if job == "ps":
        server.join()
    if name in REDUCED:
        op, feeds, hooks = _reducing(name, own.workers, int(index))
    else:
        op, feeds, hooks = training(name, own, int(index))
    is_chief = index == "0" or not own.ps
    with tf.train.MonitoredTrainingSession(
        server.target, is_chief, hooks=hooks, log_step_count_steps=None
    ) as session:  # fmt: skip
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
