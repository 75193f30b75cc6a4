"""`tfmini run --cluster NAME`: this process is one task of a cluster, and a scheduler has started it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import click

from tfmini.compat.role_flags import role_flags_of
from tfmini.compat.roles import role_arguments, tf_config
from tfmini.tools.engine import EngineError, NamedRole, member_of
from tfmini.tools.launch import console_for, run_cluster
from tfmini.tools.launch_options import LaunchOptions
from tfmini.tools.script_run import run_script


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
