"""`tfmini horovodrun`: Horovod's command line for a run on this machine, as `tfmini launch --ps 0 --workers N`."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from tfmini.tools.engine import EngineError, engine_class
from tfmini.tools.launch import console_for, run_cluster
from tfmini.tools.launch_options import LaunchOptions
from tfmini.tools.usage import Command

_THIS_MACHINE = ("localhost", "127.0.0.1", os.uname().nodename)
_TUNING = ("--fusion-threshold-mb", "--cycle-time-ms", "--cache-capacity", "--network-interfaces", "--num-nccl-streams",
           "--thread-affinity", "--mpi-args", "--log-level", "--ssh-port")  # fmt: skip
_SWITCHES = ("--gloo", "--mpi", "--verbose", "--disable-cache", "--hierarchical-allreduce", "--autotune")


def _tuning(function: Any) -> Any:
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
