"""`tfmini run`: runs an unmodified TensorFlow 1.x script on tfmini."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any

import click
from click.core import ParameterSource

from tfmini.command_line import BEFORE_SCRIPT, BeforeScript, former, misplaced, script_argument
from tfmini.compat.roles import defined_options
from tfmini.json_log import LOG_JSON_ENV, install
from tfmini.launch.launch_options import member_options
from tfmini.launch.progress import work_shown
from tfmini.library_log import is_launched
from tfmini.rpc.addresses import ADDRESSES_ENV, BIND_ENV, PORTS_ENV
from tfmini.tools.script import run_script

# How servers of the script use the network: each option sets an environment variable.
_NETWORK_OPTIONS = (
    ("--bind", "HOST", BIND_ENV, "Interface at which servers listen: an address, a name, or as in eth1."),
    ("--ports", "FIRST-LAST", PORTS_ENV, "Ports for servers whose address has none, and for streams between hosts."),
    ("--address-book", "DIRECTORY", ADDRESSES_ENV, "Where tasks write their addresses, so that they may move."),
)


def network_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds the options to a command. Its function does not get them."""
    for name, metavar, variable, told in reversed(_NETWORK_OPTIONS):
        option = click.option(name, metavar=metavar, help=told, expose_value=False, callback=_setter(variable))
        command = option(command)
    return former("--addresses", "--address-book", "", then=_setter(ADDRESSES_ENV))(command)


def _setter(variable: str) -> Callable[[click.Context, click.Parameter, str | None], None]:
    def set_variable(context: click.Context, parameter: click.Parameter, value: str | None) -> None:
        if value is not None:
            os.environ[variable] = os.path.abspath(value) if variable == ADDRESSES_ENV else value

    return set_variable


class _Run(BeforeScript):
    """`tfmini run`. ``pip-shim`` in the place of a script is a command of its own, unless there is such a file."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if args[:1] == ["pip-shim"] and not os.path.exists(args[0]):
            from tfmini.tools.pip_shim import pip_shim

            ctx.exit(pip_shim.main(args[1:], f"{ctx.command_path} pip-shim", standalone_mode=False) or 0)
        return super().parse_args(ctx, args)


@click.command(cls=_Run, context_settings=BEFORE_SCRIPT)
@member_options
@network_options
@script_argument()
@click.argument("args", nargs=-1, type=click.UNPROCESSED)
@click.pass_context
def run(context: click.Context, script: str, args: tuple[str, ...], cluster: str | None, **values: Any) -> None:
    """Run SCRIPT ARGS... so that `import tensorflow` imports tfmini.

    The script's own options follow its name (a -- between them is ignored).

    Everything else is as with `python SCRIPT ARGS...`. An installed TensorFlow is neither used nor changed. A script
    for Python 2 does not run; the command lists the lines to change. `tfmini migrate` lists all that will not run
    before the first run.

    `tfmini run pip-shim --into ENV` lets pip install packages that require tensorflow<2 beside tfmini.

    With --cluster, a scheduler (such as srun) has started this process as one task of a cluster. Its role follows from
    the scheduler's variables: the first processes are ps. All else is as with `tfmini launch`.
    """
    if cluster is not None:
        from tfmini.tools.launch import run_member

        sys.exit(run_member(cluster, script, args, values))
    if values.pop("log_json"):
        os.environ[LOG_JSON_ENV] = "1"
        install()
    for name in values:
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            option = "--" + name.replace("_", "-")
            raise click.UsageError(f"{option} needs --cluster. To start a cluster, use: tfmini launch {option} …")
    text = "" if is_launched() else misplaced(context, script, args, defined_options)
    if text:
        click.echo(f"tfmini: {text}", err=True)
    with work_shown():
        sys.exit(run_script(script, args))
