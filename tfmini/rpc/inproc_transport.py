"""Connections between endpoints of one process: the reactor delivers the encoded parts.

Parts that the sender may still change (views of arrays) are copied, so a received tensor is a
snapshot, as on every other transport.
"""

from __future__ import annotations

import collections
import itertools
import threading
from collections.abc import Callable, Sequence
from typing import Any

from tfmini import errors
from tfmini.rpc.transport import (
    Connection,
    Listener,
    Locate,
    OnClosed,
    OnParts,
    RefusedConnection,
    Transport,
    deliver,
)
from tfmini.rpc.waiter import Clock

_names: dict[str, _InprocListener] = {}
_lock = threading.Lock()
_serial = itertools.count(1)


class InprocTransport(Transport):
    """Transport between endpoints of one process, at ``inproc://name``; ``inproc://*`` makes a new name."""

    def __init__(self, reactor: Clock) -> None:
        self._reactor = reactor

    def listen(self, address: str, on_connection: Callable[[Connection], None]) -> Listener:
        if address.endswith("://*"):
            address = f"inproc://anonymous-{next(_serial)}"
        with _lock:
            if address in _names:
                raise errors.UnknownError.of(f"{address} is in use by another endpoint of this process")
            _names[address] = listener = _InprocListener(address, on_connection, self._reactor)
        return listener

    def connect(self, address: str, locate: Locate | None = None) -> Connection:
        listener = _names.get(address)
        if listener is None:
            return RefusedConnection(self._reactor, address, "no endpoint of this process listens there")
        near = InprocConnection(self._reactor, address)
        far = InprocConnection(listener.reactor, address)
        near._other, far._other = far, near
        listener.accept(far)
        return near


class InprocConnection(Connection):
    """One of the two ends of an in-process connection."""

    def __init__(self, reactor: Clock, address: str) -> None:
        self.address = address
        self._reactor = reactor
        self._other: InprocConnection | None = None
        self._on_parts: OnParts | None = None
        self._on_closed: OnClosed | None = None
        self._queue: collections.deque[list[bytes] | str] = collections.deque()
        self._ended = False
        self._closed_here = False

    def start(self, on_parts: OnParts, on_closed: OnClosed) -> None:
        self._on_parts, self._on_closed = on_parts, on_closed
        self._reactor.call_soon(self._deliver)

    def send(self, parts: Sequence[Any]) -> None:
        other = self._other
        if not self._ended and other is not None:
            other._push([p if type(p) is bytes else bytes(p) for p in parts])

    def close(self, reason: str = "closed here") -> None:
        self._closed_here = True
        other = self._other
        if other is not None:
            other._end(f"closed by the other side: {reason}")
        self._end(reason)

    @property
    def backlog(self) -> int:
        return 0

    def _end(self, reason: str) -> None:
        if not self._ended:
            self._ended = True
            self._push(reason)

    def _push(self, item: list[bytes] | str) -> None:
        self._queue.append(item)
        if self._on_parts is not None:
            self._reactor.call_soon(self._deliver)

    def _deliver(self) -> None:
        """Delivers the queued messages and the reason of the end. Runs in the reactor only."""
        while self._queue:
            item = self._queue.popleft()
            if isinstance(item, list):
                if self._on_parts is not None and not self._closed_here:
                    deliver(self._on_parts, item)
            elif self._on_closed is not None:
                on_closed, self._on_parts, self._on_closed = self._on_closed, _ignore, None
                deliver(on_closed, item)


def _ignore(_: Any) -> None:
    """Replaces `on_parts` after the end."""


class _InprocListener(Listener):
    def __init__(self, address: str, on_connection: Callable[[Connection], None], reactor: Clock) -> None:
        self.address = address
        self.reactor = reactor
        self._on_connection = on_connection
        self._connections: list[InprocConnection] = []

    def accept(self, connection: InprocConnection) -> None:
        self._connections = [c for c in self._connections if not c._ended]
        self._connections.append(connection)
        self.reactor.call_soon(self._on_connection, connection)

    def close(self) -> None:
        with _lock:
            _names.pop(self.address, None)
        for connection in self._connections:
            connection.close("the listener was closed")
