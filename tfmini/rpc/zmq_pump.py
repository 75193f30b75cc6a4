"""Connects a ZeroMQ socket to the reactor, and queues messages that the socket does not accept.

Large messages travel in pieces. ZeroMQ encrypts or decrypts a frame at once, in the thread that also serves all other
connections: 2.6 GB take longer than a peer may be silent. It also has one limit of frames for all clients of a
listener, before they are admitted and after. So a message of more than `PIECE_BYTES` has the format of a lane
(`lane_wire`) and is cut into pieces. A piece is a ZeroMQ message of two empty frames and up to `PIECE_BYTES`, in any
number of frames. The pieces of a message follow each other without another message between them.
"""

from __future__ import annotations

import collections
import contextlib
import errno
import fcntl
import os
import socket
import struct
import termios
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import zmq

from tfmini.rpc import lane_wire
from tfmini.rpc.forks import PerProcess
from tfmini.rpc.reactor import Reactor
from tfmini.rpc.send_queue import memory_for
from tfmini.rpc.transport import Backlog, Connection, OnClosed, OnParts, deliver
from tfmini.rpc.waiter import EventSource

PIECE_BYTES = 256 << 10
FRAME_LIMIT = PIECE_BYTES + 4096  # bytes of a frame, with what encryption adds
LINGER_MS = 1000
RETRY_S = 0.002
TURN = 32  # messages received before the reactor serves other sources
_EVENT, _INT = struct.Struct("=hi"), struct.Struct("i")
_RECEIVED = struct.Struct("=128xQ")  # tcpi_bytes_received of Linux's tcp_info
_WATCHED = (
    zmq.EVENT_ACCEPTED
    | zmq.EVENT_CLOSED
    | zmq.EVENT_DISCONNECTED
    | zmq.EVENT_CONNECTED
    | zmq.EVENT_HANDSHAKE_FAILED_AUTH
    | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
    | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
)

T = TypeVar("T")


def _new_context() -> zmq.Context[Any]:
    context = zmq.Context()
    context.set(zmq.MAX_SOCKETS, 65000)
    return context


_context: PerProcess[zmq.Context[Any]] = PerProcess(_new_context)


def get_context() -> zmq.Context[Any]:
    """Returns the ZeroMQ context of this process; a forked child gets its own."""
    return _context.get()


class Pump:
    """Reads one ZeroMQ socket and its monitor from the reactor.

    ZeroMQ's sockets are not thread-safe: one lock guards both of them, see `_use`.

    Args:
      after: called after reading, while another thread may already read on.
      may_read: called after every message; if it returns False, reading stops until `again` is called.
      at_end: called at the end of each turn, while no other thread reads.
    """

    def __init__(
        self,
        sock: Any,
        reactor: Reactor,
        on_message: Callable[[list[Any]], None],
        after: Callable[[], None] | None = None,
        may_read: Callable[[], bool] | None = None,
        at_end: Callable[[], None] | None = None,
    ) -> None:
        self.sock = sock
        self.closed = False
        self._lock = threading.Lock()
        self._reactor = reactor
        self._on_message = on_message
        self._after = after
        self._may_read = may_read
        self._at_end = at_end
        self._on_event: Callable[[int, int], None] = lambda event, value: None
        self._monitor: Any = sock.get_monitor_socket(_WATCHED)
        self._has_events = False
        self._source: EventSource | None = None
        self._monitor_source: EventSource | None = None

    def start(self, on_event: Callable[[int, int], None]) -> None:
        self._on_event = on_event
        self._source = self._reactor.source(self.sock.getsockopt(zmq.FD), self._on_ready, self._after)
        self._monitor_source = self._reactor.source(self._monitor.getsockopt(zmq.FD), self._on_monitor)
        self._reactor.watch(self._source)
        self._reactor.watch(self._monitor_source)
        self._source.again()
        self._monitor_source.again()

    def connect(self, endpoint: str) -> bool:
        """Lets ZeroMQ connect; returns False if the socket has been closed.

        Raises:
          zmq.ZMQError: that is no endpoint.
        """

        def begin() -> bool:
            self.sock.connect(endpoint)
            return True

        return self._use(begin, False)

    def send(self, parts: Sequence[Any]) -> bool:
        """Passes a message to ZeroMQ; returns False when ZeroMQ's queue is full.

        Raises:
          zmq.ZMQError: EHOSTUNREACH: the client has disconnected.
        """
        return self._use(lambda: self._send(parts), True)

    def _use(self, call: Callable[[], T], if_closed: T) -> T:
        """Makes a call that uses the sockets; returns ``if_closed`` in its place after the end."""
        with self._lock:
            return if_closed if self.closed else call()

    def _send(self, parts: Sequence[Any]) -> bool:
        try:
            if len(parts) == 1:
                self.sock.send(parts[0], zmq.NOBLOCK)
            else:
                self.sock.send_multipart(parts, zmq.NOBLOCK, copy=False)
        except zmq.Again:
            return False
        self._has_message()
        return True

    def _has_message(self) -> bool:
        """Whether a complete message waits in the socket. The question may consume an edge, so it is read again."""
        waits = bool(self.sock.getsockopt(zmq.EVENTS) & zmq.POLLIN)
        if waits:
            self.again()
        return waits

    def _on_monitor(self) -> None:
        self._has_events = True
        if self._source is not None:
            self._source.ready()

    def read_monitor(self) -> None:
        """Handles the monitor events that have arrived."""
        self._has_events = False
        while (event := self._use(self._next_event, None)) is not None:
            self._on_event(*event)

    def _next_event(self) -> tuple[int, int] | None:
        try:
            event, _ = self._monitor.recv_multipart(zmq.NOBLOCK)
        except zmq.Again:
            return None
        number, value = _EVENT.unpack(event)
        return number, value

    def _on_ready(self) -> None:
        if self._has_events:
            self.read_monitor()
        self.drain(TURN)
        if self._at_end is not None:
            self._at_end()

    def _receive(self) -> list[Any] | None:
        sock = self.sock
        if not sock.getsockopt(zmq.EVENTS) & zmq.POLLIN:
            return None
        parts: list[Any] = [sock.recv(zmq.NOBLOCK)]
        more = sock.getsockopt(zmq.RCVMORE)
        while more:
            frame = sock.recv(zmq.NOBLOCK, copy=False)
            more = frame.more
            parts.append(frame)
        return parts

    def drain(self, turn: int = 0) -> None:
        """Delivers the messages that have arrived. Called in the source's callback.

        Args:
          turn: after so many messages, and where `may_read` says so, stop and go on later; 0: deliver all.
        """
        left = turn
        while (parts := self._use(self._receive, None)) is not None:
            self._on_message(parts)
            if turn:
                if self._may_read is not None and not self._may_read():
                    return
                left -= 1
                if not left:
                    self.again()
                    return

    def is_drained(self) -> bool:
        """Whether no complete message waits in the socket."""
        return not self._use(self._has_message, True)

    def look(self) -> None:
        """Reads the socket in a thread that does not run the loop; see `Relief`."""
        if self._source is not None:
            self._source.look()

    def again(self) -> None:
        """Schedules another read of the socket."""
        if self._source is not None:
            self._source.again()

    def close(self, before: Callable[[], None] | None = None) -> None:
        """Closes the socket; calls ``before`` while the socket is still open and no other thread uses it."""
        for source in (self._source, self._monitor_source):
            if source is not None:
                self._reactor.unwatch(source)
        with self._lock:
            if self.closed:
                return
            self.closed = True
            if before is not None:
                before()
            self.sock.disable_monitor()
            self._monitor.close(0)
            self.sock.close(LINGER_MS)

    def wait_unbound(self) -> None:
        """Waits until ZeroMQ's thread has closed the listening descriptor, at most 10 s; for `close`'s ``before``."""
        while self._monitor.poll(10_000):
            event, _ = _EVENT.unpack(self._monitor.recv_multipart(zmq.NOBLOCK)[0])
            if event == zmq.EVENT_CLOSED:
                return


def payload(frame: Any) -> Any:
    """Converts a frame to bytes or to read-only memory."""
    return frame.bytes if len(frame) < 8192 else frame.buffer.toreadonly()


class KernelSocket:
    """A TCP connection of ZeroMQ, by a descriptor of our own.

    ZeroMQ tells only of complete messages, and does not end what it has accepted. It may close its descriptor at any
    time, and the system gives the number to another connection then; ours goes on meaning the same one.

    Attributes:
      host: the numeric address of the peer; "" if it is not TCP.
    """

    def __init__(self, fd: int) -> None:
        self.host = ""
        self._sock: socket.socket | None = None
        try:
            copy = os.dup(fd)
        except OSError:  # it has ended already, or there is no descriptor left
            return
        try:
            self._sock = socket.socket(fileno=copy)
        except OSError:  # the number has another meaning by now
            os.close(copy)
            return
        with contextlib.suppress(OSError):
            if self._sock.family in (socket.AF_INET, socket.AF_INET6):
                self.host = str(self._sock.getpeername()[0])

    def received_bytes(self) -> int:
        """What the kernel has received, read or not; 0 if it is not TCP. It tells a slow peer from a silent one."""
        if self._sock is None or not self.host:
            return 0
        try:
            info = self._sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _RECEIVED.size)
        except OSError:  # closed by another thread
            return 0
        return int(_RECEIVED.unpack(info)[0]) if len(info) == _RECEIVED.size else 0

    def read_bytes(self) -> int:
        """What ZeroMQ has read of it."""
        received = self.received_bytes()
        if not received or self._sock is None:
            return 0
        try:
            return received - int(_INT.unpack(fcntl.ioctl(self._sock.fileno(), termios.FIONREAD, bytes(_INT.size)))[0])
        except (OSError, ValueError):
            return 0

    def shut_down(self) -> None:
        """Ends the connection: ZeroMQ reads its end, and reports it."""
        if self._sock is not None:
            with contextlib.suppress(OSError):
                self._sock.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Gives the descriptor back: the connection ends when ZeroMQ has closed its own as well."""
        if self._sock is not None:
            self._sock.close()


class Outbox:
    """Messages that ZeroMQ's queue had no room for, in order; a timer tries again.

    Attributes:
      is_held: whether there is no queue yet, so that trying is useless until `flush` is called.
    """

    def __init__(self, reactor: Reactor, push: Callable[[Sequence[Any]], bool], fail: Callable[[str], None]) -> None:
        self._reactor = reactor
        self._push = push
        self._fail = fail
        self.is_held = False
        self._lock = threading.Lock()
        self._queue: collections.deque[tuple[Sequence[Any], int]] = collections.deque()
        self._backlog = Backlog()

    @property
    def bytes(self) -> int:
        """The number of queued bytes."""
        return self._backlog.bytes

    def send(self, parts: Sequence[Any]) -> None:
        """Sends a message, a large one in pieces.

        Raises:
          errors.ResourceExhaustedError: too much is queued already.
        """
        with self._lock:
            reason = self._backlog.refusal(sum(map(len, parts))) if self._queue else ""
            if reason:
                self._fail(reason)
                return
            try:
                for piece in cut(parts) if is_large(parts) else (parts,):
                    if self._queue or not self._push(piece):
                        self._enqueue(piece)
            except zmq.ZMQError as error:
                self._fail(_lost(error))

    def _enqueue(self, parts: Sequence[Any]) -> None:
        size = sum(len(p) for p in parts)
        self._queue.append((parts, size))
        self._backlog.add(size)
        if len(self._queue) == 1 and not self.is_held:
            self._reactor.call_later(RETRY_S, self.flush)

    def flush(self) -> None:
        """Sends the queued messages that ZeroMQ accepts."""
        with self._lock:
            try:
                while self._queue and self._push(self._queue[0][0]):
                    self._backlog.take(self._queue.popleft()[1])
            except zmq.ZMQError as error:
                self._queue.clear()
                self._backlog.clear()  # the connection may have ended before these messages were queued
                self._fail(_lost(error))
            if self._queue:
                self._reactor.call_later(RETRY_S, self.flush)

    def clear(self) -> None:
        with self._lock:
            self._queue.clear()
            self._backlog.clear()


def _lost(error: zmq.ZMQError) -> str:
    return "the connection was closed" if error.errno == errno.EHOSTUNREACH else f"the connection broke: {error}"


# ---- The pieces of a large message ---------------------------------------------------------------------------------


def is_large(parts: Sequence[Any]) -> bool:
    """Whether a message travels in pieces."""
    return (len(parts[0]) if len(parts) == 1 else sum(map(len, parts))) > PIECE_BYTES


def cut(parts: Sequence[Any]) -> Iterator[list[Any]]:
    """Yields the pieces of a message; they share its memory."""
    piece: list[Any] = [b"", b""]
    room = PIECE_BYTES
    for chunk in lane_wire.pack(parts, (), None)[0]:
        rest = memoryview(chunk)
        while rest:
            piece.append(rest[:room])
            rest, room = rest[room:], room - len(piece[-1])
            if not room:
                yield piece
                piece, room = [b"", b""], PIECE_BYTES
    if len(piece) > 2:
        yield piece


def is_piece(frames: Sequence[Any]) -> bool:
    """Whether a ZeroMQ message is a piece of a message."""
    return len(frames) > 2 and not len(frames[0]) and not len(frames[1])


class Assembly:
    """Joins the pieces that arrive on one connection. ``received`` counts their bytes."""

    __slots__ = ("_have", "_memory", "_view", "received")

    def __init__(self) -> None:
        self.received = 0
        self._have = 0
        self._memory: Any = None
        self._view: Any = None

    def add(self, frames: Sequence[Any]) -> list[Any] | None:
        """Adds a piece; returns the message's parts if it is the last one.

        Raises:
          ValueError: the piece is malformed.
          MemoryError: out of memory.
        """
        for frame in frames[2:]:
            if self._memory is None:
                self._begin(frame)
            end = self._have + len(frame)
            if end > len(self._memory):
                raise ValueError("a piece that reaches beyond its message")
            self._memory[self._have : end] = frame
            self._have = end
            self.received += len(frame)
        return self._finish() if self._memory is not None and self._have == len(self._memory) else None

    def _begin(self, frame: Any) -> None:
        if len(frame) < lane_wire.PREFIX.size:
            raise ValueError(f"a first piece of {len(frame)} bytes")
        # Most connections move to a lane after their first large message: a kept buffer would lie idle.
        is_first = not self.received
        self._memory, self._view = memory_for(lane_wire.read_prefix(frame, 0)[2], keep=not is_first)
        self._have = 0

    def _finish(self) -> list[Any]:
        view, self._memory, self._view = self._view, None, None
        try:
            parts, notes = lane_wire.unpack(view, 0, lane_wire.read_prefix(view, 0), _no_block)
        except struct.error as error:
            raise ValueError(f"a malformed table: {error}") from None
        if notes or not parts:
            raise ValueError("a message of pieces without parts, or with notes")
        return parts


def _no_block(block_id: int) -> Any:
    raise ValueError("shared memory in a message of pieces")


# ---- What both kinds of connections share --------------------------------------------------------------------------


class ZmqConnection(Connection):
    """Base of the connecting and the accepted ZeroMQ connection."""

    def __init__(self, reactor: Reactor, address: str) -> None:
        self.address = address
        self._reactor = reactor
        self._outbox = Outbox(reactor, self._push, self._fail)
        self._assembly = Assembly()
        self._on_parts: OnParts | None = None
        self._on_closed: OnClosed | None = None
        self._ended = False
        self._failed: str | None = None
        self._closed_here = False
        self.kind = "zmq"
        self._kernel: KernelSocket | None = None  # when it is known
        self._received = 0  # bytes

    @property
    def backlog(self) -> int:
        return self._outbox.bytes

    @property
    def activity(self) -> int:
        in_kernel = self._kernel.received_bytes() if self._kernel is not None and not self._ended else 0
        return in_kernel + self._assembly.received

    @property
    def received_bytes(self) -> int:
        return self._received

    def send(self, parts: Sequence[Any]) -> None:
        if not self._ended and self._failed is None:
            self.sent_bytes += sum(map(len, parts))
            self._outbox.send(parts)

    def _deliver_message(self, frames: list[Any]) -> None:
        """Delivers a ZeroMQ message, or the message of which it is the last piece."""
        parts: list[Any] | None = frames
        self._received += sum(map(len, frames))
        if is_piece(frames):
            try:
                parts = self._add_piece(frames)
            except ValueError as error:
                self.close(f"the peer violated the protocol: {error}")
                return
            except MemoryError as error:
                self.close(f"out of memory for a message from the peer: {error}")
                return
        if parts is not None and self._on_parts is not None:
            deliver(self._on_parts, parts)

    def _add_piece(self, frames: list[Any]) -> list[Any] | None:
        return self._assembly.add(frames)

    def _push(self, parts: Sequence[Any]) -> bool:
        raise NotImplementedError

    def _fail(self, reason: str) -> None:
        """Ends the connection. From any thread."""
        self._failed = self._failed or reason
        self._reactor.call_soon(self._end, reason)

    def _end(self, reason: str) -> None:
        """Ends the connection, once. Runs in the reactor, after the arrived messages were delivered."""
        if not self._ended:
            self._ended = True
            self._outbox.clear()
            self._assembly = Assembly()  # gives the memory of an incomplete message back
            self._release(reason)
            if self._on_closed is not None:
                deliver(self._on_closed, reason)

    def _release(self, reason: str) -> None:
        raise NotImplementedError
