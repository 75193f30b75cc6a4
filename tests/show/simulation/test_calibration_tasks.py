"""The processes that a calibration measures."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from tfmini.show.simulation.calibration_tasks import TRAIN, Running, Workload

_WORKER = """
import json, os, sys, time
rank, told = int(sys.argv[3].partition(":")[2]), sys.argv[1]
print("ready", flush=True)
sys.stdin.readline()
sys.stdin.readline()
while not rank and not os.path.exists(told):  # as a step that needs the other's
    time.sleep(0.01)
print(json.dumps([[rank + 0.5] * 50_000, 0.0, 0.0]), flush=True)
open(told, "w").close()
sys.stdin.readline()
"""


def no_steps(*_: Any) -> Any:
    """The model of a workload whose processes build no graph."""


def test_a_worker_whose_answer_fills_a_pipe_does_not_wait_for_the_first_workers(tmp_path: Path) -> None:
    """Fast steps make long answers; the first worker's steps went on only when the second's was read."""
    command = [sys.executable, "-c", _WORKER, str(tmp_path / "told")]
    with Running("pair", Workload(no_steps, 2), command) as running:
        running.take_turn()
    (rates,) = running.found[TRAIN]
    assert rates.times == [0.5] * 50_000 + [1.5] * 50_000
