"""Addresses of servers, and the error for one that is in use."""

from __future__ import annotations

import dataclasses
import socket

from tfmini import errors

_SCHEMES = {
    "zmq": "tcp",
    "grpc": "tcp",
    "tcp": "tcp",
    "ipc": "ipc",
    "sim": "sim",
    "lane": "lane",
}


@dataclasses.dataclass(frozen=True)
class Address:
    """A parsed address. ``scheme`` is tcp, ipc, sim or lane; str() gives the canonical form."""

    scheme: str
    host: str = ""
    port: int = 0
    path: str = ""

    def __str__(self) -> str:
        if self.scheme == "tcp":
            host = f"[{self.host}]" if ":" in self.host else self.host
            return f"tcp://{host}:{self.port}"
        return f"{self.scheme}://{self.path}"


def parse_address(text: str) -> Address:
    """Parses ``host:port`` or ``scheme://…`` (zmq, grpc, tcp: host:port; ipc: path).

    Raises:
      errors.InvalidArgumentError: the text is no address.
    """
    scheme, separator, rest = text.partition("://")
    if not separator:
        scheme, rest = "tcp", text
    if scheme not in _SCHEMES:
        raise _bad(text, f"unknown scheme {scheme!r}; use host:port, grpc://, zmq://, tcp:// or ipc://")
    scheme = _SCHEMES[scheme]
    if scheme != "tcp":
        if not rest:
            raise _bad(text, "nothing follows the scheme")
        return Address(scheme, path=rest)
    host, colon, port = rest.rpartition(":")
    if not colon or not host:
        raise _bad(text, "expected host:port")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise _bad(text, "an IPv6 address must be in brackets")
    if not (port.isascii() and port.isdigit()) or int(port) > 65535:
        raise _bad(text, f"{port!r} is not a port number")
    if any(c.isspace() or c in "/@?#" for c in host):
        raise _bad(text, f"{host!r} is not a host name")
    return Address("tcp", host, int(port))


def _bad(text: str, why: str) -> errors.InvalidArgumentError:
    return errors.InvalidArgumentError.of(f"Could not interpret the address {text!r}: {why}.")


def port_busy(address: str) -> errors.UnknownError:
    """Returns TensorFlow's error for a port in use, with the likely cause."""
    return errors.UnknownError.of(
        f"Could not start gRPC server: {address} is in use, perhaps by a task of an earlier run that "
        f"is still running or by another task with the same ClusterSpec entry; stop that process or choose "
        f"another port.",
    )


def ipc_is_alive(path: str) -> bool:
    """Whether a process listens at the path of a Unix-domain socket."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        try:
            probe.connect("\0" + path[1:] if path.startswith("@") else path)
        except BlockingIOError:  # a full backlog
            return True
        except OSError:
            return False
    return True
