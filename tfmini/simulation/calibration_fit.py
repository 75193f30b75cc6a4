"""The costs of a machine that no counter tells: those with which the simulator predicts best what clusters took.

The clusters train models of the calibration: one worker beside a ps, and several workers on two cores,
asynchronously, synchronously, and by reducing their gradients. A search changes one cost after the other, from
what was measured, by steps that become smaller:

* how many times longer ``kernels`` take than in a session alone. In a task, values come from another core, whose
  caches have them. All kernels are scaled by it; messages, and their bytes, likewise.
* ``overload``: how many times longer all threads take while there are more of them than cores, since each finds the
  data of another in the caches; ``wake_s``: what a segment takes longer after its task has waited.
* ``stall_s``: how long a task that wakes up waits for a core though one is idle. An operating system may queue it
  behind the task that has woken it, since their data are in that core's cache.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tfmini.inspection.api import inspect
from tfmini.inspection.findings import Inspection
from tfmini.simulation.calibration_tasks import CORES, TRAIN, Workload
from tfmini.simulation.links import Topology
from tfmini.simulation.predictor import StepModel, tasks_of
from tfmini.simulation.profile import Curve, Profile

_STEPS = 20
_ROUNDS, _FINER = 4, 0.6  # of the search, and how much smaller its steps are in the next one
_BETTER = 1e-6  # of the error: less is no reason to move


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


def _with_machine(profile: Profile, **changes: Any) -> Profile:
    machine = replace(profile.machine, **changes)
    return replace(profile, machines={machine.name: machine})


def _of_machine(name: str, step: float, least: float = 0.0) -> _Cost:
    return _Cost(
        lambda profile: float(getattr(profile.machine, name)),
        lambda profile, value: _with_machine(profile, **{name: value}), step, least,
    )  # fmt: skip


def _scaled(profile: Profile, factor: float) -> Profile:
    """The profile with kernels that take that many times longer."""
    kernels = {
        name: Curve(tuple((work, factor * seconds) for work, seconds in curve.points))
        for name, curve in profile.machine.kernels.items()
    }
    return _with_machine(profile, kernels=kernels)


def _scaled_link(*names: str) -> Callable[[Profile, float], Profile]:
    def scaled(profile: Profile, factor: float) -> Profile:
        local = profile.local
        changed = replace(local, **{name: factor * getattr(local, name) for name in names})
        return replace(profile, links={**profile.links, local.name: changed})

    return scaled


def _factor(scaled: Callable[[Profile, float], Profile], step: float) -> _Cost:
    return _Cost(lambda profile: 1.0, scaled, step, 0.2)


_COSTS: Mapping[str, _Cost] = {
    "kernels": _factor(_scaled, 0.08),
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
    own = _with_machine(profile, cores=min(CORES, cores))
    return _with_machine(_moved(own, _search(own, clusters)), cores=cores)


def _search(profile: Profile, clusters: Sequence[Trained]) -> dict[str, float]:
    """The values of the costs with the smallest error."""

    def error(values: Mapping[str, float]) -> float:
        tried = _moved(profile, values)
        return sum(each.error(tried) for each in clusters)

    best = {name: cost.start(profile) for name, cost in _COSTS.items()}
    least = error(best)
    for number in range(_ROUNDS):
        for name, cost in _COSTS.items():
            for step in (cost.step * _FINER**number, -cost.step * _FINER**number):
                before = best[name]
                while (value := max(cost.least, best[name] + step)) != best[name]:
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
