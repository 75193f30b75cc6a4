"""How long a task that wakes up waits for a core though one is idle, on a machine with more tasks than cores.

An operating system may queue a task behind the one that has woken it, since their data are in that core's cache. No
counter tells this time. So two workers and a ps train models of the calibration on two cores, and the time is the one
with which the simulator predicts their steps best.
"""

from __future__ import annotations

import importlib
import math
import statistics
from dataclasses import replace
from typing import Any

from tfmini.inspection.api import inspect
from tfmini.inspection.findings import Inspection
from tfmini.simulation.calibration_tasks import CORES, TRAINED, measured_s, training
from tfmini.simulation.links import Cluster
from tfmini.simulation.predictor import StepModel, tasks_of
from tfmini.simulation.profile import Profile

tf: Any = importlib.import_module("tfmini")  # whose public names are looked up when they are used
_CANDIDATES_S = tuple(i * 10e-6 for i in range(41))
_STEPS, _ROUNDS = 60, 3


def stall_s(profile: Profile) -> float:
    """The time that fits this machine.

    Args:
      profile: the machine's other costs.

    Raises:
      RuntimeError: the processes that are measured did not start.
    """
    found = {name: _inspected(name) for name in TRAINED}
    rounds = [{name: measured_s(name, CORES) for name in TRAINED} for _ in range(_ROUNDS)]
    measured = {name: statistics.median(each[name] for each in rounds) for name in TRAINED}

    def error(candidate: float) -> float:
        machine = replace(profile.machine, cores=min(CORES, profile.machine.cores), stall_s=candidate)
        tried = replace(profile, machines={machine.name: machine})
        return sum(math.log(_predicted_s(found[name], tried) / seconds) ** 2 for name, seconds in measured.items())

    return min(_CANDIDATES_S, key=error)


def _inspected(name: str) -> Inspection:
    with tf.Graph().as_default() as graph:
        train, _ = training(name, 0)
        return inspect(graph, ps=1, workers=CORES, fetches=train)


def _predicted_s(found: Inspection, profile: Profile) -> float:
    cluster = Cluster.on_one_machine(tasks_of(found), profile)
    return StepModel(found, cluster, profile, CORES, steps=_STEPS).predict().step_s
