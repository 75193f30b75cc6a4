"""`tfmini inspect`: shows what each task does and sends in a step of a graph, without running the step."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click

from tfmini import errors
from tfmini.command_line import (
    BEFORE_SCRIPT,
    HELP,
    BeforeScript,
    OutputFile,
    WithScript,
    former,
    misplaced,
    one_line_errors,
    script_argument,
    write_text,
)
from tfmini.compat.roles import defined_options
from tfmini.errors import FailedPreconditionError, UnimplementedError
from tfmini.exit_codes import ExitCode
from tfmini.launch.launch_options import chief_option, cluster_tasks
from tfmini.launch.progress import shown
from tfmini.launch.supervision import TaskId
from tfmini.placement.wire_table import Transfer, format_transfers, transfers
from tfmini.runtime.client.session import BaseSession
from tfmini.show.inspection import pictures
from tfmini.show.inspection.api import Difference, difference
from tfmini.show.inspection.api import inspect as inspected
from tfmini.show.inspection.findings import Inspection
from tfmini.show.inspection.pages import page, trace_page
from tfmini.show.inspection.pictures import svg as drawn
from tfmini.show.inspection.text import VIEWS, view
from tfmini.show.inspection.trace import StepTrace, read_trace, summary
from tfmini.terminal import console
from tfmini.text import printable, similar
from tfmini.tools.launch import launch
from tfmini.tools.script import TRACE_ENV, TraceOptions, Tracer, run_script

_WRITABLE = click.Path(exists=True, dir_okay=False, writable=True)
_LINES = 50  # lines of a difference without --full


class _Refusal(click.ClickException):
    """With --view lint: the graph cannot be inspected, or a session would refuse it."""

    exit_code = ExitCode.REFUSED


@click.command(cls=WithScript, context_settings=HELP)
@click.option("--ps", type=click.IntRange(0), metavar="N",
              help="Number of ps tasks.  [default: 1 with --workers or --chief]")  # fmt: skip
@click.option("--workers", type=click.IntRange(0), metavar="N",
              help="Number of worker tasks.  [default: 1 with --ps or --chief]")  # fmt: skip
@chief_option
@click.option("--cluster", type=click.Path(exists=True, dir_okay=False), help="JSON or YAML file with a cluster.")
@click.option("--gpus", type=click.IntRange(0), default=0, metavar="N",
              help="GPUs of each task but ps; none need be here.  [default: none]")  # fmt: skip
@click.option("--master", metavar="TASK", help="The client's task.  [default: the worker of the graph's devices]")
@click.option("--fetch", multiple=True, metavar="NAME", help="Tensor or op to run.  [default: the training op]")
@click.option("--feed", multiple=True, metavar="NAME", help="Tensor to feed.  [default: the placeholders]")
@click.option("--batch", type=click.IntRange(1), metavar="B", help="Size of unknown first dimensions.")
@click.option("--entry", metavar="MODULE:FUNCTION", help="Build the graph with a function.")
@click.option("--view", "views", multiple=True, type=click.Choice(VIEWS), help="Table to show.  [default: summary]")
@click.option("--why", multiple=True, metavar="OP", help="Show the reasons for the placement of this op.")
@click.option("--full", is_flag=True, help="All rows, with producers, consumers and rendezvous keys.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.option(
    "--diff", type=click.Path(exists=True), help="Show the changes since another graph or script, or an earlier --json."
)
@click.option("--trace", type=click.Path(exists=True, dir_okay=False),
              help="Add the times and bytes of a run: a timeline of `tfmini trace`, or a RunMetadata.")  # fmt: skip
@click.option("--dot", type=OutputFile(), help="Write a Graphviz file.")
@click.option("--svg", type=OutputFile(), help="Write a picture.")
@click.option("--html", type=OutputFile(), help="Write an interactive page.")
@script_argument("source", dir_okay=True, required=False)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def inspect(
    views: tuple[str, ...],
    why: tuple[str, ...],
    full: bool,
    as_json: bool,
    diff: str | None,
    dot: str | None,
    svg: str | None,
    html: str | None,
    source: str | None,
    **options: object,
) -> None:
    """Inspect SOURCE: a Python script (it runs up to its first Session.run), or a GraphDef, MetaGraphDef or
    SavedModel, binary or text. ARGUMENTS (after --) are passed to the script.

    The cluster comes from --ps, --workers and --chief, from --cluster, TF_CONFIG, the script's server, or the graph's
    devices.

    With --view lint, the exit code is 0 without findings, 1 with findings, and 2 if the graph cannot be inspected or a
    session would refuse it.
    """
    if source is None and options["entry"] is None:
        raise click.UsageError("Give a SOURCE, or --entry MODULE:FUNCTION.")
    if source is not None and options["entry"] is not None:
        raise click.UsageError(f"Give a SOURCE or --entry, not both: {source} and --entry {options['entry']}.")
    gates = "lint" in views
    with shown():
        try:
            found = _inspected(source, options)
        except click.ClickException as error:
            if gates:
                raise _Refusal(error.message) from None
            raise
        for path, make in ((dot, pictures.dot), (svg, drawn), (html, page)):
            if path:
                write_text(path, make(found))
    if as_json:
        click.echo(json.dumps(found.to_json(), indent=1))
    elif diff:
        lines = _difference(diff, found, options).lines() or ["no difference"]
        hidden = 0 if full else len(lines) - _LINES
        lines = [*lines[:_LINES], f"… {hidden} more (--full)"] if hidden > 0 else lines
        click.echo("\n".join(map(printable, lines)))
    elif views or why or not (dot or svg or html):
        _print(found, views, why, full)
    if gates:
        _judge(found)


def _judge(found: Inspection) -> None:
    """Ends the command with the exit code of its findings."""
    refusals = found.refusals()
    if refusals:
        more = f" ({len(refusals) - 1} more)" if len(refusals) > 1 else ""
        raise _Refusal(f"A session would refuse this step{more}: {refusals[0].text}")
    if found.problems():
        sys.exit(ExitCode.FAILED)


def _difference(path: str, found: Inspection, options: dict[str, Any]) -> Difference:
    if not path.endswith(".json"):
        return difference(_inspected(path, options), found)
    try:
        with errors.reading("not the output of tfmini inspect --json", ValueError):
            return difference(json.loads(Path(path).read_text()), found)
    except (OSError, ValueError) as error:
        raise click.ClickException(f"{path}: {error}") from None


def _inspected(source: str | None, options: dict[str, Any]) -> Inspection:
    ps, workers, cluster = options["ps"], options["workers"], options["cluster"]
    if ps is None and (workers is not None or options["chief"]):  # as with `tfmini launch`
        ps = 1
    if options["chief"]:
        if cluster is not None:
            raise click.UsageError("--chief is for --ps and --workers; a --cluster file names its chief itself.")
        cluster = {"ps": ps, "chief": 1, "worker": 1 if workers is None else workers}
        ps = workers = None
    # The output of the script must not mix with the answer.
    with one_line_errors(), contextlib.redirect_stdout(sys.stderr):
        return inspected(
            source, ps=ps, workers=workers, cluster=cluster, master=options["master"],
            fetches=options["fetch"], feeds=options["feed"] or None, batch=options["batch"], entry=options["entry"],
            arguments=options["arguments"], trace=options["trace"], gpus=options["gpus"],
        )  # fmt: skip


def _print(found: Inspection, views: tuple[str, ...], why: tuple[str, ...], full: bool) -> None:
    unknown = [op for op in why if op not in found.placement]
    if unknown:
        near = [name for op in unknown for name in similar(op, found.placement)]
        hint = f" There is {', '.join(near)}." if near else ""
        raise click.ClickException(f"The graph has no op {', '.join(unknown)}.{hint}")
    answer = console()
    if why:
        answer.print(view(found, "why", ops=why))
    for name in views or (() if why else ("summary",)):
        answer.print(view(found, name, full=full))


# ---- Lists the transfers between devices in one step of a session --------------------------------------------------


def step_transfers(session: BaseSession, fetches: object, feed_dict: Mapping[Any, Any] | None = None) -> list[Transfer]:
    """The transfers of the step that ``session.run(fetches, feed_dict)`` runs.

    They come from the master's plan of the step, so nothing is run. Sizes follow from the static shapes;
    only the keys of ``feed_dict`` matter, not its values.

    Raises:
      FailedPreconditionError: before the first run of this step, which makes the plan.
      UnimplementedError: the session's master, and so the plan, is in another process.
    """
    call, _ = session._find_call(fetches, feed_dict)
    if call.plan is None:
        raise FailedPreconditionError.of("The session has not run this step, so there is no plan: run it once first.")
    partitions = getattr(call.plan, "partitions", None)
    if partitions is None:
        raise UnimplementedError.of(
            f"The plan is in another process, that of the master at {session.sess_str.decode()}: call this function"
            " in the process whose tf.train.Server is the session's target."
        )
    shapes = {(op.name, i): out.raw_shape for op in session.graph.get_operations() for i, out in enumerate(op.outputs)}
    return transfers(partitions, shapes)


def step_table(session: BaseSession, fetches: object, feed_dict: Mapping[Any, Any] | None = None) -> str:
    """Formats `step_transfers` as a table, one block per pair of devices."""
    return format_transfers(step_transfers(session, fetches, feed_dict))


# ---- `tfmini trace`: runs a script and writes the timeline of one of its steps -------------------------------------


@click.command(cls=BeforeScript, context_settings=BEFORE_SCRIPT)
@click.option("--ps", type=click.IntRange(0), metavar="N",
              help="Number of ps tasks.  [default: 1 with --workers or --chief]")  # fmt: skip
@click.option("--workers", type=click.IntRange(0), metavar="N",
              help="Number of worker tasks.  [default: 1 with --ps or --chief]")  # fmt: skip
@chief_option
@click.option("--task", metavar="JOB/N", help="Task whose step is traced.  [default: chief/0 or worker/0]")
@click.option("--run", "run_number", type=click.IntRange(1), default=10, show_default=True, metavar="N",
              help="Trace the N-th run of the first training step that runs N times.")  # fmt: skip
@click.option("--fetch", default="", metavar="NAME", help="Count only runs that fetch or run this tensor or op.")
@click.option("-o", "--output", type=OutputFile(), default="timeline.json",
              show_default=True, help="File for the timeline.")  # fmt: skip
@click.option("--html", type=OutputFile(), help="Also write the timeline as a page.")
@click.option("--update-profile", type=_WRITABLE,
              help="Also write the ops' times into this profile of `tfmini simulate`.")  # fmt: skip
@former("--profile", "--update-profile", "update_profile", _WRITABLE)
@script_argument()
@click.argument("args", nargs=-1, type=click.UNPROCESSED)
def trace(
    ps: int | None,
    workers: int | None,
    chief: bool,
    task: str | None,
    run_number: int,
    fetch: str,
    output: str,
    html: str | None,
    update_profile: str | None,
    script: str,
    args: tuple[str, ...],
) -> None:
    """Run SCRIPT ARGS... and write the timeline of one of its steps: the ops, transfers and waits of all tasks.

    With --ps, --workers or --chief the script runs as every task of a local cluster, as with `tfmini launch`;
    otherwise in this process, as with `tfmini run`. The script's own options follow its name (a -- between them is
    ignored). A training step is one that updates variables by an optimizer,
    or gives its gradients to be aggregated; if the graph has no such step, or with --fetch, every step counts.
    Open the timeline at ui.perfetto.dev; `tfmini inspect --trace` adds its times to the tables.
    """
    clustered = ps is not None or workers is not None or chief
    ps, workers = 1 if ps is None else ps, 1 if workers is None else workers
    where = _task(task, cluster_tasks(ps, workers, chief) if clustered else [], chief)
    if text := misplaced(click.get_current_context(), script, args, defined_options):
        click.echo(f"tfmini: {text}", err=True)
    path = Path(output).absolute()
    path.unlink(missing_ok=True)
    request = TraceOptions(str(path), run_number, where, fetch)
    if clustered:
        with _environment(request):
            code, reason = _launched(ps, workers, chief, script, args), f" by {where}; its output above tells why."
    else:
        code, reason = _run_here(request, script, args)
    if not path.exists():
        raise click.ClickException(f"No timeline was written{reason}")
    answer = console()
    traced = read_trace(path)
    if html:
        _write_page(html, traced)
    if update_profile:
        _write_times(update_profile, traced)
    answer.print(summary(traced))
    answer.print(f"the timeline is in {output}: open it at https://ui.perfetto.dev or in chrome://tracing")
    sys.exit(code)


def _write_page(path: str, traced: StepTrace) -> None:
    write_text(path, trace_page(traced))


def _write_times(path: str, traced: StepTrace) -> None:
    from tfmini.show.simulation.profile import ProfileError, add_ops, op_times

    try:
        add_ops(path, op_times(traced))
    except (OSError, ProfileError) as error:
        raise click.ClickException(str(error)) from None


def _task(asked: str | None, tasks: list[TaskId], chief: bool) -> str:
    """The task to trace, such as ``worker/0``; "" without a cluster."""
    if not tasks:
        if asked:
            raise click.UsageError(f"--task {asked} needs a cluster: give --ps, --workers or --chief, too.")
        return ""
    where = asked or ("chief/0" if chief else "worker/0")
    if where not in map(str, tasks):
        raise click.UsageError(f"The cluster has no task {where}; --task may be {', '.join(map(str, tasks))}.")
    return where


def _launched(ps: int, workers: int, chief: bool, script: str, args: tuple[str, ...]) -> int:
    try:
        click.get_current_context().invoke(launch, ps=ps, workers=workers, chief=chief, script=script, args=args)
    except SystemExit as end:
        return _code(end)
    return 0


def _run_here(request: TraceOptions, script: str, args: tuple[str, ...]) -> tuple[int, str]:
    """Returns the exit code, and the reason why there is no timeline."""
    tracer = Tracer(request)
    tracer.install()
    try:
        code = run_script(script, args)
    except SystemExit as end:
        code = _code(end)
    return code, f": {tracer.failure()}{f' Its exit code was {code}.' if code else ''}"


def _code(end: SystemExit) -> int:
    if isinstance(end.code, str):
        print(end.code, file=sys.stderr)
    return end.code if isinstance(end.code, int) else int(end.code is not None)


@contextlib.contextmanager
def _environment(request: TraceOptions) -> Iterator[None]:
    os.environ[TRACE_ENV] = request.to_environment()
    try:
        yield
    finally:
        del os.environ[TRACE_ENV]
