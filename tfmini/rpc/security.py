"""Addresses, and who may use them.

A server on loopback or a Unix socket needs no keys. Beyond that it needs CURVE keys (traffic is
encrypted and only holders of an admitted key get in), in the file that ``TFMINI_KEYS`` names, or
an explicit word that none are wanted: ``TFMINI_INSECURE=1`` or ``insecure=True``.
"""

from __future__ import annotations

import dataclasses
import ipaddress
import os
import stat

import zmq.auth

from tfmini import errors

_SCHEMES = {
    "zmq": "tcp",
    "grpc": "tcp",
    "tcp": "tcp",
    "ipc": "ipc",
    "inproc": "inproc",
    "sim": "sim",
    "lane": "lane",
}
INSECURE_ENV = "TFMINI_INSECURE"
KEYS_ENV = "TFMINI_KEYS"


@dataclasses.dataclass(frozen=True)
class Address:
    """A parsed address. ``scheme`` is tcp, ipc, inproc, sim or lane; str() gives its one spelling."""

    scheme: str
    host: str = ""
    port: int = 0
    path: str = ""

    def __str__(self) -> str:
        if self.scheme == "tcp":
            host = f"[{self.host}]" if ":" in self.host else self.host
            return f"tcp://{host}:{self.port}"
        return f"{self.scheme}://{self.path}"

    @property
    def is_private(self) -> bool:
        """Whether only processes of this host can reach it."""
        if self.scheme != "tcp" or self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False


def parse_address(text: str) -> Address:
    """Reads ``host:port`` or ``scheme://…`` (zmq, grpc, tcp: host:port; ipc: path).

    Raises:
      errors.InvalidArgumentError: naming the text and what is wrong with it.
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
        raise _bad(text, "an IPv6 address must stand in brackets")
    if not (port.isascii() and port.isdigit()) or int(port) > 65535:
        raise _bad(text, f"{port!r} is not a port number")
    if any(c.isspace() or c in "/@?#" for c in host):
        raise _bad(text, f"{host!r} is not a host name")
    return Address("tcp", host, int(port))


def _bad(text: str, why: str) -> errors.InvalidArgumentError:
    return errors.InvalidArgumentError(None, None, f"Could not interpret the address {text!r}: {why}.")


@dataclasses.dataclass(frozen=True)
class Keys:
    """A CURVE key pair (Z85 text) and the public keys that may connect (this one always may)."""

    public: bytes
    secret: bytes = dataclasses.field(repr=False)
    admitted: frozenset[bytes] = frozenset()

    def admits(self, public: bytes) -> bool:
        return public == self.public or public in self.admitted


def generate_keys(directory: str, name: str = "tfmini") -> str:
    """Makes a key pair; every task of a cluster may share it. Returns the path of the secret file."""
    os.makedirs(directory, mode=0o700, exist_ok=True)
    previous = os.umask(0o077)
    try:
        _, secret_file = zmq.auth.create_certificates(directory, name)
    finally:
        os.umask(previous)
    return secret_file


def load_keys(secret_file: str, admitted: tuple[bytes, ...] = ()) -> Keys:
    """Reads a key pair.

    Raises:
      errors.NotFoundError: there is no such file.
      errors.PermissionDeniedError: others can read it.
      errors.InvalidArgumentError: it holds no secret key.
    """
    try:
        mode = os.stat(secret_file).st_mode
        public, secret = zmq.auth.load_certificate(secret_file)
    except OSError as error:
        raise errors.NotFoundError(None, None, f"No key file {secret_file!r}: {error}.") from error
    except ValueError as error:
        raise errors.InvalidArgumentError(
            None, None, f"{secret_file!r} is not a key file: {error}."
        ) from error
    if stat.S_IMODE(mode) & 0o077:
        raise errors.PermissionDeniedError(
            None, None, f"The key file {secret_file!r} can be read by others; run: chmod 600 {secret_file}"
        )
    if secret is None:
        raise errors.InvalidArgumentError(None, None, f"{secret_file!r} holds no secret key.")
    return Keys(public, secret, frozenset(admitted))


def keys_of_environment() -> Keys | None:
    """The keys in the secret file that ``TFMINI_KEYS`` names; None where it is unset. Raises as `load_keys`."""
    path = os.environ.get(KEYS_ENV, "")
    return load_keys(path) if path else None


def check_exposure(address: Address, keys: Keys | None, insecure: bool | None = None) -> None:
    """Refuses to listen where strangers could connect.

    Raises:
      errors.FailedPreconditionError: beyond loopback, without keys and without the explicit flag.
    """
    if insecure is None:
        insecure = os.environ.get(INSECURE_ENV, "") == "1"
    if keys is not None or insecure or address.is_private:
        return
    raise errors.FailedPreconditionError(
        None,
        None,
        f"Listening at {address} would let anybody on the network run code in this process. Make keys by "
        f"`tfmini keys` and let {KEYS_ENV} name their file on every machine, listen on localhost, or set "
        f"{INSECURE_ENV}=1 if the network is trusted.",
    )


def port_busy(address: str) -> errors.UnknownError:
    """TensorFlow's error for a taken port, with what TensorFlow does not say."""
    return errors.UnknownError(
        None,
        None,
        f"Could not start gRPC server: {address} is in use, perhaps by a task of an earlier run that "
        f"is still alive or by another task with the same ClusterSpec entry; stop that process or choose "
        f"another port.",
    )
