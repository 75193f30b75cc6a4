"""`tfmini launch`: runs a script as every task of a cluster, on this machine or through another engine."""

from __future__ import annotations

import os
import re
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from tfmini.cluster import ClusterSpec
from tfmini.compat.role_flags import role_flags_of
from tfmini.compat.roles import role_arguments, tf_config
from tfmini.compat.script_text import script_text
from tfmini.json_log import LOG_JSON_ENV
from tfmini.printable import printable, printable_lines
from tfmini.tools.batch_script import batch_script, command_again
from tfmini.tools.cluster_run import ClusterRun, RunLimits
from tfmini.tools.control import Control
from tfmini.tools.dashboard_process import LaunchedPage
from tfmini.tools.engine import Engine, EngineError, TaskCommand, engine_class
from tfmini.tools.jobs import RunningJob
from tfmini.tools.launch_options import LaunchOptions, launch_options
from tfmini.tools.output import JsonConsole, TaskPrefixes
from tfmini.tools.progress_bars import Bars, is_terminal
from tfmini.tools.progress_reports import LaunchProgress
from tfmini.tools.run_key import key_of_run
from tfmini.tools.sink import Sink, SinkStream, standard_sinks
from tfmini.tools.step_times import STEP_TIMES_ENV, read_times
from tfmini.tools.supervision import SERVICE_JOBS, RunOver, Supervision, TaskId
from tfmini.tools.usage import Command

_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_PATIENCE_S = 0.5  # with a reader who does not read the end of a run that was told to end
_INTERRUPTED = 130  # a shell's exit code for a process that SIGINT ended
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
    from tfmini.tools.predicted import compare, log_in_trace  # the simulator is not for every start

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
        return _INTERRUPTED
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
