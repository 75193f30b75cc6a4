"""`tfmini version`: shows the installed versions."""

from __future__ import annotations

import platform
from importlib import metadata

import click

from tfmini.tools.usage import Command

_DEPENDENCIES = ("numpy", "ml_dtypes", "pyzmq", "msgpack", "networkx", "protobuf")


def _installed(distribution: str) -> str:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return "not installed"


@click.command(cls=Command)
def version() -> None:
    """Show the versions of tfmini and of its dependencies."""
    click.echo(f"tfmini {_installed('tfmini')}")
    click.echo(f"Python {platform.python_version()} on {platform.platform(terse=True)}")
    for distribution in _DEPENDENCIES:
        click.echo(f"{distribution} {_installed(distribution)}")
