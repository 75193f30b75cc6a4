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

import errno
import ipaddress
import socket
import threading
from collections.abc import Callable, Sequence
from typing import Any

import zmq

from tfmini import errors, listen_fd
from tfmini.rpc.codec import MESSAGE_LIMIT
from tfmini.rpc.reactor import Reactor
from tfmini.rpc.security import Address, Keys, parse_address, port_busy
from tfmini.rpc.transport import Connection, Listener, OnClosed, OnParts, Transport, deliver
from tfmini.rpc.zap import Gatekeeper
from tfmini.rpc.zmq_pump import LINGER_MS, Outbox, Pump, bytes_received, get_context, payload

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


class _ZmqConnection(Connection):
    """What both kinds of connection share: callbacks, outbox and the one end."""

    def __init__(self, reactor: Reactor, address: str) -> None:
        self.address = address
        self._reactor = reactor
        self._outbox = Outbox(reactor, self._push, self._fail)
        self._on_parts: OnParts | None = None
        self._on_closed: OnClosed | None = None
        self._ended = False
        self._failed: str | None = None
        self._closed_here = False
        self.fd = -1  # ZeroMQ's, once it is known

    @property
    def backlog(self) -> int:
        return self._outbox.bytes

    @property
    def activity(self) -> int:
        return bytes_received(self.fd) if self.fd >= 0 and not self._ended else 0

    def send(self, parts: Sequence[Any]) -> None:
        if not self._ended and self._failed is None:
            self._outbox.send(parts)

    def _push(self, parts: Sequence[Any]) -> bool:
        raise NotImplementedError

    def _fail(self, reason: str) -> None:
        """Ends it, from any thread."""
        self._failed = self._failed or reason
        self._reactor.call_soon(self._end, reason)

    def _end(self, reason: str) -> None:
        """The one end. Runs in the reactor, after what has arrived was delivered."""
        if not self._ended:
            self._ended = True
            self._outbox.clear()
            self._release(reason)
            if self._on_closed is not None:
                deliver(self._on_closed, reason)

    def _release(self, reason: str) -> None:
        raise NotImplementedError


class _DealerConnection(_ZmqConnection):
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
        if self._target.scheme != "tcp" or _is_numeric(host):
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
            self._fault = _HANDSHAKE_FAULTS[event]
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


class _RouterConnection(_ZmqConnection):
    """One client of a listener."""

    def __init__(self, listener: _RouterListener, routing_id: bytes, fd: int) -> None:
        super().__init__(listener.reactor, listener.address)
        self.routing_id = routing_id
        self.fd = fd
        self.plain_host = listener.plain_interface
        self._listener = listener

    def start(self, on_parts: OnParts, on_closed: OnClosed) -> None:
        self._on_parts, self._on_closed = on_parts, on_closed

    def take(self, parts: list[Any]) -> None:
        if self._on_parts is not None and not self._ended and not self._closed_here:
            deliver(self._on_parts, parts)

    def _push(self, parts: Sequence[Any]) -> bool:
        return self._listener.push([self.routing_id, *parts])

    def close(self, reason: str = "closed here") -> None:
        if not self._ended and self._failed is None:
            self._closed_here = True
            self._outbox.send([b"", reason.encode()])
            self._fail(reason)

    def _release(self, reason: str) -> None:
        self._listener.forget(self)


class _RouterListener(Listener):
    """A bound ROUTER and its clients."""

    def __init__(
        self, transport: ZmqTransport, address: Address, on_connection: Callable[[Connection], None]
    ) -> None:
        self.reactor = transport.reactor
        self._on_connection = on_connection
        self._clients: dict[bytes, _RouterConnection | None] = {}  # None: closed here, still connected
        self._by_fd: dict[int, bytes] = {}
        sock = transport.new_socket(zmq.ROUTER)
        sock.router_mandatory = 1
        self._gate: Gatekeeper | None = None
        if transport.keys is not None and address.scheme == "tcp":
            self._gate = Gatekeeper.of(get_context(), self.reactor)
            self._domain = self._gate.admit(sock, transport.keys)
        self._pump = Pump(sock, self.reactor, self._on_message)
        try:
            self._bind(sock, address)
        except zmq.ZMQError as error:
            self._pump.close()
            if error.errno == errno.EADDRINUSE:
                raise port_busy(str(address)) from None
            raise errors.InvalidArgumentError(None, None, f"Cannot listen at {address}: {error}") from error
        except errors.OpError:
            self._pump.close()
            raise
        self._endpoint = sock.getsockopt_string(zmq.LAST_ENDPOINT)
        bound = parse_address(self._endpoint)
        self.plain_interface = bound.host if address.scheme == "tcp" and self._gate is None else ""
        self.address = str(Address("tcp", address.host, bound.port) if address.scheme == "tcp" else bound)
        self._pump.start(self._on_event)

    @staticmethod
    def _bind(sock: zmq.Socket[Any], address: Address) -> None:
        if address.scheme == "tcp":
            fd = listen_fd.claim(address.port)
            if fd is not None:
                sock.setsockopt(zmq.USE_FD, fd)
            sock.bind(str(Address("tcp", _interface(address), address.port)))
        else:
            if _ipc_is_alive(address.path):  # ZeroMQ would just take it over
                raise port_busy(str(address))
            sock.bind(str(address))

    def push(self, parts: Sequence[Any]) -> bool:
        return self._pump.send(parts)

    def forget(self, connection: _RouterConnection) -> None:
        if self._clients.get(connection.routing_id) is connection:
            self._clients[connection.routing_id] = None

    def _on_message(self, parts: list[Any]) -> None:
        routing_id, frames = parts[0], parts[1:]
        if not frames:
            return
        try:
            client = self._clients[routing_id]
        except KeyError:
            # A descriptor may have been used before: its old owner's end is among the events.
            self._pump.read_monitor()
            client = self._admit(routing_id, frames[0].get(zmq.SRCFD))
        if client is not None:
            client.take([payload(frame) for frame in frames])

    def _admit(self, routing_id: bytes, fd: int) -> _RouterConnection:
        client = _RouterConnection(self, routing_id, fd)
        self._clients[routing_id] = client
        self._by_fd[fd] = routing_id
        deliver(self._on_connection, client)
        return client

    def _on_event(self, event: int, value: int) -> None:
        if event == zmq.EVENT_DISCONNECTED:
            routing_id = self._by_fd.get(value)
            if routing_id is not None:
                # What it sent last is delivered first; if that brought another client with the
                # same descriptor, the table has changed and the entry is no longer ours.
                self._pump.drain()
                if self._by_fd.get(value) == routing_id:
                    del self._by_fd[value]
                client = self._clients.pop(routing_id, None)
                if client is not None:
                    client._end("the connection was closed")

    def close(self) -> None:
        for client in list(self._clients.values()):
            if client is not None:
                client.close("the listener was closed")

        def unbind() -> None:
            self._pump.sock.unbind(self._endpoint)
            self._pump.wait_unbound()

        self._pump.close(unbind)
        if self._gate is not None:
            self._gate.dismiss(self._domain)


def _interface(address: Address) -> str:
    """The numeric address to bind.

    Raises:
      errors.InvalidArgumentError: the host name is not known here.
    """
    if address.host == "localhost":
        return "127.0.0.1"
    if address.host == "*":
        return "0.0.0.0"
    if _is_numeric(address.host):
        return address.host
    try:
        return str(socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)[0][4][0])
    except (OSError, UnicodeError) as error:
        raise errors.InvalidArgumentError(
            None, None, f"Cannot listen at {address}: the name {address.host!r} was not found ({error})."
        ) from error


def _is_numeric(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _ipc_is_alive(path: str) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        try:
            probe.connect("\0" + path[1:] if path.startswith("@") else path)
        except BlockingIOError:  # a full backlog
            return True
        except OSError:
            return False
    return True


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
        return _RouterListener(self, parse_address(address), on_connection)

    def connect(self, address: str) -> Connection:
        return _DealerConnection(self, parse_address(address))
