"""The listening side of ZeroMQ: a ROUTER socket and its clients.

All clients of a ROUTER share its socket, and one client's long request must not delay the others. So each
client has an inbox, and messages are delivered from it when the socket can be read by another thread.
The inboxes of a listener have a common limit; beyond it, reading stops, which is backpressure to the clients.
"""

from __future__ import annotations

import collections
import contextlib
import errno
import ipaddress
import os
import socket
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import zmq

from tfmini import errors, listen_fd
from tfmini.rpc.addresses import Address, parse_address, port_busy
from tfmini.rpc.forks import zmq_not_for_children
from tfmini.rpc.pending import PendingConnections
from tfmini.rpc.transport import Connection, Listener, OnClosed, OnParts, deliver
from tfmini.rpc.zap import ZapHandler
from tfmini.rpc.zmq_connection import ZmqConnection
from tfmini.rpc.zmq_pump import TURN, Pump, get_context, payload

if TYPE_CHECKING:
    from tfmini.rpc.zmq_transport import ZmqTransport

_INBOX_LIMIT = 256 << 20  # bytes in all inboxes of a listener


class _RouterConnection(ZmqConnection):
    """One client of a listener."""

    def __init__(self, listener: RouterListener, routing_id: bytes, first_frame: Any) -> None:
        super().__init__(listener.reactor, listener.address)
        self.routing_id = routing_id
        self.fd = first_frame.get(zmq.SRCFD)
        self.peer_key = first_frame.get("User-Id").encode() if listener.has_keys else b""
        self.peer_host = first_frame.get("Peer-Address").removeprefix("::ffff:")  # an IPv4 address of an IPv6 socket
        self.stream_host = listener.interface
        self._listener = listener
        self._inbox: collections.deque[list[Any] | str] = collections.deque()  # messages; a str: the reason of the end
        self._delivering = threading.Lock()
        self._is_admitted = False

    def start(self, on_parts: OnParts, on_closed: OnClosed) -> None:
        self._on_parts, self._on_closed = on_parts, on_closed

    def enqueue(self, item: list[Any] | str) -> None:
        """Queues a message, or the reason of the connection's end."""
        self._inbox.append(item)

    @property
    def has_queued(self) -> bool:
        return bool(self._inbox)

    def deliver_queued(self, limit: int) -> int:
        """Delivers up to ``limit`` queued messages, unless another thread is delivering them; returns their number."""
        done = 0
        while self._inbox and done < limit and self._delivering.acquire(False):
            try:
                while self._inbox and done < limit:
                    item = self._inbox.popleft()
                    done += 1
                    self._listener.on_dequeued(item)
                    self._deliver(item)
            finally:  # also on KeyboardInterrupt in a handler
                self._delivering.release()
        return done

    def _deliver(self, item: list[Any] | str) -> None:
        if isinstance(item, str):
            self._end(item)
        elif not self._ended and not self._closed_here:
            self._deliver_message(item)

    def admit(self) -> None:
        self._is_admitted = True
        self._listener.admitted(self)

    def _add_piece(self, frames: list[Any]) -> list[Any] | None:
        return super()._add_piece(frames) if self._is_admitted else frames  # the link refuses it

    def _push(self, parts: Sequence[Any]) -> bool:
        return self._listener.push([self.routing_id, *parts])

    def close(self, reason: str = "closed here") -> None:
        if not self._ended:
            self._closed_here = True
            if self._failed is None:
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
        self._pending: PendingConnections[int, int] = PendingConnections(self.reactor, _shut_down)  # inodes, by fd
        self._nonempty: collections.deque[_RouterConnection] = collections.deque()  # clients with queued messages
        self._deferred: list[list[Any]] | None = None  # of new clients, while one of them is introduced
        self._count_lock = threading.Lock()
        self._inbox_bytes = 0
        self._is_full = False
        sock = transport.new_socket(zmq.ROUTER)
        sock.router_mandatory = 1
        self._zap: ZapHandler | None = None
        self.has_keys = transport.keys is not None
        if transport.keys is not None:
            self._zap = ZapHandler.of(get_context(), self.reactor)
            self._domain = self._zap.secure(sock, transport.keys)
        self._pump = Pump(sock, self.reactor, self._on_message, self._deliver_inboxes, self.may_read)
        try:
            self._bind(sock, address)
        except zmq.ZMQError as error:
            self._pump.close()
            if error.errno == errno.EADDRINUSE:
                raise port_busy(str(address)) from None
            raise errors.InvalidArgumentError.of(f"Cannot listen at {address}: {error}") from error
        except errors.OpError:
            self._pump.close()
            raise
        self._endpoint = sock.getsockopt_string(zmq.LAST_ENDPOINT)
        bound = parse_address(self._endpoint)
        self.interface = bound.host if address.scheme == "tcp" else ""
        self.address = str(Address("tcp", address.host, bound.port) if address.scheme == "tcp" else bound)
        zmq_not_for_children(self, bound, is_bound=True)
        self._pump.start(self._on_event)

    @staticmethod
    def _bind(sock: zmq.Socket[Any], address: Address) -> None:
        if address.scheme == "tcp":
            fd = listen_fd.claim(address.port)
            if fd is not None:
                sock.setsockopt(zmq.USE_FD, fd)
            sock.bind(str(Address("tcp", _interface(address), address.port)))
        else:
            if _ipc_is_alive(address.path):  # ZeroMQ would take the path over
                raise port_busy(str(address))
            sock.bind(str(address))

    def push(self, parts: Sequence[Any]) -> bool:
        return self._pump.send(parts)

    def forget(self, connection: _RouterConnection) -> None:
        if self._clients.get(connection.routing_id) is connection:
            self._clients[connection.routing_id] = None

    def admitted(self, connection: _RouterConnection) -> None:
        if self._by_fd.get(connection.fd) == connection.routing_id:
            self._pending.pop(connection.fd)

    def _on_message(self, parts: list[Any]) -> None:
        routing_id, frames = parts[0], parts[1:]
        if not frames:
            return
        try:
            client = self._clients[routing_id]
        except KeyError:
            if self._deferred is None:
                self._introduce(parts)
            else:
                self._deferred.append(parts)
            return
        if client is not None:
            self._put(client, [payload(frame) for frame in frames])

    def _introduce(self, parts: list[Any]) -> None:
        """Handles the first message of a client."""
        # The descriptor may be reused: then the end of its previous connection is among the events. To read them may
        # read further messages.
        self._deferred = later = list[list[Any]]()
        try:
            self._pump.read_monitor()
        finally:
            self._deferred = None
        client = self._admit(_RouterConnection(self, parts[0], parts[1]))
        self._put(client, [payload(frame) for frame in parts[1:]])
        for message in later:
            self._on_message(message)

    def _put(self, client: _RouterConnection, item: list[Any] | str) -> None:
        client.enqueue(item)
        with self._count_lock:
            self._inbox_bytes += _size(item)
        self._nonempty.append(client)

    def may_read(self) -> bool:
        """Whether the inboxes are below their limit, so that more messages may be read."""
        self._is_full = True  # set before the check, so that a concurrent `on_dequeued` sees it
        if self._inbox_bytes <= _INBOX_LIMIT:
            self._is_full = False
        return not self._is_full

    def on_dequeued(self, item: list[Any] | str) -> None:
        """Counts a message that has left its inbox; reads on if there is room again."""
        with self._count_lock:
            self._inbox_bytes -= _size(item)
        if self._is_full and self._inbox_bytes <= _INBOX_LIMIT:
            self._pump.again()

    def _deliver_inboxes(self) -> None:
        """Delivers up to a turn of the queued messages; another thread may read the socket meanwhile."""
        left = TURN
        while self._nonempty and left > 0:
            try:
                client = self._nonempty.popleft()
            except IndexError:  # another thread took the last one
                return
            if self._nonempty:
                self._pump.again()  # if this handler takes long, another thread delivers the rest
            done = -1
            try:
                done = client.deliver_queued(left)
                left -= done
            finally:  # also on KeyboardInterrupt in a handler
                if done and client.has_queued:
                    self._nonempty.append(client)
                    self._pump.again()

    def _admit(self, client: _RouterConnection) -> _RouterConnection:
        self._clients[client.routing_id] = client
        self._by_fd[client.fd] = client.routing_id
        deliver(self._on_connection, client)
        return client

    def _on_event(self, event: int, value: int) -> None:
        if event == zmq.EVENT_ACCEPTED:
            self._pending.add(value, _inode(value))
        elif event == zmq.EVENT_DISCONNECTED:
            self._pending.pop(value)
            routing_id = self._by_fd.get(value)
            if routing_id is not None:
                # Its last messages are delivered first. They may include one of a new client with the same
                # descriptor; then the table entry belongs to the new client.
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
        self._pending.close()
        if self._zap is not None:
            self._zap.remove(self._domain)


def _size(item: list[Any] | str) -> int:
    return 0 if isinstance(item, str) else sum(map(len, item)) + 1024  # with Python's overhead


def _inode(fd: int) -> int:
    """Identifies the socket of a descriptor, which ZeroMQ may close at any time; 0: there is none."""
    try:
        return os.fstat(fd).st_ino
    except OSError:
        return 0


def _shut_down(fd: int, inode: int) -> None:
    """Makes ZeroMQ close a connection, unless the descriptor means another socket by now."""
    with contextlib.suppress(OSError):
        copy = os.dup(fd)
        try:
            if _inode(copy) == inode:
                sock = socket.socket(fileno=copy)
                try:
                    sock.shutdown(socket.SHUT_RDWR)
                finally:
                    sock.detach()
        finally:
            os.close(copy)


def _interface(address: Address) -> str:
    """Returns the numeric address to bind.

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
        raise errors.InvalidArgumentError.of(
            f"Cannot listen at {address}: the name {address.host!r} was not found ({error})."
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
    """Whether a host is a numeric address, not a name."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
