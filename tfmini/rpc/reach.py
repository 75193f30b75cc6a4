"""Finds the address at which a host can be reached, and says why it cannot be reached.

The functions block, up to their limits in seconds, so they run in threads of their own.
"""

from __future__ import annotations

import errno
import os
import selectors
import socket
import time
from collections.abc import Sequence

from tfmini.rpc.addresses import Address, parse_address

_NEXT_S = 0.25  # seconds until the next address is tried as well
_ROUTE = {errno.ENETUNREACH, errno.EHOSTUNREACH, errno.ENETDOWN, errno.EHOSTDOWN, errno.EADDRNOTAVAIL}
_POLICY = {errno.EACCES, errno.EPERM}
REFUSED = "connection refused: no process listens there"


class UnreachableError(OSError):
    """No address can be used; str() says why."""


def resolve(host: str, port: int) -> list[str]:
    """The numeric addresses of a host, in the order in which the system prefers them.

    Raises:
      UnreachableError: the name is not known.
    """
    if host == "localhost":  # which means IPv4 everywhere here, as it does for listeners
        return ["127.0.0.1"]
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise UnreachableError(
            f"the name {host!r} was not found ({error}): check its spelling and the name service of this host"
        ) from None
    return list(dict.fromkeys(str(info[4][0]) for info in found))


def choose(addresses: Sequence[str], limit_s: float) -> str:
    """The ``host:port`` with a numeric host to connect to, of the addresses of one task.

    If there are several, it is the first that accepts a connection. A later one is tried as well when an earlier one
    has not answered for a moment. If none does, it is the first one, whose connection then fails with its reason.

    Raises:
      UnreachableError: no name of them is known.
    """
    candidates: dict[str, None] = {}
    reason = UnreachableError("it has no address")
    for address in addresses:
        parsed = parse_address(address)
        try:
            hosts = resolve(parsed.host, parsed.port)
        except UnreachableError as error:
            reason = error
            continue
        candidates |= dict.fromkeys(str(Address("tcp", host, parsed.port)) for host in hosts)
    if not candidates:
        raise reason
    found = list(candidates)
    return found[0] if len(found) == 1 else _first_accepting(found, limit_s) or found[0]


def _first_accepting(addresses: Sequence[str], limit_s: float) -> str | None:
    deadline = time.monotonic() + limit_s
    waiting = list(addresses)
    with selectors.DefaultSelector() as selector:
        try:
            while (waiting or selector.get_map()) and time.monotonic() < deadline:
                if waiting:
                    _begin(selector, waiting.pop(0))
                until = min(deadline, time.monotonic() + _NEXT_S) if waiting else deadline
                while selector.get_map() and (left_s := until - time.monotonic()) > 0:
                    for key, _ in selector.select(left_s):
                        sock: socket.socket = key.fileobj  # type: ignore[assignment]
                        if not sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
                            return str(key.data)
                        selector.unregister(sock)
                        sock.close()
        finally:
            for key in list(selector.get_map().values()):
                key.fileobj.close()  # type: ignore[union-attr]
    return None


def _begin(selector: selectors.BaseSelector, address: str) -> None:
    """Begins to connect; an address that fails at once is left out."""
    parsed = parse_address(address)
    sock = _socket(parsed.host)
    sock.setblocking(False)
    if sock.connect_ex((parsed.host, parsed.port)) in (0, errno.EINPROGRESS):
        selector.register(sock, selectors.EVENT_WRITE, address)
    else:
        sock.close()


def explain_failure(address: Address, lasted_s: float, limit_s: float) -> str:
    """Why connecting to a numeric address has failed: it tries once more and looks how that fails.

    Args:
      lasted_s: how long the system tried before it gave up. Where it takes longer than ``limit_s``, the system has
        asked in vain which host of the network has this address.
    """
    with _socket(address.host) as sock:
        sock.settimeout(limit_s)
        try:
            sock.connect((address.host, address.port))
        except TimeoutError as error:
            return explain(OSError(errno.EHOSTUNREACH, "") if lasted_s > limit_s else error, address)
        except OSError as error:
            return explain(error, address)
    return "the connection was closed before the handshake"


def explain(error: OSError, address: Address) -> str:
    """What an error of connect means."""
    if isinstance(error, TimeoutError) or error.errno == errno.ETIMEDOUT:
        return silent(address)
    if error.errno == errno.ECONNREFUSED:
        return REFUSED
    text = os.strerror(error.errno) if error.errno else str(error)
    if error.errno in _ROUTE:
        return (
            f"no route to {address.host} ({text}): no host has this address, it is down, or this host has no network "
            f"that leads there"
        )
    if error.errno in _POLICY:
        return f"a firewall of this host forbids connections to {address.host} ({text})"
    return f"connecting failed ({text})"


def silent(address: Address) -> str:
    """The reason when nothing at all answers."""
    return (
        f"silent: no answer from {address.host} to attempts to connect: the host is down or cut off, or a firewall "
        f"drops connections to port {address.port}"
    )


def source_towards(host: str) -> str:
    """The numeric address of this host from which packets to another one are sent; "" if there is no route.

    It sends nothing.
    """
    for address in _resolved(host):
        with socket.socket(family_of(address), socket.SOCK_DGRAM) as sock:
            try:
                sock.connect((address, 9))
            except OSError:
                continue
            return str(sock.getsockname()[0])
    return ""


def _resolved(host: str) -> list[str]:
    try:
        return resolve(host, 0)
    except UnreachableError:
        return []


def _socket(host: str) -> socket.socket:
    return socket.socket(family_of(host), socket.SOCK_STREAM)


def family_of(host: str) -> socket.AddressFamily:
    """The family of a numeric address."""
    return socket.AF_INET6 if ":" in host else socket.AF_INET
