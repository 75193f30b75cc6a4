"""`tfmini trace`: runs a script and writes the timeline of one of its steps."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import click

from tfmini.inspection.measured import summary
from tfmini.inspection.step_trace import StepTrace, read_trace
from tfmini.terminal import console
from tfmini.tools.launch import launch
from tfmini.tools.launch_options import cluster_tasks
from tfmini.tools.script_run import run_script
from tfmini.tools.supervision import TaskId
from tfmini.tools.tracing import TRACE_ENV, TraceOptions, Tracer
from tfmini.tools.usage import Command, OutputFile, write_text


@click.command(cls=Command, context_settings={"allow_interspersed_args": False, "help_option_names": ["-h", "--help"]})
@click.option("--ps", type=click.IntRange(0), metavar="N", help="Number of ps tasks.")
@click.option("--workers", type=click.IntRange(0), metavar="M", help="Number of worker tasks.")
@click.option("--chief", is_flag=True, help="Add a task chief/0 beside the workers.")
@click.option("--task", metavar="JOB/N", help="Task whose step is traced.  [default: chief/0 or worker/0]")
@click.option("--run", "run_number", type=click.IntRange(1), default=10, show_default=True, metavar="N",
              help="Trace the N-th run of the first training step that runs N times.")  # fmt: skip
@click.option("--fetch", default="", metavar="NAME", help="Count only runs that fetch or run this tensor or op.")
@click.option("-o", "--output", type=OutputFile(), default="timeline.json",
              show_default=True, help="File for the timeline.")  # fmt: skip
@click.option("--html", type=OutputFile(), help="Also write the timeline as a page.")
@click.option("--profile", type=click.Path(exists=True, dir_okay=False, writable=True),
              help="Also write the ops' times into this profile of `tfmini simulate`.")  # fmt: skip
@click.argument("script", type=click.Path(exists=True, dir_okay=False))
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
    profile: str | None,
    script: str,
    args: tuple[str, ...],
) -> None:
    """Run SCRIPT ARGS... and write the timeline of one of its steps: the ops, transfers and waits of all tasks.

    With --ps, --workers or --chief the script runs as every task of a local cluster, as with `tfmini launch`;
    otherwise in this process, as with `tfmini run`. A training step is one that updates variables by an optimizer,
    or gives its gradients to be aggregated; if the graph has no such step, or with --fetch, every step counts.
    Open the timeline at ui.perfetto.dev; `tfmini inspect --trace` adds its times to the tables.
    """
    clustered = ps is not None or workers is not None or chief
    ps, workers = 1 if ps is None else ps, 1 if workers is None else workers
    where = _task(task, cluster_tasks(ps, workers, chief) if clustered else [], chief)
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
    if profile:
        _write_times(profile, traced)
    answer.print(summary(traced))
    answer.print(f"the timeline is in {output}: open it at https://ui.perfetto.dev or in chrome://tracing")
    sys.exit(code)


def _write_page(path: str, traced: StepTrace) -> None:
    from tfmini.inspection.trace_events import trace_page

    write_text(path, trace_page(traced))


def _write_times(path: str, traced: StepTrace) -> None:
    from tfmini.simulation.measured_ops import add_ops, op_times
    from tfmini.simulation.profile import ProfileError

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
