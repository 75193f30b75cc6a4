"""The costs of turns: those with which the simulator predicts what clusters have measured."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.simulation.profiles import plain
from tfmini.simulation import calibration_turns
from tfmini.simulation.calibration_turns import fitted
from tfmini.simulation.links import Cluster
from tfmini.simulation.predictor import StepModel, tasks_of


def test_the_costs_of_the_machine_that_was_measured_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    known = plain()
    real = replace(calibration_turns._scaled(known.machine, 1.3), overload=1.25, stall_s=100e-6)
    profile = replace(known, machines={real.name: real})

    def measured(workers: int, ps: int) -> list[calibration_turns._Trained]:
        trained = []
        for name in calibration_turns.TRAINED:
            found = calibration_turns._inspected(name, workers, ps)
            cluster = Cluster.on_one_machine(tasks_of(found), profile)
            seconds = StepModel(found, cluster, profile, workers, steps=60).predict().step_s
            trained.append(calibration_turns._Trained(name, found, workers, seconds))
        return trained

    monkeypatch.setattr(calibration_turns, "_trained", measured)
    machine = fitted(known)
    assert machine.kernels["matmul"](1e6) == pytest.approx(1.3 * known.machine.kernels["matmul"](1e6), rel=0.03)
    assert machine.overload == pytest.approx(1.25, abs=0.051)
    assert machine.stall_s == pytest.approx(100e-6, abs=21e-6)
    assert machine.cores == known.machine.cores
