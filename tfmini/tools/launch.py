"""`tfmini launch`: runs a script as every task of a cluster, on this machine or through another engine."""

from __future__ import annotations

import os
import re
import shlex
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource
from rich.console import Console

from tfmini.cluster import ClusterSpec
from tfmini.command_line import Command
from tfmini.compat.roles import role_arguments, role_flags_of, script_text, tf_config
from tfmini.exit_codes import ExitCode
from tfmini.json_log import LOG_JSON_ENV
from tfmini.launch.cluster_run import ClusterRun, LaunchOptions, RunLimits, key_of_run, launch_options
from tfmini.launch.control import Control, ask
from tfmini.launch.engine import Engine, EngineError, NamedRole, TaskCommand, engine_class, member_of
from tfmini.launch.jobs import RunningJob
from tfmini.launch.output import JsonConsole, Sink, SinkStream, TaskPrefixes, standard_sinks
from tfmini.launch.progress import Bars, LaunchProgress, is_terminal
from tfmini.launch.supervision import SERVICE_JOBS, RunOver, ScaleError, Supervision, TaskId
from tfmini.text import printable, printable_lines
from tfmini.tools.cluster_target import find_job
from tfmini.tools.dashboard import LaunchedPage
from tfmini.tools.script import STEP_TIMES_ENV, read_times, run_script

_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_PATIENCE_S = 0.5  # with a reader who does not read the end of a run that was told to end
_THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


@click.command(cls=Command, context_settings={"allow_interspersed_args": False, "help_option_names": ["-h", "--help"]})
@launch_options
@click.argument("script", type=click.Path(exists=True, dir_okay=False))
@click.argument("args", nargs=-1, type=click.UNPROCESSED)
def launch(script: str, args: tuple[str, ...], **values: Any) -> None:
    """Run SCRIPT ARGS... as every task of a cluster, each as with `tfmini run`.

    The tasks are processes of this machine; with --on, another engine starts them.

    Each process gets its task in TF_CONFIG and, if SCRIPT defines them, in the flags --job_name, --task_index (or
    --task_id), --ps_hosts and --worker_hosts. In ARGS, {job}, {task}, {ps_hosts} and {worker_hosts} are replaced.

    Only the tasks of the run can connect to its servers, unless TFMINI_KEYS names a key that others have, too.

    When all workers (and the chief) have finished, the ps tasks are stopped. A worker inside server.join() counts as
    a ps: it is stopped when the others have finished. The exit code is 0, or that of the first task that failed
    (128 + the number of the signal that killed it).
    """
    options = LaunchOptions(**values)
    options.check()
    if options.sbatch is not None:
        _write_batch_script(options, options.sbatch, script, args)
        return
    engine: Engine = engine_class(options.on)(options.engine_options(script, args))
    if options.restarts and not (engine.adds_tasks or engine.restarts_all):
        raise click.UsageError(f"--restarts is not for --on {options.on}, which starts all tasks at once or none.")
    say = console_for(options)
    for option in options.unused():
        _say(say, f"{option} has no effect with --on {options.on}.")
    for option in _misplaced(script, args):
        _say(say, f"{option} follows {script}, so it is passed to the script; put options of launch before it.")
    with _measuring(options) as folder:
        code = run_cluster(engine, options, script, args, say)
        if folder:
            _say(say, f"{_predicted(options, script, args, folder)}.")
    sys.exit(code)


@contextmanager
def _measuring(options: LaunchOptions) -> Iterator[str]:
    """A folder in which the tasks write how long their steps take; "" without --predict."""
    if not options.predict:
        yield ""
        return
    with tempfile.TemporaryDirectory(prefix="tfmini-steps.") as folder:
        os.environ[STEP_TIMES_ENV] = folder
        try:
            yield folder
        finally:
            del os.environ[STEP_TIMES_ENV]


def _predicted(options: LaunchOptions, script: str, args: Sequence[str], folder: str) -> str:
    measured = read_times(folder)
    if measured is None:
        return "no task ran a training step often enough to compare it with the prediction"
    from tfmini.tools.simulate import compare, log_in_trace  # the simulator is not for every start

    try:
        found = compare(script, args, options.ps, options.workers, options.profile, measured)
    except click.ClickException as error:
        return f"a step took {1e3 * measured.step_s:.3f} ms; it could not be predicted: {error.message}"
    log_in_trace(found)
    return str(found)


def console_for(options: LaunchOptions) -> Console:
    """Where the launcher prints its own messages."""
    if options.log_json:
        return JsonConsole()
    return Console(stderr=True, no_color=options.no_color or None, highlight=False, soft_wrap=True)


def _write_batch_script(options: LaunchOptions, path: str, script: str, args: Sequence[str]) -> None:
    again = command_again(click.get_current_context(), left_out=["sbatch", "script", "args"])
    command = [sys.executable, "-m", "tfmini", "launch", *again, script, *args]
    try:
        Path(path).write_text(batch_script(options, command, Path(script).stem))
    except OSError as error:
        raise click.ClickException(f"Cannot write {path}: {error.strerror}.") from None
    click.echo(f"Submit it: sbatch {path}")


def run_cluster(engine: Engine, options: LaunchOptions, script: str, args: Sequence[str], say: Console) -> int:
    """Runs a script as all tasks of a cluster; returns the exit code.

    Raises:
      click.ClickException: the tasks could not be started.
    """
    try:
        with _sinks(say) as sinks:
            finish = _finish_of(engine, options, script, args, say, *sinks)
            was_ended = finish.failed is None and finish.exit_code != 0  # by a signal, say: who sent it does not wait
            for sink in () if was_ended else sinks:
                sink.drain()
    except KeyboardInterrupt:  # before or after the run, such as from one who does not read the rest of its output
        return ExitCode.INTERRUPTED
    return finish.exit_code


@contextmanager
def _sinks(say: Console) -> Iterator[tuple[Sink, Sink]]:
    """The sinks of the output and the messages of a run. ``say`` prints to the latter within the block."""
    out, err = standard_sinks()
    before = say.file
    say.file = SinkStream(err, sys.stderr)  # type: ignore[assignment]
    try:
        yield out, err
    finally:
        say.file = before
        for sink in (out, err):
            sink.drain(_PATIENCE_S)
            sink.close()


def _finish_of(
    engine: Engine, options: LaunchOptions, script: str, args: Sequence[str], say: Console, out: Sink, err: Sink
) -> RunOver:
    tasks = options.tasks()
    if not options.workers and not options.chief:
        _say(say, "there are only ps tasks: the cluster runs until you end it (Ctrl-C).")
    restarts = 0 if engine.restarts_all else options.restarts
    has_bars = is_terminal(sys.stderr) and not options.log_json
    screen: Any = SinkStream(err, sys.stderr, is_drawing=True)
    display = LaunchProgress(tasks, Bars(Console(file=screen)) if has_bars else None)
    with (
        key_of_run() as key_file,
        LaunchedPage(options.page_port(), key_file, lambda text: _say(say, text, display)) as page,
        Control() as control,
        RunningJob(script, key_file, control.path) as job,
    ):

        def begin(cluster: ClusterSpec) -> None:
            job.begin(cluster)
            page.begin(cluster)

        run = ClusterRun(
            engine=engine,
            requests=options.requests(),
            commands_of=partial(task_commands, options, script, args, key_file),
            on_places=begin,
            supervision=Supervision(
                tasks, keep_going=options.keep_going, restarts=restarts, most_workers=options.most_workers()
            ),
            limits=RunLimits(options.grace_s, options.coordinator_timeout, options.start_within),
            sink=out,
            prefixes=TaskPrefixes(tasks, Console(no_color=options.no_color or None), colour=not options.no_color),
            say=lambda text: _say(say, text, display),
            display=display,
            log_json=options.log_json,
            request_of=options.request_of,
            control=control,
        )
        try:
            finish = run.run()
        except EngineError as error:
            raise click.ClickException(str(error)) from None
        except OSError as error:
            raise click.ClickException(f"Could not start {script}: {error}") from None
    _report(say, finish, run)
    return finish


def task_commands(
    options: LaunchOptions,
    script: str,
    args: Sequence[str],
    key_file: str,
    spec: ClusterSpec,
    cpus: Mapping[TaskId, int],
) -> dict[TaskId, TaskCommand]:
    """The command of every task of a cluster, by the addresses and the cores of its places."""
    flags = role_flags_of(script)
    # Without PYTHONUNBUFFERED, output would arrive at the end.
    return {
        task: TaskCommand(
            arguments=["run", script, *role_arguments(*task, spec, flags, args)],
            defaults={
                "PYTHONUNBUFFERED": "1", **dict.fromkeys(_THREAD_VARIABLES, str(options.threads(task, count)))
            },
            role={"TF_CONFIG": tf_config(*task, spec), **({LOG_JSON_ENV: "1"} if options.log_json else {})},
            key_file=key_file,
            serves=task.job in SERVICE_JOBS,
        )
        for task, count in cpus.items()
    }  # fmt: skip


def _misplaced(script: str, args: Sequence[str]) -> list[str]:
    """The script's arguments that are options of `launch` and do not occur in the script's text."""
    context = click.get_current_context()
    ours = {spelling for option in context.command.params for spelling in option.opts if spelling.startswith("--")}
    given = dict.fromkeys(arg.partition("=")[0] for arg in args)
    text = script_text(script)
    return [word for word in given if word in ours and word[2:] not in text and word[2:].replace("-", "_") not in text]


def _say(console: Console, text: str, display: LaunchProgress | None = None) -> None:
    with nullcontext() if display is None else display.cleared():
        console.print(f"tfmini: {printable_lines(text)}", markup=False, emoji=False)


def _report(console: Console, finish: RunOver, run: ClusterRun) -> None:
    if not finish.summary:
        return
    lines = run.last_lines(finish.failed) if finish.failed else []
    is_shown = len(run.requests) == 1 and lines  # the output of a single task has just ended with them
    if finish.failed is None or is_shown:
        _say(console, f"{finish.summary}.")
        return
    _say(console, f"{finish.summary}. Its last lines:")
    for line in lines or ["(no output)"]:
        console.print(f"  | {printable(_COLOURS.sub('', line))}", markup=False, emoji=False, highlight=False)


# ---- `tfmini launch --on slurm --sbatch FILE`: a batch script that does the same when Slurm runs it ----------------

_NOTICE_S = 60  # before the time limit; time to save


def batch_script(options: LaunchOptions, command: Sequence[str], name: str) -> str:
    """The text of a script for sbatch.

    When one of its nodes fails, Slurm starts the job again. All tasks get SIGTERM a minute before the time limit.

    Args:
      command: what the job runs.
      name: of the job.
    """
    requests = options.requests()
    cpus = max(request.resources.cpus or 1 for request in requests)
    # A directive is a line of a shell script, which the name of a file must not end.
    label = re.sub(r"[^A-Za-z0-9._-]+", "_", name)
    lines = [f"--job-name={label}", f"--ntasks={len(requests)}", f"--cpus-per-task={cpus}"]
    if options.worker_memory is not None:
        lines.append(f"--mem-per-cpu={-(-options.worker_memory // (options.worker_cpus or 1))}M")
    if options.worker_gpus:
        lines.append(f"--gpus={options.worker_gpus * (options.workers + options.chief)}")
    if options.pack is False:
        lines.append("--spread-job")
    if options.restarts:
        lines.append("--no-kill")  # the launcher starts lost tasks again; if its own node fails, the job starts again
    lines += ["--requeue", "--open-mode=append", f"--signal=TERM@{_NOTICE_S}"]
    directives = [f"#SBATCH {line}" for line in lines]
    return "\n".join(["#!/bin/bash", *directives, "", f"exec {shlex.join(command)}", ""])


def command_again(context: click.Context, left_out: Sequence[str]) -> list[str]:
    """The command line of a click command as the user gave it, without some of its options."""
    words: list[str] = []
    for parameter in context.command.params:
        name, value = parameter.name or "", context.params.get(parameter.name or "")
        given = context.get_parameter_source(name) is ParameterSource.COMMANDLINE
        if isinstance(parameter, click.Option) and given and name not in left_out:
            if not parameter.is_flag:
                words += [parameter.opts[0], shlex.join(value) if isinstance(value, tuple) else str(value)]
            else:
                words.append(parameter.opts[0] if value else (parameter.secondary_opts or parameter.opts)[0])
    return words


# ---- horovodrun ----------------------------------------
# `tfmini horovodrun`: Horovod's command line for a run on this machine, as `tfmini launch --ps 0 --workers N`.

_THIS_MACHINE = ("localhost", "127.0.0.1", os.uname().nodename)
_TUNING = ("--fusion-threshold-mb", "--cycle-time-ms", "--cache-capacity", "--network-interfaces", "--num-nccl-streams",
           "--thread-affinity", "--mpi-args", "--log-level", "--ssh-port")  # fmt: skip
_SWITCHES = ("--gloo", "--mpi", "--verbose", "--disable-cache", "--hierarchical-allreduce", "--autotune")


def _tuning(function: Callable[..., Any]) -> Any:
    """Gives a command those of horovodrun's options that have nothing to tune here."""
    for name in reversed(_TUNING):
        function = click.option(name, expose_value=False, hidden=True)(function)
    for name in reversed(_SWITCHES):
        function = click.option(name, is_flag=True, expose_value=False, hidden=True)(function)
    return function


@click.command(cls=Command, context_settings={"allow_interspersed_args": False, "help_option_names": ["-h", "--help"]})
@click.option("-np", "--num-proc", "count", type=click.IntRange(1), required=True, metavar="N", help="Number of ranks.")
@click.option("-H", "--hosts", metavar="HOST:SLOTS,...", help="Only this machine: localhost:4.")
@click.option("--hostfile", "-hostfile", type=click.Path(exists=True, dir_okay=False), help="Likewise, in a file.")
@click.option("--start-timeout", type=click.FloatRange(0, min_open=True), metavar="S", default=300.0, show_default=True,
              help="Fail if the ranks have not started after S seconds.")  # fmt: skip
@_tuning
@click.argument("command", nargs=-1, type=click.UNPROCESSED, required=True)
def horovodrun(
    count: int, hosts: str | None, hostfile: str | None, start_timeout: float, command: tuple[str, ...]
) -> None:
    """Run a Horovod script as N ranks on this machine: horovodrun -np 4 python train.py.

    Options of horovodrun that tune its own transport are accepted and have no effect.
    """
    for host in _hosts(hosts, hostfile):
        if host not in _THIS_MACHINE:
            raise click.UsageError(
                f"horovodrun of tfmini starts ranks on this machine only, and {host} is another. Use `tfmini launch"
                f" --ps 0 --workers {count} --on slurm` (or mpi, ray) for several machines."
            )
    script, *args = _script(command)
    if not Path(script).is_file():
        raise click.UsageError(f"There is no file {script!r}.")
    options = LaunchOptions(ps=0, workers=count, start_within=start_timeout)
    options.check()
    try:
        engine = engine_class(options.on)(options.engine_options(script, args))
    except EngineError as error:
        raise click.ClickException(str(error)) from None
    sys.exit(run_cluster(engine, options, script, args, console_for(options)))


def _hosts(hosts: str | None, hostfile: str | None) -> list[str]:
    """The names of hosts, from ``host:slots,…`` and from a file with a line ``host slots=n`` for each."""
    names = [part.partition(":")[0].strip() for part in (hosts or "").split(",")]
    try:
        lines = Path(hostfile).read_text().splitlines() if hostfile else []
    except (OSError, UnicodeDecodeError) as error:
        raise click.UsageError(f"The hostfile {hostfile} cannot be read: {error}") from None
    names += [words[0].partition(":")[0] for line in lines if (words := line.partition("#")[0].split())]
    return [name for name in names if name]


def _script(command: Sequence[str]) -> list[str]:
    """The script and its arguments, from a command that may begin with an interpreter.

    Raises:
      click.UsageError: the command runs no script.
    """
    words = list(command)
    if Path(words[0]).name.startswith("python"):
        words = words[1:]
        while words and words[0] in ("-u", "-O", "-B"):
            words = words[1:]
    if not words or words[0].startswith("-"):
        raise click.UsageError(f"{' '.join(command)!r} names no script; write horovodrun -np N python SCRIPT ARGS...")
    return words


# ---- `tfmini scale`: lets workers join a running job, and leave it -------------------------------------------------


@click.command(cls=Command, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--workers", type=click.IntRange(1), required=True, metavar="N", help="Number of workers from now on.")
@click.argument("job", required=False)
def scale(job: str | None, workers: int) -> None:
    """Give a running JOB of `tfmini launch` N workers: more of them join it, or the last ones leave.

    JOB is the name of the job, its script or its launcher's process id; without it, the only job that runs. Workers
    that join need asynchronous or elastic training. One that leaves gets SIGTERM, as a preempted one does: it finishes
    its step.
    """
    found = find_job(job)
    if not found.control:
        raise click.ClickException(f"{found.name} takes no orders: its launcher could not make a socket for them.")
    try:
        click.echo(f"{found.name}: {ask(found.control, workers)}")
    except ScaleError as error:
        raise click.ClickException(f"{found.name} cannot have {workers} workers: {error}") from None
    except (OSError, ValueError) as error:
        raise click.ClickException(f"{found.name} does not answer: {error}") from None


# ---- `tfmini run --cluster NAME`: this process is one task of a cluster, and a scheduler has started it ------------


def run_member(cluster: str, script: str, args: Sequence[str], values: dict[str, Any]) -> int:
    """Does this process's part of a run; returns its exit code.

    Raises:
      click.ClickException: no scheduler has started this process, or the processes do not fit the cluster.
    """
    try:
        member = member_of(cluster)
    except (EngineError, ValueError) as error:
        raise click.ClickException(str(error)) from None
    if isinstance(member, NamedRole):
        return _run_as(member, script, args)
    workers = member.workers(values["ps"] + values["chief"], values.pop("workers"))
    options = LaunchOptions(on=cluster, workers=workers, **values)
    say = console_for(options)
    code: int = member.run(
        lambda engine: run_cluster(engine, options, script, args, say),
        options.engine_options(script, args),
        options.start_within,
    )
    return code


def _run_as(role: NamedRole, script: str, args: Sequence[str]) -> int:
    """Runs the script in this process. The engine ends the ps tasks, and it alone knows how the run has ended."""
    os.environ["TF_CONFIG"] = tf_config(role.job, role.index, role.cluster)
    return run_script(script, role_arguments(role.job, role.index, role.cluster, role_flags_of(script), args))
