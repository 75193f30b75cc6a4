"""`tfmini run`: runs an unmodified TensorFlow 1.x script on tfmini."""

from __future__ import annotations

import os
import sys
from typing import Any

import click
from click.core import ParameterSource

from tfmini.json_log import LOG_JSON_ENV, install
from tfmini.tools.launch_options import member_options
from tfmini.tools.network_options import network_options
from tfmini.tools.progress_reports import work_shown
from tfmini.tools.script_run import run_script
from tfmini.tools.usage import Command


@click.command(cls=Command, context_settings={"allow_interspersed_args": False, "help_option_names": ["-h", "--help"]})
@member_options
@network_options
@click.argument("script", type=click.Path(exists=True, dir_okay=False))
@click.argument("args", nargs=-1, type=click.UNPROCESSED)
@click.pass_context
def run(context: click.Context, script: str, args: tuple[str, ...], cluster: str | None, **values: Any) -> None:
    """Run SCRIPT ARGS... so that `import tensorflow` imports tfmini. The script's own options follow its name.

    Everything else is as with `python SCRIPT ARGS...`. An installed TensorFlow is neither used nor changed. A script
    for Python 2 does not run; the command lists the lines to change.

    With --cluster, a scheduler (such as srun) has started this process as one task of a cluster. Its role follows from
    the scheduler's variables: the first processes are ps. All else is as with `tfmini launch`.
    """
    if cluster is not None:
        from tfmini.tools.member_run import run_member

        sys.exit(run_member(cluster, script, args, values))
    if values.pop("log_json"):
        os.environ[LOG_JSON_ENV] = "1"
        install()
    for name in values:
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            option = "--" + name.replace("_", "-")
            raise click.UsageError(f"{option} needs --cluster. To start a cluster, use: tfmini launch {option} …")
    with work_shown():
        sys.exit(run_script(script, args))
