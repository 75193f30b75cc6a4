"""Connects a ZeroMQ socket to the reactor, and queues messages that the socket does not accept."""

from __future__ import annotations

import collections
import errno
import fcntl
import os
import socket
import struct
import termios
import threading
from collections.abc import Callable, Sequence
from typing import Any

import zmq

from tfmini.rpc.backlog import Backlog
from tfmini.rpc.reactor import Reactor
from tfmini.rpc.source import Source
from tfmini.rpc.zmq_pieces import cut, is_large

LINGER_MS = 1000
_RETRY_S = 0.002
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

_context: zmq.Context[Any] | None = None
_context_pid = 0
_context_lock = threading.Lock()


def _after_fork() -> None:
    global _context_lock
    _context_lock = threading.Lock()


os.register_at_fork(after_in_child=_after_fork)


def get_context() -> zmq.Context[Any]:
    """Returns the ZeroMQ context of this process; a forked child gets its own."""
    global _context, _context_pid
    with _context_lock:
        if _context is None or _context.closed or _context_pid != os.getpid():
            _context, _context_pid = zmq.Context(), os.getpid()
            _context.set(zmq.MAX_SOCKETS, 65000)
        return _context


class Pump:
    """Reads one ZeroMQ socket and its monitor from the reactor.

    Args:
      after: called after reading, while another thread may already read on.
      may_read: called after every message; if it returns False, reading stops until `again` is called.
    """

    def __init__(
        self,
        sock: Any,
        reactor: Reactor,
        on_message: Callable[[list[Any]], None],
        after: Callable[[], None] | None = None,
        may_read: Callable[[], bool] | None = None,
    ) -> None:
        self.sock = sock
        self.lock = threading.Lock()
        self.closed = False
        self._reactor = reactor
        self._on_message = on_message
        self._after = after
        self._may_read = may_read
        self._on_event: Callable[[int, int], None] = lambda event, value: None
        self._monitor: Any = sock.get_monitor_socket(_WATCHED)
        self._monitor_lock = threading.Lock()
        self._has_events = False
        self._source: Source | None = None
        self._monitor_source: Source | None = None

    def start(self, on_event: Callable[[int, int], None]) -> None:
        self._on_event = on_event
        self._source = self._reactor.source(self.sock.getsockopt(zmq.FD), self._on_ready)
        self._source.after = self._after
        self._monitor_source = self._reactor.source(self._monitor.getsockopt(zmq.FD), self._on_monitor)
        self._reactor.watch(self._source)
        self._reactor.watch(self._monitor_source)
        self._source.again()
        self._monitor_source.again()

    def send(self, parts: Sequence[Any]) -> bool:
        """Passes a message to ZeroMQ; returns False when ZeroMQ's queue is full.

        Raises:
          zmq.ZMQError: EHOSTUNREACH: the client has disconnected.
        """
        with self.lock:
            if self.closed:
                return True
            try:
                if len(parts) == 1:
                    self.sock.send(parts[0], zmq.NOBLOCK)
                else:
                    self.sock.send_multipart(parts, zmq.NOBLOCK, copy=False)
            except zmq.Again:
                return False
            if self._source is not None and self.sock.getsockopt(zmq.EVENTS) & zmq.POLLIN:
                self._source.again()
        return True

    def _on_monitor(self) -> None:
        self._has_events = True
        if self._source is not None:
            self._source.ready()

    def read_monitor(self) -> None:
        """Handles the monitor events that have arrived."""
        self._has_events = False
        while True:
            with self._monitor_lock:
                if self.closed:
                    return
                try:
                    event, _ = self._monitor.recv_multipart(zmq.NOBLOCK)
                except zmq.Again:
                    return
            self._on_event(*_EVENT.unpack(event))

    def _on_ready(self) -> None:
        if self._has_events:
            self.read_monitor()
        self.drain(TURN)

    def _receive(self) -> list[Any]:
        sock = self.sock
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
        while True:
            with self.lock:
                if self.closed or not self.sock.getsockopt(zmq.EVENTS) & zmq.POLLIN:
                    return
                parts = self._receive()
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
        with self.lock:
            if self.closed or self.sock.getsockopt(zmq.EVENTS) & zmq.POLLIN:
                self.again()  # the question may have consumed an edge
                return False
        return True

    def look(self) -> None:
        """Reads the socket in a thread that does not run the loop; see `relief`."""
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
        with self.lock:
            if self.closed:
                return
            self.closed = True
            if before is not None:
                before()
            self.sock.disable_monitor()
            with self._monitor_lock:
                self._monitor.close(0)
            self.sock.close(LINGER_MS)

    def wait_unbound(self) -> None:
        """Waits until ZeroMQ's thread has closed the listening descriptor, at most 10 s."""
        with self._monitor_lock:
            while self._monitor.poll(10_000):
                event, _ = _EVENT.unpack(self._monitor.recv_multipart(zmq.NOBLOCK)[0])
                if event == zmq.EVENT_CLOSED:
                    return


def payload(frame: Any) -> Any:
    """Converts a frame to bytes or to read-only memory."""
    return frame.bytes if len(frame) < 8192 else frame.buffer.toreadonly()


def bytes_received(fd: int) -> int:
    """Returns how many bytes the kernel has received on a TCP descriptor of ZeroMQ; 0 for other descriptors.

    ZeroMQ reports only complete messages; this count distinguishes a slow peer from a silent one.
    """
    try:
        sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM, fileno=fd)
    except OSError:
        return 0
    try:
        info = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _RECEIVED.size)
        return int(_RECEIVED.unpack(info)[0]) if len(info) == _RECEIVED.size else 0
    except OSError:  # closed by another thread, or a Unix socket
        return 0
    finally:
        sock.detach()  # the descriptor belongs to ZeroMQ


def bytes_read(fd: int) -> int:
    """Returns how many bytes ZeroMQ has read from a TCP descriptor of its own; 0 for other descriptors."""
    received = bytes_received(fd)
    try:
        return received - int(_INT.unpack(fcntl.ioctl(fd, termios.FIONREAD, bytes(_INT.size)))[0]) if received else 0
    except OSError:
        return 0


class Outbox:
    """Messages that ZeroMQ's queue had no room for, in order; a timer tries again."""

    def __init__(
        self, reactor: Reactor, push: Callable[[Sequence[Any]], bool], fail: Callable[[str], None]
    ) -> None:
        self._reactor = reactor
        self._push = push
        self._fail = fail
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
        if len(self._queue) == 1:
            self._reactor.call_later(_RETRY_S, self.flush)

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
                self._reactor.call_later(_RETRY_S, self.flush)

    def clear(self) -> None:
        with self._lock:
            self._queue.clear()
            self._backlog.clear()


def _lost(error: zmq.ZMQError) -> str:
    return (
        "the connection was closed" if error.errno == errno.EHOSTUNREACH else f"the connection broke: {error}"
    )
