"""The contract of all transports: connections that carry messages as lists of byte parts.

A `Connection` carries messages, each a list of parts (one-dimensional byte buffers), whole and in
order, in both directions. All transports keep this contract, and one conformance suite checks them
(``tests/rpc/conformance.py``):

* `Connection.start` takes the two callbacks; nothing is delivered before it.
* ``on_parts(parts)`` is called once per message, in order, never by two threads at once. The
  parts are read-only and stay valid as long as they are referenced.
* `Connection.send` never blocks. Messages that the peer does not accept yet are queued. The queue is
  bounded (`Backlog`): beyond the bound a large message is refused with ResourceExhaustedError.
* ``on_closed(reason)`` is called exactly once, after the last ``on_parts``, whatever ended the
  connection. Messages that the peer sent before it closed are delivered first; after a `close` on
  this side, no message is delivered.
* The connecting side sends first: a listener may not see a connection before that.
"""

from __future__ import annotations

import logging
import time
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


def deliver(callback: Callable[[Any], None], item: object) -> None:
    """Calls a callback and logs its exceptions, so that a bug in it does not stop the connection."""
    try:
        callback(item)
    except Exception:  # noqa: BLE001 - see below
        # The layer above handles malformed messages itself, so this is a bug in tfmini.
        _log.exception("a connection's callback failed: %r", callback)


# ---- The budget of bytes that are queued for peers that read slowly or not at all ----------------------------------

BACKLOG_LIMIT = 2 << 30  # bytes queued for a peer that reads nothing
STALLED_LIMIT = 8 << 30  # bytes queued for all peers together that read nothing
FAIR_SHARE = 64 << 20  # bytes that may be queued for each of them even then
_STALLED_S = 4.0
_SLOW_FACTOR = 8  # multiplies the limit for a peer that reads slowly
SMALL_BYTES = 64 << 10  # up to here a message is queued beyond the limits: the error or the end of a step
SMALL_LIMIT = 64 << 20  # bytes of such messages; beyond it the connection ends

large_queues: set[Backlog] = set()  # those of this process that hold more than their share


class Backlog:
    """Counts the bytes queued for one peer and refuses messages when they are too many.

    One message may be larger than the limit, so the limit is higher for a peer that makes progress. The caller of
    each method holds the lock of the queue.
    """

    __slots__ = ("_is_large", "_moved_at", "_small", "bytes")

    def __init__(self) -> None:
        self.bytes = 0
        self._is_large = False
        self._small = 0  # bytes of small messages beyond the limit
        self._moved_at = 0.0

    def add(self, nbytes: int) -> None:
        """Counts bytes that were queued."""
        if not self.bytes:
            self._moved_at = time.monotonic()
        self.bytes += nbytes
        if self.bytes > FAIR_SHARE and not self._is_large:
            self._is_large = True
            large_queues.add(self)

    def take(self, nbytes: int) -> None:
        """Counts bytes that were sent."""
        self.bytes -= nbytes
        self._small = 0
        self._moved_at = time.monotonic()
        if self._is_large and self.bytes <= FAIR_SHARE:
            self._shrink()

    def clear(self) -> None:
        """Sets the count to zero."""
        self.bytes = self._small = 0
        self._shrink()

    def _shrink(self) -> None:
        self._is_large = False
        large_queues.discard(self)

    def refusal(self, nbytes: int) -> str:
        """Checks a message that would have to be queued.

        Returns:
          the reason to end the connection; "" if the message may be queued.

        Raises:
          errors.ResourceExhaustedError: the message is too large for the room that is left.
        """
        reason = self._excess()
        if not reason:
            return ""
        if nbytes > SMALL_BYTES:
            raise errors.ResourceExhaustedError.of(
                f"{reason}. Another message of {nbytes} bytes is refused. The peer is stopped, stuck or overloaded, or"
                " asks for more than it reads: read the answers of steps before you start others."
            )
        self._small += nbytes
        return reason if self._small > SMALL_LIMIT else ""

    def _excess(self) -> str:
        if self.bytes <= FAIR_SHARE:
            return ""
        if self.bytes > _SLOW_FACTOR * BACKLOG_LIMIT:
            return f"{self.bytes} bytes are queued for the peer, which reads too slowly"
        if not self._is_stalled(now := time.monotonic()):
            return ""
        if self.bytes > BACKLOG_LIMIT:
            return f"the peer does not read: {self.bytes} bytes are queued for it"
        total = sum(queue.bytes for queue in list(large_queues) if queue._is_stalled(now))
        if total <= STALLED_LIMIT:
            return ""
        return f"the peer does not read: {self.bytes} bytes are queued for it, and {total} for all peers that do not"

    def _is_stalled(self, now: float) -> bool:
        return now >= self._moved_at + _STALLED_S
