"""`tfmini status`: what a running cluster does now."""

from __future__ import annotations

import datetime
import json
import random
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, NoReturn

import click
from rich.console import Group
from rich.control import Control
from rich.segment import Segments
from rich.text import Text

from tfmini import errors
from tfmini.command_line import HELP, Command, OptionalArgument
from tfmini.runtime.snapshot import OK, ClusterSnapshot, VariableSnapshot, to_json
from tfmini.show.status.explanation import (
    LEAST_S,
    MISSING,
    Explanation,
    explain,
    explanation_lines,
    seconds,
    short,
    stack_lines,
    task_lines,
    without_passing,
)
from tfmini.show.status.gather import Gatherer, per_second, size
from tfmini.show.status.looks import Looks
from tfmini.terminal import Rows, console, plain
from tfmini.text import printable
from tfmini.tools.cluster_target import find_cluster

# ---- The tables of `tfmini status` ---------------------------------------------------------------------------------

_TITLE: dict[str, Any] = {"title_justify": "left", "title_style": "bold"}


class _Kind(NamedTuple):
    """A table of the things of a kind that tasks have.

    Attributes:
      field: of a `TaskSnapshot`.
      columns: as in `Rows.of`; ``spare`` as well.
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
    spare: tuple[str, ...] = ()

    def table(self, cluster: ClusterSnapshot) -> Rows:
        """The table of a cluster."""
        found = [(short(t.task), thing) for t in cluster.tasks for thing in getattr(t, self.field) if self.shows(thing)]
        found.sort(key=lambda pair: self.order(pair[1]))
        table = Rows.of(*self.columns, one_line=True, spare=self.spare, title=self.title, **_TITLE)
        for task, thing in found[: self.most]:
            table.add_row(*self.row(task, thing))
        if len(found) > self.most:
            table.caption, table.caption_justify = f"… and {len(found) - self.most} more (--json has all)", "left"
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


def _tasks(cluster: ClusterSnapshot) -> Rows:
    count = len(cluster.tasks)
    title = f"{count} task{'s' if count != 1 else ''}, asked in {cluster.took_s:.2f} s"
    table = Rows.of(
        "task", "=state", "=address", ">pid", ">up", ">cpu", ">memory", ">variables", ">steps", ">steps/s",
        ">in flight", ">parts/s", ">waits", one_line=True,
        spare=("in flight", "pid", "cpu", "waits", "up", "variables", "memory", "steps"), title=title, **_TITLE,
    )  # fmt: skip
    for task in cluster.tasks:
        state = Text(printable(task.state), "" if task.state == OK else "bold red")
        if task.incarnation:
            table.add_row(
                short(task.task), state, task.address, str(task.pid), seconds(task.uptime_s), seconds(task.cpu_s),
                size(task.memory_bytes), size(task.variable_bytes), f"{task.steps:,}", per_second(task.steps_s),
                str(task.steps_in_flight), per_second(task.parts_s), str(len(task.waits)),
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


def _value(v: VariableSnapshot) -> tuple[str, str]:
    """The shape and the bytes of a variable, which has neither before it is initialised."""
    return (str(list(v.shape)), size(v.bytes)) if v.bytes or v.shape else ("", "not initialized")


_KINDS = (
    _Kind(
        "cannot be reached", "links", ("=task", "=peer", "=address", "~why"),  # as the first task sees it
        lambda task, link: (task, short(link.peer), link.address, link.why), shows=lambda link: bool(link.why),
    ),
    _Kind(
        "sessions", "sessions", ("master", "session", "owner", ">age", ">steps", ">runs", ">in flight"),
        lambda task, s: (
            task, s.handle, short(s.owner), seconds(s.age_s), f"{s.steps:,}", f"{s.runs:,}", str(s.in_flight),
        ),
    ),
    _Kind(
        "links", "links",
        ("=task", "=peer", "by", ">out/s", ">in/s", ">msg out/s", ">msg in/s", ">out", ">in", ">rest"),
        lambda task, link: (
            task, short(link.peer), link.transport or link.state, size(link.sent_bytes_s), size(link.received_bytes_s),
            per_second(link.sent_messages_s), per_second(link.received_messages_s), size(link.sent_bytes),
            size(link.received_bytes), size(link.backlog_bytes),
        ),
        shows=lambda link: bool(link.sent_messages or link.received_messages),
        order=lambda link: -(link.sent_bytes_s + link.received_bytes_s),
        spare=("rest", "by", "msg in/s", "msg out/s", "in", "out"),
    ),
    _Kind(
        "variables", "variables", ("task", "variable", "type", "shape", ">bytes"),
        lambda task, v: (task, v.name, v.dtype, *_value(v)), order=lambda v: -v.bytes,
    ),
    _Kind(
        "moved to other tasks", "moved", ("task", "variable", "is on"), lambda task, v: (task, v.name, short(v.place)),
    ),
    _Kind(
        "queues", "queues", ("task", "queue", ">elements", ">capacity", ">putting", ">taking", "="),
        lambda task, q: (
            task, q.name, str(q.length), "" if q.capacity < 0 else str(q.capacity), str(q.waiting_to_put),
            str(q.waiting_to_take), "closed" if q.is_closed else "",
        ),
    ),
    _Kind(
        "synchronous updates", "accumulators",
        ("task", "accumulator", ">step", ">holds", ">accepted", ">dropped", "~now from"),
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
        "latest events", "events", ("=time", "seen by", "=event", "what", "~"),
        lambda task, e: (_clock(e.time_s), task, e.kind, short(e.subject), short(e.text)),
        order=lambda e: -e.time_s, most=6,
    ),
)  # fmt: skip


# ---- `tfmini status`: prints the tables, once or again and again ---------------------------------------------------


@click.command(cls=Command, context_settings=HELP)
@click.option("--json", "as_json", is_flag=True, help="Print the snapshot as JSON; with --watch, one line each time.")
@click.option("--watch", is_flag=True, help="Ask again and again, until Ctrl-C.")
@click.option("--interval", type=click.FloatRange(0.2, 3600), default=2.0, show_default=True, metavar="S",
              help="Seconds between two questions of --watch.")  # fmt: skip
@click.argument("target", required=False, cls=OptionalArgument)
def status(as_json: bool, watch: bool, interval: float, target: str | None) -> None:
    """Show what the cluster of TARGET does: tasks, sessions, steps, variables, links, waits.

    TARGET is the address of any server of the cluster, HOST:PORT, or a job of `tfmini launch`: its name, script or
    process id. Without one it is the only job that runs, or the cluster of TF_CONFIG.

    The tasks answer within a second, also when all their steps are stuck. `tfmini stacks` explains why steps wait.
    """
    where = find_cluster(target)
    try:
        with Gatherer(where.target, tasks=where.tasks, keys=where.keys) as gatherer:
            if watch and not as_json and console().is_terminal:
                _watch(gatherer, interval)
            _print(gatherer.gather(rates=True), as_json, one_line=watch)
            while watch:
                time.sleep(interval)
                _print(gatherer.gather(), as_json, one_line=True)
    except errors.OpError as error:
        raise click.ClickException(error.message) from None
    except KeyboardInterrupt:
        return


def _print(cluster: ClusterSnapshot, as_json: bool, one_line: bool) -> None:
    if as_json:
        click.echo(json.dumps(to_json(cluster), indent=None if one_line else 1))
        return
    console(piped_width=140).print(Group(*status_tables(cluster)))


def _watch(gatherer: Gatherer, interval: float) -> NoReturn:
    """Shows the tables on a screen of their own, which leaves the terminal as it was; it ends by an exception."""
    shown = console()
    with shown.screen() as screen:
        again = False
        while True:
            tables = shown.render_lines(Group(*status_tables(gatherer.gather(rates=not again))), new_lines=True)
            hidden = len(tables) - shown.height + 1
            if hidden > 0:
                note = plain(f"… {hidden} more lines (without --watch all are printed); Ctrl-C ends", style="dim")
                tables[shown.height - 1 :] = shown.render_lines(note)
            shown.control(Control.home())
            screen.update(Segments([segment for line in tables for segment in line]))
            again = True
            time.sleep(interval)


# ---- `tfmini stacks`: which step waits for what, since when and from whom; deadlocks and culprits ------------------

_ANSWER_S = 2.0  # a loaded machine is no silent task
_LOOKS = 10  # at a job that moves, to see whom its steps wait for
_BETWEEN_S = 0.12  # a task gives an answer again for 0.1 s


@click.command(cls=Command, context_settings=HELP)
@click.option("--python", "python", is_flag=True, help="Show the Python stacks of all threads, too.")
@click.option("--least", type=click.FloatRange(0), default=LEAST_S, show_default=True, metavar="S",
              help="Explain the waits that have lasted for so many seconds.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print deadlocks, culprits and the waits of each task as JSON.")
@click.argument("target", required=False, cls=OptionalArgument)
def stacks(python: bool, least: float, as_json: bool, target: str | None) -> None:
    """Explain why the steps of the cluster of TARGET wait: deadlocks first, then whom all wait for, then each task.

    If no training step has waited for long, it looks ten times within about two seconds and says what the time goes to:
    a task that the steps wait for, or input.

    TARGET is as in `tfmini status`.
    """
    where = find_cluster(target)
    try:
        with Gatherer(where.target, tasks=where.tasks, keys=where.keys) as gatherer:
            cluster = gatherer.gather(stacks=python, timeout_s=_ANSWER_S)
            explanation, looks = explain(cluster, least), Looks()
            if _moves(explanation, cluster):
                cluster = _look_often(gatherer, cluster, looks)
                explanation = without_passing(explanation, explain(cluster, least))
    except errors.OpError as error:
        raise click.ClickException(error.message) from None
    if as_json:
        tasks = {
            task.task: {"state": task.state, "why": task.why, **_lists(to_json(task), "waits", "stacks")}
            for task in cluster.tasks
        }
        click.echo(json.dumps({**to_json(explanation), **to_json(looks.time_use()), "tasks": tasks}, indent=1))
        return
    lines = explanation_lines(explanation)
    lines[-1:] = [*(f"{line}." for line in looks.time_use().lines()), ""]
    for task in cluster.tasks:
        lines += task_lines(task, _idle(task.task, looks))
    lines += ["", *stack_lines(cluster)] if python else []
    click.echo("\n".join(map(printable, lines)))


def _moves(explanation: Explanation, cluster: ClusterSnapshot) -> bool:
    """Whether no training step has waited for long, but for what may have ended between the answers of two tasks.

    Queue runners wait for long where a job is slow: their queue is full.
    """
    fill = {step.step_id for task in cluster.tasks for step in task.running if step.fills}
    serious = (c for c in explanation.culprits if c.kind != MISSING and not fill.issuperset(c.steps))
    return not explanation.cycles and next(serious, None) is None


def _look_often(gatherer: Gatherer, cluster: ClusterSnapshot, looks: Looks) -> ClusterSnapshot:
    """Takes several looks; returns the last snapshot."""
    pause = threading.Event()
    looks.take(cluster)
    end = time.monotonic() + 3 * _LOOKS * _BETWEEN_S
    for _ in range(_LOOKS - 1):
        if time.monotonic() > end:
            break
        pause.wait(random.uniform(_BETWEEN_S, 2 * _BETWEEN_S))  # else the steps of a steady job could keep time with it
        cluster = gatherer.gather(timeout_s=_ANSWER_S)
        looks.take(cluster)
    return cluster


def _idle(task: str, looks: Looks) -> str:
    """What is said of a task where nothing runs at the last look."""
    if not looks:
        return "no step runs here"
    return f"nothing runs here at the last look; something did in {looks.busy(task)} of {len(looks)}"


def _lists(task: dict[str, object], *names: str) -> dict[str, object]:
    return {name: task[name] for name in names}
