"""The listening side of ZeroMQ: a ROUTER socket and its clients.

All clients of a ROUTER share its socket, and one client's long request must not delay the others. So each
client has an inbox, and messages are delivered from it when the socket can be read by another thread.
The inboxes of a listener have a common limit; beyond it, reading stops, which is backpressure to the clients.

ZeroMQ is open to whoever can connect. What a listener adds keeps the promises about doors (docs/reference/promises.md):

* ZeroMQ ends a handshake that takes too long, and not a connection that never says Hello, and it has no limit of their
  number (`PendingConnections`). It cannot end a connection that it has accepted, either. So the listener has a
  descriptor of its own of each (`KernelSocket`), by which it shuts the connection down.
* A handshake costs an operation with the server's key, also one that fails (`FailedHandshakes`).
* ZeroMQ limits the bytes of a frame and not the number of frames of a message, and it holds 64 bytes per frame until
  the message is complete. So an endless message of empty frames, which cost two bytes each on the wire, would fill the
  memory. What the kernel has received for a connection tells: our messages have at most `PIECE_BYTES`.

Threads: the socket's source reads messages and events, in one thread at a time; all tables are changed there. Handlers
run beside it, in any thread of the loop, and take messages out of the inboxes. The lock guards what both change.
"""

from __future__ import annotations

import collections
import errno
import ipaddress
import logging
import resource
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from typing import Any, Generic, TypeVar

import zmq

from tfmini import errors, listen_fd
from tfmini.rpc.addresses import Address, interface_of, ipc_is_alive, parse_address, port_busy
from tfmini.rpc.forks import zmq_not_for_children
from tfmini.rpc.keys import Keys, get_zap_handler
from tfmini.rpc.reactor import Reactor, is_urgent
from tfmini.rpc.transport import Connection, Listener, OnClosed, OnParts, deliver
from tfmini.rpc.waiter import Clock
from tfmini.rpc.zmq_pump import TURN, KernelSocket, Pump, ZmqConnection, payload

_log = logging.getLogger("tfmini.rpc")

# ---- Pending connections: a listener has accepted them, and their peers have not been admitted yet -----------------
# Whoever reaches a port can connect to it and say nothing, so a listener bounds the number of these connections
# and their time. The oldest one is ended first: a client, which needs some round trips only, is admitted even if
# somebody else opens connections all the time.

PENDING_LIMIT = 256  # connections of a listener, at least
_MOST_FILES = 1 << 16
PENDING_SHARE = 8  # a listener may have one pending connection for so many descriptors of its process
ADMISSION_S = 8.0  # from the accepted connection to the end of the handshake; clients give up earlier

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")


def pending_limit() -> int:
    """How many pending connections a listener has at most.

    A thousand tasks may connect at once when a job starts; a process that has room for their connections has a limit
    of open files beyond 8,192.
    """
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    files = _MOST_FILES if soft == resource.RLIM_INFINITY else min(soft, _MOST_FILES)
    return max(PENDING_LIMIT, files // PENDING_SHARE)


class PendingConnections(Generic[K, T]):
    """The pending connections of one listener: an item for each key. Thread-safe.

    Args:
      end: ends a connection that was pending for too long, or was the oldest of too many; gets its key and item.
    """

    def __init__(self, clock: Clock, end: Callable[[K, T], None]) -> None:
        self._clock = clock
        self._end = end
        self._limit = pending_limit()
        self._lock = threading.Lock()
        self._table: dict[K, tuple[T, float]] = {}  # the item, and when its time is over; the oldest comes first
        self._timer_runs = False

    def __len__(self) -> int:
        return len(self._table)

    def __contains__(self, key: K) -> bool:
        return key in self._table

    def add(self, key: K, item: T) -> None:
        """Adds a connection; ends the oldest one if there are too many."""
        with self._lock:
            self._table.pop(key, None)
            self._table[key] = item, self._clock.now() + ADMISSION_S
            starts, self._timer_runs = not self._timer_runs, True
        if starts:
            self._clock.call_later(ADMISSION_S, self._check)
        self._end_while(lambda until: len(self._table) > self._limit)

    def pop(self, key: K) -> T | None:
        """Removes a connection, because it is admitted or has ended; returns its item, None if it is not pending."""
        with self._lock:
            item, _ = self._table.pop(key, (None, 0.0))
        return item

    def _check(self) -> None:
        """Ends the connections that are pending for too long."""
        now = self._clock.now()
        next_at = self._end_while(lambda until: until <= now, by_timer=True)
        if next_at is not None:
            self._clock.call_later(next_at - now, self._check)

    def close(self) -> None:
        """Ends all connections."""
        self._end_while(lambda until: True)

    def _end_while(self, must_end: Callable[[float], bool], by_timer: bool = False) -> float | None:
        """Ends the oldest connections, as long as their time says so; returns when that of the next one is over."""
        ended: list[tuple[K, T]] = []
        with self._lock:
            while (oldest := next(iter(self._table.items()), None)) is not None and must_end(oldest[1][1]):
                del self._table[oldest[0]]
                ended.append((oldest[0], oldest[1][0]))
            if by_timer:
                self._timer_runs = oldest is not None
        for connection in ended:
            self._end(*connection)
        return oldest[1][1] if oldest is not None else None


# ---- Limits how many handshakes may fail per address and second ----------------------------------------------------
# A handshake costs the server an operation with its key, also if it fails. An address from which many fail has to wait:
# its new connections are ended before their handshake. Addresses of this host are exempt: its users share the processor
# anyway, and one of them could keep the others out.

BURST, PER_SECOND = 200, 10.0  # failures of an address: at once, and for as long as it likes
_ADDRESSES = 10_000  # that are remembered


class FailedHandshakes:
    """A bucket of failures per address. Times are in seconds."""

    def __init__(self) -> None:
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()  # failures and when counted; latest last

    def failed(self, host: str, now: float) -> None:
        """A connection from an address has ended before it was admitted."""
        key = _network(host)
        if not key:
            return
        count = self._count(key, now) + 1
        self._buckets.pop(key, None)  # so that it is the latest; `admitted` may take it out meanwhile
        self._buckets[key] = count, now
        if len(self._buckets) > _ADDRESSES:
            self._buckets.popitem(last=False)

    def admitted(self, host: str) -> None:
        """A connection from an address has been admitted: a holder of a key is there."""
        self._buckets.pop(_network(host), None)

    def must_wait(self, host: str, now: float) -> bool:
        """Whether a new connection from an address is to be ended."""
        return bool(self._buckets) and self._count(_network(host), now) >= BURST

    def _count(self, key: str, now: float) -> float:
        count, since = self._buckets.get(key, (0.0, now))
        return max(0.0, count - PER_SECOND * (now - since))


def _network(host: str) -> str:
    """What counts as one address: a /64 of IPv6; "" for this host."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:  # no TCP address
        return ""
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is None:
            return "" if address.is_loopback else str(int(address) >> 64)
        address = address.ipv4_mapped
    return "" if address.is_loopback else str(address)


# ---- The ROUTER socket and its clients -----------------------------------------------------------------------------

INBOX_LIMIT = 256 << 20  # bytes in all inboxes of a listener
INTERVAL_S = 0.1  # between two looks for endless messages; ZeroMQ reads some 10 MB of empty frames in this time
PENDING_BYTES = 128 << 10  # of a connection that is not admitted: the handshake
ADMITTED_BYTES = 1 << 20  # a message, and what ZeroMQ reads ahead


class MessageProgress:
    """Notices that a connection sends bytes without end and completes no message.

    Attributes:
      messages: that have been read so far.
      is_admitted: whether the handshake is complete.
    """

    def __init__(self) -> None:
        self.messages = 0
        self.is_admitted = False
        self._seen = 0  # messages at the last look
        self._baseline = 0  # bytes that had arrived when the last message was complete, about

    def is_endless(self, nbytes: int) -> bool:
        """Looks again; returns whether too much has come since a message was complete.

        Args:
          nbytes: that ZeroMQ has read of the connection.
        """
        if self.messages != self._seen:
            self._seen, self._baseline = self.messages, nbytes
            return False
        return nbytes - self._baseline > (ADMITTED_BYTES if self.is_admitted else PENDING_BYTES)


class _Accepted(MessageProgress):
    """A connection that ZeroMQ has accepted.

    Attributes:
      fd: ZeroMQ's descriptor.
      kernel: the same connection, by a descriptor of our own.
      routing_id: of the client, after its first message.
    """

    def __init__(self, fd: int) -> None:
        super().__init__()
        self.fd = fd
        self.kernel = KernelSocket(fd)
        self.routing_id = b""


class _RouterConnection(ZmqConnection):
    """One client of a listener."""

    def __init__(self, listener: RouterListener, routing_id: bytes, first_frame: Any, accepted: _Accepted) -> None:
        super().__init__(listener.reactor, listener.address)
        self.routing_id = routing_id
        self.accepted = accepted
        self._kernel = accepted.kernel
        self.peer_key = first_frame.get("User-Id").encode() if listener.has_keys else b""
        self.peer_host = first_frame.get("Peer-Address").removeprefix("::ffff:")  # an IPv4 address of an IPv6 socket
        self.stream_host = listener.interface
        self._listener = listener
        self._inbox: collections.deque[list[Any] | str] = collections.deque()  # messages; a str: the reason of the end
        self._delivering = threading.Lock()

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
        """Delivers the first queued messages that are urgent, unless another thread is delivering; see `Relief`."""
        while self._inbox and self._delivering.acquire(False):
            try:
                item = self._inbox[0] if self._inbox else ""
                if isinstance(item, str) or not is_urgent(item):
                    break
                self._listener.on_dequeued(self._inbox.popleft())
                self._deliver(item)
            finally:
                self._delivering.release()
        if self._inbox:  # a thread of the loop may have found this one here, and passed over the rest
            self._listener.has_rest(self)

    def _deliver(self, item: list[Any] | str) -> None:
        if isinstance(item, str):
            self._end(item)
        elif not self._ended and not self._closed_here:
            self._deliver_message(item)

    def admit(self) -> None:
        self.accepted.is_admitted = True
        self._listener.admitted(self.accepted)

    def _add_piece(self, frames: list[Any]) -> list[Any] | None:
        return super()._add_piece(frames) if self.accepted.is_admitted else frames  # the link refuses it

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
        self,
        sock: zmq.Socket[Any],
        reactor: Reactor,
        keys: Keys | None,
        address: Address,
        on_connection: Callable[[Connection], None],
    ) -> None:
        self.reactor = reactor
        self._on_connection = on_connection
        self._clients: dict[bytes, _RouterConnection | None] = {}  # None: closed here, still connected
        self._accepted: dict[int, _Accepted] = {}  # by ZeroMQ's descriptor
        self._pending: PendingConnections[int, KernelSocket] = PendingConnections(
            reactor, lambda fd, kernel: kernel.shut_down()
        )
        self._failures = FailedHandshakes()
        self._looks = False  # whether `_look` is to come
        self._nonempty: collections.deque[_RouterConnection] = collections.deque()  # clients with queued messages
        self._gone: list[_Accepted] = []  # connections that have ended, and whose last messages are not read yet
        self._lock = threading.Lock()
        self._inbox_bytes = 0
        self._is_full = False
        sock.router_mandatory = 1
        self._zap = get_zap_handler() if keys is not None else None
        self._domain = self._zap.secure(sock, keys) if self._zap is not None and keys is not None else ""
        self._pump = Pump(sock, reactor, self._on_message, self._deliver_inboxes, self.may_read, self._end_gone)
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

    @property
    def has_keys(self) -> bool:
        """Whether its clients have been admitted by their keys."""
        return self._zap is not None

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

    def admitted(self, accepted: _Accepted) -> None:
        if self._accepted.get(accepted.fd) is accepted:
            self._pending.pop(accepted.fd)
        self._failures.admitted(accepted.kernel.host)

    def _on_message(self, parts: list[Any]) -> None:
        routing_id, frames = parts[0], parts[1:]
        if not frames:
            return
        try:
            client = self._clients[routing_id]
        except KeyError:
            client = self._introduce(parts)
        if client is not None:
            self._put(client, [payload(frame) for frame in frames])

    def _introduce(self, parts: list[Any]) -> _RouterConnection:
        """Handles the first message of a client; returns its connection."""
        self._pump.read_monitor()  # its descriptor may have been another connection's before
        fd = parts[1].get(zmq.SRCFD)
        accepted = self._accepted.get(fd) or _Accepted(fd)
        self._clients[parts[0]] = client = _RouterConnection(self, parts[0], parts[1], accepted)
        accepted.routing_id = client.routing_id
        deliver(self._on_connection, client)
        return client

    def _put(self, client: _RouterConnection, item: list[Any] | str) -> None:
        client.enqueue(item)
        client.accepted.messages += 1
        self._count(_size(item))
        self._nonempty.append(client)

    def _count(self, nbytes: int) -> None:
        with self._lock:
            self._inbox_bytes += nbytes

    def may_read(self) -> bool:
        """Whether the inboxes are below their limit, so that more messages may be read."""
        self._is_full = True  # set before the check, so that a concurrent `on_dequeued` sees it
        if self._inbox_bytes <= INBOX_LIMIT:
            self._is_full = False
        return not self._is_full

    def on_dequeued(self, item: list[Any] | str) -> None:
        """Counts a message that has left its inbox; reads on if there is room again."""
        self._count(-_size(item))
        if self._is_full and self._inbox_bytes <= INBOX_LIMIT:
            self._pump.again()

    def has_rest(self, client: _RouterConnection) -> None:
        """Notes that a client has queued messages, if that is not known."""
        if client not in tuple(self._nonempty):
            self._nonempty.append(client)
            self._pump.again()

    def _relieve(self) -> None:
        """Called while no thread of the loop is free: reads the socket, and delivers what is urgent."""
        self._pump.look()
        for client in dict.fromkeys(tuple(self._nonempty)):  # it has one for each message
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

    def _on_event(self, event: int, value: int) -> None:
        if event == zmq.EVENT_ACCEPTED:
            self._on_accepted(value)
        elif event == zmq.EVENT_DISCONNECTED and (accepted := self._accepted.pop(value, None)) is not None:
            if self._pending.pop(value) is not None:
                self._failures.failed(accepted.kernel.host, self.reactor.now())
            accepted.kernel.close()
            self._gone.append(accepted)

    def _on_accepted(self, fd: int) -> None:
        self._accepted[fd] = accepted = _Accepted(fd)
        if self._failures.must_wait(accepted.kernel.host, self.reactor.now()):
            accepted.kernel.shut_down()
            return
        self._pending.add(fd, accepted.kernel)
        self._look_later()

    def _end_gone(self) -> None:
        """Ends the connections whose ends have been reported, after their last messages."""
        while self._gone:
            ended, self._gone = self._gone, []
            self._pump.drain()
            for accepted in ended:
                client = self._clients.pop(accepted.routing_id, None)
                if client is not None:
                    self._put(client, "the connection was closed")

    # -- endless messages ----------------------------------------------------------------

    def _look_later(self) -> None:
        with self._lock:
            starts = bool(self._accepted) and not self._looks
            self._looks = self._looks or starts
        if starts:
            self.reactor.call_later(INTERVAL_S, self._look)

    def _look(self) -> None:
        """Ends the connections that send on and complete no message."""
        self._looks = False
        self._look_later()
        connections = list(self._accepted.values())
        suspects = [(one, one.messages) for one in connections if one.is_endless(one.kernel.read_bytes())]
        # Complete messages may wait here, which is no fault of their senders. So this question comes last.
        if suspects and not self._is_full and self._pump.is_drained():
            for accepted, messages in suspects:
                if accepted.messages == messages:
                    _log.warning("%s: a connection is ended: it sends one message without an end", self.address)
                    accepted.kernel.shut_down()

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
        while self._accepted:
            self._accepted.popitem()[1].kernel.close()
        if self._zap is not None:
            self._zap.remove(self._domain)


def _size(item: list[Any] | str) -> int:
    return 0 if isinstance(item, str) else sum(map(len, item)) + 1024  # with Python's overhead
