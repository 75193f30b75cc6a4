"""Measures this machine: what kernels cost, and what steps and messages cost between processes of it.

Kernels are measured by traced steps of `calibration_models`, with one BLAS thread, as the tasks of a cluster on one
machine have (`runtime.blas_threads`). Steps and messages are measured by `calibration_cluster`.
"""

from __future__ import annotations

import os
from contextlib import ExitStack
from dataclasses import replace

from tfmini.collectives.costs import shared_all_reduce_cost
from tfmini.progress import work
from tfmini.runtime.blas_threads import limit_threads
from tfmini.simulation.calibration_cluster import StepCosts, measure_steps
from tfmini.simulation.calibration_crowd import beside, crowded_wake_s
from tfmini.simulation.calibration_kernels import curves, samples_of
from tfmini.simulation.calibration_models import MODELS
from tfmini.simulation.calibration_tasks import REDUCED, medians_s, trained
from tfmini.simulation.calibration_turns import fitted
from tfmini.simulation.profile import Curve, Link, Machine, Profile

_RANKS = 2
_TCP = Link("tcp", 1.25e9, 50e-6)  # what cannot be measured on one machine: 10 Gbit/s, a switch between


def calibrate(name: str = "here") -> Profile:
    """Measures this machine. It takes two to three minutes, and the machine should do nothing else.

    Args:
      name: of the machine in the profile.

    Raises:
      RuntimeError: the processes of the measured cluster did not start.
    """
    limit_threads(1)
    with work("measuring kernels"):
        kernels = curves(samples_of(MODELS))
    with work("measuring processes that share a core"):
        crowded_s = crowded_wake_s()
    with work("measuring processes beside each other"):
        slower = beside()
    with work("measuring steps and messages"):
        steps, local = measure_steps(stream=False)
    with work("measuring tcp"):
        _, tcp = measure_steps(stream=True)
    with work("measuring reductions"):
        local = replace(local, reduce_s_per_byte=_reduce_s_per_byte())
    tcp = replace(tcp, name="tcp", bytes_per_s=_TCP.bytes_per_s, latency_s=_TCP.latency_s)
    machine = replace(_machine(name, kernels, steps), crowded_s=crowded_s, beside=slower)
    profile = Profile({name: machine}, {"local": local, "tcp": tcp})
    with work("measuring more tasks than cores"):
        return replace(profile, machines={name: fitted(profile)})


def _reduce_s_per_byte() -> float:
    with ExitStack() as stack:
        medium, large = medians_s([stack.enter_context(trained(name, _RANKS)) for name in REDUCED])
    bytes_read = [shared_all_reduce_cost(nbytes, _RANKS).nbytes for nbytes in REDUCED.values()]
    return max(0.0, (large - medium) / (bytes_read[1] - bytes_read[0]))


def _machine(name: str, kernels: dict[str, Curve], steps: StepCosts) -> Machine:
    memory = float(os.sysconf("SC_PAGE_SIZE")) * os.sysconf("SC_PHYS_PAGES")
    return Machine(
        name, os.cpu_count() or 1, memory, steps.step_s, steps.part_s, steps.start_s, steps.segment_s,
        wake_s=steps.wake_s, kernels=kernels,
    )  # fmt: skip
