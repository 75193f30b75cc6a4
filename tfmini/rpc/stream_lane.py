"""Stream lanes: a TCP socket in place of a ZeroMQ connection, for tasks on different hosts.

ZeroMQ copies a large message once more, wakes an I/O thread on each side and faults in fresh
memory for every message; a socket of our own needs half the time, and less with encryption. It is no more
exposed than the ZeroMQ connection that it replaces: it is on the same interface, encrypted if there are keys,
and the peer must show that it has the one-time token from the HelloReply. If the port cannot be reached
(because of a firewall, say), the link stays with ZeroMQ.
"""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Callable

from tfmini.rpc.interfaces import listening_socket
from tfmini.rpc.lane_connection import LaneConnection
from tfmini.rpc.lane_listener import TOKEN_BYTES, TokenListener
from tfmini.rpc.reach import family_of
from tfmini.rpc.reactor import Reactor
from tfmini.rpc.sealed_lane import SealedLane, lane_name
from tfmini.rpc.source import EventSource
from tfmini.rpc.timers import Timer

_log = logging.getLogger("tfmini.rpc")
_CONNECT_S = 4.0
SCHEME = "stream://"


def streams_wanted() -> bool:
    """Whether stream lanes are enabled; ``TFMINI_STREAM=off`` disables them."""
    return os.environ.get("TFMINI_STREAM", "").lower() not in ("off", "0", "no")


class StreamListener(TokenListener):
    """Accepts stream lanes. Its address contains only the port.

    Args:
      interface: numeric address to bind, the same as the ZeroMQ listener's.
      sealed: whether its lanes are encrypted.

    Raises:
      OSError: the address cannot be bound.
    """

    def __init__(self, interface: str, reactor: Reactor, sealed: bool) -> None:
        self._is_sealed = sealed
        sock = listening_socket(interface)
        super().__init__(sock, f"{SCHEME}{sock.getsockname()[1]}", reactor)

    def _read_token(self, sock: socket.socket) -> tuple[bytes, socket.socket | None]:
        shown = sock.recv(TOKEN_BYTES, socket.MSG_PEEK)
        if not shown:
            raise ConnectionResetError("end of file")
        if len(shown) < TOKEN_BYTES:
            raise BlockingIOError
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return sock.recv(TOKEN_BYTES), None

    def _shown(self, token: bytes) -> bytes:
        return lane_name(token)

    def _make_lane(self, sock: socket.socket, fd_sock: socket.socket | None, token: bytes) -> LaneConnection:
        if self._is_sealed:
            return SealedLane(sock, self._reactor, self.address, token, connecting=False)
        return super()._make_lane(sock, fd_sock, token)


class StreamOpening:
    """Connects to a `StreamListener` without blocking and shows the token.

    Args:
      sealed: whether the lane is encrypted.
      on_open: gets the lane before the token is sent, so before the peer can use the lane; not called
        if connecting fails.
    """

    def __init__(
        self,
        host: str,
        port: int,
        token: bytes,
        reactor: Reactor,
        on_open: Callable[[LaneConnection], None],
        sealed: bool,
    ) -> None:
        self._token = token
        self._is_sealed = sealed
        self._reactor = reactor
        self._on_open = on_open
        self._address = f"tcp://{host}:{port}"
        self._over = False
        self._sock = socket.socket(family_of(host), socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        self._sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._source: EventSource = reactor.source(self._sock.fileno(), self._on_ready)
        self._timer: Timer | None = None
        try:
            self._sock.connect((host, port))
        except BlockingIOError:  # in progress
            pass
        except OSError as error:
            reactor.call_soon(self._fail, str(error))
            return
        reactor.watch(self._source, writable=True)
        # Last, since each of them may be due at once. One that is left over after the end does nothing.
        self._timer = reactor.call_later(_CONNECT_S, self._fail, "no answer")

    def _on_ready(self) -> None:
        if self._over:
            return
        fault = self._sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if fault:
            self._fail(os.strerror(fault))
            return
        try:
            self._sock.getpeername()
        except OSError:  # not connected yet
            return
        self._end()
        lane = (
            SealedLane(self._sock, self._reactor, self._address, self._token, connecting=True)
            if self._is_sealed
            else LaneConnection(self._sock, None, self._reactor, self._address)
        )
        self._on_open(lane)
        try:
            self._sock.send(lane_name(self._token))
        except OSError as error:
            lane.close(f"the connection broke: {error}")

    def _fail(self, reason: str) -> None:
        if not self._over:
            self._end()
            self._sock.close()
            _log.info("no stream lane to %s: %s", self._address, reason)

    def _end(self) -> None:
        self._over = True
        if self._timer is not None:
            self._timer.cancel()
        self._reactor.unwatch(self._source)
