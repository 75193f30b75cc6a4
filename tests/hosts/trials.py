"""Trials of links: a training job on hosts of its own, and a fault of a cable or a host at a seeded moment.

``python -m tests.hosts.trials --count 100 --seed 0`` runs that many and prints a line per trial and a table;
``--only N`` replays the trial of one seed. A trial varies the mode (asynchronous, synchronous, elastic all-reduce), the
victim, the moment and the fault: a cut that is shorter or longer than the time after which a silent task counts as
lost, a slow link, a host that is lost for good, whose task is started again on another one by the same command.

Each trial must end within `LIMIT_S`: all workers by themselves, with a trained model; ranks with the same model.
"""

from __future__ import annotations

import argparse
import collections
import random
import signal
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from tests.hosts.cluster import Cluster, Lines, keys_in
from tests.hosts.network import Network, why_not
from tests.hosts.training import Training

LIMIT_S = 240.0
MODES = ("monitored", "sync", "ranks")
FAULTS = ("short cut", "long cut", "slow link", "lost host")
_LOSS_LIMIT = 1e-2
_SPARE = 3  # the host of tasks whose own is lost


@dataclass(frozen=True)
class Plan:
    """What a trial does, from its seed alone.

    Attributes:
      victim: the host: 0 has the ps, or rank 0; the others have workers.
      step: from which on the fault happens.
      lasts_s: how long it lasts.
    """

    seed: int
    mode: str
    victim: int
    fault: str
    step: int
    lasts_s: float

    def __str__(self) -> str:
        return f"{self.seed}: {self.mode}, {self.fault} of host {self.victim} at step {self.step}, {self.lasts_s:.1f} s"


def plan(seed: int) -> Plan:
    """The plan of a seed."""
    pick = random.Random(seed)
    mode, fault, victim = pick.choice(MODES), pick.choice(FAULTS), pick.randrange(3)
    lasts_s = {"short cut": pick.uniform(0.1, 2.0), "long cut": pick.uniform(6.0, 9.0)}.get(fault, pick.uniform(1, 4))
    return Plan(seed, mode, victim, fault, pick.randrange(5, 150), lasts_s)


class Job:
    """The tasks of a trial, by host."""

    def __init__(self, network: Network, mode: str, directory: Path) -> None:
        self._mode, self._directory = mode, directory
        book = {"TFMINI_ADDRESSES": str(directory / "book")}
        if mode == "ranks":
            self._cluster = Cluster(network, {"worker": [0, 1, 2]}, {**keys_in(directory), **book})
        else:
            self._training = Training(network, directory, 2, mode, **book)
        self.tasks = {host: self.start(host, host) for host in range(3)}

    def start(self, host: int, number: int) -> Lines:
        """Starts the task that belongs to one host, on any."""
        if self._mode == "ranks":
            words = ("ranks", self._directory / "go", 2)
            return self._cluster.start_on(host, self._cluster.spec, "worker", number, *words)
        return self._training.start(host, "ps" if number == 0 else "worker", max(0, number - 1))

    @property
    def workers(self) -> list[Lines]:
        return [task for host, task in self.tasks.items() if host or self._mode == "ranks"]

    def go(self) -> None:
        """Lets the workers come to the end: ranks when all of them train again, since nobody waits for a late one."""
        for rank in self.workers if self._mode == "ranks" else []:
            rank.skip()
            while rank.until("step", LIMIT_S)[1] != "3":
                pass
        (self._directory / "go").touch()
        if self._mode != "ranks":
            self._training.go()


def run_trial(network: Network, plan: Plan) -> float:
    """Runs a trial; returns the seconds that it took.

    Raises:
      AssertionError: saying what did not hold.
    """
    begun = time.monotonic()
    with tempfile.TemporaryDirectory() as directory:
        try:
            job = Job(network, plan.mode, Path(directory))
            while int(job.workers[0].until("step", LIMIT_S)[0]) < plan.step:
                pass
            _inflict(network, job, plan)
            job.go()
            results = [worker.until("done", LIMIT_S)[0] for worker in job.workers]
        finally:
            network.end()
    if plan.mode == "ranks":
        assert len(set(results)) == 1, f"the ranks ended with {results}"
    else:
        # A worker that came after the end has made no step.
        assert all(float(loss) < _LOSS_LIMIT for loss in results if loss != "nan"), f"the losses are {results}"
    return time.monotonic() - begun


def _inflict(network: Network, job: Job, plan: Plan) -> None:
    host = network[plan.victim]
    if plan.fault == "slow link":
        host.limit("1mbit")
        time.sleep(plan.lasts_s)  # this is the fault
        host.unlimit()
        return
    host.cut()
    time.sleep(plan.lasts_s)  # this is the fault
    if plan.fault == "lost host":
        job.tasks[plan.victim].end(signal.SIGKILL)
        job.tasks[plan.victim] = job.start(_SPARE, plan.victim)
    else:
        host.mend()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", type=int)
    options = parser.parse_args()
    if why_not():
        print(f"No hosts: {why_not()}.", file=sys.stderr)
        return 1
    seeds = [options.only] if options.only is not None else range(options.seed, options.seed + options.count)
    results: collections.Counter[tuple[str, str, str]] = collections.Counter()
    failed = []
    with Network(4) as network:
        for seed in seeds:
            planned = plan(seed)
            try:
                told, result = f"ended as promised, {run_trial(network, planned):.1f} s", "ended as promised"
            except AssertionError as error:
                told, result = f"FAILED: {error}", "failed"
                failed.append(seed)
            results[planned.mode, planned.fault, result] += 1
            print(f"{planned} -> {told}", flush=True)
    for (mode, fault, result), count in sorted(results.items()):
        print(f"{count:>5}  {mode}, {fault}: {result}")
    print(f"failing seeds: {failed}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
