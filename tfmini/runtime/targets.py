"""Targets of sessions, and the servers of this process by address."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from typing import Any

from tfmini import errors
from tfmini.rpc import messages as m
from tfmini.rpc.waiter import Waiter
from tfmini.runtime.options import SessionOptions
from tfmini.runtime.process import current_process

_SCHEMES = ("zmq://", "grpc://", "tcp://")
_RESET_TIMEOUT_S = 60.0
_ADDRESS = re.compile(r"[\w.-]+:\d+")
_default_target = [""]


def address_of_target(target: str) -> str:
    """``host:port`` of a session target.

    Raises:
      NotFoundError: for a scheme that no master listens on.
    """
    for scheme in _SCHEMES:
        if target.startswith(scheme):
            return target[len(scheme) :]
    if target.startswith("ipc://"):
        return target
    meant = f" Did you mean grpc://{target}, or server.target?" if _ADDRESS.fullmatch(target) else ""
    raise errors.NotFoundError.of(
        f'No session factory registered for the given session options: {{target: "{target}" config: }} Registered'
        " factories are {DIRECT_SESSION, ZMQ_SESSION (zmq://host:port), GRPC_SESSION (the same, spelled grpc://)}."
        f"{meant}"
    )


def default_target() -> str:
    """Whose server runs the sessions that name no target: "" (none), or what `set_default_target` has set."""
    return _default_target[0]


def set_default_target(target: str) -> None:
    """Lets sessions without a target use the collectives of that server. Their variables stay their own."""
    _default_target[0] = target


def register(address: str, server: Any) -> None:
    """Makes a server findable by its address."""
    current_process().servers[_canonical(address)] = os.getpid(), server


def unregister(address: str) -> None:
    """Forgets a server."""
    current_process().servers.pop(_canonical(address), None)


def server_at(address: str) -> Any:
    """The server of this process that listens there, or None."""
    pid, server = current_process().servers.get(_canonical(address), (0, None))
    return server if pid == os.getpid() else None  # a forked child inherits the table


def same_address(one: str, other: str) -> bool:
    """Whether two spellings of ``host:port``, with or without a scheme, mean the same."""
    return _canonical(_without_scheme(one)) == _canonical(_without_scheme(other))


def _without_scheme(address: str) -> str:
    return next((address[len(scheme) :] for scheme in _SCHEMES if address.startswith(scheme)), address)


def _canonical(address: str) -> str:
    host, _, port = address.rpartition(":")
    return f"{'localhost' if host in ('127.0.0.1', '[::1]', '0.0.0.0') else host}:{port}"


def reset(
    address: str, containers: tuple[str, ...], options: SessionOptions, client_endpoint: Callable[[], Any]
) -> None:
    """Asks the master at an address to clear containers; blocks until it has."""
    waiter = Waiter()
    outcome: list[Any] = []

    def done(answer: Any) -> None:
        outcome.append(answer)
        waiter.set()

    server = server_at(address)
    if server is not None:
        server.master.reset(containers, options.device_filters, done)
    else:
        request = m.Reset(containers, options.device_filters)
        timeout_s = options.operation_timeout_s or _RESET_TIMEOUT_S
        client_endpoint().peer(address).call(request, done, timeout_s=timeout_s, wait_for_ready=True)
    if not waiter.done:
        current_process().reactor.drive(waiter)
    if isinstance(outcome[0], errors.OpError):
        raise outcome[0]
