"""The state of the page: it takes snapshots, keeps their history, and makes the messages for its readers.

Pure: snapshots come in with their times, and values for JSON go out. Used by one thread.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tfmini.runtime.snapshot import CONSEQUENCES, SILENT, AccumulatorSnapshot, ClusterSnapshot, TaskSnapshot, to_json
from tfmini.show.dashboard import picture
from tfmini.show.dashboard.history import EventLog, History, Measures, sentence
from tfmini.show.dashboard.picture import (
    Box,
    Reasons,
    about_box,
    broken_links,
    busiest,
    fold,
    links_between,
    task_links,
    why,
)
from tfmini.show.inspection.clusters import short
from tfmini.show.status.explanation import explain, wait_text
from tfmini.show.status.looks import Looks

_WAITS = 12  # the longest waits
_LEDGERS = 8
_BROKEN = 20
_DETAILS = 30  # entries of each list in a task's panel


@dataclass
class Reader:
    """What one open page has got so far."""

    events: int = 0
    shown: picture.Shown = field(default_factory=picture.Shown)


class Board:
    """See the module.

    Attributes:
      number: how many snapshots have been taken.
      problem: why there is no newer snapshot; "" while they come.
    """

    def __init__(self, history: History | None = None) -> None:
        self.number = 0
        self.problem = ""
        self.history = history or History()
        self.log = EventLog()
        self._measures = Measures()
        self._looks = Looks()
        self._cluster: ClusterSnapshot | None = None
        self._colours = picture.Colours()
        self._ways: set[picture.Way] = set()

    def take(self, cluster: ClusterSnapshot) -> None:
        """The next snapshot."""
        self.number += 1
        self.problem = ""
        self._cluster = cluster
        self.log.take(cluster)
        self._looks.take(cluster)
        self.history.add(cluster.taken_s, self._measures.take(cluster))
        # A line stays when nothing runs on it any more: in a job that is stuck, too, people look for who sends to whom.
        links = task_links(cluster).items()
        self._ways = {way for way, rate in links if rate >= picture.QUIET_BYTES_S or way in self._ways}

    @property
    def cluster(self) -> ClusterSnapshot | None:
        """The newest snapshot."""
        return self._cluster

    def message(self, reader: Reader) -> dict[str, Any]:
        """What changed for a reader since its last message; the first one has everything."""
        cluster = self._cluster
        found: dict[str, Any] = {"number": self.number, "problem": self.problem}
        if cluster is None:
            return found
        reasons = why(explain(cluster), self._looks.time_use(), cluster)
        boxes = fold(cluster.tasks, _rates(cluster), reasons.alone())
        colours = self._colours.of(boxes)
        links = task_links(cluster)
        between = links_between(boxes, {way: rate for way, rate in links.items() if way in self._ways})
        broken = broken_links(boxes, cluster)[:_BROKEN]
        shown = [_box(box, cluster, reasons) | {"colour": colours[box.tasks[0]]} for box in boxes]
        ways = [(*way, *sums) for way, sums in between.items()]
        drawn = picture.drawing(shown, ways, [(each["from"], each["to"]) for each in broken])
        found |= {
            "time": cluster.taken_s,
            "target": cluster.target,
            "boxes": shown,
            "picture": drawn.svg(),
            "colours": {short(task): colour for task, colour in colours.items()},
            "busiest": busiest(links),
            "broken": broken,
            "why": reasons.to_json(),
            "waits": _waits(cluster),
            "ledgers": _ledgers(cluster),
            "events": [
                {"time": e.time_s, "kind": e.kind, "text": sentence(e)} for e in self.log.since(reader.events)
            ],
            "charts": picture.updates(self.history, reader.shown),
        }  # fmt: skip
        reader.events = self.log.count
        return found

    def details(self, name: str) -> dict[str, Any] | None:
        """Everything about a task, by its full name, with long lists cut; None: there is no such task."""
        task = self._cluster.task(name) if self._cluster is not None else None
        if task is None:
            return None
        found: dict[str, Any] = finite(to_json(task))
        found["short"] = short(task.task)
        found["variables"] = sorted(found["variables"], key=lambda v: -v["bytes"])
        waits = sorted(task.waits, key=lambda wait: -wait.since_s)
        found["waits"] = [to_json(wait) | {"words": wait_text(wait)} for wait in waits]
        for key, value in found.items():
            if isinstance(value, list) and len(value) > _DETAILS:
                found[key] = value[:_DETAILS]
                found["omitted"][key] = found["omitted"].get(key, 0) + len(value) - _DETAILS
        return found


def finite(value: Any) -> Any:
    """The same with texts for numbers that JSON does not have."""
    if isinstance(value, dict):
        return {key: finite(each) for key, each in value.items()}
    if isinstance(value, list):
        return [finite(each) for each in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def _rates(cluster: ClusterSnapshot) -> dict[str, float]:
    """By what the tasks of a job are compared: steps per second, of a task without sessions the bytes."""
    return {
        task.task: task.steps_s if task.steps else sum(link.sent_bytes_s + link.received_bytes_s for link in task.links)
        for task in cluster.tasks
        if task.state != SILENT
    }


def _box(box: Box, cluster: ClusterSnapshot, reasons: Reasons) -> dict[str, Any]:
    tasks = [task for name in box.tasks if (task := cluster.task(name)) is not None]
    return {
        "id": box.name, "job": short(box.tasks[0]).partition("/")[0], "state": box.state, "kind": box.kind,
        "tasks": [{"name": task.task, "short": short(task.task), "state": task.state} for task in tasks],
        "lines": about_box(tasks), "doing": reasons.words(box.tasks), "mark": reasons.mark(box.tasks),
    }  # fmt: skip


def _waits(cluster: ClusterSnapshot) -> list[dict[str, Any]]:
    """The longest waits of all tasks. A wait for a part that waits itself says nothing new."""
    all_waits = [(wait, task) for task in cluster.tasks for wait in task.waits]
    explained = {wait.step_id for wait, _ in all_waits if wait.kind not in CONSEQUENCES}
    found = [(w, task) for w, task in all_waits if w.kind not in CONSEQUENCES or w.step_id not in explained]
    found.sort(key=lambda each: -each[0].since_s)
    return [
        {
            "task": task.task, "short": short(task.task), "words": wait_text(wait), "since": wait.since_s,
            "kind": wait.kind,
        }
        for wait, task in found[:_WAITS]
    ]  # fmt: skip


def _ledgers(cluster: ClusterSnapshot) -> list[dict[str, Any]]:
    """The accumulators of synchronous updates: who contributed, and whose gradients were dropped."""
    found = [(ledger, task) for task in cluster.tasks for ledger in task.accumulators]
    found.sort(key=lambda each: (-each[0].dropped, each[0].name))
    return [_ledger(ledger, task) for ledger, task in found[:_LEDGERS]]


def _ledger(ledger: AccumulatorSnapshot, task: TaskSnapshot) -> dict[str, Any]:
    totals: Mapping[str, tuple[int, int]] = {c.task: (c.accepted, c.dropped) for c in ledger.contributions}
    return {
        "name": ledger.name, "task": short(task.task), "count": ledger.count, "required": ledger.required,
        "step": ledger.global_step, "accepted": ledger.accepted, "dropped": ledger.dropped,
        "contributed": [short(name) for name in ledger.contributed],
        "tasks": [{"task": short(name), "accepted": a, "dropped": d} for name, (a, d) in sorted(totals.items())],
    }  # fmt: skip
