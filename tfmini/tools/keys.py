"""`tfmini keys`: a key pair for the tasks of a cluster."""

from __future__ import annotations

from pathlib import Path

import click

from tfmini.rpc.security import KEYS_ENV, generate_keys


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--name", default="tfmini", show_default=True, help="What the files are called.")
@click.argument("directory", type=click.Path(file_okay=False))
def keys(name: str, directory: str) -> None:
    """Make a CURVE key pair in DIRECTORY, for all tasks and clients of a cluster to share.

    Connections over tcp are then encrypted, and only holders of the secret file get one. Copy that file to every
    machine, readable by nobody else, and let TFMINI_KEYS name it there.
    """
    secret = Path(directory) / f"{name}.key_secret"
    if secret.exists():
        raise click.ClickException(f"{secret} exists; give another --name, or remove it if no cluster uses it.")
    try:
        made = generate_keys(directory, name)
    except OSError as error:
        raise click.ClickException(f"Cannot write {secret}: {error.strerror}.") from None
    click.echo(f"{made} is secret; on every machine of the cluster:\n  export {KEYS_ENV}={made}")
