"""`tfmini status`: what a running cluster does now."""

from __future__ import annotations

import json
import time

import click
from rich.console import Group

from tfmini import errors
from tfmini.status.gather import Gatherer
from tfmini.status.snapshot import to_json
from tfmini.terminal import console
from tfmini.tools.cluster_target import find_cluster
from tfmini.tools.status_tables import status_tables
from tfmini.tools.usage import Command, OptionalArgument


@click.command(cls=Command, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--json", "as_json", is_flag=True, help="Print the snapshot as JSON; with --watch, one line each time.")
@click.option("--watch", is_flag=True, help="Ask again and again, until Ctrl-C.")
@click.option("--interval", type=click.FloatRange(0.2, 3600), default=2.0, show_default=True, metavar="S",
              help="Seconds between two questions of --watch.")  # fmt: skip
@click.argument("target", required=False, cls=OptionalArgument)
def status(as_json: bool, watch: bool, interval: float, target: str | None) -> None:
    """Show what the cluster of TARGET does: tasks, sessions, steps, variables, links, waits.

    TARGET is the address of any server of the cluster, HOST:PORT, or a job of `tfmini launch`: its name, script or
    process id. Without one it is the only job that runs, or the cluster of TF_CONFIG.

    The tasks answer within a second, also when all their steps are stuck. `tfmini stacks` explains why steps wait.
    """
    where = find_cluster(target)
    try:
        with Gatherer(where.target, tasks=where.tasks, keys=where.keys) as gatherer:
            _show(gatherer, as_json)
            while watch:
                time.sleep(interval)
                _show(gatherer, as_json, again=True)
    except errors.OpError as error:
        raise click.ClickException(error.message) from None
    except KeyboardInterrupt:
        return


def _show(gatherer: Gatherer, as_json: bool, again: bool = False) -> None:
    cluster = gatherer.gather(rates=not again)
    if as_json:
        click.echo(json.dumps(to_json(cluster), indent=None if again else 1))
        return
    shown = console(piped_width=140)
    if again and shown.is_terminal:
        shown.clear()
    shown.print(Group(*status_tables(cluster)))
