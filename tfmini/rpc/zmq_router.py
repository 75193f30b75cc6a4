"""The listening side of ZeroMQ: a ROUTER and its clients.

All clients of a ROUTER share its socket, and one whose request takes long must not keep the others
waiting: what is read goes to an inbox per client, which is worked off when the socket is free again.
So much that is read and not handled is bounded for all of them together; then they wait in their sockets.
"""

from __future__ import annotations

import collections
import errno
import ipaddress
import socket
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import zmq

from tfmini import errors, listen_fd
from tfmini.rpc.security import Address, parse_address, port_busy
from tfmini.rpc.transport import Connection, Listener, OnClosed, OnParts, deliver
from tfmini.rpc.zap import Gatekeeper
from tfmini.rpc.zmq_connection import ZmqConnection
from tfmini.rpc.zmq_pump import Pump, get_context, payload

if TYPE_CHECKING:
    from tfmini.rpc.zmq_transport import ZmqTransport

_UNREAD_LIMIT = 256 << 20  # bytes of requests that a listener takes in before they are handled


class _RouterConnection(ZmqConnection):
    """One client of a listener."""

    def __init__(self, listener: RouterListener, routing_id: bytes, fd: int) -> None:
        super().__init__(listener.reactor, listener.address)
        self.routing_id = routing_id
        self.fd = fd
        self.plain_host = listener.plain_interface
        self._listener = listener
        self._inbox: collections.deque[list[Any] | str] = collections.deque()  # messages, and the reason of the end
        self._working = threading.Lock()

    def start(self, on_parts: OnParts, on_closed: OnClosed) -> None:
        self._on_parts, self._on_closed = on_parts, on_closed

    def put(self, item: list[Any] | str) -> None:
        """Queues a message, or the reason of the connection's end."""
        self._inbox.append(item)

    def work_off(self) -> None:
        """Delivers what is queued, unless another thread is at it, which then goes on with it."""
        while self._inbox and self._working.acquire(False):
            try:
                while self._inbox:
                    item = self._inbox.popleft()
                    self._listener.taken(item)
                    self._take(item)
            finally:  # also if Ctrl-C strikes in a handler
                self._working.release()

    def _take(self, item: list[Any] | str) -> None:
        if isinstance(item, str):
            self._end(item)
        elif self._on_parts is not None and not self._ended and not self._closed_here:
            deliver(self._on_parts, item)

    def _push(self, parts: Sequence[Any]) -> bool:
        return self._listener.push([self.routing_id, *parts])

    def close(self, reason: str = "closed here") -> None:
        if not self._ended and self._failed is None:
            self._closed_here = True
            self._outbox.send([b"", reason.encode()])
            self._fail(reason)

    def _release(self, reason: str) -> None:
        self._listener.forget(self)


class RouterListener(Listener):
    """A bound ROUTER and its clients."""

    def __init__(
        self, transport: ZmqTransport, address: Address, on_connection: Callable[[Connection], None]
    ) -> None:
        self.reactor = transport.reactor
        self._on_connection = on_connection
        self._clients: dict[bytes, _RouterConnection | None] = {}  # None: closed here, still connected
        self._by_fd: dict[int, bytes] = {}
        self._mail: collections.deque[_RouterConnection] = collections.deque()  # who has something in the inbox
        self._counting = threading.Lock()
        self._unread = 0  # bytes in inboxes
        self._is_full = False
        sock = transport.new_socket(zmq.ROUTER)
        sock.router_mandatory = 1
        self._gate: Gatekeeper | None = None
        if transport.keys is not None and address.scheme == "tcp":
            self._gate = Gatekeeper.of(get_context(), self.reactor)
            self._domain = self._gate.admit(sock, transport.keys)
        self._pump = Pump(sock, self.reactor, self._on_message, self._hand_out, self.may_read)
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
            self._put(client, [payload(frame) for frame in frames])

    def _put(self, client: _RouterConnection, item: list[Any] | str) -> None:
        client.put(item)
        with self._counting:
            self._unread += _size(item)
        self._mail.append(client)

    def may_read(self) -> bool:
        """Whether to read on, or to let the clients wait in their sockets because too much is unhandled here."""
        self._is_full = True  # first, so that `taken` sees it if it makes room meanwhile
        if self._unread <= _UNREAD_LIMIT:
            self._is_full = False
        return not self._is_full

    def taken(self, item: list[Any] | str) -> None:
        """A message has left its inbox."""
        with self._counting:
            self._unread -= _size(item)
        if self._is_full and self._unread <= _UNREAD_LIMIT:
            self._pump.again()

    def _hand_out(self) -> None:
        """Lets the clients' requests be handled; the socket can be read meanwhile, by another thread."""
        while self._mail:
            try:
                client = self._mail.popleft()
            except IndexError:  # another thread was faster
                return
            if self._mail:
                self._pump.again()  # should this one take long, another thread sees to the rest
            client.work_off()

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
                    self._put(client, "the connection was closed")

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


def _size(item: list[Any] | str) -> int:
    return 0 if isinstance(item, str) else sum(map(len, item)) + 1024  # with what Python needs to hold it


def _interface(address: Address) -> str:
    """The numeric address to bind.

    Raises:
      errors.InvalidArgumentError: the host name is not known here.
    """
    if address.host == "localhost":
        return "127.0.0.1"
    if address.host == "*":
        return "0.0.0.0"
    if is_numeric(address.host):
        return address.host
    try:
        return str(socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)[0][4][0])
    except (OSError, UnicodeError) as error:
        raise errors.InvalidArgumentError(
            None, None, f"Cannot listen at {address}: the name {address.host!r} was not found ({error})."
        ) from error


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


def is_numeric(host: str) -> bool:
    """Whether a host is an address and not a name."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
