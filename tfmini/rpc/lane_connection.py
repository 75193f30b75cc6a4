"""Lanes: a plain stream socket for messages and, on one host, shared memory for large parts.

Two processes that have completed the handshake over ZeroMQ move to a lane. A round trip is then much
faster (neither side wakes an I/O thread), large parts are copied once less, and the progress of a
huge message is visible. There are two kinds:

* the *local* lane, on one host: a Unix-domain socket, and shared memory (`lane_memory`);
* the *stream* lane, between hosts: a TCP socket, encrypted if there are keys (`stream_lane`).

`lane_listener` describes how a lane is opened and authenticated, `lane_wire` the format of its bytes. The
death of a peer is detected at once, as end of file.
"""

from __future__ import annotations

import fcntl
import socket
import struct
import termios
from collections.abc import Sequence
from typing import Any

from tfmini.core_types import TensorLike
from tfmini.rpc import lane_wire
from tfmini.rpc.forks import not_for_children
from tfmini.rpc.lane_memory import LaneMemory
from tfmini.rpc.lane_wire import SHARE_FROM, SINGLE
from tfmini.rpc.reactor import Reactor
from tfmini.rpc.send_queue import SendQueue, memory_for
from tfmini.rpc.transport import Connection, OnClosed, OnParts, deliver

READ_BYTES = 32 << 10
_TURN = 32 << 20  # bytes received before the reactor serves other sources
_LINGER_S = 1.0
_INT, _CREDENTIALS = struct.Struct("i"), struct.Struct("3i")


class LaneConnection(Connection):
    """One lane. Both sides are alike after the token has been checked.

    Args:
      sock: the stream socket, connected.
      fd_sock: the socket for descriptors of shared memory; None: all goes through the stream.
    """

    def __init__(self, sock: socket.socket, fd_sock: socket.socket | None, reactor: Reactor, address: str) -> None:
        self.address = address
        self._sock = sock
        self._reactor = reactor
        self._source = reactor.source(sock.fileno(), self._on_ready)
        self._started = False
        self._on_parts: OnParts  # set by `start`
        self._on_closed: OnClosed | None = None
        self._out = SendQueue(sock, self._on_backlog, self._break)
        self._memory = LaneMemory(fd_sock, reactor, self._send_notes) if fd_sock is not None else None
        self._end_reason: str | None = None
        self._lingers_no_more = self._done = False
        self._rest = b""  # received, not yet delivered
        self._partial: tuple[memoryview, Any] | None = None  # an incomplete message: memory, its read-only view
        self._have = 0
        self._received = 0  # bytes
        self._shared = 0  # bytes of messages that have arrived in shared memory, in part at least
        self._has_borrowed = False
        self.kind = "stream lane" if fd_sock is None else "local lane"
        sock.setblocking(False)
        if fd_sock is not None:
            self.peer_pid = peer_credentials(sock)[0]
        not_for_children(self)

    def descriptors(self) -> list[int]:
        """Returns the descriptors that a forked child gives up; -1 where one is closed."""
        return [self._sock.fileno(), -1 if self._memory is None else self._memory.fileno()]

    def start(self, on_parts: OnParts, on_closed: OnClosed) -> None:
        self._on_parts, self._on_closed = on_parts, on_closed
        with self._out.lock:
            if not self._done:  # else another thread has closed it: the descriptor's number may be another one's now
                self._started = True
                self._reactor.watch(self._source, writable=bool(self._out))
        if not self._started:
            self._reactor.call_soon(deliver, on_closed, self._end_reason)
        elif self._end_reason is not None:
            self._source.again()

    @property
    def backlog(self) -> int:
        return self._out.bytes

    @property
    def activity(self) -> int:
        """Bytes that have arrived, read or not."""
        if self._done:
            return self._received
        try:
            unread = fcntl.ioctl(self._sock.fileno(), termios.FIONREAD, bytes(4))
        except (OSError, ValueError):  # closed by another thread
            return self._received
        return self._received + int(_INT.unpack(unread)[0])

    @property
    def received_bytes(self) -> int:
        return self._received + self._shared

    def statistics(self) -> dict[str, int]:
        """Counts this side's shared memory blocks, and the peer's transfers that are still in use here."""
        return self._memory.statistics() if self._memory is not None else {}

    # -- sending -------------------------------------------------------------------------

    def part_memory(self, nbytes: int) -> Any:
        memory = self._memory
        return memory.part_memory(nbytes) if memory is not None and self._end_reason is None else None

    def send(self, parts: Sequence[Any]) -> None:
        if self._end_reason is not None:
            return
        memory = self._memory
        if len(parts) == 1 and len(parts[0]) < SHARE_FROM and (memory is None or not memory.notes):
            buffer = lane_wire.pack_single(parts[0])
            pieces, total = [buffer], len(buffer)
        elif memory is None:
            pieces, total = lane_wire.pack(parts, (), None)
        else:
            self._send_sharing(parts, memory)
            return
        self.sent_bytes += total
        with self._out.lock:
            self._out.write(pieces, total)

    def _send_sharing(self, parts: Sequence[Any], memory: LaneMemory) -> None:
        large = [part for part in parts if len(part) >= SHARE_FROM]
        shared = memory.share(large) if large else None
        with self._out.lock:
            try:
                if shared is not None and not memory.send_descriptors(shared):
                    shared = None
            except OSError as error:
                self._break(f"the connection broke: {error}")
                return
            # This comes before the notes are taken, which must not be lost.
            if shared is None and not self._out.has_room(sum(map(len, parts))):
                return
            pieces, total = lane_wire.pack(parts, memory.pop_notes(), shared.places if shared is not None else None)
            if parts:  # else only notes, which belong to no message
                self.sent_bytes += total if shared is None else total + sum(map(len, large))
            self._out.write(pieces, total)

    def _send_notes(self) -> None:
        memory = self._memory
        if memory is not None and memory.notes and self._end_reason is None:
            self._send_sharing((), memory)

    def _on_backlog(self) -> None:
        if self._started:
            self._reactor.watch_writable(self._source, True)

    def _flush(self) -> None:
        with self._out.lock:
            if self._out.flush() and not self._done:
                if self._out:
                    self._source.again()  # after other sources
                else:
                    self._reactor.watch_writable(self._source, False)

    # -- receiving -----------------------------------------------------------------------

    def _on_ready(self) -> None:
        if self._out or self._end_reason is not None:
            self._before_reading()
            if self._end_reason is not None:
                return
        limit = self._received + _TURN
        try:
            while not (self._receive() if self._partial is None else self._receive_partial(*self._partial)):
                if self._received >= limit:
                    self._source.again()
                    return
        except BlockingIOError:
            return
        except ConnectionError as error:
            self._finish(f"the connection broke: {error}")
        except ValueError as error:
            self._finish(f"the peer violated the lane's protocol: {error}")
        except MemoryError as error:
            self._finish(f"out of memory for a message from the peer: {error}")

    def _before_reading(self) -> None:
        """Writes the queued bytes; then finishes a connection that has been closed or broken."""
        if self._out and not self._done:
            self._flush()
        if self._end_reason is not None and not self._done and (not self._out or self._lingers_no_more):
            self._finish(self._end_reason)

    def _receive(self) -> bool:
        """Reads once and delivers the complete messages; returns True when the socket is empty."""
        data = self._sock.recv(READ_BYTES)
        size = len(data)
        self._received += size
        if size >= 32 and not self._rest:
            count, notes, total, length, _ = SINGLE.unpack_from(data)
            if total == size and count == 1 and not notes and length <= size - 32:  # exactly one usual message
                if self._end_reason is None:
                    deliver(self._on_parts, [data[32 : 32 + length]])
                return size < READ_BYTES and not self._source.hung_up
        elif not size:
            raise ConnectionResetError("end of file")
        self._rest = self._rest + data if self._rest else data
        self._deliver_rest()
        return size < READ_BYTES and not self._source.hung_up

    def _receive_partial(self, memory: memoryview, view: Any) -> bool:
        received = self._sock.recv_into(memory[self._have :])
        if not received:
            raise ConnectionResetError("end of file inside a message")
        self._received += received
        self._have += received
        if self._have == len(memory):
            self._partial = None
            del memory
            self._deliver_whole(view)
        return False

    def _deliver_whole(self, view: Any) -> None:
        self._deliver(view, 0, lane_wire.read_prefix(view, 0))

    def _deliver_rest(self) -> None:
        data, offset = self._rest, 0
        try:
            while len(data) - offset >= 16:
                prefix = lane_wire.read_prefix(data, offset)
                total = prefix[2]
                have = len(data) - offset
                if have < total:
                    self._partial = memory, _ = memory_for(total)
                    memory[:have] = memoryview(data)[offset:]
                    self._have, offset = have, len(data)
                    return
                start, offset = offset, offset + total
                self._deliver(memoryview(data), start, prefix)
        finally:  # also on KeyboardInterrupt in a handler, so that the following messages are kept
            self._rest = data[offset:] if offset < len(data) else b""

    def _deliver(self, data: TensorLike, start: int, prefix: tuple[int, int, int]) -> None:
        parts, notes = lane_wire.unpack(data, start, prefix, self._borrow)
        del data  # so that the handler may hold the last reference
        if self._has_borrowed:
            self._has_borrowed = False
            self._shared += sum(map(len, parts))
        if notes:
            self._read_notes(notes)
        if prefix[0] and self._end_reason is None:
            deliver(self._on_parts, parts)

    def _borrow(self, block_id: int) -> Any:
        if self._memory is None:
            raise ValueError("shared memory on a lane without shared memory")
        self._has_borrowed = True
        return self._memory.borrow(block_id)

    def _read_notes(self, notes: Sequence[int]) -> None:
        if self._memory is None:
            raise ValueError("notes on a lane without shared memory")
        self._memory.read_notes(notes)

    # -- the end -------------------------------------------------------------------------

    def close(self, reason: str = "closed here") -> None:
        with self._out.lock:
            if self._end_reason is None:
                self._out.write_last()
            self._set_end(reason)
            if not self._started:  # `start` reports it
                self._release()
        if self._out:
            self._reactor.call_later(_LINGER_S, self._linger_no_more)

    def _break(self, reason: str) -> None:
        """Ends the connection at once and drops the queue. The caller holds the lock."""
        self._out.clear()
        self._set_end(reason)

    def _set_end(self, reason: str) -> None:
        if self._end_reason is None:
            self._end_reason = reason
        if self._started:
            self._source.again()

    def _linger_no_more(self) -> None:
        """Gives up what the peer has not read since `close`."""
        self._lingers_no_more = True
        if self._started:
            self._source.ready()

    def _finish(self, reason: str) -> None:
        self._end_reason = self._end_reason or reason
        self._reactor.unwatch(self._source)
        with self._out.lock:
            self._release()
        if self._on_closed is not None:
            deliver(self._on_closed, reason)

    def _release(self) -> None:
        """Gives everything back. The caller holds the lock, so that `start` comes before or sees it."""
        self._done = True
        self._partial = None
        self._out.clear()
        self._sock.close()
        if self._memory is not None:
            self._memory.close()


def peer_credentials(sock: socket.socket) -> tuple[int, int]:
    """The process id (0: of another namespace) and the user id of the peer of a Unix-domain socket."""
    credentials = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid, uid, _ = _CREDENTIALS.unpack(credentials)
    return pid, uid
