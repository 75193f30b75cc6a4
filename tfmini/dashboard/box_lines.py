"""The lines of a box of the page. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from tfmini.status.sizes import size
from tfmini.status.snapshot import SILENT, TaskSnapshot


def about_box(tasks: Sequence[TaskSnapshot]) -> list[str]:
    """The lines below the name of a box: the median of several tasks."""
    alive = [task for task in tasks if task.state != SILENT]
    if not alive:
        return ["no answer"]
    each = " each" if len(tasks) > 1 else ""
    lines = []
    if any(task.steps or task.steps_in_flight for task in alive):
        lines.append(f"{statistics.median(task.steps_s for task in alive):.3g} steps/s{each}")
    elif any(task.parts for task in alive):
        lines.append(f"{statistics.median(task.parts_s for task in alive):.3g} parts/s{each}")
    variables = statistics.median(task.variable_bytes for task in alive)
    if variables:
        lines.append(f"variables {size(variables)}{each}")
    lines.append(f"memory {size(statistics.median(task.memory_bytes for task in alive))}{each}")
    return lines
