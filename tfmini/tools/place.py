"""`tfmini place`: proposes where the variables of a script go."""

from __future__ import annotations

import contextlib
import itertools
import json
import math
import re
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import click
from click.core import ParameterSource
from rich.console import Group

from tfmini.command_line import HELP, OutputFile, WithScript, one_line_errors, script_argument, valued
from tfmini.devices import parse
from tfmini.errors import OpError, without_tags
from tfmini.launch.launch_options import chief_option
from tfmini.launch.progress import shown
from tfmini.launch.ps_scale import moved_lines
from tfmini.runtime.client.variable_mover import VariableMover
from tfmini.show.inspection.clusters import read_cluster
from tfmini.show.planning.live import WORTH, LiveCluster, LiveMove, LivePlanner, measure
from tfmini.show.planning.models import Models, Script, size_text
from tfmini.show.planning.search import Proposal, propose
from tfmini.show.simulation.gpu_costs import gpu_count
from tfmini.show.simulation.prediction import Topology
from tfmini.show.status.explanation import short
from tfmini.show.status.gather import Gatherer, per_second
from tfmini.terminal import Rows, console, plain
from tfmini.tools.cluster_target import find_cluster
from tfmini.tools.simulate import profile_option

_SIZE = re.compile(r"(?:(\d+)=)?(\d+(?:\.\d+)?)\s*([kMG]?)B?", re.IGNORECASE)
_UNITS = {"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9}
_ROWS = 20  # of the variables, without --full


@click.command(cls=WithScript, context_settings=HELP)
@click.option("--ps", type=click.IntRange(1), metavar="N", help="Number of ps tasks.")
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
@click.option(
    "--live",
    is_flag=False,
    flag_value="",
    metavar="[TARGET]",
    help="Propose moves between the ps of a running cluster instead: HOST:PORT, or a job.",
)
@click.option("--apply", is_flag=True, help="With --live: make the moves.")
@valued("--seconds", click.FloatRange(0.1), "S", "With --live: measure for so long.", default=3.0)
@script_argument(required=False)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)  # fmt: skip
def place(script: str | None, output: str, full: bool, live: str | None, **options: Any) -> None:
    """Propose which variable of SCRIPT goes to which ps, which ones to cut, and which ops to move.

    SCRIPT runs up to its first Session.run; ARGUMENTS (after --) are passed to it. No step runs: the simulator
    predicts the steps of the candidates. A model follows the plan by tf.device(tfmini.placement.plan("plan.json")),
    or by ps_strategy=tfmini.placement.plan("plan.json") of replica_device_setter.

    With --live no SCRIPT is needed: the ps of a running cluster are measured, and it is said which variables should
    move while training goes on. --link, --ps-memory and --full mean the same there.
    """
    if live is not None:
        _place_live(live, full, options)
        return
    if options["apply"]:
        raise click.UsageError("--apply needs --live.")
    if options["ps"] is None:
        raise click.UsageError("Missing option '--ps'.")
    if script is not None and options["entry"] is not None:
        raise click.UsageError("Give either a SCRIPT or --entry MODULE:FUNCTION: both were given.")
    if script is None and options["entry"] is None:
        raise click.UsageError("Give a SCRIPT, or --entry MODULE:FUNCTION.")
    limits = memory_limits(options["ps_memory"], [f"/job:ps/task:{number}" for number in range(options["ps"])])
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
    source = Script(
        script, jobs, options["entry"], options["arguments"], options["fetch"], options["batch"],
        gpus=gpu_count(profile.machine),
    )  # fmt: skip

    models = Models(source, profile, lambda tasks: Topology.of(tasks, profile, link), workers + chief, limits)
    if not models.problem.items:
        raise click.ClickException(f"{script or options['entry']} has no variable that a device function may place.")
    return models


def memory_limits(given: tuple[str, ...], tasks: Sequence[str]) -> list[float]:
    """The bytes that each ps may hold, by ``--ps-memory``; raises BadParameter."""
    limits = {parse(task).task or 0: math.inf for task in tasks}
    for text in sorted(given, key=lambda text: "=" in text):  # what is said of all comes before what is said of one
        found = _SIZE.fullmatch(text.strip())
        if found is None:
            raise click.BadParameter(f"{text!r} is no size such as 4GB or 1=500MB.", param_hint="--ps-memory")
        size, task = float(found[2]) * _UNITS[found[3].lower()], found[1]
        if task is not None and int(task) not in limits:
            there = f"there is no ps {task} of {len(limits)} (task {', '.join(map(str, limits))})"
            raise click.BadParameter(f"{there}.", param_hint="--ps-memory")
        for number in list(limits) if task is None else [int(task)]:
            limits[number] = size
    return list(limits.values())


# ---- `tfmini place --live`: what should move in a running cluster --------------------------------------------------

_VERY_BUSY = 0.7  # of a second: one more ps would help
_OF_LIVE = {"live", "apply", "seconds", "link", "profile", "ps_memory", "full"}


def _place_live(target: str, full: bool, options: dict[str, Any]) -> None:
    context = click.get_current_context()
    for option in context.command.params:
        source = context.get_parameter_source(option.name or "")
        if option.name not in _OF_LIVE and source is ParameterSource.COMMANDLINE:
            raise click.UsageError(f"--live measures the ps that run: it takes no {option.opts[0]}.")
    where, show = find_cluster(target or None), console(piped_width=140)
    with shown(), one_line_errors(), Gatherer(where.target, tasks=where.tasks, keys=where.keys) as gatherer:
        rate = options["profile"].read().link(options["link"]).bytes_per_s if options["link"] else math.inf
        mover = VariableMover(where.tasks, gatherer.endpoint)
        cluster = measure(gatherer, mover, options["seconds"])
        planner = LivePlanner(cluster, memory_limits(options["ps_memory"], cluster.tasks), rate)
        moves = planner.moves()
        show.print(_measured(cluster, moves), *_notes(cluster, full), *_moves(planner, moves, where.target), sep="\n")
        show.print(*_with_another(planner, moves, options["ps_memory"], rate), sep="\n", end="")
        if options["apply"] and moves:
            make_moves(mover, cluster, moves)
            show.print("\nmeasured again:", _measured(measure(gatherer, mover, options["seconds"]), ()), sep="\n")


def make_moves(mover: VariableMover, cluster: LiveCluster, moves: list[LiveMove]) -> None:
    """Makes moves in their order, as a later one may need the room of an earlier one; raises ClickException."""
    before = mover.variables(cluster.tasks)
    click.echo("")
    for source, of_source in itertools.groupby(moves, key=lambda move: cluster.tasks[move.unit.task]):
        run = list(of_source)  # a task gives them away at once
        try:
            moved = mover.move({source: {key: move.target for move in run for key in move.unit.unit.keys}})
        except OpError as error:
            raise click.ClickException(
                f"{without_tags(error.message)} {_how_far(moves, moves.index(run[0]))}"
            ) from None
        click.echo("\n".join(moved_lines(moved, before)))


def _how_far(moves: list[LiveMove], made: int) -> str:
    done, left = (
        ", ".join(f"{move.unit.name} to {short(move.target)}" for move in some) or "nothing"
        for some in (moves[:made], moves[made:])
    )
    return f"Moved before: {done}. Not moved: {left}. The same command again measures, and proposes what is left."


def _measured(cluster: LiveCluster, moves: Sequence[LiveMove]) -> Rows:
    expected = [">busy then", ">variables then"] if moves else []
    table = Rows.of("ps", ">variables", ">busy", ">sent/s", ">received/s", *expected)
    for number, (task, load) in enumerate(zip(cluster.tasks, cluster.loads)):
        then = [_percent(moves[-1].loads[number].busy), size_text(moves[-1].held[number])] if moves else []
        figures = size_text(cluster.held[number]), _percent(load.busy), size_text(load.sent), size_text(load.received)
        table.add_row(short(task), *figures, *then)
    return table


def _notes(cluster: LiveCluster, full: bool) -> Iterator[Any]:
    """What was measured, in words; with ``full`` the load of what may move."""
    ran = "no training step ran" if cluster.is_idle else f"{per_second(cluster.steps_s)} training steps per second"
    yield plain(f"measured for {cluster.window_s:.1f} s: {ran}. busy: of a second, the time of the ps on CPUs.")
    if cluster.note and not cluster.is_idle:
        yield plain(f"The loads of variables are guessed from their bytes: {cluster.note}.")
    if full:
        table = Rows.of("variable, with what is beside it", "ps", ">bytes", ">busy", ">sent/s", ">received/s")
        for unit in sorted(cluster.units, key=lambda unit: (-unit.load.busy, -unit.unit.size)):
            figures = _percent(unit.load.busy), size_text(unit.load.sent), size_text(unit.load.received)
            table.add_row(unit.name, short(cluster.tasks[unit.task]), size_text(unit.unit.size), *figures)
        yield from ("", table)


def _moves(planner: LivePlanner, moves: Sequence[LiveMove], target: str) -> Iterator[Any]:
    yield ""
    if planner.left_out:
        names = ", ".join(unit.name for unit in planner.left_out)
        yield plain(f"left out, as a ps has no room meanwhile: {names}. More memory or a further ps helps.")
    if not moves:
        effect = (
            "the fullest ps noticeably emptier" if planner.cluster.is_idle else "the busiest ps noticeably less busy"
        )
        yield plain(f"No move of variables makes {effect}.")
        return
    yield plain("proposed moves, with all that is colocated; --apply makes them:")
    before = planner.worst(planner.cluster.loads, planner.cluster.held)
    for move in moves:
        after = planner.worst(move.loads, move.held)
        source, unit = planner.cluster.tasks[move.unit.task], move.unit
        does = "" if planner.cluster.is_idle else f", busy {_percent(unit.load.busy)}"
        yield plain(
            f"  {unit.name} ({size_text(unit.unit.size)}{does}) from {short(source)} to {short(move.target)}:"
            f" {_effect(planner, before, after)}"
        )
        before = after
    yield ""
    for _, run in itertools.groupby(moves, key=lambda move: move.unit.task):  # one call would not keep their order
        places = {move.unit.name: parse(move.target)._replace(replica=None).task_name for move in run}
        yield plain(f"tf.move_variables({json.dumps(target)}, {json.dumps(places)})")


def _effect(planner: LivePlanner, before: float, after: float) -> str:
    if planner.cluster.is_idle:
        return f"the fullest ps from {size_text(before)} to {size_text(after)}"
    return f"the busiest ps from {_percent(before)} to {_percent(after)}"


def _with_another(
    planner: LivePlanner, moves: Sequence[LiveMove], memory: tuple[str, ...], rate: float
) -> Iterator[Any]:
    """What one more ps would bring, if the busiest is busy still."""
    cluster = planner.cluster
    now = planner.worst(moves[-1].loads, moves[-1].held) if moves else planner.worst(cluster.loads, cluster.held)
    if cluster.is_idle or now < _VERY_BUSY:
        return
    another = cluster.with_another()
    more = LivePlanner(another, memory_limits(memory, another.tasks), rate)
    wanted = more.moves()
    then = more.worst(wanted[-1].loads, wanted[-1].held) if wanted else now
    if then < now * (1 - WORTH):
        yield plain(
            f"With one ps more (`tfmini scale --ps {len(cluster.tasks) + 1}`, and this command again) the busiest would"
            f" be at {_percent(then)}."
        )


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


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
