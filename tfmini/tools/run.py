"""`tfmini run`: a TensorFlow 1.x script, unmodified, on tfmini."""

from __future__ import annotations

import sys

import click

from tfmini.tools.script_run import run_script


@click.command(context_settings={"allow_interspersed_args": False, "help_option_names": ["-h", "--help"]})
@click.argument("script", type=click.Path(exists=True, dir_okay=False))
@click.argument("args", nargs=-1, type=click.UNPROCESSED)
def run(script: str, args: tuple[str, ...]) -> None:
    """Run SCRIPT ARGS... with `import tensorflow` meaning tfmini. The script's own options come after its name.

    Everything else is as under `python SCRIPT ARGS...`. An installed TensorFlow is neither used nor touched. A script
    for Python 2 is not run; the lines to change are listed.
    """
    sys.exit(run_script(script, args))
