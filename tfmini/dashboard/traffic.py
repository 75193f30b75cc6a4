"""Bytes per second between tasks, and between the boxes of the picture. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tfmini.dashboard.folding import Box
from tfmini.inspection.clusters import short
from tfmini.status.snapshot import SILENT, ClusterSnapshot

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


def links_between(boxes: Sequence[Box], links: Mapping[Way, float]) -> dict[Way, float]:
    """The sums of the links between boxes, by their names; those inside a box are its link to itself."""
    box_of = {task: box.name for box in boxes for task in box.tasks}
    found: dict[Way, float] = {}
    for (source, target), rate in links.items():
        way = box_of[source], box_of[target]
        found[way] = found.get(way, 0.0) + rate
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
