"""What it costs that a step is spread over tasks, and that tasks take turns on the cores.

No counter tells it. So workers and ps train models of the calibration on two cores, and the costs are those with which
the simulator predicts their steps best:

* how many times longer ``kernels`` take in a task than in a session alone: its values come from another core, whose
  caches have them. One worker and a ps show it. All kernels are scaled by it.
* ``stall_s``: how long a task that wakes up waits for a core though one is idle. An operating system may queue it
  behind the task that has woken it, since their data are in that core's cache. Two workers and a ps show it.
* ``overload``: how many times longer all threads take while there are more of them than cores, since each finds the
  data of another in the caches. Four workers and two ps show it.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any

from tfmini.inspection.api import inspect
from tfmini.inspection.findings import Inspection
from tfmini.simulation.calibration_tasks import CORES, TRAINED, medians_s, trained, training
from tfmini.simulation.links import Cluster
from tfmini.simulation.predictor import StepModel, tasks_of
from tfmini.simulation.profile import Curve, Machine, Profile

tf: Any = importlib.import_module("tfmini")  # whose public names are looked up when they are used
_ONE, _FEW, _MANY = (1, 1), (CORES, 1), (2 * CORES, 2)  # workers and ps
_SLOWER = tuple(1.0 + i * 0.02 for i in range(41))
_STALLS_S = tuple(i * 20e-6 for i in range(21))
_OVERLOADS = tuple(1.0 + i * 0.05 for i in range(15))
_STEPS = 60


@dataclass(frozen=True)
class _Trained:
    """A cluster that has trained: its model, graph and number of workers, and the median seconds of a step."""

    name: str
    found: Inspection
    workers: int
    seconds: float

    def error(self, profile: Profile) -> float:
        """The square of the logarithm of predicted by measured seconds."""
        cluster = Cluster.on_one_machine(tasks_of(self.found), profile)
        predicted = StepModel(self.found, cluster, profile, self.workers, steps=_STEPS).predict().step_s
        return math.log(predicted / self.seconds) ** 2


def fitted(profile: Profile) -> Machine:
    """The machine of a profile, with the costs of turns that fit this one.

    Args:
      profile: the machine's other costs.

    Raises:
      RuntimeError: the processes that are measured did not start.
    """
    one, few, many = (_trained(*tasks) for tasks in (_ONE, _FEW, _MANY))
    machine = replace(profile.machine, cores=min(CORES, profile.machine.cores))
    slow = [each for each in one if each.name != "short"]  # whose step is messages more than kernels
    machine = _best([_scaled(machine, factor) for factor in _SLOWER], profile, slow)
    for _ in range(2):  # each of the two depends a little on the other
        machine = _best([replace(machine, overload=value) for value in _OVERLOADS], profile, many)
        machine = _best([replace(machine, stall_s=value) for value in _STALLS_S], profile, few)
    return replace(machine, cores=profile.machine.cores)


def _scaled(machine: Machine, factor: float) -> Machine:
    """The machine, with kernels that take that many times longer."""
    kernels = {
        name: Curve(tuple((work, factor * seconds) for work, seconds in curve.points))
        for name, curve in machine.kernels.items()
    }
    return replace(machine, kernels=kernels)


def _best(machines: Sequence[Machine], profile: Profile, clusters: Sequence[_Trained]) -> Machine:
    def error(machine: Machine) -> float:
        tried = replace(profile, machines={machine.name: machine})
        return sum(each.error(tried) for each in clusters)

    return min(machines, key=error)


def _trained(workers: int, ps: int) -> list[_Trained]:
    with ExitStack() as stack:
        times = medians_s([stack.enter_context(trained(name, workers, ps)) for name in TRAINED])
    return [_Trained(name, _inspected(name, workers, ps), workers, seconds) for name, seconds in zip(TRAINED, times)]


def _inspected(name: str, workers: int, ps: int) -> Inspection:
    with tf.Graph().as_default() as graph:
        train, _ = training(name, 0, ps)
        return inspect(graph, ps=ps, workers=workers, fetches=train)
