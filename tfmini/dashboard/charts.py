"""The charts of the page: which numbers of the history each one has, and how many lines become three. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tfmini.dashboard import measures
from tfmini.dashboard.history import History

LINES = 8  # a chart with more has the lowest, the median and the highest instead
_SCALARS = 6  # charts of scalars
_WHOLE_EVERY_S = 300.0  # a reader's rows are replaced by the history's, whose older ones are thinned
_SUMMARY = ("lowest", "median", "highest")

Column = list[float | None]


@dataclass(frozen=True)
class Chart:
    """A chart: the numbers of one measure, a line for each name. ``unit``: how the page writes values."""

    id: str
    title: str
    unit: str


@dataclass
class Shown:
    """What a reader has of the charts: the lines of each, the time of the newest row, and when it got all rows."""

    labels: dict[str, list[str]] = field(default_factory=dict)
    newest: float = -math.inf
    whole_at: float = -math.inf


_CHARTS = (
    Chart(measures.STEPS, "steps per second", "/s"),
    Chart(measures.BYTES, "bytes sent per second", "B/s"),
    Chart(measures.COLLECTIVES, "bytes sent in collectives per second", "B/s"),
    Chart(measures.STALENESS, "staleness of asynchronous updates", ""),
    Chart(measures.QUEUE, "elements in queues", ""),
    Chart(measures.MEMORY, "memory", "B"),
    Chart(measures.CPU, "CPU", "cores"),
)


def updates(history: History, shown: Shown) -> list[dict[str, Any]]:
    """The charts' rows that a reader does not have, for JSON; notes in ``shown`` that it has them.

    A chart is sent whole when its lines have changed, and now and then.
    """
    times, _ = history.table([])
    newest = times[-1] if times else -math.inf
    whole = newest - shown.whole_at >= _WHOLE_EVERY_S or newest < shown.newest
    found: list[dict[str, Any]] = []
    for chart, lines in _with_lines(history):
        labels = list(_SUMMARY) if len(lines) > LINES else [label for label, _ in lines]
        is_whole = whole or shown.labels.get(chart.id) != labels
        shown.labels[chart.id] = labels
        rows, columns = history.table([name for _, name in lines], -math.inf if is_whole else shown.newest)
        found.append({
            "id": chart.id, "title": chart.title, "unit": chart.unit, "labels": labels, "whole": is_whole,
            "times": rows, "columns": _summary(columns) if len(lines) > LINES else columns,
        })  # fmt: skip
    shown.labels = {chart["id"]: chart["labels"] for chart in found}
    shown.newest = newest
    if whole:
        shown.whole_at = newest
    return found


def _with_lines(history: History) -> list[tuple[Chart, list[tuple[str, str]]]]:
    """The charts that have lines, each with (label, name in the history)."""
    lines: dict[str, list[tuple[str, str]]] = {}
    for name in history.names:
        measure, _, label = name.partition(measures.SEPARATOR)
        if measure == measures.SCALAR:
            tag, _, label = label.rpartition(measures.SEPARATOR)
            measure = f"{measures.SCALAR}|{tag}"
        lines.setdefault(measure, []).append((label, name))
    scalars = sorted((m for m in lines if m.startswith(f"{measures.SCALAR}|")), key=_by_importance)
    charts = [Chart(m, m.partition("|")[2], "") for m in scalars[:_SCALARS]] + list(_CHARTS)
    return [(chart, sorted(lines[chart.id])) for chart in charts if chart.id in lines]


def _by_importance(measure: str) -> tuple[bool, bool, str]:
    """Losses first; TensorFlow's own rate of steps last, since another chart has it."""
    return "loss" not in measure.lower(), measure.endswith("global_step/sec"), measure


def _summary(columns: Sequence[Column]) -> list[Column]:
    """The lowest, the median and the highest value of each row."""
    table = np.array(columns, dtype=float)  # None becomes NaN
    known = ~np.isnan(table).all(axis=0)
    found = np.full((len(_SUMMARY), table.shape[1]), np.nan)
    if known.any():
        part = table[:, known]
        found[:, known] = np.nanmin(part, axis=0), np.nanmedian(part, axis=0), np.nanmax(part, axis=0)
    return [[None if math.isnan(value) else value for value in row] for row in found.tolist()]
