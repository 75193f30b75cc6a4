"""The times of a traced step as times of single ops in a profile: they come before the machine's curves."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tfmini.inspection.step_trace import StepTrace
from tfmini.simulation.profile import format_profile, read_profile

_US = 1e-6


def op_times(traced: StepTrace) -> dict[str, float]:
    """Op -> seconds, for the ops that compute. What waits for others lasts as long as they let it."""
    return {span.name: span.duration * _US for span in traced.spans if span.computes and span.duration > 0}


def add_ops(path: str | Path, times: dict[str, float]) -> None:
    """Writes the times into the table ``[ops]`` of a profile; ops of the same names get the new times.

    Raises:
      OSError: the file cannot be read or written.
      ProfileError: it is no profile.
    """
    found = read_profile(path)
    head = [line[1:].strip() for line in Path(path).read_text().splitlines() if line.startswith("#")]
    Path(path).write_text(format_profile(replace(found, ops={**found.ops, **times}), "\n".join(head)))
