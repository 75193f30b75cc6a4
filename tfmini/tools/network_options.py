"""The options of `tfmini run` that say how its servers use the network; each sets the environment variable for it."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, TypeVar

import click

from tfmini.rpc.address_book import ADDRESSES_ENV
from tfmini.rpc.interfaces import BIND_ENV, PORTS_ENV

_Command = TypeVar("_Command", bound=Callable[..., Any])
_OPTIONS = (
    ("--bind", "HOST", BIND_ENV, "Interface at which servers listen: an address, a name, or as in eth1."),
    ("--ports", "FIRST-LAST", PORTS_ENV, "Ports for servers whose address has none, and for streams between hosts."),
    ("--addresses", "DIRECTORY", ADDRESSES_ENV, "Where tasks write their addresses, so that they may move."),
)


def network_options(command: _Command) -> _Command:
    """Adds the options to a command. Its function does not get them."""
    for name, metavar, variable, told in reversed(_OPTIONS):
        option = click.option(name, metavar=metavar, help=told, expose_value=False, callback=_setter(variable))
        command = option(command)
    return command


def _setter(variable: str) -> Callable[[click.Context, click.Parameter, str | None], None]:
    def set_variable(context: click.Context, parameter: click.Parameter, value: str | None) -> None:
        if value is not None:
            os.environ[variable] = os.path.abspath(value) if variable == ADDRESSES_ENV else value

    return set_variable
