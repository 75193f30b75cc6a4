"""The listening side of ZeroMQ: a ROUTER socket and its clients.

All clients of a ROUTER share its socket, and one client's long request must not delay the others. So each
client has an inbox, and messages are delivered from it when the socket can be read by another thread.
The inboxes of a listener have a common limit; beyond it, reading stops, which is backpressure to the clients.
"""

from __future__ import annotations

import collections
import contextlib
import errno
import logging
import os
import socket
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import zmq

from tfmini import errors, listen_fd
from tfmini.rpc.addresses import Address, ipc_is_alive, parse_address, port_busy
from tfmini.rpc.failed_handshakes import FailedHandshakes
from tfmini.rpc.forks import zmq_not_for_children
from tfmini.rpc.incomplete_messages import IncompleteMessages
from tfmini.rpc.interfaces import interface_of
from tfmini.rpc.pending import PendingConnections
from tfmini.rpc.relief import is_urgent
from tfmini.rpc.transport import Connection, Listener, OnClosed, OnParts, deliver
from tfmini.rpc.zap import ZapHandler
from tfmini.rpc.zmq_connection import ZmqConnection
from tfmini.rpc.zmq_pump import TURN, Pump, bytes_read, get_context, payload

if TYPE_CHECKING:
    from tfmini.rpc.zmq_transport import ZmqTransport

_log = logging.getLogger("tfmini.rpc")

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

    def deliver_urgent(self) -> None:
        """Delivers the first queued messages that are urgent, unless another thread is delivering; see `relief`."""
        while self._inbox and self._delivering.acquire(False):
            try:
                item = self._inbox[0] if self._inbox else ""
                if isinstance(item, str) or not is_urgent(item):
                    return
                self._listener.on_dequeued(self._inbox.popleft())
                self._deliver(item)
            finally:
                self._delivering.release()

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
        self._pending: PendingConnections[int, tuple[int, str]] = PendingConnections(self.reactor, _shut_down)  # by fd
        self._inodes: dict[int, int] = {}  # of the connections, by fd
        self._failures = FailedHandshakes()
        self._incomplete = IncompleteMessages(self.reactor, bytes_read, self._is_drained, self._end_endless)
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
        self.reactor.relief.add(self._relieve)

    @staticmethod
    def _bind(sock: zmq.Socket[Any], address: Address) -> None:
        if address.scheme == "tcp":
            fd = listen_fd.claim(address.port)
            if fd is not None:
                sock.setsockopt(zmq.USE_FD, fd)
            sock.bind(str(Address("tcp", interface_of(address.host), address.port)))
        else:
            if ipc_is_alive(address.path):  # ZeroMQ would take the path over
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
            self._incomplete.admitted(connection.fd)
            self._failures.admitted(connection.peer_host)

    def _is_drained(self) -> bool:
        return not self._is_full and self._pump.is_drained()

    def _end_endless(self, fd: int) -> None:
        _log.warning("%s: a connection is ended: it sends one message without an end", self.address)
        _shut_down(fd, (self._inodes.get(fd, 0), ""))

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
        self._incomplete.message(client.fd)
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

    def _relieve(self) -> None:
        """Called while no thread of the loop is free: reads the socket, and delivers what is urgent."""
        self._pump.look()
        for client in list(self._nonempty):
            client.deliver_urgent()

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
            self._on_accepted(value)
        elif event == zmq.EVENT_DISCONNECTED:
            self._incomplete.remove(value)
            self._inodes.pop(value, None)
            pending = self._pending.pop(value)
            if pending is not None:
                self._failures.failed(pending[1], self.reactor.now())
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

    def _on_accepted(self, fd: int) -> None:
        inode, host = _inode(fd), _host(fd)
        self._inodes[fd] = inode
        if self._failures.must_wait(host, self.reactor.now()):
            _shut_down(fd, (inode, host))
            return
        self._pending.add(fd, (inode, host))
        self._incomplete.add(fd)

    def close(self) -> None:
        self.reactor.relief.remove(self._relieve)
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


def _host(fd: int) -> str:
    """The numeric address of the peer of a TCP socket; "" for other sockets."""
    try:
        sock = socket.socket(fileno=os.dup(fd))
    except OSError:
        return ""
    with sock, contextlib.suppress(OSError):
        if sock.family in (socket.AF_INET, socket.AF_INET6):
            return str(sock.getpeername()[0])
    return ""


def _shut_down(fd: int, origin: tuple[int, str]) -> None:
    """Makes ZeroMQ close a connection, unless the descriptor means another socket by now.

    Args:
      origin: the inode of its socket, and the address of its peer.
    """
    with contextlib.suppress(OSError):
        copy = os.dup(fd)
        try:
            if _inode(copy) == origin[0]:
                sock = socket.socket(fileno=copy)
                try:
                    sock.shutdown(socket.SHUT_RDWR)
                finally:
                    sock.detach()
        finally:
            os.close(copy)
