"""The boundary below which there are only byte parts, order and close.

A `Connection` carries messages, each a list of parts (one-dimensional byte buffers), whole and in
order, both ways. All transports keep this contract, and one conformance suite checks them
(``tests/rpc/conformance.py``):

* `Connection.start` hands over the two callbacks; nothing is delivered before.
* ``on_parts(parts)`` is called once per message, in order, never by two threads at once. The
  parts are read-only and stay valid as long as somebody holds them.
* `Connection.send` never blocks. What the other side does not take yet is queued; the queue is
  bounded (`Backlog`), and a connection that exceeds it is closed.
* ``on_closed(reason)`` is called exactly once, after the last ``on_parts``, whichever side or
  accident ended the connection. What the peer sent before it closed is delivered first; after
  a `close` on this side nothing more is.
* The connecting side speaks first: a listener may not learn of a connection before that.
"""

from __future__ import annotations

import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

from tfmini.rpc.waiter import Clock

_log = logging.getLogger("tfmini.rpc")

OnParts = Callable[[list[Any]], None]
OnClosed = Callable[[str], None]

BACKLOG_LIMIT = 2 << 30  # bytes queued for a peer that takes nothing
_STALLED_S = 4.0
_SLOW_FACTOR = 8  # so many times the limit for a peer that does take something


class Backlog:
    """What waits for a slow peer, in bytes, and when that is too much.

    One message may be larger than the limit, so a peer that makes progress gets more room than one
    that stands still.
    """

    __slots__ = ("_moved_at", "bytes")

    def __init__(self) -> None:
        self.bytes = 0
        self._moved_at = 0.0

    def add(self, nbytes: int) -> None:
        """So much more waits."""
        if not self.bytes:
            self._moved_at = time.monotonic()
        self.bytes += nbytes

    def take(self, nbytes: int) -> None:
        """So much has gone."""
        self.bytes -= nbytes
        self._moved_at = time.monotonic()

    def clear(self) -> None:
        """Nothing waits any more."""
        self.bytes = 0

    def excess(self) -> str:
        """Why the peer should be given up instead of queueing more for it, or ""."""
        if self.bytes <= BACKLOG_LIMIT:
            return ""
        if self.bytes <= _SLOW_FACTOR * BACKLOG_LIMIT and time.monotonic() < self._moved_at + _STALLED_S:
            return ""
        return f"the peer does not read: {self.bytes} bytes are waiting for it"


class Connection(ABC):
    """One two-way stream of messages. See the module for the contract.

    ``plain_host`` is the numeric host that was dialled, or the interface that was dialled at, where
    that is plain TCP without encryption; else "".
    """

    address: str = ""
    plain_host: str = ""

    @abstractmethod
    def start(self, on_parts: OnParts, on_closed: OnClosed) -> None:
        """Begins delivery."""

    @abstractmethod
    def send(self, parts: Sequence[Any]) -> None:
        """Queues one message; from any thread. Does nothing on a closed connection."""

    @abstractmethod
    def close(self, reason: str = "closed here") -> None:
        """Ends the connection; what was sent before still leaves if the peer reads it."""

    @property
    @abstractmethod
    def backlog(self) -> int:
        """Bytes accepted by `send` that the layer below has not taken yet."""

    @property
    def activity(self) -> int:
        """A number that changes while something comes in, even if no message is complete or read yet."""
        return 0


class RefusedConnection(Connection):
    """A connection that could not be made; `start` tells why."""

    def __init__(self, clock: Clock, address: str, reason: str) -> None:
        self.address = address
        self._clock = clock
        self._reason = reason

    def start(self, on_parts: OnParts, on_closed: OnClosed) -> None:
        self._clock.call_soon(deliver, on_closed, self._reason)

    def send(self, parts: Sequence[Any]) -> None:
        """Goes nowhere."""

    def close(self, reason: str = "closed here") -> None:
        """It is."""

    @property
    def backlog(self) -> int:
        return 0


class Listener(ABC):
    """A bound address. ``address`` is the one to connect to, with the real port."""

    address: str = ""

    @abstractmethod
    def close(self) -> None:
        """Releases the address (it can be bound again when this returns) and closes its connections."""


class Transport(ABC):
    """A way to listen and to connect."""

    @abstractmethod
    def listen(self, address: str, on_connection: Callable[[Connection], None]) -> Listener:
        """Binds ``address``; ``on_connection`` gets each new connection and must `start` it.

        Raises:
          errors.UnknownError: the address is taken.
          errors.InvalidArgumentError: it cannot be understood or bound.
        """

    @abstractmethod
    def connect(self, address: str) -> Connection:
        """A connection to ``address``; a failure to connect arrives as ``on_closed``."""

    def close(self) -> None:  # noqa: B027  a transport may hold nothing
        """Releases what the transport itself holds."""


def deliver(callback: Callable[[Any], None], item: Any) -> None:
    """Calls a user of a connection; what comes next on the connection does not depend on its bugs."""
    try:
        callback(item)
    except Exception:  # noqa: BLE001 - see below
        # The layer above answers or counts bad messages itself, so this is a bug of ours: log it.
        _log.exception("a connection's callback failed: %r", callback)
