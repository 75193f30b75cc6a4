"""One ZeroMQ socket in the reactor, and the messages that wait for it."""

from __future__ import annotations

import collections
import errno
import os
import socket
import struct
import threading
from collections.abc import Callable, Sequence
from typing import Any

import zmq

from tfmini.rpc.reactor import Reactor
from tfmini.rpc.source import Source
from tfmini.rpc.transport import Backlog

LINGER_MS = 1000
_RETRY_S = 0.002
_EVENT = struct.Struct("=hi")
_RECEIVED = struct.Struct("=128xQ")  # tcpi_bytes_received of Linux's tcp_info
_WATCHED = (
    zmq.EVENT_CLOSED
    | zmq.EVENT_DISCONNECTED
    | zmq.EVENT_CONNECTED
    | zmq.EVENT_HANDSHAKE_FAILED_AUTH
    | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
    | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
)

_context: zmq.Context[Any] | None = None
_context_pid = 0
_context_lock = threading.Lock()


def get_context() -> zmq.Context[Any]:
    """The context of this process; a forked child gets its own."""
    global _context, _context_pid
    with _context_lock:
        if _context is None or _context.closed or _context_pid != os.getpid():
            _context, _context_pid = zmq.Context(), os.getpid()
            _context.set(zmq.MAX_SOCKETS, 65000)
        return _context


class Pump:
    """One ZeroMQ socket in the reactor, with its monitor.

    Args:
      after: called when something may have been read, while another thread may read on.
      may_read: asked after every message whether to read on; if not, somebody calls `again` later.
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
        self._news = False
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
        """Hands over a message; False when ZeroMQ's queue is full.

        Raises:
          zmq.ZMQError: EHOSTUNREACH, when the client is gone.
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
        self._news = True
        if self._source is not None:
            self._source.ready()

    def read_monitor(self) -> None:
        """Handles the events that have come."""
        self._news = False
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
        if self._news:
            self.read_monitor()
        while True:
            with self.lock:
                if self.closed or not self.sock.getsockopt(zmq.EVENTS) & zmq.POLLIN:
                    return
                parts = self._receive()
            self._on_message(parts)
            if self._may_read is not None and not self._may_read():
                return  # who empties what is full calls `again`

    def _receive(self) -> list[Any]:
        sock = self.sock
        parts: list[Any] = [sock.recv(zmq.NOBLOCK)]
        more = sock.getsockopt(zmq.RCVMORE)
        while more:
            frame = sock.recv(zmq.NOBLOCK, copy=False)
            more = frame.more
            parts.append(frame)
        return parts

    def drain(self) -> None:
        """Delivers what has arrived; called inside the source's callback."""
        while True:
            with self.lock:
                if self.closed or not self.sock.getsockopt(zmq.EVENTS) & zmq.POLLIN:
                    return
                parts = self._receive()
            self._on_message(parts)

    def again(self) -> None:
        """Has the socket looked at soon."""
        if self._source is not None:
            self._source.again()

    def close(self, before: Callable[[], None] | None = None) -> None:
        """Closes the socket; ``before`` is called with it still open and nobody using it."""
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
        """Until ZeroMQ's thread has closed the listening descriptor (bounded: 10 s, should it be starved)."""
        with self._monitor_lock:
            while self._monitor.poll(10_000):
                event, _ = _EVENT.unpack(self._monitor.recv_multipart(zmq.NOBLOCK)[0])
                if event == zmq.EVENT_CLOSED:
                    return


def payload(frame: Any) -> Any:
    """A part as bytes or read-only memory."""
    return frame.bytes if len(frame) < 8192 else frame.buffer.toreadonly()


def bytes_received(fd: int) -> int:
    """What the kernel has received for a TCP descriptor of ZeroMQ's, in bytes; 0 if it is none.

    ZeroMQ shows messages only when they are complete; this tells a slow peer from a silent one.
    """
    try:
        sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM, fileno=fd)
    except OSError:
        return 0
    try:
        info = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _RECEIVED.size)
        return int(_RECEIVED.unpack(info)[0]) if len(info) == _RECEIVED.size else 0
    except OSError:  # closed meanwhile, or a Unix socket
        return 0
    finally:
        sock.detach()  # it stays ZeroMQ's


class Outbox:
    """Messages that ZeroMQ's queue had no room for, in order; tried again by a timer."""

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
        """How much waits."""
        return self._backlog.bytes

    def send(self, parts: Sequence[Any]) -> None:
        with self._lock:
            try:
                if not self._queue and self._push(parts):
                    return
            except zmq.ZMQError as error:
                self._fail(_lost(error))
                return
            excess = self._backlog.excess()
            if excess:
                self._fail(excess)
                return
            size = sum(len(p) for p in parts)
            self._queue.append((parts, size))
            self._backlog.add(size)
            if len(self._queue) == 1:
                self._reactor.call_later(_RETRY_S, self.flush)

    def flush(self) -> None:
        """Sends what can be sent."""
        with self._lock:
            try:
                while self._queue and self._push(self._queue[0][0]):
                    self._backlog.take(self._queue.popleft()[1])
            except zmq.ZMQError as error:
                self._queue.clear()
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
