"""ZeroMQ connections: ``tcp://`` and ``ipc://``. Nothing else imports zmq's sockets.

A listener is a ROUTER, a connection a DEALER. ZeroMQ's own reconnecting is off: a connection is
one TCP connection, and whoever wants another makes it. What ZeroMQ hides, its monitor events
tell: a ROUTER's clients are told apart by the descriptor that their messages come from, so that
the event "descriptor 17 was disconnected" ends the right connection.

ZeroMQ has no way to drop one client of a ROUTER, so closing an accepted connection sends a
message whose first part is empty (a real one never is) and the reason, upon which the other side
closes.

Two traps are handled in one place each. A socket's descriptor signals only edges, and any call
on the socket may swallow one: after every send the events are looked at again. And sockets are
not thread-safe: each has a lock.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Sequence
from typing import Any

import zmq

from tfmini.rpc.codec import MESSAGE_LIMIT
from tfmini.rpc.reactor import Reactor
from tfmini.rpc.security import KEYS_ENV, Address, Keys, parse_address
from tfmini.rpc.transport import Connection, Listener, OnClosed, OnParts, Transport, deliver
from tfmini.rpc.zmq_connection import ZmqConnection
from tfmini.rpc.zmq_pump import LINGER_MS, Pump, get_context, payload
from tfmini.rpc.zmq_router import RouterListener, is_numeric

COPY_BELOW = 64 << 10  # bytes; a smaller part is cheaper to copy than to track
_CONNECT_MS = 4000
_NEVER_MS = 24 * 3600 * 1000
# ZMTP's own heartbeat only cleans up after half-open connections. It is slow on purpose: after a
# stall of this process its timers would blame the peer.
_ZMTP_BEAT_MS, _ZMTP_SILENCE_MS = 10_000, 60_000
_HANDSHAKE_FAULTS: dict[int, str] = {
    zmq.EVENT_HANDSHAKE_FAILED_AUTH: "our key is not admitted there",
    zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL: "what listens there does not speak our protocol or use our keys",
    zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL: "what listens there broke off the handshake",
}
_KEYLESS = f"; it may ask for keys: {KEYS_ENV} names none here"


class _DealerConnection(ZmqConnection):
    """The connecting side."""

    def __init__(self, transport: ZmqTransport, address: Address) -> None:
        super().__init__(transport.reactor, str(address))
        sock = transport.new_socket(zmq.DEALER)
        if transport.keys is not None and address.scheme == "tcp":
            sock.curve_publickey, sock.curve_secretkey = transport.keys.public, transport.keys.secret
            sock.curve_serverkey = transport.keys.public
        self._target = address
        self._is_plain = transport.keys is None and address.scheme == "tcp"
        self._pump = Pump(sock, transport.reactor, self._on_message)
        self._ready = False
        self._connected = False
        self._fault = ""

    def start(self, on_parts: OnParts, on_closed: OnClosed) -> None:
        self._on_parts, self._on_closed = on_parts, on_closed
        self._pump.start(self._on_event)
        host = self._target.host
        if self._target.scheme != "tcp" or is_numeric(host):
            self._connect(str(self._target))
        elif host == "localhost":
            self._connect(f"tcp://127.0.0.1:{self._target.port}")
        else:  # the name service may take seconds, and ZeroMQ's only thread must not wait for it
            threading.Thread(target=self._resolve, name="tfmini-resolve", daemon=True).start()

    def _resolve(self) -> None:
        try:
            found = socket.getaddrinfo(self._target.host, self._target.port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:
            self._fail(f"the name {self._target.host!r} was not found ({error})")
            return
        ip = found[0][4][0]
        self._reactor.call_soon(self._connect, str(Address("tcp", str(ip), self._target.port)))

    def _connect(self, endpoint: str) -> None:
        try:
            with self._pump.lock:
                if self._pump.closed:
                    return
                self._pump.sock.connect(endpoint)
        except zmq.ZMQError as error:
            self._fail(f"cannot connect to {endpoint}: {error}")
            return
        if self._is_plain:
            self.plain_host = parse_address(endpoint).host
        self._ready = True
        self._outbox.flush()

    def _push(self, parts: Sequence[Any]) -> bool:
        return self._ready and self._pump.send(parts)

    def _on_message(self, parts: list[Any]) -> None:
        if not parts[0] and len(parts) == 2:
            self._end(f"closed by the other side: {payload(parts[1])!r}")
        elif self._on_parts is not None and not self._ended and not self._closed_here:
            deliver(self._on_parts, [parts[0], *map(payload, parts[1:])])

    def _on_event(self, event: int, value: int) -> None:
        if event == zmq.EVENT_CONNECTED:
            self._connected, self.fd = True, value
        elif event in _HANDSHAKE_FAULTS:
            self._fault = _HANDSHAKE_FAULTS[event] + (_KEYLESS if self._is_plain else "")
        elif event in (zmq.EVENT_DISCONNECTED, zmq.EVENT_CLOSED):
            self._pump.drain()
            closed = (
                "the connection was closed"
                if self._connected
                else "connection refused: nothing listens there"
            )
            self._end(self._fault or closed)

    def close(self, reason: str = "closed here") -> None:
        if not self._ended:
            self._closed_here = True
            if self._on_closed is None:
                self._end(reason)
            else:
                self._fail(reason)

    def _release(self, reason: str) -> None:
        self._pump.close()


class ZmqTransport(Transport):
    """Connections over ``tcp://host:port`` and ``ipc://path``.

    Args:
      keys: CURVE keys for tcp, the same pair on both sides or mutually admitted.
      max_message_bytes: refuse larger frames before they are allocated; -1: no limit. What somebody who has
        not said Hello may send is limited in `Link`: ZeroMQ has one limit for all clients of a listener.
    """

    def __init__(self, reactor: Reactor, keys: Keys | None = None, max_message_bytes: int = MESSAGE_LIMIT) -> None:
        self.reactor = reactor
        self.keys = keys
        self._max_message_bytes = max_message_bytes

    def new_socket(self, kind: int) -> zmq.Socket[Any]:
        """A socket with the options that all of them share."""
        sock: zmq.Socket[Any] = get_context().socket(kind)
        sock.linger = LINGER_MS
        sock.ipv6 = True
        sock.reconnect_ivl = _NEVER_MS
        sock.connect_timeout = _CONNECT_MS
        sock.handshake_ivl = 2 * _CONNECT_MS  # the Hello's deadline comes first and can say more
        sock.heartbeat_ivl, sock.heartbeat_timeout = _ZMTP_BEAT_MS, _ZMTP_SILENCE_MS
        sock.maxmsgsize = self._max_message_bytes
        sock.copy_threshold = COPY_BELOW
        return sock

    def listen(self, address: str, on_connection: Callable[[Connection], None]) -> Listener:
        return RouterListener(self, parse_address(address), on_connection)

    def connect(self, address: str) -> Connection:
        return _DealerConnection(self, parse_address(address))
