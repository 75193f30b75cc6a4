"""`tfmini scale`: lets workers join a running job, and leave it."""

from __future__ import annotations

import click

from tfmini.tools.cluster_target import find_job
from tfmini.tools.control import ask
from tfmini.tools.supervision import ScaleError
from tfmini.tools.usage import Command


@click.command(cls=Command, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--workers", type=click.IntRange(1), required=True, metavar="N", help="Number of workers from now on.")
@click.argument("job", required=False)
def scale(job: str | None, workers: int) -> None:
    """Give a running JOB of `tfmini launch` N workers: more of them join it, or the last ones leave.

    JOB is the name of the job, its script or its launcher's process id; without it, the only job that runs. Workers
    that join need asynchronous or elastic training. One that leaves gets SIGTERM, as a preempted one does: it finishes
    its step.
    """
    found = find_job(job)
    if not found.control:
        raise click.ClickException(f"{found.name} takes no orders: its launcher could not make a socket for them.")
    try:
        click.echo(f"{found.name}: {ask(found.control, workers)}")
    except ScaleError as error:
        raise click.ClickException(f"{found.name} cannot have {workers} workers: {error}") from None
    except (OSError, ValueError) as error:
        raise click.ClickException(f"{found.name} does not answer: {error}") from None
