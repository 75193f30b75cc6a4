"""Explains a ZeroMQ handshake that failed, as the connecting side sees it."""

from __future__ import annotations

import socket

import zmq

from tfmini import errors
from tfmini.rpc.addresses import Address
from tfmini.rpc.keys import INSECURE_ENV, KEYS_ENV, Keys
from tfmini.rpc.transport import Refusal

_MISMATCH = 0x11000002  # one side uses keys and the other does not; pyzmq 25 has no name for it
_GREETING_S = 2.0
FAULTS = frozenset(
    {
        zmq.EVENT_HANDSHAKE_FAILED_AUTH,
        zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL,
        zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL,
    }
)


def explain(event: int, detail: int, keys: Keys | None) -> tuple[str, Refusal]:
    """Returns the reason of a failed handshake, with the remedy, and what it means for later attempts.

    Args:
      event: one of `FAULTS`; ``detail``: its value.
      keys: those of this process.
    """
    if keys is None:
        return (
            f"the server requires a key, and this process has none, because {INSECURE_ENV} is set: unset it to use "
            f"the key of this user, or set {KEYS_ENV} to the key file of the server"
        ), Refusal(errors.UnauthenticatedError.of, is_certain=False)
    if event == zmq.EVENT_HANDSHAKE_FAILED_AUTH:
        return (
            f"the server does not admit {keys} (public key {keys.public.decode()}): add this public key to the list "
            f"beside the key file of the server, or set {KEYS_ENV} to a key file that the server admits"
        ), Refusal(errors.PermissionDeniedError.of, is_certain=True)
    other = f"the server uses no keys ({INSECURE_ENV}=1); start it without {INSECURE_ENV}, or set it here, too"
    if event != zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL or detail != _MISMATCH:
        other = (
            f"the server broke off the handshake: it uses other keys than this process, which has {keys}. "
            f"Set {KEYS_ENV} to the key file of the server (of `tfmini launch`, or of the user who runs it). If the "
            "keys are right, many handshakes of others at this address have failed lately, so it has to wait"
        )
    return other, Refusal(errors.UnauthenticatedError.of, is_certain=False)


def greets(address: Address) -> bool:
    """Whether a ZeroMQ server answers there, not a proxy whose server is down. Blocks for up to some seconds."""
    if address.scheme != "tcp":
        return True
    try:
        with socket.create_connection((address.host, address.port), _GREETING_S) as sock:
            return bool(sock.recv(1))  # ZeroMQ's greeting begins at once
    except OSError:
        return False
