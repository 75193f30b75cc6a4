"""`tfmini launch`: a local cluster of real processes, all running one script."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager

import click
from rich.console import Console

from tfmini.compat.role_flags import role_flags_of
from tfmini.compat.roles import role_arguments, tf_config
from tfmini.compat.script_text import script_text
from tfmini.launch_report import REPORT_ENV, report_variable
from tfmini.listen_fd import LISTEN_FD_ENV
from tfmini.tools.cluster_run import ClusterRun, RunLimits, TaskCommand
from tfmini.tools.output import Sink, task_prefixes
from tfmini.tools.ports import ReservedCluster, reserve_cluster
from tfmini.tools.supervision import Finish, Supervision, TaskId

_THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


@click.command(context_settings={"allow_interspersed_args": False, "help_option_names": ["-h", "--help"]})
@click.option("--ps", type=click.IntRange(0), default=1, show_default=True, help="Number of ps tasks.")
@click.option(
    "--workers", type=click.IntRange(0), default=1, show_default=True, help="Number of worker tasks."
)
@click.option("--chief", is_flag=True, help="Add a task chief/0 beside the workers.")
@click.option(
    "--coordinator-timeout",
    type=click.FloatRange(0, min_open=True),
    metavar="S",
    help="Stop everything and fail (exit code 124) if the run is not over after S seconds.",
)
@click.option(
    "--grace",
    type=click.FloatRange(0),
    default=5.0,
    show_default=True,
    metavar="S",
    help="Seconds that a task may take to end when asked to, before it is killed.",
)
@click.option("--keep-going", is_flag=True, help="When a worker fails, let the other workers finish first.")
@click.option(
    "--cpus-per-task",
    type=click.IntRange(1),
    metavar="N",
    help="Threads that a task's numeric libraries may use.  [default: a fair share of the cores]",
)
@click.option(
    "--port-base",
    type=click.IntRange(1, 65535),
    metavar="P",
    help="Give the tasks the ports P, P+1, …  [default: free ports]",
)
@click.option("--no-color", is_flag=True, help="Do not colour the names of the tasks.")
@click.argument("script", type=click.Path(exists=True, dir_okay=False))
@click.argument("args", nargs=-1, type=click.UNPROCESSED)
def launch(
    ps: int,
    workers: int,
    chief: bool,
    coordinator_timeout: float | None,
    grace: float,
    keep_going: bool,
    cpus_per_task: int | None,
    port_base: int | None,
    no_color: bool,
    script: str,
    args: tuple[str, ...],
) -> None:
    """Run SCRIPT ARGS... as every task of a local cluster, each as `tfmini run` does.

    Each process learns its role from TF_CONFIG and, where SCRIPT defines them, from the flags --job_name,
    --task_index (or --task_id), --ps_hosts and --worker_hosts. In ARGS, {job}, {task}, {ps_hosts} and
    {worker_hosts} are replaced.

    When all workers (and the chief) have finished, the ps tasks are stopped. A worker inside server.join() counts as
    a ps: it is stopped when the others have finished. The exit code is 0, or that of the
    first task that failed (128 + the signal that killed it).
    """
    tasks = cluster_tasks(ps, workers, chief)
    if not tasks:
        raise click.UsageError("A cluster needs at least one task: give --ps, --workers or --chief.")
    say = Console(stderr=True, no_color=no_color or None, highlight=False, soft_wrap=True)
    try:
        cluster = reserve_cluster(tasks, port_base)
    except (OSError, OverflowError) as error:
        remedy = "; leave out --port-base, or choose another" if port_base else ""
        raise click.ClickException(f"No ports for the cluster: {error}{remedy}.") from None
    if not workers and not chief:
        _say(say, "no task works: the cluster serves until it is ended (Ctrl-C).")
    with closing(cluster), _report_pipe() as (reports, report):
        threads = cpus_per_task or max(1, usable_cpus() // len(tasks))
        prefixes = task_prefixes(tasks, Console(no_color=no_color or None), colour=not no_color)
        run = ClusterRun(
            commands=task_commands(cluster, script, args, threads, prefixes, report),
            supervision=Supervision(tasks, keep_going=keep_going),
            limits=RunLimits(grace_s=grace, time_limit_s=coordinator_timeout),
            sink=Sink(sys.stdout.fileno()),
            say=lambda text: _say(say, text),
            reports=reports,
        )
        for option in _misplaced(script, args):
            _say(say, f"{option} stands after {script}, so it goes to the script; launch's options come before it.")
        _say(say, "starting " + ", ".join(f"{t.job}/{t.task} at {t.address}" for t in cluster.spec.tasks()))
        try:
            finish = run.run()
        except OSError as error:
            raise click.ClickException(f"Could not start {script}: {error}") from None
    _report(say, finish, run)
    sys.exit(finish.exit_code)


@contextmanager
def _report_pipe() -> Iterator[tuple[int, int]]:
    """The ends of the pipe by which tasks say that they have joined their servers."""
    read, write = os.pipe()
    try:
        yield read, write
    finally:
        os.close(read)
        os.close(write)


def cluster_tasks(ps: int, workers: int, chief: bool) -> list[TaskId]:
    """The tasks of a cluster, services first."""
    counts = {"ps": ps, "chief": int(chief), "worker": workers}
    return [TaskId(job, task) for job, count in counts.items() for task in range(count)]


def usable_cpus() -> int:
    """How many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):  # Linux; it respects taskset and container limits
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def task_commands(
    cluster: ReservedCluster, script: str, args: Sequence[str], threads: int, prefixes: dict[TaskId, bytes],
    report: int,
) -> dict[TaskId, TaskCommand]:
    """The command line and environment of every task."""
    flags = role_flags_of(script)
    return {
        task: TaskCommand(
            argv=[sys.executable, "-m", "tfmini", "run", script, *role_arguments(*task, cluster.spec, flags, args)],
            env=_environment(task, cluster, threads, report),
            listener=listener,
            prefix=prefixes[task],
            report=report,
        )
        for task, listener in cluster.listeners.items()
    }


def _environment(task: TaskId, cluster: ReservedCluster, threads: int, report: int) -> dict[str, str]:
    # Defaults first: what the user has set wins. Without PYTHONUNBUFFERED, prints would arrive at the end.
    defaults = {"PYTHONUNBUFFERED": "1", **dict.fromkeys(_THREAD_VARIABLES, str(threads))}
    role = {
        "TF_CONFIG": tf_config(*task, cluster.spec),
        LISTEN_FD_ENV: str(cluster.listeners[task].fileno()),
        REPORT_ENV: report_variable(report),
    }
    return {**defaults, **os.environ, **role}


def _misplaced(script: str, args: Sequence[str]) -> list[str]:
    """The options of `launch` among the script's arguments that the script never mentions."""
    context = click.get_current_context()
    ours = {spelling for option in context.command.params for spelling in option.opts if spelling.startswith("--")}
    given = dict.fromkeys(arg.partition("=")[0] for arg in args)
    text = script_text(script)
    return [word for word in given if word in ours and word[2:] not in text and word[2:].replace("-", "_") not in text]


def _say(console: Console, text: str) -> None:
    console.print(f"tfmini: {text}", markup=False)


def _report(console: Console, finish: Finish, run: ClusterRun) -> None:
    if not finish.summary:
        return
    _say(console, finish.summary + (". Its last lines:" if finish.failed else "."))
    if finish.failed:
        for line in run.last_lines(finish.failed) or ["(it wrote nothing)"]:
            console.print(f"  | {line}", markup=False, highlight=False)
