"""`tfmini simulate`: predicts how long the steps of a script take on a cluster."""

from __future__ import annotations

import contextlib
import datetime
import json
import os
import platform
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from tfmini.command_line import HELP, Command, OutputFile, WithScript, one_line_errors, script_argument, write_text
from tfmini.launch.launch_options import chief_option
from tfmini.launch.progress import shown
from tfmini.show.inspection.api import inspect
from tfmini.show.inspection.clusters import short
from tfmini.show.inspection.findings import Inspection
from tfmini.show.simulation.gpu_costs import gpu_count, without_gpu
from tfmini.show.simulation.prediction import Event, Prediction, Topology
from tfmini.show.simulation.predictor import (
    MOST_STEPS,
    Point,
    StepModel,
    knee,
    mode_of,
    steps_each,
    sweep,
    tasks_of,
    worker_counts,
)
from tfmini.show.simulation.profile import LAPTOP, OWN, SERVERS, ChosenProfile, Machine, format_profile
from tfmini.terminal import Rows, console
from tfmini.text import printable
from tfmini.tools.script import TRACE_ENV, StepTimes, TraceOptions

_BAR, _PATH = 30, 15
_MODES = ("async", "sync", "allreduce")


def _chosen(ctx: click.Context, param: click.Parameter, given: str | None) -> ChosenProfile:
    try:
        return ChosenProfile.of(given, ctx.params.get("link") or "")
    except FileNotFoundError as error:
        raise click.UsageError(str(error)) from None


#: Of commands with an option ``--link`` before it.
profile_option = click.option(
    "--profile", callback=_chosen, metavar="FILE",
    help=f"Costs of the machines: a file of `tfmini calibrate`, or {LAPTOP} or {SERVERS}, which come with tfmini."
         f"  [default: {OWN}; without it {LAPTOP}, or with --link {SERVERS}]",
)  # fmt: skip


@click.command(cls=WithScript, context_settings=HELP)
@click.option("--ps", type=click.IntRange(0), default=1, show_default=True, metavar="N", help="Number of ps tasks.")
@click.option("--workers", default="1", show_default=True, metavar="N|A..B", help="Number of worker tasks, or a range.")
@chief_option
@click.option("--link", default="", metavar="RATE", help="Link between machines, such as 10Gbit, or one of the profile;"
              " each task has a machine of its own.  [default: all tasks on one machine]")  # fmt: skip
@profile_option
@click.option("--mode", type=click.Choice(_MODES), help="Refuse a script that trains in another way.")
@click.option("--fetch", multiple=True, metavar="NAME", help="Tensor or op to run.  [default: the training op]")
@click.option("--batch", type=click.IntRange(1), metavar="B", help="Batch size: the value of unknown first dimensions.")
@click.option("--steps", type=click.IntRange(1), default=10, show_default=True, help="Steps of each worker.")
@click.option("--fast", is_flag=True, expose_value=False, hidden=True)  # of a model that is no more
@click.option("--seed", type=int, default=0, show_default=True, help="Of the moments at which workers begin.")
@script_argument()
@click.argument("args", nargs=-1, type=click.UNPROCESSED)
def simulate(
    ps: int, workers: str, chief: bool, link: str, profile: ChosenProfile, mode: str | None, fetch: tuple[str, ...],
    batch: int | None, steps: int, seed: int, script: str, args: tuple[str, ...],
) -> None:  # fmt: skip
    """Predict the step times of SCRIPT on a cluster.

    SCRIPT runs up to its first Session.run; ARGS (after --) are passed to it.

    Every worker runs the graph of the first one, or of the chief, which counts as a worker here. With a range of
    workers, a table shows where more of them stop to help.
    """

    def inspected(count: int) -> Inspection:
        jobs = {"ps": ps, "chief": int(chief), "worker": count - chief}
        with contextlib.redirect_stdout(sys.stderr):
            gpus = gpu_count(costs.machine)
            found = inspect(script, cluster=jobs, fetches=fetch, batch=batch, arguments=args, gpus=gpus)
        if mode is not None and mode_of(found) != mode:
            raise click.ClickException(f"{script} trains {mode_of(found)}, not {mode}: change its optimizer.")
        if batch is None and count == counts[0]:  # the others have the same graph
            _warn_of_unknown_sizes(found)
            _warn_of_absent_gpu(found, costs.machine)
        return found

    with shown(), one_line_errors():
        costs = profile.read()
        counts = [count + chief for count in worker_counts(workers)]
        each = steps_each(counts, steps)
        points = sweep(counts, inspected, costs, link, each, seed)
    answer = console()
    if len(points) > 1:
        _print_sweep(answer, points)
    else:
        _print_one(answer, points[0], costs.machine)
    fewer = f", with {each} steps of each worker: {steps} would be more than {MOST_STEPS:,} in all"
    answer.print(f"predicted by the runtime in virtual time{fewer if each < steps else ''}")
    if profile.note:
        answer.print(profile.note)


def _warn_of_unknown_sizes(found: Inspection) -> None:
    """Warns of tensors of the step alone: others are in any graph, as those that report uninitialised variables."""
    step = found.partitions.step.nodes
    sizes = {name: shape for (name, _), shape in found.shapes.items() if name in step}
    unknown = [name for name, shape in sizes.items() if shape is None or None in shape]
    if unknown:
        click.echo(
            f"warning: {len(unknown)} tensors, {printable(unknown[0])} first, have unknown dimensions and count as"
            " nothing, so the time may be too short. --batch B sets unknown first dimensions.", err=True,
        )  # fmt: skip


def _warn_of_absent_gpu(found: Inspection, machine: Machine) -> None:
    left = without_gpu(found)
    if not left:
        return
    why = "they cannot run there, or are on a ps"
    if machine.gpu is None:
        why = f"the profile's machine has none, which a table [machines.{machine.name}.gpu] would give it"
    text = f"warning: {len(left)} ops, {printable(left[0])} first, ask for a GPU and count as ops of a CPU: {why}."
    click.echo(text, err=True)


def _print_one(answer: Console, point: Point, machine: Machine) -> None:
    predicted = point.prediction
    answer.print(_headline(predicted))
    answer.print(_use(predicted, machine))
    answer.print(_path(predicted.critical))


def _headline(p: Prediction) -> str:
    name, share = p.bottleneck()
    stale = f"; {p.staleness:.1f} updates of others during a step" if p.staleness else ""
    return (
        f"a step takes {_ms(p.step_s)} (10 % of them more than {_ms(p.quantile(0.9))}), {p.throughput:.1f} steps/s of"
        f" all workers{stale}\nbusiest: {name}, {share:.0%} of the time"
    )


def _use(p: Prediction, machine: Machine) -> Rows:
    table = Rows.of(
        "task",
        "=CPU (of one core)" if machine.gpu is None else "=CPU (of one core) or GPU",
        "=sends",
        "=receives",
        pad_edge=True,
        title="share of the time in which it is busy",
    )  # fmt: skip
    for task, share in sorted(p.busy.items(), key=lambda item: -item[1])[:_PATH]:
        sent, received = p.links.get(task, (0.0, 0.0))
        table.add_row(short(task), f"{share:.0%}", f"{sent:.0%}", f"{received:.0%}")
    return table


def _path(events: Sequence[Event]) -> Rows:
    table = Rows.of(
        "=from ms", "=takes ms", "task or link", "what", pad_edge=True, title="the longest parts of the critical path"
    )
    longest = sorted(events, key=lambda event: event.start - event.end)[:_PATH]
    began = events[0].start if events else 0.0
    for event in sorted(longest, key=lambda event: event.start):
        takes = event.end - event.start
        where = " -> ".join(map(short, event.task.split(" -> ")))
        table.add_row(f"{1e3 * (event.start - began):.3f}", f"{1e3 * takes:.3f}", where, event.label)
    return table


def _print_sweep(answer: Console, points: Sequence[Point]) -> None:
    most = max(point.prediction.throughput for point in points)
    table = Rows.of("=workers", "=step", "=90 %", "=steps/s", "=efficiency", "busiest", "=", pad_edge=True)
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
        answer.print(f"knee at {turn.workers} workers: {name} {share:.0%} of the time")


def _ms(seconds: float) -> Any:
    return f"{1e3 * seconds:.3f} ms"


# ---- predicted ----------------------------------------
# What `tfmini launch --predict` prints: the step time that a profile predicts, beside the one that was measured.

_STEPS = 12


@dataclass(frozen=True)
class Comparison:
    """A predicted and a measured step, in seconds."""

    predicted_s: float
    measured: StepTimes
    note: str = ""  # about the profile

    @property
    def error(self) -> float:
        """Of the prediction: -0.1 is a tenth too short."""
        return self.predicted_s / self.measured.step_s - 1

    def __str__(self) -> str:
        measured_s, steps = self.measured.step_s, self.measured.steps
        return (
            f"a step was predicted to take {1e3 * self.predicted_s:.3f} ms, and took {1e3 * measured_s:.3f} ms"
            f" (median of {steps}): the prediction is off by {self.error:+.0%}"
            f"{self.note and '. '}{self.note.rstrip('.')}"
        )


def compare(
    script: str, args: Sequence[str], ps: int, workers: int, profile: str | None, measured: StepTimes
) -> Comparison:
    """Predicts the steps of a script whose tasks share this machine.

    Args:
      profile: see `ChosenProfile.of`.

    Raises:
      click.ClickException: the prediction is impossible; the text says why.
    """
    with one_line_errors(), contextlib.redirect_stdout(sys.stderr):
        chosen = ChosenProfile.of(profile)
        costs = chosen.read()
        gpus = gpu_count(costs.machine)
        found = inspect(script, ps=ps, workers=workers, batch=measured.batch, arguments=args, gpus=gpus)
        cluster = Topology.on_one_machine(tasks_of(found), costs)
        return Comparison(StepModel(found, cluster, costs, workers, _STEPS).predict().step_s, measured, chosen.note)


def log_in_trace(found: Comparison) -> None:
    """Writes the comparison below ``otherData`` of the timeline that this run was asked for; without one, nothing."""
    request = os.environ.get(TRACE_ENV)
    path = Path(TraceOptions(**json.loads(request)).path) if request else None
    if path is None or not path.exists():
        return
    timeline = json.loads(path.read_text())
    timeline["otherData"]["prediction"] = {
        "predicted_ms": 1e3 * found.predicted_s, "measured_ms": 1e3 * found.measured.step_s, "error": found.error,
    }  # fmt: skip
    path.write_text(json.dumps(timeline))


# ---- `tfmini calibrate`: measures this machine and writes its profile ----------------------------------------------


@click.command(cls=Command, context_settings=HELP)
@click.option("-o", "--output", type=OutputFile(), default=OWN,
              show_default=True, help="File for the profile.")  # fmt: skip
@click.option("--name", default="here", show_default=True, help="Name of the machine in the profile.")
def calibrate(output: str, name: str) -> None:
    """Measure what kernels, steps and messages cost on this machine, for `tfmini simulate` and `tfmini place`.

    It takes about seven minutes. The machine should do nothing else meanwhile.
    """
    import tfmini as tf
    from tfmini.show.simulation import calibration

    with shown():
        try:
            profile = calibration.calibrate(tf, name)
        except RuntimeError as error:
            raise click.ClickException(str(error)) from None
    today = datetime.datetime.now(datetime.UTC).date()
    comment = f"Measured by tfmini calibrate on {platform.node()}, {today}.\n[links.tcp]: rate and latency are assumed."
    write_text(output, format_profile(profile, comment))
    console(piped_width=None).print(f"the profile is in {output}: tfmini simulate --profile {output} SCRIPT")
