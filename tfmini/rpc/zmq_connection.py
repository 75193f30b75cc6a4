"""The base of both ZeroMQ connections: callbacks, outbox and end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tfmini.rpc.reactor import Reactor
from tfmini.rpc.transport import Connection, OnClosed, OnParts, deliver
from tfmini.rpc.zmq_pieces import Assembly, is_piece
from tfmini.rpc.zmq_pump import Outbox, bytes_received


class ZmqConnection(Connection):
    """Base of the connecting and the accepted ZeroMQ connection."""

    def __init__(self, reactor: Reactor, address: str) -> None:
        self.address = address
        self._reactor = reactor
        self._outbox = Outbox(reactor, self._push, self._fail)
        self._assembly = Assembly()
        self._on_parts: OnParts | None = None
        self._on_closed: OnClosed | None = None
        self._ended = False
        self._failed: str | None = None
        self._closed_here = False
        self.fd = -1  # ZeroMQ's TCP descriptor, when known
        self.kind = "zmq"
        self._received = 0  # bytes

    @property
    def backlog(self) -> int:
        return self._outbox.bytes

    @property
    def activity(self) -> int:
        in_kernel = bytes_received(self.fd) if self.fd >= 0 and not self._ended else 0
        return in_kernel + self._assembly.received

    @property
    def received_bytes(self) -> int:
        return self._received

    def send(self, parts: Sequence[Any]) -> None:
        if not self._ended and self._failed is None:
            self.sent_bytes += sum(map(len, parts))
            self._outbox.send(parts)

    def _deliver_message(self, frames: list[Any]) -> None:
        """Delivers a ZeroMQ message, or the message of which it is the last piece."""
        parts: list[Any] | None = frames
        self._received += sum(map(len, frames))
        if is_piece(frames):
            try:
                parts = self._add_piece(frames)
            except ValueError as error:
                self.close(f"the peer violated the protocol: {error}")
                return
            except MemoryError as error:
                self.close(f"out of memory for a message from the peer: {error}")
                return
        if parts is not None and self._on_parts is not None:
            deliver(self._on_parts, parts)

    def _add_piece(self, frames: list[Any]) -> list[Any] | None:
        return self._assembly.add(frames)

    def _push(self, parts: Sequence[Any]) -> bool:
        raise NotImplementedError

    def _fail(self, reason: str) -> None:
        """Ends the connection. From any thread."""
        self._failed = self._failed or reason
        self._reactor.call_soon(self._end, reason)

    def _end(self, reason: str) -> None:
        """Ends the connection, once. Runs in the reactor, after the arrived messages were delivered."""
        if not self._ended:
            self._ended = True
            self._outbox.clear()
            self._assembly = Assembly()  # gives the memory of an incomplete message back
            self._release(reason)
            if self._on_closed is not None:
                deliver(self._on_closed, reason)

    def _release(self, reason: str) -> None:
        raise NotImplementedError
