"""The contract of all transports: connections that carry messages as lists of byte parts.

A `Connection` carries messages, each a list of parts (one-dimensional byte buffers), whole and in
order, in both directions. All transports keep this contract, and one conformance suite checks them
(``tests/rpc/conformance.py``):

* `Connection.start` takes the two callbacks; nothing is delivered before it.
* ``on_parts(parts)`` is called once per message, in order, never by two threads at once. The
  parts are read-only and stay valid as long as they are referenced.
* `Connection.send` never blocks. Messages that the peer does not accept yet are queued. The queue is
  bounded (`backlog`): beyond the bound a large message is refused with ResourceExhaustedError.
* ``on_closed(reason)`` is called exactly once, after the last ``on_parts``, whatever ended the
  connection. Messages that the peer sent before it closed are delivered first; after a `close` on
  this side, no message is delivered.
* The connecting side sends first: a listener may not see a connection before that.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from tfmini import errors
from tfmini.rpc.waiter import Clock

_log = logging.getLogger("tfmini.rpc")

OnParts = Callable[[list[Any]], None]
OnClosed = Callable[[str], None]
MakeError = Callable[[str], errors.OpError]
Locate = Callable[[], Sequence[str]]
"""Says where a task is now: its addresses, or none if only the one of the ClusterSpec is known. It may block."""


class Refusal(NamedTuple):
    """Why a connection ended: the other side does not admit this process, or cannot be trusted by it.

    ``error`` makes the error that calls get. ``is_certain`` is false if a server that is being
    stopped can look the same.
    """

    error: MakeError
    is_certain: bool


class Connection(ABC):
    """A bidirectional stream of messages. See the module for the contract.

    ``stream_host`` is the numeric address of the listener if the connection is TCP; otherwise "". On the
    listening side, ``peer_key`` is the public key of the connecting side if the connection is encrypted, and
    ``peer_host`` is its numeric address if it is known. ``peer_pid`` is the peer's process id if the kernel tells
    it; otherwise 0. ``refusal`` is set before a connection ends that was not admitted. ``sent_bytes`` counts what was
    given to `send`; ``kind`` is the name of its way, for people.
    """

    address: str = ""
    stream_host: str = ""
    peer_key: bytes = b""
    peer_host: str = ""
    peer_pid: int = 0
    refusal: Refusal | None = None
    sent_bytes: int = 0
    kind: str = ""

    @property
    def received_bytes(self) -> int:
        """Bytes of the messages that have arrived."""
        return 0

    @abstractmethod
    def start(self, on_parts: OnParts, on_closed: OnClosed) -> None:
        """Begins delivery."""

    def admit(self) -> None:  # noqa: B027  most connections have no limits before the handshake
        """The handshake has succeeded. Before it, an accepted connection may be limited in time and bytes."""

    @abstractmethod
    def send(self, parts: Sequence[Any]) -> None:
        """Queues one message; from any thread. Does nothing on a closed connection.

        Raises:
          errors.ResourceExhaustedError: too much is queued for the peer already.
        """

    def part_memory(self, nbytes: int) -> Any:
        """Memory in which a large part can be computed, so that `send` does not copy it; None where that saves nothing.

        Returns:
          Writable bytes, as a numpy array. The connection gets them back when the last view of the array is gone,
          whether the part was sent or not. Nobody may write into them after `send`.
        """
        return None

    @abstractmethod
    def close(self, reason: str = "closed here") -> None:
        """Ends the connection; messages sent before are still delivered if the peer reads them."""

    @property
    @abstractmethod
    def backlog(self) -> int:
        """Bytes accepted by `send` that are still queued here."""

    def why_silent(self) -> str:
        """Why no message can have come yet, if the transport knows; else ""."""
        return ""

    @property
    def activity(self) -> int:
        """A number that changes while bytes arrive, even if no message is complete or read yet."""
        return 0


class RefusedConnection(Connection):
    """A connection that could not be made; `start` reports the reason to ``on_closed``."""

    def __init__(self, clock: Clock, address: str, reason: str) -> None:
        self.address = address
        self._clock = clock
        self._reason = reason

    def start(self, on_parts: OnParts, on_closed: OnClosed) -> None:
        self._clock.call_soon(deliver, on_closed, self._reason)

    def send(self, parts: Sequence[Any]) -> None:
        """Does nothing."""

    def close(self, reason: str = "closed here") -> None:
        """Does nothing."""

    @property
    def backlog(self) -> int:
        return 0


class Listener(ABC):
    """A bound address. ``address`` is the address to connect to, with the real port."""

    address: str = ""

    @abstractmethod
    def close(self) -> None:
        """Releases the address (it can be bound again when this returns) and closes its connections."""


class Transport(ABC):
    """Listens and connects for one or more address schemes."""

    @abstractmethod
    def listen(self, address: str, on_connection: Callable[[Connection], None]) -> Listener:
        """Binds ``address``; ``on_connection`` gets each new connection and must `start` it.

        Raises:
          errors.UnknownError: the address is in use.
          errors.InvalidArgumentError: it cannot be understood or bound.
        """

    @abstractmethod
    def connect(self, address: str, locate: Locate | None = None) -> Connection:
        """Returns a connection to ``address``; a failure to connect is reported to ``on_closed``.

        Args:
          locate: asked for other addresses to connect to instead; not in the thread of the caller if it may block.
        """

    def close(self) -> None:  # noqa: B027  a transport may hold nothing
        """Releases the resources of the transport itself."""


def deliver(callback: Callable[[Any], None], item: Any) -> None:
    """Calls a callback and logs its exceptions, so that a bug in it does not stop the connection."""
    try:
        callback(item)
    except Exception:  # noqa: BLE001 - see below
        # The layer above handles malformed messages itself, so this is a bug in tfmini.
        _log.exception("a connection's callback failed: %r", callback)
