"""`tfmini run`: runs an unmodified TensorFlow 1.x script on tfmini."""

from __future__ import annotations

import sys

import click

from tfmini.tools.script_run import run_script
from tfmini.tools.usage import Command


@click.command(cls=Command, context_settings={"allow_interspersed_args": False, "help_option_names": ["-h", "--help"]})
@click.argument("script", type=click.Path(exists=True, dir_okay=False))
@click.argument("args", nargs=-1, type=click.UNPROCESSED)
def run(script: str, args: tuple[str, ...]) -> None:
    """Run SCRIPT ARGS... so that `import tensorflow` imports tfmini. The script's own options follow its name.

    Everything else is as with `python SCRIPT ARGS...`. An installed TensorFlow is neither used nor changed. A script
    for Python 2 does not run; the command lists the lines to change.
    """
    sys.exit(run_script(script, args))
