"""Trials: a real training job, faults of real processes at seeded moments, and what must hold at the end.

``python -m tests.chaos.trials --count 300 --seed 0`` runs that many and prints a line per trial and a table;
``--only N`` replays the trial of one seed. A trial varies the mode (asynchronous, synchronous, Supervisor, all-reduce
of a fixed and of an elastic group), the number of tasks, the victim, the moment, and the fault (killed, told to end,
stopped for a while, killed twice). Killed tasks are started again, as a cluster engine would.

Every trial must end within `LIMIT_S`: each worker exits by itself with code 0 and a trained model, the newest
checkpoint has the last step, and nothing is left running. In the all-reduce modes all workers end with the same loss.
In all of them, threads keep the order of locks (`tests.locking`).
"""

from __future__ import annotations

import argparse
import collections
import random
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import tfmini as tf
from tests.train.sessions.training_runs import EVERY, LAST, training_cluster
from tests.train.sessions.training_task import RINGS
from tfmini.launch.supervision import TaskId
from tfmini.testing import ProcessCluster

LIMIT_S = 240.0
MODES = ("monitored", "sync", "supervisor", *RINGS)
FAULTS = ("kill", "term", "stop", "kill twice")
_LOSS_LIMIT = 1e-2
_TICK_S = 0.01


@dataclass(frozen=True)
class Fault:
    """One planned fault.

    Attributes:
      victim: the task.
      kind: one of `FAULTS`.
      step: the workers' latest step from which on it happens; 0: as soon as the tasks have been started.
      in_save: whether it waits for a checkpoint being written.
      pause_s: how long the task stays dead or stopped.
    """

    victim: TaskId
    kind: str
    step: int
    in_save: bool
    pause_s: float

    def __str__(self) -> str:
        moment = f"step {self.step}" + (" in a save" if self.in_save else "")
        return f"{self.kind} {self.victim.job}/{self.victim.task} at {moment}, {self.pause_s:.1f} s"


@dataclass(frozen=True)
class Plan:
    """What a trial does, from its seed alone."""

    seed: int
    mode: str
    ps: int
    workers: int
    faults: tuple[Fault, ...]

    def __str__(self) -> str:
        return f"{self.seed}: {self.mode}, {self.ps} ps, {self.workers} workers; " + "; ".join(map(str, self.faults))


def plan(seed: int) -> Plan:
    """The plan of a seed."""
    pick = random.Random(seed)
    mode, ps, workers = pick.choice(MODES), pick.randint(1, 2), pick.randint(1, 3)
    if mode in RINGS:
        ps, workers = 0, max(2, workers)
    tasks = [TaskId("ps", i) for i in range(ps)] + [TaskId("worker", i) for i in range(workers)]
    count = pick.choice((1, 1, 1, 2))
    faults = [
        Fault(pick.choice(tasks), pick.choice(FAULTS), pick.choice((0, 1, *range(5, LAST // 2, 7))),
              pick.random() < 0.2, pick.choice((0.0, 0.0, 0.3, 1.0, 3.0, 6.0)))
        for _ in range(count)
    ]  # fmt: skip
    return Plan(seed, mode, ps, workers, tuple(sorted(faults, key=lambda fault: fault.step)))


@dataclass
class Output:
    """What the processes of one task have printed."""

    lines: list[str] = field(default_factory=list)

    @property
    def step(self) -> int:
        """The last step reported, 0 before the first."""
        steps = [line for line in self.lines if line.startswith("step ") and line.endswith("\n")]
        return int(steps[-1].split()[1]) if steps else 0

    @property
    def loss(self) -> float | None:
        """The loss at the end, None before the end."""
        done = [line for line in self.lines if line.startswith("done ")]
        return float(done[-1].split()[1]) if done else None


class TrialError(AssertionError):
    """A trial did not end as promised."""


class Trial:
    """One run of a plan."""

    def __init__(self, plan: Plan, directory: Path) -> None:
        self.plan = plan
        self.directory = directory
        self.outputs: dict[TaskId, Output] = collections.defaultdict(Output)
        (directory / "check-locks").touch()
        self.cluster: ProcessCluster = training_cluster(directory, plan.mode, plan.ps, plan.workers)
        self._limit = time.monotonic() + LIMIT_S
        self._readers: dict[TaskId, threading.Thread] = {}  # of the latest process of each task

    def run(self) -> float:
        """Runs it; returns the seconds that it took.

        Raises:
          TrialError: saying what did not hold.
        """
        begun = time.monotonic()
        with self.cluster as cluster:
            for task in cluster.processes:
                self._read(task)
            for fault in self.plan.faults:
                self._wait(lambda fault=fault: self._is_time(fault), f"the moment of {fault}")
                self._inflict(fault)
            workers = [TaskId("worker", i) for i in range(self.plan.workers)]
            if self.plan.mode in RINGS:  # who comes after the end of the others would wait for them
                self._wait(lambda: all(self._is_under_way(task) for task in workers), "the step of a rank")
            (self.directory / "go").touch()
            losses = {self._checked_loss(task) for task in workers}
            if self.plan.mode in RINGS and len(losses) > 1:
                raise TrialError(f"the ranks have different variables, with the losses {losses}")
        for reader in self._readers.values():
            reader.join(10.0)
        if (found := self.directory / "lock-errors").exists():
            raise TrialError(f"locks were taken out of order: {found.read_text()}")
        newest = str(tf.train.latest_checkpoint(str(self.directory)))
        if self.plan.mode != "supervisor" and int(newest.rpartition("-")[2]) < LAST:
            raise TrialError(f"the newest checkpoint is {newest}")
        return time.monotonic() - begun

    def _is_under_way(self, task: TaskId) -> bool:
        return bool(self.outputs[task].step) or self.cluster.processes[task].poll() is not None

    def _checked_loss(self, task: TaskId) -> float:
        process = self.cluster.processes[task]
        self._wait(lambda: process.poll() is not None, f"the end of {task}")
        output = self.outputs[task]
        self._wait(lambda: output.loss is not None or not self._readers[task].is_alive(), "its output")
        if process.returncode or output.loss is None:
            raise TrialError(f"{task} ended with {process.returncode}, {output.lines[-3:]}")
        late = self.plan.workers > 1 and output.loss != output.loss  # it came after the end: no step of its own
        if not late and not output.loss < _LOSS_LIMIT:
            raise TrialError(f"{task} ended with the loss {output.loss}")
        return output.loss

    # ---- faults -----------------------------------------------------------------------------

    def _is_time(self, fault: Fault) -> bool:
        outputs = [self.outputs[TaskId("worker", i)] for i in range(self.plan.workers)]
        if any(output.loss is not None for output in outputs):
            return True
        step = max(output.step for output in outputs)  # in synchronous training others may be far ahead of the chief
        if fault.step and step < fault.step:
            return False
        return not fault.in_save or step > fault.step + 2 * EVERY or any(self.directory.glob("*.tempstate*"))

    def _inflict(self, fault: Fault) -> None:
        job, index = fault.victim.job, fault.victim.task
        process = self.cluster.processes[fault.victim]
        if process.poll() is not None:  # it had ended well before its moment
            return
        if fault.kind == "stop":
            process.send_signal(signal.SIGSTOP)
            self._sleep(fault.pause_s)
            process.send_signal(signal.SIGCONT)
            return
        process.send_signal(signal.SIGTERM if fault.kind == "term" else signal.SIGKILL)
        self._wait(lambda: process.poll() is not None, f"{fault.victim} after {fault.kind}")
        self._sleep(fault.pause_s)
        self._start(fault.victim)
        if fault.kind == "kill twice":
            self._sleep(random.Random(self.plan.seed).uniform(0.5, 3.0))  # while the others recover
            self.cluster.kill(job, index)
            self._start(fault.victim)

    def _start(self, task: TaskId) -> None:
        self.cluster.start_task(task.job, task.task)
        self._read(task)

    # ---- waits ------------------------------------------------------------------------------

    def _read(self, task: TaskId) -> None:
        stdout = self.cluster.processes[task].stdout
        lines = self.outputs[task].lines = []  # of this process alone

        def read() -> None:
            try:
                lines.extend(iter(stdout.readline, ""))  # type: ignore[union-attr]
            except ValueError:  # closed at the end of the trial
                return

        thread = threading.Thread(target=read, daemon=True)
        thread.start()
        self._readers[task] = thread

    def _wait(self, condition: Callable[[], Any], what: str) -> None:
        """Polls, since a fault belongs to a moment of other processes and not to an event of this one."""
        while not condition():
            if time.monotonic() > self._limit:
                state = {str(task): output.lines[-2:] for task, output in self.outputs.items()}
                raise TrialError(f"{what} did not come within {LIMIT_S:.0f} s; {state}")
            time.sleep(_TICK_S)

    def _sleep(self, seconds: float) -> None:
        time.sleep(min(seconds, max(0.0, self._limit - time.monotonic())))


def run_trial(seed: int) -> float:
    """Runs the trial of a seed in a directory of its own."""
    with tempfile.TemporaryDirectory() as directory:
        return Trial(plan(seed), Path(directory)).run()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", type=int)
    options = parser.parse_args()
    seeds = [options.only] if options.only is not None else range(options.seed, options.seed + options.count)
    results: collections.Counter[tuple[str, str]] = collections.Counter()
    failed = []
    for seed in seeds:
        try:
            told = f"ended as promised, {run_trial(seed):.1f} s"
            results[plan(seed).mode, "ended as promised"] += 1
        except TrialError as error:
            told = f"FAILED: {error}"
            results[plan(seed).mode, "failed"] += 1
            failed.append(seed)
        print(f"{plan(seed)} -> {told}", flush=True)
    for (mode, result), count in sorted(results.items()):
        print(f"{count:>5}  {mode}: {result}")
    print(f"failing seeds: {failed}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
