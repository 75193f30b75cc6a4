"""The tables of `tfmini status`."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from rich.text import Text

from tfmini.printable import printable
from tfmini.status.explanation import explain
from tfmini.status.explanation_text import explanation_lines, seconds, short
from tfmini.status.sizes import size
from tfmini.status.snapshot import OK, ClusterSnapshot
from tfmini.terminal import Rows, plain

_TITLE: dict[str, Any] = {"title_justify": "left", "title_style": "bold"}


class _Kind(NamedTuple):
    """A table of the things of a kind that tasks have.

    Attributes:
      field: of a `TaskSnapshot`.
      row: the cells, of the task's short name and a thing.
      shows, order: which things, and their order; by default all, as they come.
      most: rows, since the length depends on the model.
    """

    title: str
    field: str
    columns: tuple[str, ...]
    row: Callable[[str, Any], tuple[str, ...]]
    shows: Callable[[Any], bool] = lambda thing: True
    order: Callable[[Any], float] = lambda thing: 0.0
    most: int = 12

    def table(self, cluster: ClusterSnapshot) -> Rows:
        """The table of a cluster."""
        found = [(short(t.task), thing) for t in cluster.tasks for thing in getattr(t, self.field) if self.shows(thing)]
        found.sort(key=lambda pair: self.order(pair[1]))
        table = Rows.of(*self.columns, title=self.title, **_TITLE)
        for task, thing in found[: self.most]:
            table.add_row(*self.row(task, thing))
        if len(found) > self.most:
            table.add_row(f"… and {len(found) - self.most} more (--json has all)")
        return table


def status_tables(cluster: ClusterSnapshot) -> Iterator[Any]:
    """What `tfmini status` prints: one table per kind of thing, without those that would be empty."""
    yield _tasks(cluster)
    for kind in _KINDS:
        table = kind.table(cluster)
        if table.row_count:
            yield table
    explanation = explain(cluster)
    if explanation.cycles or explanation.culprits:
        lines = ["waits", *explanation_lines(explanation)]
        yield plain(*lines[: -1 if not lines[-1] else None])


def _rate(per_second: float) -> str:
    return f"{per_second:.3g}" if per_second < 999.5 else f"{per_second:,.0f}"


def _tasks(cluster: ClusterSnapshot) -> Rows:
    count = len(cluster.tasks)
    title = f"{count} task{'s' if count != 1 else ''}, asked in {cluster.took_s:.2f} s"
    table = Rows.of(
        "task", "state", "address", ">pid", ">up", ">cpu", ">memory", ">variables", ">steps", ">steps/s", ">in flight",
        ">parts/s", ">waits", title=title, **_TITLE,
    )  # fmt: skip
    for task in cluster.tasks:
        state = Text(printable(task.state), "" if task.state == OK else "bold red")
        if task.incarnation:
            table.add_row(
                short(task.task), state, task.address, str(task.pid), seconds(task.uptime_s), seconds(task.cpu_s),
                size(task.memory_bytes), size(task.variable_bytes), f"{task.steps:,}", _rate(task.steps_s),
                str(task.steps_in_flight), _rate(task.parts_s), str(len(task.waits)),
            )  # fmt: skip
        else:
            table.add_row(short(task.task), state, task.address)
    reasons = [f"{short(task.task)}: {task.why}" for task in cluster.tasks if task.state != OK]
    table.caption, table.caption_justify = plain(*reasons) if reasons else None, "left"
    return table


def _clock(time_s: float) -> str:
    try:
        return f"{datetime.datetime.fromtimestamp(time_s):%H:%M:%S}"
    except (ValueError, OverflowError, OSError):  # no time of this calendar
        return "?"


_KINDS = (
    _Kind(
        "cannot be reached", "links", ("task", "peer", "address", "why"),  # as the first task sees it
        lambda task, link: (task, short(link.peer), link.address, link.why), shows=lambda link: bool(link.why),
    ),
    _Kind(
        "sessions", "sessions", ("master", "session", "owner", ">age", ">steps", ">in flight"),
        lambda task, s: (task, s.handle, short(s.owner), seconds(s.age_s), f"{s.steps:,}", str(s.in_flight)),
    ),
    _Kind(
        "links", "links",
        ("task", "peer", "by", ">out/s", ">in/s", ">msg out/s", ">msg in/s", ">out", ">in", ">rest"),
        lambda task, link: (
            task, short(link.peer), link.transport or link.state, size(link.sent_bytes_s), size(link.received_bytes_s),
            _rate(link.sent_messages_s), _rate(link.received_messages_s), size(link.sent_bytes),
            size(link.received_bytes), size(link.backlog_bytes),
        ),
        shows=lambda link: bool(link.sent_messages or link.received_messages),
        order=lambda link: -(link.sent_bytes_s + link.received_bytes_s),
    ),
    _Kind(
        "variables", "variables", ("task", "variable", "type", "shape", ">bytes"),
        lambda task, v: (task, v.name, v.dtype, str(list(v.shape)), size(v.bytes)), order=lambda v: -v.bytes,
    ),
    _Kind(
        "queues", "queues", ("task", "queue", ">elements", ">capacity", ">waiting to put", ">waiting to take", ""),
        lambda task, q: (
            task, q.name, str(q.length), "" if q.capacity < 0 else str(q.capacity), str(q.waiting_to_put),
            str(q.waiting_to_take), "closed" if q.is_closed else "",
        ),
    ),
    _Kind(
        "synchronous updates", "accumulators",
        ("task", "accumulator", ">step", ">holds", ">accepted", ">dropped", "now from"),
        lambda task, a: (
            task, a.name, str(a.global_step), f"{a.count}/{a.required}" if a.required else str(a.count),
            str(a.accepted), str(a.dropped), ", ".join(map(short, a.contributed)),
        ),
    ),
    _Kind(
        "staleness of asynchronous updates", "staleness", ("task", "worker", ">updates", ">mean", ">latest", ">most"),
        lambda task, s: (task, short(s.worker), f"{s.updates:,}", f"{s.mean:.2f}", str(s.latest), str(s.maximum)),
    ),
    _Kind(
        "collectives", "collectives", ("task", "groups", ">ranks", ">runs", ">messages", ">bytes"),
        lambda task, c: (task, c.group, str(c.size), f"{c.runs:,}", f"{c.messages:,}", size(c.bytes)),
    ),
    _Kind(
        "scalars", "scalars", ("task", "tag", ">step", ">value"),
        lambda task, s: (task, s.tag, str(s.step), f"{s.value:.6g}"),
    ),
    _Kind(
        "latest events", "events", ("time", "seen by", "event", "what", ""),
        lambda task, e: (_clock(e.time_s), task, e.kind, short(e.subject), short(e.text)),
        order=lambda e: -e.time_s, most=6,
    ),
)  # fmt: skip
