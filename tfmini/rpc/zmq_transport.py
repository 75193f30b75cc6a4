"""ZeroMQ connections: ``tcp://`` and ``ipc://``. Nothing else imports zmq's sockets.

A listener is a ROUTER socket, a connection a DEALER socket. ZeroMQ's own reconnecting is off: a
connection is exactly one TCP connection, and `Peer` makes new ones. Monitor events report connects and
disconnects. A ROUTER's clients are identified by the descriptor of their messages, so that the event
"descriptor 17 was disconnected" ends the right connection.

ZeroMQ cannot disconnect one client of a ROUTER. So closing an accepted connection sends a message with
an empty first part (never empty otherwise) and the reason, and the peer then closes.

A ZeroMQ socket's descriptor is edge-triggered, and any call on the socket may consume an edge: so the
events are checked after every send. Sockets are not thread-safe: each has a lock.
"""

from __future__ import annotations

import contextlib
import ipaddress
import socket
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import zmq

from tfmini import errors
from tfmini.rpc.addresses import (
    REFUSED,
    Address,
    UnreachableError,
    choose,
    explain_failure,
    is_numeric,
    parse_address,
    silent,
)
from tfmini.rpc.forks import at_limit, has_room, zmq_not_for_children
from tfmini.rpc.keys import INSECURE_ENV, KEYS_ENV, Keys
from tfmini.rpc.reactor import Reactor
from tfmini.rpc.transport import (
    Connection,
    Listener,
    Locate,
    OnClosed,
    OnParts,
    Refusal,
    RefusedConnection,
    Transport,
)
from tfmini.rpc.zmq_pump import FRAME_LIMIT, LINGER_MS, KernelSocket, Pump, ZmqConnection, get_context, payload
from tfmini.rpc.zmq_router import RouterListener

COPY_BELOW = 64 << 10  # bytes; a smaller part is cheaper to copy than to track
_PER_LISTENER, _PER_CONNECTION = 16, 8  # descriptors, with a few to spare
_CONNECT_MS = 4000
_CHOICE_S, _EXPLAIN_S = 2.0, 0.5
_BACKLOG = 1024
_NEVER_MS = 24 * 3600 * 1000
# ZMTP's own heartbeat only removes half-open connections. It is slow, because after a stall of this
# process its timers would disconnect a live peer.
_ZMTP_BEAT_MS, _ZMTP_SILENCE_MS = 10_000, 60_000
_PROBES = 3
_MISMATCH = 0x11000002  # one side uses keys and the other does not; pyzmq 25 has no name for it
_GREETING_S = 2.0
# Of ZMTP 3: what each side sends first, with the version, and where its greeting has the name of the mechanism.
_SIGNATURE, _MECHANISM = b"\xff" + bytes(8) + b"\x7f\x03", slice(12, 32)
_FAULTS = frozenset(
    {
        zmq.EVENT_HANDSHAKE_FAILED_AUTH,
        zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL,
        zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL,
    }
)


class _DealerConnection(ZmqConnection):
    """The connecting side."""

    def __init__(self, transport: ZmqTransport, address: Address, locate: Locate | None) -> None:
        super().__init__(transport.reactor, str(address))
        sock = transport.new_socket(zmq.DEALER)
        self._keys = keys = transport.keys
        if keys is not None:
            sock.curve_publickey, sock.curve_secretkey = keys.public, keys.secret
            sock.curve_serverkey = keys.server or keys.public
        self._target = address
        self._locate = locate
        self._endpoint = ""
        self._began = 0.0
        self._pump = Pump(sock, transport.reactor, self._on_message)
        self._outbox.is_held = True  # until `_connect`
        self._connected = False
        self._fault: tuple[int, int] | None = None  # event and detail of a failed handshake
        self._diagnosing = False

    def start(self, on_parts: OnParts, on_closed: OnClosed) -> None:
        self._on_parts, self._on_closed = on_parts, on_closed
        try:
            self._begin()
        except (zmq.ZMQError, RuntimeError) as error:  # no descriptor, or no thread
            self._fail(f"cannot connect to {self._target}: {error}")

    def _begin(self) -> None:
        self._pump.start(self._on_event)
        host = self._target.host
        if self._target.scheme != "tcp" or self._locate is None and is_numeric(host):
            self._connect(str(self._target))
        elif self._locate is None and host == "localhost":
            self._connect(f"tcp://127.0.0.1:{self._target.port}")
        else:  # name resolution may take seconds and must not block ZeroMQ's only I/O thread
            threading.Thread(target=self._resolve, name="tfmini-resolve", daemon=True).start()

    def _resolve(self) -> None:
        """Looks up where the target is now. A task may have moved, and a name may have another address."""
        found = self._locate() if self._locate is not None else ()
        if not found and not self._target.port:
            self._fail("the task has not said yet at which address it is")
            return
        try:
            chosen = choose(found or [str(self._target)], _CHOICE_S)
        except UnreachableError as error:
            self._fail(str(error))
            return
        self._reactor.call_soon(self._connect, chosen)

    def _connect(self, endpoint: str) -> None:
        # Before ZeroMQ begins: on the reactor's thread it may be told at once that nobody listens there.
        self._endpoint, self._began = endpoint, time.monotonic()
        try:
            if not self._pump.connect(endpoint):
                return
        except zmq.ZMQError as error:
            self._fail(f"cannot connect to {endpoint}: {error}")
            return
        zmq_not_for_children(self, parse_address(endpoint), is_bound=False)
        if self._target.scheme == "tcp":
            if self._locate is not None:
                self.address = endpoint
            self.stream_host = parse_address(endpoint).host
        self._outbox.is_held = False
        self._outbox.flush()

    def _push(self, parts: Sequence[Any]) -> bool:
        return not self._outbox.is_held and self._pump.send(parts)

    def _on_message(self, parts: list[Any]) -> None:
        if not parts[0] and len(parts) == 2:
            self._end(f"closed by the other side: {payload(parts[1])!r}")
        elif not self._ended and not self._closed_here:
            self._deliver_message([parts[0], *map(payload, parts[1:])])

    def _on_event(self, event: int, value: int) -> None:
        if event == zmq.EVENT_CONNECTED:
            self._connected, self._kernel = True, KernelSocket(value)
        elif event in _FAULTS:
            self._fault = event, value
        elif event in (zmq.EVENT_DISCONNECTED, zmq.EVENT_CLOSED):
            self._pump.drain()
            if self._fault is None and self._connected:
                self._end("the connection was closed")
            elif self._fault is None:
                self._explain()
            elif not self._diagnosing:
                self._diagnosing = True
                self._diagnose(*self._fault)

    def _explain(self) -> None:
        """Ends the connection after TCP could not connect. ZeroMQ does not tell why, so it may take another attempt."""
        address = parse_address(self._endpoint)
        if address.scheme != "tcp" or ipaddress.ip_address(address.host).is_loopback:
            self._end(REFUSED)
        elif (lasted_s := time.monotonic() - self._began) >= 0.9 * _CONNECT_MS / 1000:
            self._end(silent(address))
        elif not self._diagnosing:
            self._diagnosing = True

            def ask() -> None:
                self._fail(explain_failure(address, lasted_s, _EXPLAIN_S))

            threading.Thread(target=ask, name="tfmini-diagnose", daemon=True).start()

    def why_silent(self) -> str:
        if self._connected or self._target.scheme != "tcp":
            return ""
        if not self._endpoint:
            return f"no name server has answered yet where {self._target.host!r} is"
        return silent(parse_address(self._endpoint))

    def _diagnose(self, event: int, detail: int) -> None:
        """Ends the connection after a failed handshake."""
        reason, self.refusal = _explain_fault(event, detail, self._keys)
        if event != zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL:
            self._end(reason)
            return

        def ask() -> None:
            mechanism, text = _mechanism(parse_address(self._endpoint)), reason
            if mechanism is None:
                self.refusal, text = None, "the connection was closed before the handshake"
            elif mechanism == b"NULL":  # its greeting was lost, as the server closed the connection at once
                text, _ = _explain_fault(zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL, _MISMATCH, self._keys)
            self._fail(text)

        # The server may be down behind a proxy that accepts connections. To ask it may take seconds.
        threading.Thread(target=ask, name="tfmini-diagnose", daemon=True).start()

    def close(self, reason: str = "closed here") -> None:
        if not self._ended:
            self._closed_here = True
            if self._on_closed is None:
                self._end(reason)
            else:
                self._fail(reason)

    def _release(self, reason: str) -> None:
        self._pump.close()
        if self._kernel is not None:
            self._kernel.close()


class ZmqTransport(Transport):
    """Connections over ``tcp://host:port`` and ``ipc://path``.

    Args:
      keys: CURVE keys; None: connections are open and not encrypted.
      silent_host_s: after how many seconds the kernel ends a connection to a host that says nothing; a process may be
        silent for as long as it likes then. 0: ZeroMQ asks the process itself, now and then.
    """

    def __init__(self, reactor: Reactor, keys: Keys | None = None, silent_host_s: int = 0) -> None:
        self.reactor = reactor
        self.keys = keys
        self._silent_host_s = silent_host_s

    def new_socket(self, kind: int) -> zmq.Socket[Any]:
        """Creates a socket with the options that all sockets share."""
        sock: zmq.Socket[Any] = get_context().socket(kind)
        sock.linger = LINGER_MS
        sock.ipv6 = True
        sock.reconnect_ivl = _NEVER_MS
        sock.connect_timeout = _CONNECT_MS
        sock.backlog = _BACKLOG
        sock.handshake_ivl = 2 * _CONNECT_MS  # later than `Link`'s deadline, whose error is more precise
        if self._silent_host_s:
            sock.tcp_keepalive, sock.tcp_keepalive_cnt = 1, _PROBES
            sock.tcp_keepalive_idle = sock.tcp_keepalive_intvl = self._silent_host_s // (_PROBES + 1)
            sock.tcp_maxrt = 1000 * self._silent_host_s
        else:
            sock.heartbeat_ivl, sock.heartbeat_timeout = _ZMTP_BEAT_MS, _ZMTP_SILENCE_MS
        sock.maxmsgsize = FRAME_LIMIT  # larger frames end the connection before memory is allocated for them
        sock.copy_threshold = COPY_BELOW
        return sock

    def listen(self, address: str, on_connection: Callable[[Connection], None]) -> Listener:
        if not has_room(_PER_LISTENER):
            raise errors.ResourceExhaustedError.of(f"Cannot listen at {address}: {at_limit()}.")
        sock = self.new_socket(zmq.ROUTER)
        return RouterListener(sock, self.reactor, self.keys, parse_address(address), on_connection)

    def connect(self, address: str, locate: Locate | None = None) -> Connection:
        if not has_room(_PER_CONNECTION):
            return RefusedConnection(self.reactor, address, f"there is no descriptor for it: {at_limit()}")
        try:
            return _DealerConnection(self, parse_address(address), locate)
        except zmq.ZMQError as error:  # another thread has taken the descriptors since
            return RefusedConnection(self.reactor, address, f"ZeroMQ makes no socket for it: {error}; {at_limit()}")


def _explain_fault(event: int, detail: int, keys: Keys | None) -> tuple[str, Refusal]:
    """Returns the reason of a failed handshake, with the remedy, and what it means for later attempts.

    Args:
      event: one of `_FAULTS`; ``detail``: its value.
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


def _mechanism(address: Address) -> bytes | None:
    """How a ZeroMQ server there wants peers to prove who they are: b"NULL", b"CURVE", or b"" if it does not say.

    None: no ZeroMQ server answers, as with a proxy whose server is down. Blocks for up to some seconds.
    """
    if address.scheme != "tcp":
        return b""
    greeting, until = b"", time.monotonic() + _GREETING_S
    with contextlib.suppress(OSError), socket.create_connection((address.host, address.port), _GREETING_S) as sock:
        sock.sendall(_SIGNATURE)  # which it waits for before it sends the rest of its own
        while len(greeting) < _MECHANISM.stop and time.monotonic() < until and (more := sock.recv(_MECHANISM.stop)):
            greeting += more
    return greeting[_MECHANISM].rstrip(b"\0") if greeting else None
