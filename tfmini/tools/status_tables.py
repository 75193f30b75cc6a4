"""The tables of `tfmini status`."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from rich.text import Text

from tfmini.printable import printable
from tfmini.status.explanation import explain
from tfmini.status.explanation_text import explanation_lines, seconds, short
from tfmini.status.sizes import size
from tfmini.status.snapshot import OK, ClusterSnapshot, TaskSnapshot
from tfmini.terminal import Rows, plain

_ROWS = 12  # of a table whose length depends on the model


def status_tables(cluster: ClusterSnapshot) -> Iterator[Any]:
    """What `tfmini status` prints: one table per kind of thing, without those that would be empty."""
    yield _tasks(cluster)
    for make in (
        _unreachable, _sessions, _links, _variables, _queues, _accumulators, _staleness, _collectives, _scalars,
        _events,
    ):  # fmt: skip
        table = make(cluster)
        if table.row_count:
            yield table
    explanation = explain(cluster)
    if explanation.cycles or explanation.culprits:
        lines = ["waits", *explanation_lines(explanation)]
        yield plain(*lines[: -1 if not lines[-1] else None])


def _rate(per_second: float) -> str:
    return f"{per_second:.3g}" if per_second < 999.5 else f"{per_second:,.0f}"


def _table(title: str, *columns: str) -> Rows:
    table = Rows(title=title, title_justify="left", header_style="bold", title_style="bold")
    for column in columns:
        name = column.lstrip(">")
        table.add_column(name, justify="right" if column.startswith(">") else "left", overflow="fold")
    return table


def _tasks(cluster: ClusterSnapshot) -> Rows:
    count = len(cluster.tasks)
    table = _table(
        f"{count} task{'s' if count != 1 else ''}, asked in {cluster.took_s:.2f} s", "task", "state", "address", ">pid",
        ">up", ">cpu", ">memory", ">variables", ">steps", ">steps/s", ">in flight", ">parts/s", ">waits",
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


def _rows(table: Rows, rows: Iterable[Sequence[str]], limit: int = _ROWS) -> Rows:
    found = list(rows)
    for row in found[:limit]:
        table.add_row(*row)
    if len(found) > limit:
        table.add_row(f"… and {len(found) - limit} more (--json has all)")
    return table


def _each(cluster: ClusterSnapshot, name: str) -> Iterator[tuple[TaskSnapshot, Any]]:
    for task in cluster.tasks:
        for item in getattr(task, name):
            yield task, item


def _sessions(cluster: ClusterSnapshot) -> Rows:
    table = _table("sessions", "master", "session", "owner", ">age", ">steps", ">in flight")
    return _rows(table, (
        (short(t.task), s.handle, short(s.owner), seconds(s.age_s), f"{s.steps:,}", str(s.in_flight))
        for t, s in _each(cluster, "sessions")
    ))  # fmt: skip


def _links(cluster: ClusterSnapshot) -> Rows:
    table = _table("links", "task", "peer", "by", ">out/s", ">in/s", ">msg out/s", ">msg in/s", ">out", ">in", ">rest")
    links = [(t, link) for t, link in _each(cluster, "links") if link.sent_messages or link.received_messages]
    links.sort(key=lambda pair: -(pair[1].sent_bytes_s + pair[1].received_bytes_s))
    return _rows(table, (
        (
            short(t.task), short(link.peer), link.transport or link.state, size(link.sent_bytes_s),
            size(link.received_bytes_s), _rate(link.sent_messages_s), _rate(link.received_messages_s),
            size(link.sent_bytes), size(link.received_bytes), size(link.backlog_bytes),
        )
        for t, link in links
    ))  # fmt: skip


def _unreachable(cluster: ClusterSnapshot) -> Rows:
    """The pairs of tasks that cannot connect, each with the reason that the first one sees."""
    found = [(t, link) for t, link in _each(cluster, "links") if link.why]
    table = _table("cannot be reached", "task", "peer", "address", "why")
    return _rows(table, ((short(t.task), short(link.peer), link.address, link.why) for t, link in found))


def _variables(cluster: ClusterSnapshot) -> Rows:
    table = _table("variables", "task", "variable", "type", "shape", ">bytes")
    found = sorted(_each(cluster, "variables"), key=lambda pair: -pair[1].bytes)
    return _rows(table, (
        (short(t.task), v.name, v.dtype, str(list(v.shape)), size(v.bytes)) for t, v in found
    ))  # fmt: skip


def _queues(cluster: ClusterSnapshot) -> Rows:
    table = _table("queues", "task", "queue", ">elements", ">capacity", ">waiting to put", ">waiting to take", "")
    return _rows(table, (
        (
            short(t.task), q.name, str(q.length), "" if q.capacity < 0 else str(q.capacity), str(q.waiting_to_put),
            str(q.waiting_to_take), "closed" if q.is_closed else "",
        )
        for t, q in _each(cluster, "queues")
    ))  # fmt: skip


def _accumulators(cluster: ClusterSnapshot) -> Rows:
    table = _table("synchronous updates", "task", "accumulator", ">step", ">holds", ">accepted", ">dropped", "now from")
    return _rows(table, (
        (
            short(t.task), a.name, str(a.global_step), f"{a.count}/{a.required}" if a.required else str(a.count),
            str(a.accepted), str(a.dropped), ", ".join(map(short, a.contributed)),
        )
        for t, a in _each(cluster, "accumulators")
    ))  # fmt: skip


def _staleness(cluster: ClusterSnapshot) -> Rows:
    table = _table("staleness of asynchronous updates", "task", "worker", ">updates", ">mean", ">latest", ">most")
    return _rows(table, (
        (short(t.task), short(s.worker), f"{s.updates:,}", f"{s.mean:.2f}", str(s.latest), str(s.maximum))
        for t, s in _each(cluster, "staleness")
    ))  # fmt: skip


def _collectives(cluster: ClusterSnapshot) -> Rows:
    table = _table("collectives", "task", "groups", ">ranks", ">runs", ">messages", ">bytes")
    return _rows(table, (
        (short(t.task), c.group, str(c.size), f"{c.runs:,}", f"{c.messages:,}", size(c.bytes))
        for t, c in _each(cluster, "collectives")
    ))  # fmt: skip


def _scalars(cluster: ClusterSnapshot) -> Rows:
    table = _table("scalars", "task", "tag", ">step", ">value")
    return _rows(table, (
        (short(t.task), s.tag, str(s.step), f"{s.value:.6g}") for t, s in _each(cluster, "scalars")
    ))  # fmt: skip


def _clock(time_s: float) -> str:
    try:
        return f"{datetime.datetime.fromtimestamp(time_s):%H:%M:%S}"
    except (ValueError, OverflowError, OSError):  # no time of this calendar
        return "?"


def _events(cluster: ClusterSnapshot) -> Rows:
    table = _table("latest events", "time", "seen by", "event", "what", "")
    found = sorted(_each(cluster, "events"), key=lambda pair: -pair[1].time_s)
    return _rows(table, (
        (_clock(e.time_s), short(t.task), e.kind, short(e.subject), short(e.text))
        for t, e in found
    ), 6)  # fmt: skip
