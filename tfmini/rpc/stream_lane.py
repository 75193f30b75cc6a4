"""Stream lanes: a plain TCP socket beside a plain ZeroMQ connection, for tasks on different hosts.

ZeroMQ copies a large message once more, wakes an I/O thread on each side and faults in fresh
memory for every message; a socket of our own needs half the time. It is as open as the ZeroMQ
connection that it relieves and never more: only a listener without keys has one, on the same
interface, and only who shows the one-time token from the Hello gets in. If it cannot be reached
(a firewall, say), messages stay with ZeroMQ.
"""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Callable

from tfmini.rpc.lane_listener import TOKEN_BYTES, TokenListener
from tfmini.rpc.local_lane import LaneConnection
from tfmini.rpc.reactor import Reactor
from tfmini.rpc.source import Source

_log = logging.getLogger("tfmini.rpc")
_CONNECT_S = 4.0
SCHEME = "stream://"


def streams_wanted() -> bool:
    """Whether stream lanes are used at all; ``TFMINI_STREAM=off`` switches them off."""
    return os.environ.get("TFMINI_STREAM", "").lower() not in ("off", "0", "no")


class StreamListener(TokenListener):
    """Accepts stream lanes; its address says only the port.

    Args:
      interface: numeric address to bind, the one of the ZeroMQ listener.

    Raises:
      OSError: it cannot be bound.
    """

    def __init__(self, interface: str, reactor: Reactor) -> None:
        sock = socket.socket(_family(interface), socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        try:
            sock.bind((interface, 0))
            sock.listen(128)
        except OSError:
            sock.close()
            raise
        super().__init__(sock, f"{SCHEME}{sock.getsockname()[1]}", reactor)

    def _read_token(self, sock: socket.socket) -> tuple[bytes, socket.socket | None]:
        shown = sock.recv(TOKEN_BYTES, socket.MSG_PEEK)
        if not shown:
            raise ConnectionResetError("end of file")
        if len(shown) < TOKEN_BYTES:
            raise BlockingIOError
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return sock.recv(TOKEN_BYTES), None


class StreamOpening:
    """Connects to a `StreamListener` without waiting and shows the token.

    Args:
      on_open: gets the lane before the token is shown, so before the other side can use it;
        never if that fails.
    """

    def __init__(
        self,
        host: str,
        port: int,
        token: bytes,
        reactor: Reactor,
        on_open: Callable[[LaneConnection], None],
    ) -> None:
        self._token = token
        self._reactor = reactor
        self._on_open = on_open
        self._address = f"tcp://{host}:{port}"
        self._over = False
        self._sock = socket.socket(_family(host), socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        self._sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._timer = reactor.call_later(_CONNECT_S, self._fail, "no answer")
        self._source: Source = reactor.source(self._sock.fileno(), self._on_ready)
        try:
            self._sock.connect((host, port))
        except BlockingIOError:  # under way
            pass
        except OSError as error:
            reactor.call_soon(self._fail, str(error))
            return
        reactor.watch(self._source, writable=True)

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
        lane = LaneConnection(self._sock, None, self._reactor, self._address)
        self._on_open(lane)
        try:
            self._sock.send(self._token)
        except OSError as error:
            lane.close(f"the connection broke: {error}")

    def _fail(self, reason: str) -> None:
        if not self._over:
            self._end()
            self._sock.close()
            _log.info("no stream lane to %s: %s", self._address, reason)

    def _end(self) -> None:
        self._over = True
        self._timer.cancel()
        self._reactor.unwatch(self._source)


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET
