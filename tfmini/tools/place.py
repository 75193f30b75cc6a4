"""`tfmini place`: proposes where the variables of a script go."""

from __future__ import annotations

import contextlib
import math
import re
import sys
from typing import Any

import click
from rich.console import Group

from tfmini.command_line import HELP, OptionalArgument, OutputFile, WithScript, one_line_errors, valued
from tfmini.launch.launch_options import chief_option
from tfmini.launch.progress import shown
from tfmini.show.inspection.clusters import read_cluster
from tfmini.show.planning.models import Models, Script, size_text
from tfmini.show.planning.search import Proposal, propose
from tfmini.show.simulation.prediction import Topology
from tfmini.terminal import Rows, console, plain
from tfmini.tools.simulate import profile_option

_SIZE = re.compile(r"(?:(\d+)=)?(\d+(?:\.\d+)?)\s*([kMG]?)B?", re.IGNORECASE)
_UNITS = {"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9}
_ROWS = 20  # of the variables, without --full


@click.command(cls=WithScript, context_settings=HELP)
@click.option("--ps", type=click.IntRange(1), required=True, metavar="N", help="Number of ps tasks.")
@valued("--workers", click.IntRange(1), "N", "Number of worker tasks, which run the step at once.", default=1)
@chief_option
@valued("--link", None, "RATE", "The network, such as 10Gbit.  [default: all tasks on one machine]")
@profile_option
@click.option(
    "--ps-memory",
    multiple=True,
    metavar="[TASK=]SIZE",
    help="Memory for the variables of every ps, or of one: 4GB, 1=500MB.  [default: any size]",
)
@valued("--batch", click.IntRange(1), "B", "Size of unknown first dimensions.")
@click.option("--fetch", multiple=True, metavar="NAME", help="Tensor or op to run.  [default: the training op]")
@valued("--entry", None, "MODULE:FUNCTION", "Build the graph with a function.")
@valued("--trials", click.IntRange(2), None, "Placements to predict.", default=300)
@valued("--seed", None, None, "The same seed gives the same proposal.", default=0)
@click.option("-o", "--output", default="plan.json", show_default=True, type=OutputFile(), help="The plan's file.")
@click.option("--full", is_flag=True, help="List all variables.")
@click.argument("script", cls=OptionalArgument, type=click.Path(exists=True, dir_okay=False), required=False)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)  # fmt: skip
def place(script: str | None, output: str, full: bool, **options: Any) -> None:
    """Propose which variable of SCRIPT goes to which ps, which ones to cut, and which ops to move.

    SCRIPT runs up to its first Session.run; ARGUMENTS (after --) are passed to it. No step runs: the simulator
    predicts the steps of the candidates. A model follows the plan by tf.device(tfmini.placement.plan("plan.json")),
    or by ps_strategy=tfmini.placement.plan("plan.json") of replica_device_setter.
    """
    if script is not None and options["entry"] is not None:
        raise click.UsageError("Give either a SCRIPT or --entry MODULE:FUNCTION: both were given.")
    if script is None and options["entry"] is None:
        raise click.UsageError("Give a SCRIPT, or --entry MODULE:FUNCTION.")
    limits = _limits(options["ps_memory"], options["ps"])
    with shown(), one_line_errors(), contextlib.redirect_stdout(sys.stderr):
        models = _models(script, options, limits)
        described = {name: options[name] for name in ("workers", "link", "batch")}
        described["profile"] = options["profile"].name
        found = propose(models, trials=options["trials"], seed=options["seed"], described=described)
    try:
        found.plan.save(output)
    except OSError as error:
        raise click.ClickException(f"Cannot write {output}: {error.strerror}.") from None
    console().print(_shown(found, output, full))
    if options["profile"].note:
        console().print(options["profile"].note)


def _models(script: str | None, options: dict[str, Any], limits: list[float]) -> Models:
    workers, chief = options["workers"], options["chief"]
    jobs = read_cluster({"ps": options["ps"], "chief": int(chief), "worker": workers})
    assert jobs is not None
    profile, link = options["profile"].read(), options["link"] or ""
    source = Script(script, jobs, options["entry"], options["arguments"], options["fetch"], options["batch"])

    models = Models(source, profile, lambda tasks: Topology.of(tasks, profile, link), workers + chief, limits)
    if not models.problem.items:
        raise click.ClickException(f"{script or options['entry']} has no variable that a device function may place.")
    return models


def _limits(given: tuple[str, ...], ps: int) -> list[float]:
    """The bytes that each ps may hold."""
    limits = [math.inf] * ps
    for text in sorted(given, key=lambda text: "=" in text):  # what is said of all comes before what is said of one
        found = _SIZE.fullmatch(text.strip())
        if found is None:
            raise click.BadParameter(f"{text!r} is no size such as 4GB or 1=500MB.", param_hint="--ps-memory")
        size, task = float(found[2]) * _UNITS[found[3].lower()], found[1]
        if task is not None and int(task) >= ps:
            raise click.BadParameter(f"there is no ps {task} of {ps}.", param_hint="--ps-memory")
        for index in range(ps) if task is None else [int(task)]:
            limits[index] = size
    return limits


# ---------------------------------------------------------------- output


def _shown(found: Proposal, output: str, full: bool) -> Group:
    held = ", ".join(map(size_text, found.problem.memory(found.arrangement)))
    parts: list[Any] = [_steps(found), "", _variables(found, full), plain(f"all on a ps: {held}")]
    if found.plan.ops:
        parts += ["", "ops that move:", *(plain(f"  {op} to ps/{task}") for op, task in found.plan.ops.items())]
    if len(found.by_ps) > 1:
        parts += ["", _numbers(found)]
    parts += ["", f'{found.trials} placements tried; tf.device(tfmini.placement.plan("{output}")) follows the plan.']
    return Group(*parts)


def _steps(found: Proposal) -> Rows:
    table = Rows.of("predicted", ">step", ">the plan is faster by")
    for name, seconds in found.others.items():
        if seconds is None:
            table.add_row(name, "-", "")
        else:
            table.add_row(name, _time(seconds), f"{seconds / found.step_s:.2f}x")
    table.add_row("the plan", _time(found.step_s), "")
    return table


def _time(seconds: float) -> str:
    if math.isinf(seconds):
        return "impossible"
    return f"{seconds:.3g} s" if seconds >= 1 else f"{seconds * 1e3:.3g} ms"


def _variables(found: Proposal, full: bool) -> Rows:
    table = Rows.of("variable, with its slots", ">bytes", "~ps", one_line=True)
    rows = sorted(zip(found.problem.items, found.arrangement.tasks), key=lambda row: -row[0].nbytes)
    for item, tasks in rows if full else rows[:_ROWS]:
        where = ", ".join(map(str, tasks))
        table.add_row(item.name, size_text(item.nbytes), f"{where} ({len(tasks)} pieces)" if len(tasks) > 1 else where)
    hidden = 0 if full else len(rows) - _ROWS
    if hidden > 0:
        table.add_row(f"… {hidden} more (--full)", "", "")
    return table


def _numbers(found: Proposal) -> Rows:
    table = Rows.of("number of ps", ">step")
    for ps, seconds in found.by_ps.items():
        note = "  enough" if ps == found.enough and ps < max(found.by_ps) else ""
        table.add_row(f"{ps}{note}", "does not fit" if math.isinf(seconds) else _time(seconds))
    return table
