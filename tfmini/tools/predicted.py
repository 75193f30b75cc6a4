"""What `tfmini launch --predict` prints: the step time that a profile predicts, beside the one that was measured."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tfmini.inspection.api import inspect
from tfmini.simulation.links import Topology
from tfmini.simulation.predictor import StepModel, tasks_of
from tfmini.simulation.profile import read_profile
from tfmini.tools.step_times import StepTimes
from tfmini.tools.tracing import TRACE_ENV, TraceOptions
from tfmini.tools.usage import one_line_errors

_STEPS = 12


@dataclass(frozen=True)
class Comparison:
    """A predicted and a measured step, in seconds."""

    predicted_s: float
    measured: StepTimes

    @property
    def error(self) -> float:
        """Of the prediction: -0.1 is a tenth too short."""
        return self.predicted_s / self.measured.step_s - 1

    def __str__(self) -> str:
        measured_s, steps = self.measured.step_s, self.measured.steps
        return (
            f"a step was predicted to take {1e3 * self.predicted_s:.3f} ms, and took {1e3 * measured_s:.3f} ms"
            f" (median of {steps}): the prediction is off by {self.error:+.0%}"
        )


def compare(script: str, args: Sequence[str], ps: int, workers: int, profile: str, measured: StepTimes) -> Comparison:
    """Predicts the steps of a script whose tasks share this machine.

    Raises:
      click.ClickException: the prediction is impossible; the text says why.
    """
    with one_line_errors(), contextlib.redirect_stdout(sys.stderr):
        costs = read_profile(profile)
        found = inspect(script, ps=ps, workers=workers, batch=measured.batch, arguments=args)
        cluster = Topology.on_one_machine(tasks_of(found), costs)
        return Comparison(StepModel(found, cluster, costs, workers, _STEPS).predict().step_s, measured)


def log_in_trace(found: Comparison) -> None:
    """Writes the comparison below ``otherData`` of the timeline that this run was asked for; without one, nothing."""
    request = os.environ.get(TRACE_ENV)
    path = Path(TraceOptions(**json.loads(request)).path) if request else None
    if path is None or not path.exists():
        return
    timeline = json.loads(path.read_text())
    timeline["otherData"]["prediction"] = {
        "predicted_ms": 1e3 * found.predicted_s, "measured_ms": 1e3 * found.measured.step_s, "error": found.error,
    }  # fmt: skip
    path.write_text(json.dumps(timeline))
