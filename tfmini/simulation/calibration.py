"""Measures this machine: what kernels cost, and what steps and messages cost between processes of it.

Kernels are measured by traced steps of `calibration_models`, with one BLAS thread, as the tasks of a cluster on one
machine have (`runtime.blas_threads`). Steps and messages follow from the workloads of `calibration_tasks`: from the
differences between steps with a round trip, a part or a megabyte more. Times of CPU are those of the worker and the ps;
what a round trip takes beyond them is latency. What neither tells is fitted to clusters that train (`calibration_fit`).
All of it is measured in turns: the speed of a machine may change from second to second, as that of a virtual one does
whose neighbours share its cores.
"""

from __future__ import annotations

import os
import statistics
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

from tfmini.collectives.costs import shared_all_reduce_cost
from tfmini.progress import work
from tfmini.runtime.blas_threads import limit_threads
from tfmini.simulation.calibration_fit import Trained, fitted
from tfmini.simulation.calibration_kernels import Kernels, curves
from tfmini.simulation.calibration_models import LARGE, MEDIUM, MODELS, TRIPS
from tfmini.simulation.calibration_tasks import (
    ALONE,
    BESIDE,
    NEIGHBOURS,
    REDUCED,
    TRAINED,
    WORKLOADS,
    MeasuredRates,
    Running,
)
from tfmini.simulation.profile import LinkProfile, Machine, Profile

_TURNS = 5
_RANKS = 2  # that reduce
_TCP = LinkProfile("tcp", 1.25e9, 50e-6)  # what cannot be measured on one machine: 10 Gbit/s, a switch between
_CROWDED_S = 150e-6  # what fits had found: the clusters do not tell it well apart from `overload`
_SEND_SHARE = 0.4  # of a message's CPU time: what the sender has, by a profile of both sides
_SEGMENT_SHARE = 0.15  # of a message's CPU time: that of the segment that it makes ready


def calibrate(tf: Any, name: str = "here") -> Profile:
    """Measures this machine. It takes about seven minutes, and the machine should do nothing else.

    Args:
      tf: the root module.
      name: of the machine in the profile.

    Raises:
      RuntimeError: the processes of the measured clusters did not start.
    """
    with ExitStack() as stack:
        with work("starting what is measured"):
            calibration = Calibration(tf, stack)
        with work("measuring", _TURNS, "turns") as advance:
            for _ in range(_TURNS):
                calibration.take_turn()
                advance(1)
    with work("fitting costs to what was measured"):
        return calibration.profile(name)


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
