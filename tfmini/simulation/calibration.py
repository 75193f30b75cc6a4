"""Measures this machine: what kernels cost, and what steps and messages cost between processes of it.

Kernels are measured by traced steps of `calibration_models`, with one BLAS thread, as the tasks of a cluster on one
machine have (`runtime.blas_threads`). Steps and messages are measured by `calibration_cluster`. What neither tells is
fitted to clusters that train (`calibration_fit`). All of it is measured in turns: the speed of a machine may change
from second to second, as that of a virtual one does whose neighbours share its cores.
"""

from __future__ import annotations

import os
from contextlib import ExitStack
from dataclasses import replace

from tfmini.collectives.costs import shared_all_reduce_cost
from tfmini.progress import work
from tfmini.runtime.blas_threads import limit_threads
from tfmini.simulation.calibration_beside import Beside
from tfmini.simulation.calibration_cluster import StepCosts, Steps
from tfmini.simulation.calibration_fit import Trained, fitted
from tfmini.simulation.calibration_kernels import Kernels, curves
from tfmini.simulation.calibration_models import MODELS
from tfmini.simulation.calibration_tasks import CORES, REDUCED, Replicas, trained
from tfmini.simulation.profile import Curve, Link, Machine, Profile

_TURNS = 5
_RANKS = 2
_ONE, _TWO, _FOUR = Replicas(1, 1), Replicas(CORES, 1), Replicas(2 * CORES, 2)
_SYNC, _ALL_REDUCE = Replicas(CORES, 1, "sync"), Replicas(CORES, 0, "allreduce")
_SHORT, _LONG = (_ONE, _TWO, _FOUR, _SYNC, _ALL_REDUCE), (_ONE, _FOUR, _SYNC, _ALL_REDUCE)
_KINDS = {"short": _SHORT, "long": _SHORT, "recurrent": _SHORT, "convolutional": _SHORT, "wide": _LONG, "large": _LONG,
          "sparse": (_ONE, _TWO, _FOUR, _SYNC)}  # fmt: skip
_TRAINED = tuple((name, replicas) for name, kinds in _KINDS.items() for replicas in kinds)
_TCP = Link("tcp", 1.25e9, 50e-6)  # what cannot be measured on one machine: 10 Gbit/s, a switch between
_CROWDED_S = 150e-6  # what fits had found: the clusters do not tell it well apart from `overload`


def calibrate(name: str = "here") -> Profile:
    """Measures this machine. It takes about six minutes, and the machine should do nothing else.

    Args:
      name: of the machine in the profile.

    Raises:
      RuntimeError: the processes of the measured clusters did not start.
    """
    with ExitStack() as stack:
        with work("starting what is measured"):
            calibration = Calibration(stack)
        with work("measuring", _TURNS, "turns") as advance:
            for _ in range(_TURNS):
                calibration.take_turn()
                advance(1)
    with work("fitting costs to what was measured"):
        return calibration.profile(name)


class Calibration:
    """The measurements of a machine, which take turns.

    Args:
      stack: ends the sessions and processes.

    Raises:
      RuntimeError: the processes of the measured clusters did not start.
    """

    def __init__(self, stack: ExitStack) -> None:
        limit_threads(1)
        self._kernels = Kernels(MODELS, stack)
        self._beside = Beside(stack)
        self._local, self._tcp = (Steps(stream, stack) for stream in (False, True))
        self._reductions = [stack.enter_context(trained(name, Replicas(_RANKS, 0))) for name in REDUCED]
        self._trainings = [stack.enter_context(trained(*each)) for each in _TRAINED]

    def take_turn(self) -> None:
        """Measures everything for some time."""
        self._kernels.take_turn()
        self._beside.take_turn()
        for steps in (self._local, self._tcp):
            steps.take_turn()
        for training in (*self._reductions, *self._trainings):
            training.take_turn()

    def profile(self, name: str = "here") -> Profile:
        """The profile from all turns so far; the processes are no longer needed.

        Args:
          name: of the machine.
        """
        steps, local = self._local.costs()
        _, tcp = self._tcp.costs()
        local = replace(local, reduce_s_per_byte=self._reduce_s_per_byte())
        tcp = replace(tcp, name="tcp", bytes_per_s=_TCP.bytes_per_s, latency_s=_TCP.latency_s)
        machine = _machine(name, curves(self._kernels.samples()), steps, self._beside.factor())
        clusters = [Trained.of(*each, training.median_s) for each, training in zip(_TRAINED, self._trainings)]
        return fitted(Profile({name: machine}, {"local": local, "tcp": tcp}), clusters)

    def _reduce_s_per_byte(self) -> float:
        medium, large = (reduction.median_s for reduction in self._reductions)
        bytes_read = [shared_all_reduce_cost(nbytes, _RANKS).nbytes for nbytes in REDUCED.values()]
        return max(0.0, (large - medium) / (bytes_read[1] - bytes_read[0]))


def _machine(name: str, kernels: dict[str, Curve], steps: StepCosts, beside: float) -> Machine:
    memory = float(os.sysconf("SC_PAGE_SIZE")) * os.sysconf("SC_PHYS_PAGES")
    return Machine(
        name, os.cpu_count() or 1, memory, steps.step_s, steps.part_s, steps.start_s, steps.segment_s,
        wake_s=steps.wake_s, crowded_s=_CROWDED_S, beside=beside, kernels=kernels,
    )  # fmt: skip
