"""`tfmini calibrate`: a profile of this machine, from few and short measurements."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from tfmini.show.simulation import calibration, calibration_tasks
from tfmini.show.simulation.calibration_kernels import dense, table
from tfmini.show.simulation.calibration_tasks import MESSAGES, NEIGHBOURS, REDUCED, TRAINED, WORKLOADS
from tfmini.show.simulation.profile import read_profile
from tfmini.tools.cli import main


@pytest.mark.cluster
def test_a_profile_has_what_a_simulation_needs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calibration, "MODELS", (dense(32, 200, 1), table(500, 12, 24, 0)))
    monkeypatch.setattr(calibration, "limit_threads", lambda threads: None)  # of this process, which runs other tests
    monkeypatch.setattr(calibration_tasks, "SECONDS", 0.05)
    trained = {name: TRAINED[name] for name in ("long two", "short sync", "short allreduce")}
    neighbours = {"beside 0": NEIGHBOURS["beside 0"]}
    monkeypatch.setattr(calibration, "TRAINED", trained)
    monkeypatch.setattr(calibration, "NEIGHBOURS", neighbours)
    reduced = {name: WORKLOADS[name] for name in REDUCED.values()}
    monkeypatch.setattr(calibration, "WORKLOADS", {**MESSAGES, **neighbours, **reduced, **trained})
    monkeypatch.setattr(calibration, "TURNS", 2)
    monkeypatch.setattr(calibration, "TRIALS", 12)  # beside other load each takes seconds; others test what is found
    path = tmp_path / "p.toml"
    done = CliRunner().invoke(main, ["calibrate", "-o", str(path), "--name", "mine"])
    assert done.exit_code == 0, done.output
    found = read_profile(path)
    machine = found.machines["mine"]
    assert machine.cores >= 1 and machine.segment_s > 0 and machine.crowded_s >= 0 and machine.stall_s >= 0
    assert machine.beside >= 1 and machine.overload >= 1
    assert found.local.reduce_s_per_byte > 0
    assert {"matmul", "elementwise", "rows", "MatMul"} <= set(machine.kernels)
    assert all(seconds > 0 for curve in machine.kernels.values() for _, seconds in curve.points)
    assert set(found.links) == {"local", "tcp"} and found.local.send_s > 0 and found.links["tcp"].bytes_per_s > 0
    assert path.read_text().startswith("# Measured by tfmini calibrate on ")


def test_a_file_that_cannot_be_written_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    profile = calibration.Profile({}, {})
    calls: list[str] = []
    monkeypatch.setattr(calibration, "calibrate", lambda tf, name: calls.append(name) or profile)
    done = CliRunner().invoke(main, ["calibrate", "-o", str(tmp_path / "absent" / "p.toml")])
    assert done.exit_code == 1 and "Cannot write" in done.output and "there is no directory" in done.output
    assert not calls  # it is told before a minute of measurements
