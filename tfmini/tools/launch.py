"""`tfmini launch`: runs a script as a local cluster of real processes."""

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
from tfmini.rpc.keys import INSECURE_ENV, KEYS_ENV, keys_in_memory
from tfmini.tools.cluster_run import ClusterRun, RunLimits, TaskCommand
from tfmini.tools.output import Sink, task_prefixes
from tfmini.tools.ports import ReservedCluster, reserve_cluster
from tfmini.tools.supervision import Finish, Supervision, TaskId
from tfmini.tools.usage import Command

_THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


@click.command(cls=Command, context_settings={"allow_interspersed_args": False, "help_option_names": ["-h", "--help"]})
@click.option("--ps", type=click.IntRange(0), default=1, show_default=True, help="Number of ps tasks.")
@click.option(
    "--workers", type=click.IntRange(0), default=1, show_default=True, help="Number of worker tasks."
)
@click.option("--chief", is_flag=True, help="Add a task chief/0 beside the workers.")
@click.option(
    "--coordinator-timeout",
    type=click.FloatRange(0, min_open=True),
    metavar="S",
    help="Stop all tasks and fail (exit code 124) if the run has not ended after S seconds.",
)
@click.option(
    "--grace",
    type=click.FloatRange(0),
    default=5.0,
    show_default=True,
    metavar="S",
    help="Seconds between the request to end (SIGTERM) and SIGKILL.",
)
@click.option("--keep-going", is_flag=True, help="When a worker fails, let the other workers finish first.")
@click.option(
    "--cpus-per-task",
    type=click.IntRange(1),
    metavar="N",
    help="Threads of a task's numeric libraries.  [default: the cores, divided by the tasks]",
)
@click.option(
    "--port-base",
    type=click.IntRange(1, 65535),
    metavar="P",
    help="Use the ports P, P+1, …  [default: free ports]",
)
@click.option("--no-color", is_flag=True, help="Print the names of the tasks without colours.")
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
    """Run SCRIPT ARGS... as every task of a local cluster, each as with `tfmini run`.

    Each process gets its task in TF_CONFIG and, if SCRIPT defines them, in the flags --job_name, --task_index (or
    --task_id), --ps_hosts and --worker_hosts. In ARGS, {job}, {task}, {ps_hosts} and {worker_hosts} are replaced.

    Only the tasks of the run can connect to its servers, unless TFMINI_KEYS names a key that others have, too.

    When all workers (and the chief) have finished, the ps tasks are stopped. A worker inside server.join() counts as
    a ps: it is stopped when the others have finished. The exit code is 0, or that of the first task that failed
    (128 + the number of the signal that killed it).
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
        _say(say, "there are only ps tasks: the cluster runs until you end it (Ctrl-C).")
    with closing(cluster), _keys_of_run() as keys, _report_pipe() as (reports, report):
        threads = cpus_per_task or max(1, usable_cpus() // len(tasks))
        prefixes = task_prefixes(tasks, Console(no_color=no_color or None), colour=not no_color)
        run = ClusterRun(
            commands=task_commands(cluster, script, args, threads, prefixes, report, keys),
            supervision=Supervision(tasks, keep_going=keep_going),
            limits=RunLimits(grace_s=grace, time_limit_s=coordinator_timeout),
            sink=Sink(sys.stdout.fileno()),
            say=lambda text: _say(say, text),
            reports=reports,
        )
        for option in _misplaced(script, args):
            _say(say, f"{option} follows {script}, so it is passed to the script; put options of launch before it.")
        _say(say, "starting " + ", ".join(f"{t.job}/{t.task} at {t.address}" for t in cluster.spec.tasks()))
        try:
            finish = run.run()
        except OSError as error:
            raise click.ClickException(f"Could not start {script}: {error}") from None
    _report(say, finish, run)
    sys.exit(finish.exit_code)


@contextmanager
def _report_pipe() -> Iterator[tuple[int, int]]:
    """Yields the ends of the pipe in which tasks report `Server.join`."""
    read, write = os.pipe()
    try:
        yield read, write
    finally:
        os.close(read)
        os.close(write)


@contextmanager
def _keys_of_run() -> Iterator[dict[str, str]]:
    """The variable that names the keys of this run: only its own tasks can connect to its servers.

    It is empty where the user has chosen keys, or none.
    """
    if os.environ.get(KEYS_ENV) or os.environ.get(INSECURE_ENV) == "1":
        yield {}
        return
    with keys_in_memory() as path:
        yield {KEYS_ENV: path}


def cluster_tasks(ps: int, workers: int, chief: bool) -> list[TaskId]:
    """The tasks of a cluster, services first."""
    counts = {"ps": ps, "chief": int(chief), "worker": workers}
    return [TaskId(job, task) for job, count in counts.items() for task in range(count)]


def usable_cpus() -> int:
    """The number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):  # Linux; respects taskset and container limits
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def task_commands(
    cluster: ReservedCluster, script: str, args: Sequence[str], threads: int, prefixes: dict[TaskId, bytes],
    report: int, keys: dict[str, str],
) -> dict[TaskId, TaskCommand]:
    """The command line and environment of every task."""
    flags = role_flags_of(script)
    return {
        task: TaskCommand(
            argv=[sys.executable, "-m", "tfmini", "run", script, *role_arguments(*task, cluster.spec, flags, args)],
            env=_environment(task, cluster, threads, report) | keys,
            listener=listener,
            prefix=prefixes[task],
            report=report,
        )
        for task, listener in cluster.listeners.items()
    }


def _environment(task: TaskId, cluster: ReservedCluster, threads: int, report: int) -> dict[str, str]:
    # The user's environment overrides the defaults. Without PYTHONUNBUFFERED, output would arrive at the end.
    defaults = {"PYTHONUNBUFFERED": "1", **dict.fromkeys(_THREAD_VARIABLES, str(threads))}
    role = {
        "TF_CONFIG": tf_config(*task, cluster.spec),
        LISTEN_FD_ENV: str(cluster.listeners[task].fileno()),
        REPORT_ENV: report_variable(report),
    }
    return {**defaults, **os.environ, **role}


def _misplaced(script: str, args: Sequence[str]) -> list[str]:
    """The script's arguments that are options of `launch` and do not occur in the script's text."""
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
    lines = run.last_lines(finish.failed) if finish.failed else []
    is_shown = len(run.commands) == 1 and lines  # the output of a single task has just ended with them
    if finish.failed is None or is_shown:
        _say(console, f"{finish.summary}.")
        return
    _say(console, f"{finish.summary}. Its last lines:")
    for line in lines or ["(no output)"]:
        console.print(f"  | {line}", markup=False, highlight=False)
