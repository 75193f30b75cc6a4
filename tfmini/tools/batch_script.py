"""`tfmini launch --on slurm --sbatch FILE`: a batch script that does the same when Slurm runs it."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence

import click
from click.core import ParameterSource

from tfmini.tools.launch_options import LaunchOptions

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
