"""`tfmini launch`: runs a script as every task of a cluster, on this machine or through another engine."""

from __future__ import annotations

import json
import os
import re
import select
import shlex
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, nullcontext
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource
from rich.console import Console

from tfmini import errors
from tfmini.cluster import ClusterSpec
from tfmini.command_line import BEFORE_SCRIPT, HELP, BeforeScript, Command, misplaced, script_argument
from tfmini.compat.roles import defined_options, role_arguments, role_flags_of, tf_config
from tfmini.devices import DeviceSpec
from tfmini.exit_codes import ExitCode
from tfmini.jobs import Job, RunningJob, running_jobs
from tfmini.json_log import LOG_JSON_ENV
from tfmini.launch.cluster_run import ClusterRun, RunLimits, key_of_run
from tfmini.launch.control import Control, ask
from tfmini.launch.engine import Engine, EngineError, NamedRole, TaskCommand, engine_class, member_of
from tfmini.launch.launch_options import LaunchOptions, launch_options
from tfmini.launch.output import JsonConsole, Sink, SinkStream, TaskPrefixes, standard_sinks
from tfmini.launch.progress import Bars, LaunchProgress, is_terminal
from tfmini.launch.supervision import SERVICE_JOBS, PrintNote, RunOver, ScaleError, Supervision, TaskId
from tfmini.program import ProgramModule
from tfmini.program import words as words_of
from tfmini.terminal import Rows, console
from tfmini.text import printable, printable_lines
from tfmini.tools.cluster_target import find_job
from tfmini.tools.dashboard import LaunchedPage
from tfmini.tools.script import STEP_TIMES_ENV, read_times, run_script

_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_PATIENCE_S = 0.5  # with a reader who does not read the end of a run that was told to end
_THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


@click.command(cls=BeforeScript, context_settings=BEFORE_SCRIPT)
@launch_options
@click.option("--check", "checks", is_flag=True, help="Start nothing; say what would run, and what would stop it.")
@script_argument()
@click.argument("args", nargs=-1, type=click.UNPROCESSED)
def launch(script: str, args: tuple[str, ...], checks: bool, **values: Any) -> None:
    """Run SCRIPT ARGS... as every task of a cluster, each as with `tfmini run`.

    The tasks are processes of this machine; with --on, another engine starts them.

    The script's own options follow its name (a -- between them is ignored). In ARGS, {job}, {task}, {ps_hosts} and
    {worker_hosts} are replaced. Each process gets its task in TF_CONFIG and, if SCRIPT defines them, in the flags
    --job_name, --task_index (or --task_id), --ps_hosts and --worker_hosts.

    Only the tasks of the run can connect to its servers, unless TFMINI_KEYS names a key that others have, too.

    When all workers (and the chief) have finished, the ps tasks are stopped. A worker inside server.join() counts as
    a ps: it is stopped when the others have finished. The exit code is 0, or that of the first task that failed
    (128 + the number of the signal that killed it). With --check it is 1 if there is a problem.
    """
    options = LaunchOptions(**values)
    if checks:
        from tfmini.tools.launch_check import check  # the inspector is not for every start

        options.check()
        sys.exit(check(options, script, args))
    say = console_for(options)
    with _errors_as_json(say):
        options.check()
        if options.sbatch is not None:
            _write_batch_script(options, options.sbatch, script, args)
            return
        code = _launched(options, script, args, say)
    sys.exit(code)


def _launched(options: LaunchOptions, script: str, args: Sequence[str], say: Console) -> int:
    engine: Engine = engine_class(options.on)(options.engine_options(script, args))
    if options.restarts and not (engine.adds_tasks or engine.restarts_all):
        raise click.UsageError(f"--restarts is not for --on {options.on}, which starts all tasks at once or none.")
    for option in options.unused():
        _say(say, PrintNote(f"{option} has no effect with --on {options.on}.", "WARNING"))
    if text := misplaced(click.get_current_context(), script, args, defined_options):
        _say(say, PrintNote(text, "WARNING"))
    with _measuring(options) as folder:
        code = run_cluster(engine, options, script, args, say)
        if folder:
            _say(say, PrintNote(f"{_predicted(options, script, args, folder)}."))
    return code


@contextmanager
def _errors_as_json(say: Console) -> Iterator[None]:
    """With --log-json an error of the command is one line of the log as well."""
    try:
        yield
    except click.ClickException as error:
        if not isinstance(say, JsonConsole):
            raise
        _say(say, PrintNote(error.format_message(), "ERROR", returncode=error.exit_code))
        sys.exit(error.exit_code)


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
    again = command_again(click.get_current_context(), left_out=["sbatch", "as_module", "script", "args"])
    command = [sys.executable, "-m", "tfmini", "launch", *again, *words_of(script), *args]
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
    if all(task.job in SERVICE_JOBS for task in tasks):
        _say(say, PrintNote("there are only ps tasks: the cluster runs until you end it (Ctrl-C)."))
    restarts = 0 if engine.restarts_all else options.restarts
    has_bars = is_terminal(sys.stderr) and not options.log_json
    screen: Any = SinkStream(err, sys.stderr, is_drawing=True)
    display = LaunchProgress(tasks, Bars(Console(file=screen)) if has_bars else None)
    with (
        key_of_run() as key_file,
        LaunchedPage(options.page_port(), key_file, lambda text: _say(say, PrintNote(text), display)) as page,
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
            say=lambda note: _say(say, note, display),
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
    given = ["--", *args] if args[:1] == ("--",) else args  # `tfmini run` takes the first one for its own
    return {
        task: TaskCommand(
            arguments=["run", *words_of(script), *role_arguments(*task, spec, flags, given)],
            defaults={
                "PYTHONUNBUFFERED": "1", **dict.fromkeys(_THREAD_VARIABLES, str(options.threads(task, count)))
            },
            role={"TF_CONFIG": tf_config(*task, spec), **({LOG_JSON_ENV: "1"} if options.log_json else {})},
            key_file=key_file,
            serves=task.job in SERVICE_JOBS,
        )
        for task, count in cpus.items()
    }  # fmt: skip


def _say(console: Console, note: PrintNote, display: LaunchProgress | None = None) -> None:
    text = printable_lines(note.text)
    with nullcontext() if display is None else display.cleared():
        if isinstance(console, JsonConsole):
            console.log(text, **note.facts())
        else:
            console.print(f"tfmini: {text}", markup=False, emoji=False)


def _report(console: Console, finish: RunOver, run: ClusterRun) -> None:
    if not finish.summary:
        return
    last = run.last_lines(finish.failed) if finish.failed else []
    lines = [printable(_COLOURS.sub("", line)) for line in last]
    note = PrintNote(f"{finish.summary}.", "ERROR", finish.failed, finish.exit_code)
    is_shown = len(run.requests) == 1 and lines  # the output of a single task has just ended with them
    if isinstance(console, JsonConsole):
        console.log(note.text, **note.facts(), **({"last_lines": lines} if finish.failed else {}))
    elif finish.failed is None or is_shown:
        _say(console, note)
    else:
        _say(console, PrintNote(f"{note.text} Its last lines:"))
        for line in lines or ["(no output)"]:
            console.print(f"  | {line}", markup=False, emoji=False, highlight=False)


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
        lines.append(f"--gpus={options.worker_gpus * sum(task.job not in SERVICE_JOBS for task in options.tasks())}")
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


@click.command(cls=BeforeScript, context_settings=BEFORE_SCRIPT)
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
    if text := misplaced(click.get_current_context(), script, args, defined_options):
        click.echo(f"tfmini: {text}", err=True)
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
    words: list[str] = list(command)
    if Path(words[0]).name.startswith("python"):
        words = words[1:]
        while words and words[0] in ("-u", "-O", "-B"):
            words = words[1:]
    if words[:1] == ["-m"] and len(words) > 1:
        try:
            return [ProgramModule.named(words[1]), *words[2:]]
        except ModuleNotFoundError as error:
            raise click.UsageError(str(error)) from None
    if not words or words[0].startswith("-"):
        raise click.UsageError(f"{' '.join(command)!r} names no script; write horovodrun -np N python SCRIPT ARGS...")
    return words


# ---- `tfmini jobs`, `scale`, `logs` and `stop`: the running jobs of this user on this machine ---------------------


@click.command(cls=Command, context_settings=HELP)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object for each job.")
def jobs(as_json: bool) -> None:
    """List the running jobs of `tfmini launch` that this user has started on this machine."""
    from tfmini.show.status.explanation import seconds  # not for every start

    found = running_jobs()
    if as_json:
        for job in found:
            click.echo(json.dumps(asdict(job)))
        return
    if not found:
        click.echo("no job runs")
        return
    table = Rows.of("job", "script", ">launcher", "tasks", ">for")
    for job in found:
        counts = Counter(DeviceSpec.from_string(task).job for task in job.tasks)
        tasks = ", ".join(f"{count} {name}" for name, count in counts.items())
        table.add_row(job.name, job.script, str(job.pid), tasks, seconds(time.time() - job.began_s))
    console().print(table)


def _order(job: Job, name: str, argument: int | str) -> Any:
    """The result of an order to the launcher of a job."""
    if not job.control:
        raise click.ClickException(f"{job.name} takes no orders: its launcher could not make a socket for them.")
    try:
        return ask(job.control, name, argument)
    except (OSError, ValueError) as error:
        raise click.ClickException(f"{job.name} does not answer: {error}") from None


@click.command(cls=Command, context_settings=HELP)
@click.option("--workers", type=click.IntRange(1), metavar="N", help="Number of workers from now on.")
@click.option("--ps", type=click.IntRange(1), metavar="N", help="Number of ps tasks that have variables from now on.")
@click.argument("job", required=False)
def scale(job: str | None, workers: int | None, ps: int | None) -> None:
    """Give a running JOB of `tfmini launch` N workers or ps: more of them join it, or the last ones leave.

    JOB is the name of the job, its script or its launcher's process id; without it, the only job that runs. Workers
    that join need asynchronous or elastic training. One that leaves gets SIGTERM, as a preempted one does: it finishes
    its step. A new ps takes variables from the others while training goes on. One that is too many gives its variables
    to the others, and stays without any.
    """
    if workers is None and ps is None:
        raise click.UsageError("Give --workers or --ps.")
    found = find_job(job)
    if ps is not None:
        _scale_ps(found, ps)
    if workers is None:
        return
    try:
        click.echo(f"{found.name}: {_order(found, 'workers', workers)}")
    except ScaleError as error:
        raise click.ClickException(f"{found.name} cannot have {workers} workers: {error}") from None


def _scale_ps(job: Job, count: int) -> None:
    from tfmini.launch.ps_scale import PsScale  # the runtime is not for every start

    def find() -> Job | None:
        return next((each for each in running_jobs() if each.pid == job.pid), None)

    with closing(PsScale(job, find, lambda more: str(_order(job, "ps", more)))) as order:
        try:
            for line in order.to(count):
                click.echo(f"{job.name}: {line}")
        except (ScaleError, errors.OpError) as error:
            text = error.message if isinstance(error, errors.OpError) else str(error)
            raise click.ClickException(f"{job.name} cannot have {count} ps: {text}") from None


@click.command(cls=Command, context_settings=HELP)
@click.option("--task", default="", metavar="JOB/N", help="Only this task, such as worker/1.")
@click.argument("job", required=False)
def logs(job: str | None, task: str) -> None:
    """Print the last lines, at most 20, that each task of a running JOB of `tfmini launch` has written.

    JOB is the name of the job, its script or its launcher's process id; without it, the only job that runs. The whole
    output goes where the launcher writes; nothing else keeps it.
    """
    found = find_job(job)
    try:
        lines = _order(found, "logs", task)
    except ScaleError as error:  # of another version
        raise click.ClickException(f"{found.name}: {error}") from None
    if task and not lines:
        raise click.UsageError(f"{found.name} has no task {task}; see `tfmini jobs`.")
    for name, written in lines.items():
        for line in written:
            click.echo(f"[{name}] {printable(_COLOURS.sub('', line))}")


@click.command(cls=Command, context_settings=HELP)
@click.argument("job", required=False)
def stop(job: str | None) -> None:
    """End a running JOB of `tfmini launch`, and wait for its end.

    The workers finish their step, the chief saves, and then the ps tasks end. JOB is the name of the job, its script or
    its launcher's process id; without it, the only job that runs. The launcher gets SIGTERM; a second stop kills all
    tasks.
    """
    found = find_job(job)
    try:
        process = os.pidfd_open(found.pid)
    except OSError:
        click.echo(f"{found.name} has ended")
        return
    try:
        if found.pid in [each.pid for each in running_jobs()]:  # the number is not yet that of another process
            signal.pidfd_send_signal(process, signal.SIGTERM)
        select.select([process], [], [])
    except OSError as error:
        raise click.ClickException(f"{found.name} could not be ended: {error.strerror}") from None
    finally:
        os.close(process)
    click.echo(f"{found.name} has ended")


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
    with _errors_as_json(say):
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
