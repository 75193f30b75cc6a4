"""`tfmini simulate`: predicts how long the steps of a script take on a cluster."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Sequence
from typing import Any

import click
from rich.console import Console

from tfmini.inspection.api import inspect
from tfmini.inspection.clusters import short
from tfmini.inspection.findings import Inspection
from tfmini.printable import printable
from tfmini.simulation.prediction import Event, Prediction
from tfmini.simulation.profile import read_profile
from tfmini.simulation.sweep import MOST_STEPS, Point, knee, mode_of, steps_each, sweep, worker_counts
from tfmini.terminal import Rows, console
from tfmini.tools.progress_bars import shown
from tfmini.tools.usage import Command, ProfileFile, one_line_errors

_BAR, _PATH = 30, 15
_MODES = ("async", "sync", "allreduce")


@click.command(cls=Command, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--ps", type=click.IntRange(0), default=1, show_default=True, metavar="N", help="Number of ps tasks.")
@click.option("--workers", default="1", show_default=True, metavar="M|A..B", help="Number of workers, or a range.")
@click.option("--link", default="", metavar="RATE", help="Link between machines, such as 10Gbit, or one of the profile;"
              " each task has a machine of its own.  [default: all tasks on one machine]")  # fmt: skip
@click.option("--profile", type=ProfileFile(), default="profile.toml", show_default=True,
              help="Costs, from `tfmini calibrate`.")  # fmt: skip
@click.option("--mode", type=click.Choice(_MODES), help="Refuse a script that trains in another way.")
@click.option("--fetch", multiple=True, metavar="NAME", help="Tensor or op to run.  [default: the training op]")
@click.option("--batch", type=click.IntRange(1), metavar="B", help="Batch size: the value of unknown first dimensions.")
@click.option("--steps", type=click.IntRange(1), default=10, show_default=True, help="Steps of each worker.")
@click.option("--fast", is_flag=True, expose_value=False, hidden=True)  # of a model that is no more
@click.option("--seed", type=int, default=0, show_default=True, help="Of the moments at which workers begin.")
@click.argument("script", type=click.Path(exists=True, dir_okay=False))
@click.argument("args", nargs=-1, type=click.UNPROCESSED)
def simulate(
    ps: int, workers: str, link: str, profile: str, mode: str | None, fetch: tuple[str, ...], batch: int | None,
    steps: int, seed: int, script: str, args: tuple[str, ...],
) -> None:  # fmt: skip
    """Predict the step times of SCRIPT on a cluster. SCRIPT builds its graph and ends at its first Session.run.

    Every worker runs the graph of the first one. With a range of workers, a table shows where more of them stop to
    help.
    """

    def inspected(count: int) -> Inspection:
        with contextlib.redirect_stdout(sys.stderr):
            found = inspect(script, ps=ps, workers=count, fetches=fetch, batch=batch, arguments=args)
        if mode is not None and mode_of(found) != mode:
            raise click.ClickException(f"{script} trains {mode_of(found)}, not {mode}: change its optimizer.")
        if batch is None:
            _warn_of_unknown_sizes(found)
        return found

    with shown(), one_line_errors():
        counts = worker_counts(workers)
        each = steps_each(counts, steps)
        points = sweep(counts, inspected, read_profile(profile), link, each, seed)
    answer = console()
    if len(points) > 1:
        _print_sweep(answer, points)
    else:
        _print_one(answer, points[0])
    fewer = f", with {each} steps of each worker: {steps} would be more than {MOST_STEPS:,} in all"
    answer.print(f"predicted by the runtime in virtual time{fewer if each < steps else ''}")


def _warn_of_unknown_sizes(found: Inspection) -> None:
    unknown = [name for (name, _), shape in found.shapes.items() if shape is None or None in shape]
    if unknown:
        click.echo(
            f"warning: {len(unknown)} tensors, {printable(unknown[0])} first, have unknown dimensions and count as"
            " nothing, so the time may be too short. --batch B sets unknown first dimensions.", err=True,
        )  # fmt: skip


def _print_one(answer: Console, point: Point) -> None:
    predicted = point.prediction
    answer.print(_headline(predicted))
    answer.print(_use(predicted))
    answer.print(_path(predicted.critical))


def _headline(p: Prediction) -> str:
    name, share = p.bottleneck()
    stale = f"; {p.staleness:.1f} updates of others during a step" if p.staleness else ""
    return (
        f"a step takes {_ms(p.step_s)} (10 % of them more than {_ms(p.quantile(0.9))}), {p.throughput:.1f} steps/s of"
        f" all workers{stale}\nbusiest: {name}, {share:.0%} of the time"
    )


def _use(p: Prediction) -> Rows:
    table = Rows(
        "task", "CPU (of one core)", "sends", "receives", pad_edge=True, title="share of the time in which it is busy"
    )
    for task, share in sorted(p.busy.items(), key=lambda item: -item[1])[:_PATH]:
        sent, received = p.links.get(task, (0.0, 0.0))
        table.add_row(short(task), f"{share:.0%}", f"{sent:.0%}", f"{received:.0%}")
    return table


def _path(events: Sequence[Event]) -> Rows:
    table = Rows(
        "from ms", "takes ms", "task or link", "what", pad_edge=True, title="the longest parts of the critical path"
    )
    longest = sorted(events, key=lambda event: event.start - event.end)[:_PATH]
    began = events[0].start if events else 0.0
    for event in sorted(longest, key=lambda event: event.start):
        takes = event.end - event.start
        table.add_row(f"{1e3 * (event.start - began):.3f}", f"{1e3 * takes:.3f}", event.task, event.label)
    return table


def _print_sweep(answer: Console, points: Sequence[Point]) -> None:
    most = max(point.prediction.throughput for point in points)
    table = Rows("workers", "step", "90 %", "steps/s", "efficiency", "busiest", "", pad_edge=True)
    for point in points:
        p = point.prediction
        name, share = p.bottleneck()
        bar = "█" * max(1, round(_BAR * p.throughput / most))
        table.add_row(str(point.workers), _ms(p.step_s), _ms(p.quantile(0.9)), f"{p.throughput:.1f}",
                      f"{point.efficiency(points[0]):.0%}", f"{name} {share:.0%}", bar)  # fmt: skip
    answer.print(table)
    turn = knee(points)
    if turn is None:
        answer.print("no knee: each worker gives at least half of what it gives at the start")
    else:
        name, share = turn.prediction.bottleneck()
        answer.print(f"knee at {turn.workers} workers: {name} is busy {share:.0%} of the time")


def _ms(seconds: float) -> Any:
    return f"{1e3 * seconds:.3f} ms"
