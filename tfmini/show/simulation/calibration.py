"""Measures this machine: what kernels cost, and what steps and messages cost between processes of it.

Kernels are measured by traced steps of `calibration_kernels`, with one BLAS thread, as the tasks of a cluster on one
machine have (`runtime.options`). Steps and messages follow from the workloads of `calibration_tasks`: from the
differences between steps with a round trip, a part or a megabyte more. Times of CPU are those of the worker and the ps;
what a round trip takes beyond them is latency. What neither tells is fitted to clusters that train (`fitted`).
All of it is measured in turns: the speed of a machine may change from second to second, as that of a virtual one does
whose neighbours share its cores.
"""

from __future__ import annotations

import math
import os
import statistics
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any

from tfmini.collectives.costs import shared_all_reduce_cost
from tfmini.progress import work
from tfmini.runtime.native_libraries import limit_threads
from tfmini.show.inspection.api import inspect
from tfmini.show.inspection.findings import Inspection
from tfmini.show.simulation.calibration_gpu import measure_gpu
from tfmini.show.simulation.calibration_kernels import LARGE, MEDIUM, MODELS, TRIPS, Kernels, curves
from tfmini.show.simulation.calibration_tasks import (
    ALONE,
    BESIDE,
    CORES,
    NEIGHBOURS,
    REDUCED,
    TRAIN,
    TRAINED,
    WORKLOADS,
    MeasuredRates,
    Running,
    Workload,
)
from tfmini.show.simulation.prediction import Topology
from tfmini.show.simulation.predictor import StepModel, tasks_of
from tfmini.show.simulation.profile import Curve, LinkProfile, Machine, Profile

TURNS = 5
_RANKS = 2  # that reduce
_TCP = LinkProfile("tcp", 1.25e9, 50e-6)  # what cannot be measured on one machine: 10 Gbit/s, a switch between
_CROWDED_S = 150e-6  # what fits had found: the clusters do not tell it well apart from `overload`
_SEND_SHARE = 0.4  # of a message's CPU time: what the sender has, by a profile of both sides
_SEGMENT_SHARE = 0.15  # of a message's CPU time: that of the segment that it makes ready


def calibrate(tf: Any, name: str = "here") -> Profile:
    """Measures this machine. It takes about seven minutes, and the machine should do nothing else.

    The processes of its clusters use no GPU. If this process has one, its first one is measured as well.

    Args:
      tf: the root module.
      name: of the machine in the profile.

    Raises:
      RuntimeError: the processes of the measured clusters did not start.
    """
    with ExitStack() as stack:
        with work("starting what is measured"):
            calibration = Calibration(tf, stack)
        with work("measuring", TURNS, "turns") as advance:
            for _ in range(TURNS):
                calibration.take_turn()
                advance(1)
    with work("fitting costs to what was measured"):
        profile = calibration.profile(name)
    if not tf.test.is_gpu_available():
        return profile
    with work("measuring the GPU"):
        return replace(profile, machines={name: replace(profile.machine, gpu=measure_gpu(tf))})


class Calibration:
    """The measurements of a machine, which take turns.

    Args:
      tf: the root module.
      stack: ends the sessions and processes.

    Raises:
      RuntimeError: the processes of the measured clusters did not start.
    """

    def __init__(self, tf: Any, stack: ExitStack) -> None:
        limit_threads(1)
        self._tf = tf
        self._kernels = Kernels(tf, MODELS, stack)
        self._running = {name: stack.enter_context(Running(name, each)) for name, each in WORKLOADS.items()}

    def take_turn(self) -> None:
        """Measures everything for some time."""
        self._kernels.take_turn()
        for running in self._running.values():
            running.take_turn()

    def profile(self, name: str = "here") -> Profile:
        """The profile from all turns so far; the processes are no longer needed.

        Args:
          name: of the machine.
        """
        machine, local = _costs(self._medians("local"))
        _, tcp = _costs(self._medians("tcp"))
        local = replace(local, reduce_s_per_byte=self._reduce_s_per_byte())
        tcp = replace(tcp, name="tcp", bytes_per_s=_TCP.bytes_per_s, latency_s=_TCP.latency_s)
        machine = replace(machine, name=name, beside=self._beside(), kernels=curves(self._kernels.samples()))
        clusters = [Trained.of(self._tf, each, self._running[key].median_s) for key, each in TRAINED.items()]
        return fitted(Profile({name: machine}, {"local": local, "tcp": tcp}), clusters)

    def _medians(self, workload: str) -> dict[str, MeasuredRates]:
        """Of each step, the rates of the turn with the median time."""
        found = self._running[workload].found
        return {name: sorted(rates, key=lambda each: each.wall)[len(rates) // 2] for name, rates in found.items()}

    def _beside(self) -> float:
        """How many times the CPU a long step takes beside another one."""
        factors: list[float] = [
            beside.here / alone.here
            for name in NEIGHBOURS
            for alone, beside in zip(*(self._running[name].found[each] for each in (ALONE, BESIDE)))
        ]
        factor: float = max(1.0, statistics.median(factors))
        return factor

    def _reduce_s_per_byte(self) -> float:
        medium, large = (self._running[name].median_s for name in REDUCED.values())
        bytes_read = [shared_all_reduce_cost(nbytes, _RANKS).nbytes for nbytes in REDUCED]
        return max(0.0, (large - medium) / (bytes_read[1] - bytes_read[0]))


def _costs(found: dict[str, MeasuredRates]) -> tuple[Machine, LinkProfile]:
    """The costs of steps, and of a message between two processes."""

    def cpu(more: str, less: str) -> float:
        return found[more].here + found[more].there - found[less].here - found[less].there

    trips = TRIPS - 1
    message = max(1e-6, cpu("trips", "one trip") / 2 / trips)  # one send, one receive and one segment
    segment = _SEGMENT_SHARE * message
    send, receive = _SEND_SHARE * (message - segment), (1 - _SEND_SHARE) * (message - segment)
    copy = max(0.0, cpu("large", "medium") / 2 / (LARGE - MEDIUM))
    one, monitored = found["one trip"], found["monitored"].wall - found["one part"].wall
    machine = Machine(
        "", os.cpu_count() or 1, float(os.sysconf("SC_PAGE_SIZE")) * os.sysconf("SC_PHYS_PAGES"),
        step_s=max(0.0, one.here - 2 * message) + max(0.0, monitored),
        part_s=max(0.0, found["two parts"].here - found["one part"].here - send - receive),
        start_s=max(0.0, one.there - 2 * message), segment_s=segment,
        wake_s=max(0.0, found["model after a wait"].wall - found["model"].wall), crowded_s=_CROWDED_S,
    )  # fmt: skip
    link = LinkProfile(
        "local", latency_s=max(0.0, (found["trips"].wall - one.wall) / trips / 2 - message), send_s=send,
        receive_s=receive, copy_s_per_byte=copy,
        large_s=max(0.0, cpu("medium", "one trip") / 2 - copy * MEDIUM),
    )  # fmt: skip
    return machine, link


# ---- calibration fit ----------------------------------------
# The costs of a machine that no counter tells: those with which the simulator predicts best what clusters took.
# The clusters train models of the calibration: one worker beside a ps, and several workers on two cores,
# asynchronously, synchronously, and by reducing their gradients. A search changes one cost after the other, from
# what was measured, by steps that become smaller:
#
# * how many times longer ``kernels`` take than in a session alone. In a task, values come from another core, whose
#   caches have them. All kernels are scaled by it; messages, and their bytes, likewise.
# * ``overload``: how many times longer all threads take while there are more of them than cores, since each finds the
#   data of another in the caches; ``wake_s``: what a segment takes longer after its task has waited.
# * ``stall_s``: how long a task that wakes up waits for a core though one is idle. An operating system may queue it
#   behind the task that has woken it, since their data are in that core's cache.

_STEPS = 20
_ROUNDS, _FINER = 4, 0.6  # of the search, and how much smaller its steps are in the next one
_BETTER = 1e-6  # of the error: less is no reason to move
TRIALS = 400  # a bound: what was measured beside other load may be far from all that the model can say


@dataclass(frozen=True)
class Trained:
    """A cluster that has trained: the graph, the number of workers, and the seconds of a step."""

    found: Inspection
    workers: int
    seconds: float

    @classmethod
    def of(cls, tf: Any, workload: Workload, seconds: float) -> Trained:
        """Workers of a workload that have trained."""
        with tf.Graph().as_default() as graph:
            steps, _ = workload.build(tf, 0)
            found = inspect(graph, ps=workload.ps, workers=workload.workers, fetches=steps[TRAIN][0])
        return cls(found, workload.workers, seconds)

    def error(self, profile: Profile) -> float:
        """The square of the logarithm of predicted by measured seconds."""
        return math.log(self.predicted_s(profile) / self.seconds) ** 2

    def predicted_s(self, profile: Profile) -> float:
        """Seconds of a step."""
        cluster = Topology.on_one_machine(tasks_of(self.found), profile)
        return StepModel(self.found, cluster, profile, self.workers, steps=_STEPS).predict().step_s


@dataclass(frozen=True)
class _Cost:
    """A cost that is fitted.

    Attributes:
      start: its value in a profile. ``moved``: a profile with another value.
      step, least: of the search.
    """

    start: Callable[[Profile], float]
    moved: Callable[[Profile, float], Profile]
    step: float
    least: float


def with_machine(profile: Profile, **changes: Any) -> Profile:
    """Changes what a profile says of its machine."""
    machine = replace(profile.machine, **changes)
    return replace(profile, machines={machine.name: machine})


def _of_machine(name: str, step: float, least: float = 0.0) -> _Cost:
    return _Cost(
        lambda profile: float(getattr(profile.machine, name)),
        lambda profile, value: with_machine(profile, **{name: value}), step, least,
    )  # fmt: skip


def with_slower_kernels(profile: Profile, factor: float) -> Profile:
    """Makes the kernels of a profile take that many times longer."""
    kernels = {
        name: Curve(tuple((work, factor * seconds) for work, seconds in curve.points))
        for name, curve in profile.machine.kernels.items()
    }
    return with_machine(profile, kernels=kernels)


def _scaled_link(*names: str) -> Callable[[Profile, float], Profile]:
    def scaled(profile: Profile, factor: float) -> Profile:
        local = profile.local
        changed = replace(local, **{name: factor * getattr(local, name) for name in names})
        return replace(profile, links={**profile.links, local.name: changed})

    return scaled


def _factor(scaled: Callable[[Profile, float], Profile], step: float) -> _Cost:
    return _Cost(lambda profile: 1.0, scaled, step, 0.2)


_COSTS: Mapping[str, _Cost] = {
    "kernels": _factor(with_slower_kernels, 0.08),
    "messages": _factor(_scaled_link("send_s", "receive_s"), 0.1),
    "bytes": _factor(_scaled_link("copy_s_per_byte"), 0.15),
    "overload": _of_machine("overload", 0.08, least=1.0),
    "stall": _of_machine("stall_s", 40e-6),
    "wake": _of_machine("wake_s", 40e-6),
}


def fitted(profile: Profile, clusters: Sequence[Trained]) -> Profile:
    """The profile with the costs that fit what this machine has measured.

    Args:
      profile: what was measured otherwise.
      clusters: they trained on `CORES` cores.
    """
    cores = profile.machine.cores
    own = with_machine(profile, cores=min(CORES, cores))
    return with_machine(_moved(own, _search(own, clusters)), cores=cores)


def _search(profile: Profile, clusters: Sequence[Trained]) -> dict[str, float]:
    """The values of the costs with the smallest error."""

    def error(values: Mapping[str, float]) -> float:
        tried = _moved(profile, values)
        return sum(each.error(tried) for each in clusters)

    best = {name: cost.start(profile) for name, cost in _COSTS.items()}
    least, trials = error(best), iter(range(TRIALS))
    for number in range(_ROUNDS):
        for name, cost in _COSTS.items():
            for step in (cost.step * _FINER**number, -cost.step * _FINER**number):
                before = best[name]
                while (value := max(cost.least, best[name] + step)) != best[name] and next(trials, None) is not None:
                    tried = {**best, name: value}
                    if (its_error := error(tried)) > least - _BETTER:
                        break
                    best, least = tried, its_error
                if best[name] != before:
                    break  # the other direction leads back
    return best


def _moved(profile: Profile, values: Mapping[str, float]) -> Profile:
    for name, value in values.items():
        profile = _COSTS[name].moved(profile, value)
    return profile
