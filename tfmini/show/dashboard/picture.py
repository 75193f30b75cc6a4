"""Equal tasks as one box, so that a cluster of 100 tasks is a picture of a few boxes. Pure."""

from __future__ import annotations

import itertools
import math
import statistics
import textwrap
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tfmini.runtime.snapshot import COMPUTES, OK, SILENT, STUCK, ClusterSnapshot, TaskSnapshot
from tfmini.show.dashboard import history as measures
from tfmini.show.dashboard.history import History
from tfmini.show.inspection.clusters import group_label, short
from tfmini.show.inspection.drawing import Arrow, Picture, Sample, Tile, colour_of
from tfmini.show.status.explanation import (
    Explanation,
    Hop,
    culprit_head,
    culprit_parts,
    hop_text,
    job_of,
)
from tfmini.show.status.explanation import short as why_short
from tfmini.show.status.gather import per_second, size
from tfmini.show.status.looks import TimeUse

FOLD_ABOVE = 8  # of a cluster with more tasks equal ones are one box
FEW = 3  # a job of so few tasks is shown as it is
LONG_S = 5.0  # a task that waits for longer is shown by itself
OUTLIER = 2.0  # and one whose rate differs from the median of its job by this factor
_LONE_LIMIT = 8  # exceptional tasks of a kind that are shown by themselves; more of them are a box, too

WAITS = "waits"


@dataclass(frozen=True)
class Box:
    """One box of the picture.

    Attributes:
      name: ``worker/0``, or of several tasks such as ``worker/0…7 ×8``.
      tasks: their full names, in order.
      state: that of its tasks, or `WAITS` where they are well and wait for long.
      kind: ``slow`` or ``fast``, compared with the others of the job; else "".
    """

    name: str
    tasks: tuple[str, ...]
    state: str
    kind: str = ""


def state_of(task: TaskSnapshot) -> str:
    """The state of a task, or `WAITS`."""
    waits = any(wait.since_s >= LONG_S for wait in task.waits if wait.kind != COMPUTES)
    return WAITS if waits and task.state == OK else task.state


def fold(tasks: Sequence[TaskSnapshot], rates: Mapping[str, float], alone: Collection[str] = ()) -> list[Box]:
    """The boxes of tasks.

    Args:
      rates: task -> steps or bytes per second, by which tasks of a job are compared.
      alone: tasks that share no box.
    """
    jobs: dict[str, list[TaskSnapshot]] = {}
    for task in tasks:
        jobs.setdefault(job_of(task.task), []).append(task)
    found: list[Box] = []
    for members in jobs.values():
        if len(tasks) <= FOLD_ABOVE or len(members) <= FEW:
            found += [Box(short(task.task), (task.task,), state_of(task)) for task in members]
        else:
            found += _folded(members, _kinds(members, rates), alone)
    return found


def _kinds(members: Sequence[TaskSnapshot], rates: Mapping[str, float]) -> Callable[[TaskSnapshot], str]:
    """A function that says by what a task differs from the others of its job."""
    known = [rates[task.task] for task in members if task.task in rates]
    median = statistics.median(known) if known else 0.0

    def kind(task: TaskSnapshot) -> str:
        rate = rates.get(task.task)
        if rate is None or median <= 0 or task.state == SILENT:
            return ""
        return "slow" if rate * OUTLIER < median else "fast" if rate > median * OUTLIER else ""

    return kind


def _folded(
    members: Sequence[TaskSnapshot], kind_of: Callable[[TaskSnapshot], str], alone: Collection[str]
) -> list[Box]:
    groups: dict[tuple[str, str, str], list[str]] = {}
    for task in members:
        lone = task.task if task.task in alone else ""
        groups.setdefault((state_of(task), kind_of(task), lone), []).append(task.task)
    largest = max(map(len, groups.values()))
    found = []
    for (state, kind, _), names in groups.items():
        if len(names) < largest and len(names) <= _LONE_LIMIT:
            found += [Box(short(name), (name,), state, kind) for name in names]
        else:
            found.append(Box(group_name(names), tuple(names), state, kind))
    return found


def group_name(names: Sequence[str]) -> str:
    """The name for full task names of a job: ``worker/0…7 ×8``, or ``worker/0, 2…7 ×7``; long lists are cut."""
    return group_label(job_of(names[0]), (int(short(name).partition("/")[2]) for name in names))


# ---- The lines of a box of the page. Pure --------------------------------------------------------------------------


def about_box(tasks: Sequence[TaskSnapshot]) -> list[str]:
    """The lines below the name of a box: the median of several tasks."""
    alive = [task for task in tasks if task.state != SILENT]
    if not alive:
        return ["no answer"]
    each = " each" if len(tasks) > 1 else ""
    lines = []
    if any(task.steps or task.steps_in_flight for task in alive):
        lines.append(f"{per_second(statistics.median(task.steps_s for task in alive))} steps/s{each}")
    elif any(task.parts for task in alive):
        lines.append(f"{per_second(statistics.median(task.parts_s for task in alive))} parts/s{each}")
    variables = statistics.median(task.variable_bytes for task in alive)
    if variables:
        lines.append(f"variables {size(variables)}{each}")
    lines.append(f"memory {size(statistics.median(task.memory_bytes for task in alive))}{each}")
    return lines


# ---- charts ----------------------------------------
# The charts of the page: which numbers of the history each one has, and how many lines become three. Pure.

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
    Chart(measures.BYTES, "bytes sent to tasks per second", "B/s"),
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
    # Synchronous updates are never stale.
    if all(history.is_flat(name) for _, name in lines.get(measures.STALENESS, ())):
        lines.pop(measures.STALENESS, None)
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


# ---- Bytes per second between tasks, and between the boxes of the picture. Pure ------------------------------------

Way = tuple[str, str]
QUIET_BYTES_S = 2000.0  # heartbeats, both ways, are less


def task_links(cluster: ClusterSnapshot) -> dict[Way, float]:
    """(from, to) -> bytes per second, by full task names. Both ends report a link; the larger number counts."""
    names = {task.task for task in cluster.tasks}
    found: dict[Way, float] = {}
    for task in cluster.tasks:
        for link in task.links if task.state != SILENT else ():
            if link.peer not in names or link.peer == task.task:
                continue
            for way, rate in (
                ((task.task, link.peer), link.sent_bytes_s),
                ((link.peer, task.task), link.received_bytes_s),
            ):
                found[way] = max(found.get(way, 0.0), rate)
    return found


def links_between(boxes: Sequence[Box], links: Mapping[Way, float]) -> dict[Way, tuple[float, int]]:
    """The sums of the links between boxes, by their names, and the numbers of links; those inside a box are its link
    to itself."""
    box_of = {task: box.name for box in boxes for task in box.tasks}
    found: dict[Way, tuple[float, int]] = {}
    for (source, target), rate in links.items():
        way = box_of[source], box_of[target]
        total, count = found.get(way, (0.0, 0))
        found[way] = total + rate, count + 1
    return found


def busiest(links: Mapping[Way, float]) -> dict[str, object] | None:
    """The two tasks that exchange most bytes per second, in both directions; None where these are hardly more than
    heartbeats."""
    pairs: dict[Way, float] = {}
    for (source, target), rate in links.items():
        pair = (min(source, target), max(source, target))
        pairs[pair] = pairs.get(pair, 0.0) + rate
    pair = max(pairs, key=lambda each: pairs[each], default=("", ""))
    if pairs.get(pair, 0.0) < QUIET_BYTES_S:
        return None
    return {"from": short(pair[0]), "to": short(pair[1]), "rate": pairs[pair]}


def broken_links(boxes: Sequence[Box], cluster: ClusterSnapshot) -> list[dict[str, str]]:
    """The links that one task cannot make to another one that answers the page, with their boxes and the reason."""
    box_of = {task: box.name for box in boxes for task in box.tasks}
    answers = {task.task for task in cluster.tasks if task.state != SILENT}
    return [
        {
            "from": box_of[task.task], "to": box_of[link.peer],
            "text": f"{short(task.task)} cannot reach {short(link.peer)}: {link.why}",
        }
        for task in cluster.tasks
        for link in task.links
        if link.why and link.peer in answers
    ]  # fmt: skip


# ---- The drawing. Pure ---------------------------------------------------------------------------------------------

_STATES = {WAITS: "waits", STUCK: "all its threads are busy"}
_LABEL = 9  # letters of a rate; shorter ones take as much room, so that lines stay where they are
_LEGEND = [
    Sample("wire", "bytes per second, one way, in the sender's colour"),
    Sample("broken", "cannot connect"),
    Sample("box many", "several equal tasks"),
    Sample("box bottleneck", "bottleneck"),
    Sample("box culprit", "others wait for it"),
    Sample("box waits", "waits for long"),
    Sample("box silent", "no answer"),
]


def drawing(
    boxes: Sequence[Mapping[str, Any]], ways: Sequence[tuple[str, str, float, int]], broken: Collection[Way]
) -> Picture:
    """The picture of the page.

    Args:
      boxes: as in a message, with ``colour``.
      ways: from and to by the names of boxes, bytes per second of all links together, and their number.
      broken: links that cannot be made.
    """
    colours = {box["id"]: box["colour"] for box in boxes}
    order = list(colours)
    # A task may tell any number.
    ways = [(a, b, rate if 0 < rate < math.inf else 0.0, count) for a, b, rate, count in ways]
    most = max([QUIET_BYTES_S, *(rate / count for _, _, rate, count in ways)])
    wires = [
        Arrow(a, b, _rate_label(rate / n, n), share=math.sqrt(rate / n / most), colour=colours[a],
             told=[f"{a} → {b}: {size(rate)}/s" + (f" on {n} links" if n > 1 else "")])
        for a, b, rate, n in sorted(ways, key=lambda way: (order.index(way[0]), order.index(way[1])))
    ]  # fmt: skip
    cut = [Arrow(a, b, kind="broken", told=[f"{a} cannot reach {b}"]) for a, b in sorted(set(broken))]
    return Picture([_drawn(box) for box in boxes], [*wires, *cut], _LEGEND, joins_labels=False)


def _rate_label(rate: float, count: int) -> str:
    return f"{size(rate) + '/s':<{_LABEL}}" + (" each" if count > 1 else "")


def _drawn(box: Mapping[str, Any]) -> Tile:
    words = ", ".join(filter(None, (box["kind"], _STATES.get(box["state"], ""))))
    doing = [*filter(None, [box["kind"]]), *box["doing"]] if box["doing"] else [*filter(None, [words])]
    kinds = [box["mark"], "ps" if box["job"] == "ps" else "", "many" if len(box["tasks"]) > 1 else "", box["state"]]
    lines = [box["id"], *doing, *box["lines"]]
    return Tile(box["id"], lines, " ".join(filter(None, kinds)), (), box["job"], box["colour"])


class Colours:
    """Gives tasks colours, which they keep as long as no box beside them has the same."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def of(self, boxes: Sequence[Box]) -> dict[str, int]:
        """The colour of each task. A box has that of its first task: one that no other box has, and the tasks of a job
        have different ones, as long as there are enough."""
        taken = set[int]()
        for box in boxes:
            self._give(box.tasks[0], taken)
        jobs: dict[str, set[int]] = {}
        for box in boxes:
            jobs.setdefault(job_of(box.tasks[0]), set()).add(self._numbers[box.tasks[0]])
        for task in (task for box in boxes for task in box.tasks[1:]):
            self._give(task, jobs[job_of(task)])
        return {task: colour_of(self._numbers[task]) for box in boxes for task in box.tasks}

    def _give(self, task: str, taken: set[int]) -> None:
        before = self._numbers.get(task)
        if before is None or before in taken:
            self._numbers[task] = next(number for number in itertools.count() if number not in taken)
        taken.add(self._numbers[task])


# ---- Why steps do not end, in the words of `tfmini stacks`, for the page. Pure -------------------------------------

_MOST = 6
_LINE = 27  # letters of a line in a box
_LINES = 2


@dataclass
class Reasons:
    """Deadlocks and culprits, for the page.

    Attributes:
      headline: those that are worth a look: deadlocks, and what steps have waited for longer than `LONG_S`.
      blocks: all of them: a title, and a line for each wait on the way.
      culprits: the tasks to mark, by full name -> what they do.
      waiting: the tasks whose steps wait for these -> for whom.
      slow: what takes the time of a cluster whose steps end.
    """

    headline: list[str] = field(default_factory=list)
    blocks: list[dict[str, Any]] = field(default_factory=list)
    culprits: dict[str, str] = field(default_factory=dict)
    waiting: dict[str, str] = field(default_factory=dict)
    slow: TimeUse = TimeUse()

    def to_json(self) -> dict[str, Any]:
        """What the page shows beside the picture."""
        return {"headline": self.headline, "blocks": self.blocks, "bottleneck": "; ".join(self.slow.lines())}

    def alone(self) -> set[str]:
        """The tasks that share no box with others."""
        return set(self.culprits) | ({self.slow.bottleneck.task} if self.slow.bottleneck else set())

    def mark(self, tasks: Sequence[str]) -> str:
        """How a box is marked: ``culprit``, ``bottleneck`` or not."""
        if any(task in self.culprits for task in tasks):
            return "culprit"
        slow = self.slow.bottleneck
        return "bottleneck" if slow is not None and slow.task in tasks else ""

    def words(self, tasks: Sequence[str]) -> list[str]:
        """What a box does or waits for; nothing of several tasks that do not do the same."""
        told = {self.culprits.get(task) or self.waiting.get(task) or self.slow.words(task) for task in tasks}
        text = told.pop() if len(told) == 1 else ""
        return textwrap.wrap(text, _LINE, max_lines=_LINES, placeholder=" …")


def why(explanation: Explanation, slow: TimeUse, cluster: ClusterSnapshot) -> Reasons:
    """The reasons why the steps of a cluster do not end, or else what makes them slow."""
    found = Reasons()
    for cycle in explanation.cycles[:_MOST]:
        _add_cycle(found, cycle)
    runners = {step.step_id: task.task for task in cluster.tasks for step in task.running}
    long = [culprit for culprit in explanation.culprits if culprit.since_s >= LONG_S]
    for culprit in long:
        # What nobody ends: the last one who waits for it is who the others wait for.
        task = culprit.task or (culprit.way[-1].who if culprit.way else "")
        if culprit.kind != SILENT:
            found.culprits.setdefault(task, why_short(culprit.text))
        for step in culprit.steps:
            found.waiting.setdefault(runners.get(step, ""), f"waits for {why_short(task)}")
    found.headline += [culprit_head(culprit) for culprit in long[:2] if culprit.kind != SILENT]
    for culprit in explanation.culprits[:_MOST]:
        title, lines = culprit_parts(culprit)
        found.blocks.append({"title": title, "lines": lines})
    silent = {task.task for task in cluster.tasks if task.state == SILENT}
    if not found.headline and not long and (slow.bottleneck is None or slow.bottleneck.task not in silent):
        found.slow = slow
    return found


def _add_cycle(found: Reasons, cycle: Sequence[Hop]) -> None:
    names = [why_short(hop.who) for hop in cycle]
    ring = " ← ".join([*dict.fromkeys(names), names[0]])
    found.headline.append(f"deadlock: {ring}")
    found.blocks.append({"title": f"Deadlock: {ring}", "lines": [*map(hop_text, cycle), f"{names[0]} (see above)"]})
    for hop, later in zip(cycle, [*cycle[1:], cycle[0]]):
        found.culprits.setdefault(
            hop.who, f"deadlock with {why_short(later.who) if later.who != hop.who else 'itself'}"
        )
