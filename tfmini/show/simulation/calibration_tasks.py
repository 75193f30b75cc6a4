"""The workloads of a calibration: clusters of processes of this machine that make steps, and what these take."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple, Self

from tfmini.show.simulation.calibration_kernels import Steps, convolutions, dense, recurrent, reduction, table, trips

CORES = 2  # of those that train: they and their ps must take turns
TRAIN, ALONE, BESIDE = "train", "alone", "beside"
SECONDS, _WARM_UP = 0.4, 20
_DEADLINE_S = 120.0  # for a start or a turn of some seconds
_LANE_ENV = "TFMINI_LANE"
_TASK = (
    "import sys, tfmini as tf; from tfmini.show.simulation.calibration_tasks import WORKLOADS, run_task;"
    " run_task(tf, WORKLOADS[sys.argv[1]], *sys.argv[2:])"
)


class Measure(NamedTuple):
    """What is measured in a turn: steps of that name, by so many workers (None: all), with waits before them."""

    step: str = TRAIN
    workers: int | None = None
    gap_s: float = 0.0


@dataclass(frozen=True)
class Workload:
    """What a cluster runs.

    Attributes:
      model: its steps.
      workers, ps: how many tasks; without ps, each worker has variables of its own.
      mode: how the workers train: ``async``, ``sync`` or ``allreduce``.
      measures: what is measured in each turn, by name.
      cores: ``few``: the workers share the first `CORES`; ``own``: each has one; ``all``.
      lanes: whether messages take the lane of one machine, else they go over tcp.
    """

    model: Steps
    workers: int = 1
    ps: int = 0
    mode: str = "async"
    measures: Mapping[str, Measure] = field(default_factory=lambda: {TRAIN: Measure()})
    cores: str = "few"
    lanes: bool = True

    def build(self, tf: Any, task: int) -> tuple[dict[str, tuple[Any, dict[Any, Any]]], list[Any]]:
        """Adds a worker's graph to the default graph.

        Returns:
          Name -> the op of a step and what it feeds; and the hooks of the session.
        """
        makers: list[Callable[[], Any]] = []
        own = f"/job:worker/task:{task}"
        with tf.device(tf.train.replica_device_setter(ps_tasks=self.ps, worker_device=own) if self.ps else own):
            steps = self.model(tf, lambda plain: self._optimizer(tf, plain, task, makers))
        return steps if isinstance(steps, dict) else {TRAIN: steps}, [make() for make in makers]

    def _optimizer(self, tf: Any, plain: Any, task: int, makers: list[Callable[[], Any]]) -> Any:
        """The optimizer of a worker. ``makers`` receives what makes its hook, once the graph has been built."""
        if self.mode == "async":
            return plain
        if self.mode == "sync":
            found = tf.train.SyncReplicasOptimizer(plain, self.workers, self.workers)
            makers.append(partial(found.make_session_run_hook, task == 0))
        else:
            found = tf.train.AllReduceOptimizer(plain, self.workers, task)
            makers.append(found.make_session_run_hook)
        return found


def _trained(name: str, model: Steps, *clusters: str) -> dict[str, Workload]:
    return {f"{name} {cluster}": Workload(model, **_CLUSTERS[cluster]) for cluster in clusters}


_CLUSTERS: Mapping[str, Any] = {
    "one": {"workers": 1, "ps": 1}, "two": {"workers": CORES, "ps": 1}, "four": {"workers": 2 * CORES, "ps": 2},
    "sync": {"workers": CORES, "ps": 1, "mode": "sync"}, "allreduce": {"workers": CORES, "mode": "allreduce"},
}  # fmt: skip
_SHORT, _LONG = ("one", "two", "four", "sync", "allreduce"), ("one", "four", "sync", "allreduce")
_GAP_S = 300e-6  # about what a worker waits for its variables
_OF_MESSAGES: Mapping[str, Measure] = {
    **{name: Measure(name) for name in (
        "one part", "two parts", "one trip", "trips", "medium", "large", "model", "monitored"
    )},
    "model after a wait": Measure("model", gap_s=_GAP_S),
}  # fmt: skip
_OF_TWO = {ALONE: Measure(workers=1), BESIDE: Measure()}

MESSAGES: Mapping[str, Workload] = {
    link: Workload(trips, 1, 2, measures=_OF_MESSAGES, cores="all", lanes=link == "local") for link in ("local", "tcp")
}
"""Steps that differ by a part, by round trips, by the bytes of a tensor: what messages cost."""
NEIGHBOURS: Mapping[str, Workload] = {
    f"beside {i}": Workload(model, 2, measures=_OF_TWO, cores="own")  # steps of 10 to 20 ms
    for i, model in enumerate((convolutions(48, 26, 24, 3), dense(160, 640, 0), dense(24, 1400, 1)))
}
"""Long steps alone, and while another core computes: both share the memory and the last cache."""
REDUCED: Mapping[int, str] = {256_000: "reduce medium", 16_000_000: "reduce large"}
"""The bytes of tensors that two ranks reduce -> the workload."""
TRAINED: Mapping[str, Workload] = {
    **_trained("short", dense(24, 48, 1), *_SHORT), **_trained("long", dense(96, 160, 0), *_SHORT),
    **_trained("recurrent", recurrent(48, 80, 6), *_SHORT),
    **_trained("convolutional", convolutions(24, 20, 16, 3), *_SHORT),
    **_trained("wide", dense(128, 520, 1), *_LONG), **_trained("large", convolutions(56, 24, 32, 3), *_LONG),
    **_trained("sparse", table(30_000, 48, 150, 1), *_SHORT[:-1]),
}  # fmt: skip
"""Clusters that train, to which the other costs are fitted."""
WORKLOADS: Mapping[str, Workload] = {
    **MESSAGES, **NEIGHBOURS,
    **{name: Workload(reduction(nbytes, 2), 2, cores="all") for nbytes, name in REDUCED.items()}, **TRAINED,
}  # fmt: skip


class MeasuredRates(NamedTuple):
    """Of the steps of a turn: the seconds of each, and the mean CPU seconds of one in its worker and in the ps."""

    times: list[float]
    here: float
    there: float

    @property
    def wall(self) -> float:
        """The median seconds of a step."""
        return statistics.median(self.times)


class Running:
    """The processes of a workload, which make steps in turns. Between turns they stand still.

    Args:
      name: of the workload.
      command: of a process, before its task, its cluster (in JSON) and the process ids of the ps.

    Attributes:
      found: by the name of what was measured, the rates of each turn. The times are those of all workers.

    Raises:
      RuntimeError: on entry, the processes did not start.
    """

    def __init__(self, name: str, workload: Workload, command: Sequence[str] = (sys.executable, "-c", _TASK)) -> None:
        self._workload, self._command = workload, [*command, name]
        self._ps: list[subprocess.Popen[str]] = []
        self._workers: list[subprocess.Popen[str]] = []
        self._stack = ExitStack()
        self.found: dict[str, list[MeasuredRates]] = {name: [] for name in workload.measures}

    def __enter__(self) -> Self:
        addresses = free_addresses(self._workload.ps + self._workload.workers)
        ps = self._workload.ps
        cluster = json.dumps({"worker": addresses[ps:], **({"ps": addresses[:ps]} if ps else {})})
        with ExitStack() as stack:
            for i in range(ps):
                self._ps.append(stack.enter_context(self._process(f"ps:{i}", cluster)))
            pids = [str(process.pid) for process in self._ps]
            for i in range(self._workload.workers):
                self._workers.append(stack.enter_context(self._process(f"worker:{i}", cluster, *pids)))
            for worker in self._workers:
                _answer(worker)  # that it is ready
            self._pause(self._workers)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @contextmanager
    def _process(self, *arguments: str) -> Any:
        process = subprocess.Popen(
            [*self._command, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            text=True, env=os.environ if self._workload.lanes else {**os.environ, _LANE_ENV: "off"},
        )  # fmt: skip
        try:
            yield process
        finally:
            process.kill()
            process.communicate()

    def take_turn(self) -> None:
        """Measures everything for some time.

        Raises:
          RuntimeError: a worker has ended, or does not answer.
        """
        for name, measure in self._workload.measures.items():
            workers = self._workers[: measure.workers]
            self._signal("SIGCONT", workers)
            for worker in workers:
                _tell(worker, json.dumps([measure.step, SECONDS, measure.gap_s]))
            # At once: an answer can be more than a pipe holds, and the others' steps may need the one who writes it.
            with ThreadPoolExecutor(len(workers)) as pool:
                rates = [MeasuredRates(*json.loads(line)) for line in pool.map(_answer, workers)]
            self._pause(workers)
            times = [seconds for each in rates for seconds in each.times]
            self.found[name].append(rates[0]._replace(times=times))

    @property
    def median_s(self) -> float:
        """The median seconds of a training step of all turns."""
        return statistics.median(seconds for rates in self.found[TRAIN] for seconds in rates.times)

    def _pause(self, workers: Sequence[subprocess.Popen[str]]) -> None:
        """Lets the processes stand still: the heartbeats of a hundred take a fifth of a core from those that train."""
        for worker in workers:
            _tell(worker, "wait")
        self._signal("SIGSTOP", workers)

    def _signal(self, name: str, workers: Sequence[subprocess.Popen[str]]) -> None:
        for process in (*self._ps, *workers) if hasattr(signal, name) else ():
            process.send_signal(getattr(signal, name))


def _tell(process: subprocess.Popen[str], what: str) -> None:
    """Writes a line to a process."""
    assert process.stdin is not None
    process.stdin.write(what + "\n")
    process.stdin.flush()


def _answer(process: subprocess.Popen[str]) -> str:
    """The next line of a process, which writes one at a time.

    Raises:
      RuntimeError: it has ended, or does not answer.
    """
    assert process.stdout is not None
    answers = select.select([process.stdout], [], [], _DEADLINE_S)[0]
    line = process.stdout.readline() if answers else ""
    if not line:
        what = "has ended" if answers else f"has not answered for {_DEADLINE_S:.0f} s"
        raise RuntimeError(
            f"a process that is measured {what}: {process.args!r}. Does `tfmini run` work on this machine?"
        )
    return line


def free_addresses(count: int) -> list[str]:
    """Addresses of this machine with free ports."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.create_server(("localhost", 0))) for _ in range(count)]
        return [f"localhost:{each.getsockname()[1]}" for each in sockets]


# ---------------------------------------------------------------------------------------------
# In the processes
# ---------------------------------------------------------------------------------------------


def run_task(tf: Any, workload: Workload, task: str, cluster: str, *ps_pids: str) -> None:
    """The whole of a process that `Running` has started: a ps, or a worker that makes steps while it is told to."""
    job, index = task.split(":")
    if workload.cores != "all" and hasattr(os, "sched_setaffinity"):
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, cores[:CORES] if workload.cores == "few" else {cores[-1 - int(index) % len(cores)]})
    config = tf.ConfigProto(device_count={"GPU": 0, "TPU": 0})
    server = tf.train.Server(json.loads(cluster), job_name=job, task_index=int(index), config=config)
    if job == "ps":
        server.join()
    steps, hooks = workload.build(tf, int(index))
    is_chief = index == "0" or not workload.ps
    with tf.train.MonitoredTrainingSession(
        server.target, is_chief, hooks=hooks, log_step_count_steps=None
    ) as session:  # fmt: skip
        plain = session._tf_sess()
        runs = {name: (session if name in (TRAIN, "monitored") else plain).run for name in steps}
        _serve({name: partial(runs[name], *step) for name, step in steps.items()}, list(map(int, ps_pids)))


def _serve(steps: Mapping[str, Callable[[], Any]], ps_pids: Sequence[int]) -> None:
    """Says when it is ready; then, whenever it is told to, makes steps and prints their rates. It goes on with them
    until it is told to wait, since another worker's step may need it.
    """
    step = next(iter(steps.values()))
    _warm_up(step)
    print("ready", flush=True)
    _go_on_until_told(step)
    for line in sys.stdin:
        name, seconds, gap_s = json.loads(line)
        _warm_up(steps[name])
        print(json.dumps(_rates(steps[name], seconds, gap_s, ps_pids)), flush=True)
        _go_on_until_told(steps[name])


def _warm_up(step: Callable[[], Any]) -> None:
    for _ in range(_WARM_UP):
        step()


def _go_on_until_told(step: Callable[[], Any]) -> None:
    while not select.select([sys.stdin], [], [], 0)[0]:
        step()
    sys.stdin.readline()


def _rates(step: Callable[[], Any], seconds: float, gap_s: float, ps_pids: Sequence[int]) -> MeasuredRates:
    """Of steps one after the other, or with waits between them."""
    times = []
    here, there, until = time.process_time(), sum(map(_cpu_s, ps_pids)), time.perf_counter() + seconds
    while time.perf_counter() < until:
        if gap_s:
            time.sleep(gap_s)
        begin = time.perf_counter()
        step()
        times.append(time.perf_counter() - begin)
    here, there = time.process_time() - here, sum(map(_cpu_s, ps_pids)) - there
    return MeasuredRates(times, here / len(times), there / len(times))


def _cpu_s(pid: int) -> float:
    """CPU time of a process: of its living threads to the nanosecond, else to the hundredth."""
    total = 0
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{thread}/schedstat") as file:
                total += int(file.read().split()[0])
        return total * 1e-9
    except OSError:  # a kernel without statistics of its scheduler
        with open(f"/proc/{pid}/stat") as file:
            fields = file.read().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
