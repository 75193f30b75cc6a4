"""`tfmini keys`: key pairs for a cluster whose tasks and clients do not share a home folder."""

from __future__ import annotations

from pathlib import Path

import click

from tfmini import errors
from tfmini.command_line import HELP, Command
from tfmini.rpc.keys import KEYS_ENV, admit, admitted_file, generate_keys, load_keys


@click.command(cls=Command, context_settings=HELP)
@click.option("--name", default="tfmini", show_default=True, help="Name of the files.")
@click.option(
    "--client-of",
    type=click.Path(exists=True, dir_okay=False),
    metavar="FILE",
    help="Create the pair of one client, which the cluster with the secret file FILE admits.",
)
@click.argument("directory", type=click.Path(file_okay=False))
def keys(name: str, client_of: str | None, directory: str) -> None:
    """Create a CURVE key pair in DIRECTORY, which all tasks and clients of a cluster share.

    A server admits only holders of its key. Without TFMINI_KEYS that is the key of the user, which is made on first
    use; so a cluster needs a key of its own only where its machines do not share a home folder, or where it has
    several users. Copy the secret file to every machine, readable only by you, and set TFMINI_KEYS to its path there.

    With --client-of, the public key of the new pair is added to the list of admitted keys beside FILE. To revoke it,
    remove its line; running servers notice.
    """
    if not name or "/" in name:
        raise click.UsageError(f"--name {name} is no name of a file: give the folder as DIRECTORY.")
    secret = Path(directory) / f"{name}.key_secret"
    if secret.exists():
        raise click.ClickException(f"{secret} exists; choose another --name, or remove it if no cluster uses it.")
    try:
        cluster = load_keys(client_of) if client_of is not None else None
        made = generate_keys(directory, name, cluster.public if cluster is not None else b"")
        if cluster is not None:
            admit(cluster.file, load_keys(made).public, name)
    except errors.OpError as error:
        raise click.ClickException(error.message) from None
    except OSError as error:
        raise click.ClickException(f"Cannot write {error.filename or secret}: {error.strerror}.") from None
    path = Path(made).absolute()
    if cluster is None:
        click.echo(f"{made} is secret. Copy it to every machine of the cluster, and there:\n  export {KEYS_ENV}={path}")
    else:
        click.echo(
            f"{admitted_file(cluster.file)} admits it; {made} is secret. Where the client runs:\n"
            f"  export {KEYS_ENV}={path}"
        )
