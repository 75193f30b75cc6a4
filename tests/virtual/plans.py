"""The plan of a schedule, drawn from its seed: the cluster's shape, the network's delays, and the faults.

A fault is one that a real network or operating system produces: a process that is killed and started again, a ps that
is told to end first, one that is stopped for a while, a link that is cut, with or without notice, and delays. Single
messages are neither lost, doubled nor reordered, since every transport is a stream: messages are lost with their
connection, requests are doubled by the retries of their senders, and messages of different connections overtake each
other.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import NamedTuple

from tfmini.testing import Kill, Sever, Stop

Fault = Kill | Stop | Sever

# How often each mode is drawn, of 16; training takes five times as long as the others.
MODES = {"counts": 5, "queue": 4, "all-reduce": 5, "async": 1, "sync": 1}
# Smallest and largest delay of a message, in seconds: one host, a slow network, a network with congestion.
DELAYS = ((50e-6, 200e-6), (1e-3, 30e-3), (1e-3, 0.3))
HORIZON_S = 4.0  # faults begin before this time, or earlier if the programs are over by then
# Mode -> how many messages, one after the other, a program exchanges before its first step; and in a step.
_MESSAGES = {"counts": (10, 3), "queue": (10, 6), "all-reduce": (6, 2), "async": (80, 6), "sync": (100, 10)}


class Restart(NamedTuple):
    """A killed process starts again."""

    task: str
    at: float


@dataclass(frozen=True)
class Plan:
    """What a schedule does.

    Attributes:
      clients: processes without a server whose sessions have a remote master.
      steps: how many steps each worker and each client runs.
      pause_s: the longest pause between two steps.
    """

    seed: int
    mode: str
    ps: int
    workers: int
    clients: int
    steps: int
    pause_s: float
    delay_s: tuple[float, float]
    faults: tuple[Fault, ...]
    restarts: tuple[Restart, ...]

    def __str__(self) -> str:
        shape = f"{self.ps} ps, {self.workers} workers, {self.clients} clients, {self.steps} steps"
        faults = "; ".join(map(str, (*self.faults, *self.restarts)))
        return f"{self.seed}: {self.mode}, {shape}, delays {self.delay_s}; {faults}"

    @property
    def calm_at(self) -> float:
        """The time from which on nothing fails."""
        ends = [fault.until for fault in self.faults if not isinstance(fault, Kill)]
        return max([0.0, *ends, *(restart.at for restart in self.restarts)])

    def hosts(self) -> list[str]:
        """The names of all processes: ps0, …, w0, …, c0, …"""
        counts = (("ps", self.ps), ("w", self.workers), ("c", self.clients))
        return [f"{kind}{i}" for kind, count in counts for i in range(count)]


def plan(seed: int) -> Plan:
    """The plan of a seed."""
    pick = random.Random(seed)
    mode = pick.choices([*MODES], [*MODES.values()])[0]
    trains = mode in ("async", "sync")
    ps = 0 if mode == "all-reduce" else pick.choice((1, 1, 2))
    workers = pick.choice((2, 2, 3)) if mode == "all-reduce" else pick.choice((1, 2, 2, 3))
    clients = pick.choice((0, 0, 1)) if ps and not trains else 0
    drawn = Plan(
        seed, mode, ps, workers, clients, steps=pick.randint(2, 6), pause_s=pick.choice((0.0, 0.3, 1.5)),
        delay_s=pick.choice(DELAYS), faults=(), restarts=(),
    )  # fmt: skip
    faults, restarts = _faults(pick, drawn.hosts(), min(HORIZON_S, _duration_s(drawn)))
    return Plan(**{**drawn.__dict__, "faults": faults, "restarts": restarts})


def _duration_s(plan: Plan) -> float:
    """How long the programs take without faults, about."""
    before, per_step = _MESSAGES[plan.mode]
    return (before + plan.steps * per_step) * sum(plan.delay_s) / 2 + plan.steps * plan.pause_s / 2


def _faults(pick: random.Random, hosts: list[str], horizon_s: float) -> tuple[tuple[Fault, ...], tuple[Restart, ...]]:
    faults: list[Fault] = []
    restarts: list[Restart] = []
    for _ in range(pick.choice((0, 1, 1, 1, 2, 2, 3))):
        kind, at = pick.choice(("kill", "kill", "end", "stop", "cut", "pull")), pick.uniform(0.0, horizon_s)
        until = at + pick.choice((0.02, 0.05, 0.5, 2.0, 5.0, 9.0)) * pick.uniform(0.5, 1.0)
        if kind in ("kill", "end"):
            task = pick.choice(hosts)
            faults.append(Kill(task, at, gently=kind == "end" and task.startswith("ps")))
            restarts.append(Restart(task, max(until, at + 0.1)))
        elif kind == "stop":
            faults.append(Stop(pick.choice(hosts), at, until))
        elif len(hosts) > 1:
            one, other = pick.sample(hosts, 2)
            faults.append(Sever((one, other), at, until, silent=kind == "pull"))
    return tuple(faults), tuple(restarts)
