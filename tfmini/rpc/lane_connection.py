"""Lanes: a plain stream socket for messages and, on one host, shared memory for large parts.

Two processes that have met over ZeroMQ move to a lane, because a round trip takes a fraction of
the time (no I/O thread to wake on either side), large parts are copied once less, and what has
arrived of a huge message can be seen. There are two kinds:

* the *local* lane, on one host: a Unix-domain socket, and shared memory (`lane_memory`);
* the *stream* lane, between hosts, where no encryption is asked for: a TCP socket.

`lane_listener` says how they are opened and by whom. The death of a peer is seen at once, as
end-of-file. `lane_wire` describes the bytes.
"""

from __future__ import annotations

import fcntl
import socket
import struct
import termios
from collections.abc import Sequence
from typing import Any

from tfmini.rpc import lane_wire
from tfmini.rpc.lane_memory import LaneMemory
from tfmini.rpc.lane_wire import SHARE_FROM, SINGLE
from tfmini.rpc.outflow import Outflow
from tfmini.rpc.reactor import Reactor
from tfmini.rpc.receive_buffers import POOL_FROM, RECEIVE_BUFFERS
from tfmini.rpc.source import Source
from tfmini.rpc.transport import Connection, OnClosed, OnParts, deliver

_READ = 32 << 10
_TURN = 32 << 20  # bytes received before other sources get their turn
_LINGER_S = 1.0
_INT = struct.Struct("i")


class LaneConnection(Connection):
    """One lane. Both sides are alike once the token has been shown.

    Args:
      sock: the stream socket, connected.
      fd_sock: the socket for descriptors of shared memory; None: all goes through the stream.
    """

    def __init__(
        self, sock: socket.socket, fd_sock: socket.socket | None, reactor: Reactor, address: str
    ) -> None:
        self.address = address
        self._sock = sock
        self._reactor = reactor
        self._source: Source | None = None
        self._on_parts: OnParts  # set, like the next, before the source exists
        self._on_closed: OnClosed | None = None
        self._out = Outflow(sock, self._on_backlog, self._break)
        self._memory = LaneMemory(fd_sock, reactor, self._send_notes) if fd_sock is not None else None
        self._end_reason: str | None = None
        self._done = False
        self._rest = b""  # received, not yet delivered
        self._partial: tuple[memoryview, Any] | None = None  # a message that is coming: memory, what users see
        self._have = 0
        self._received = 0  # bytes
        sock.setblocking(False)

    def start(self, on_parts: OnParts, on_closed: OnClosed) -> None:
        self._on_parts, self._on_closed = on_parts, on_closed
        if self._source is None:
            self._source = self._reactor.source(self._sock.fileno(), self._on_ready)
            with self._out.lock:
                self._reactor.watch(self._source, writable=bool(self._out))
        if self._end_reason is not None:
            self._source.again()

    @property
    def backlog(self) -> int:
        return self._out.bytes

    @property
    def activity(self) -> int:
        """Bytes that have come, read or not."""
        if self._done:
            return self._received
        try:
            unread = fcntl.ioctl(self._sock.fileno(), termios.FIONREAD, bytes(4))
        except (OSError, ValueError):  # closed meanwhile
            return self._received
        return self._received + int(_INT.unpack(unread)[0])

    def statistics(self) -> dict[str, int]:
        """Shared memory blocks of this side, and transfers of the other side still in use here."""
        return self._memory.statistics() if self._memory is not None else {}

    # -- sending -------------------------------------------------------------------------

    def send(self, parts: Sequence[Any]) -> None:
        if self._end_reason is not None:
            return
        memory = self._memory
        if len(parts) == 1 and len(parts[0]) < SHARE_FROM and (memory is None or not memory.notes):
            buffer = lane_wire.pack_single(parts[0])
            with self._out.lock:
                self._out.write([buffer], len(buffer))
        elif memory is None:
            pieces, total = lane_wire.pack(parts, (), None)
            with self._out.lock:
                self._out.write(pieces, total)
        else:
            self._send_sharing(parts, memory)

    def _send_sharing(self, parts: Sequence[Any], memory: LaneMemory) -> None:
        large = [part for part in parts if len(part) >= SHARE_FROM]
        block = memory.share(large) if large else None
        with self._out.lock:
            try:
                if block is not None and not memory.pass_on(block):
                    block = None
            except OSError as error:
                self._break(f"the connection broke: {error}")
                return
            self._out.write(*lane_wire.pack(parts, memory.take_notes(), block.id if block is not None else None))

    def _send_notes(self) -> None:
        memory = self._memory
        if memory is not None and memory.notes and self._end_reason is None:
            with self._out.lock:
                self._out.write(*lane_wire.pack((), memory.take_notes(), None))

    def _on_backlog(self) -> None:
        if self._source is not None:
            self._reactor.watch_writable(self._source, True)

    def _flush(self) -> None:
        with self._out.lock:
            if self._out.flush() and self._source is not None and not self._done:
                if self._out:
                    self._source.again()  # after others had their turn
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
                    self._source.again()  # type: ignore[union-attr]
                    return
        except BlockingIOError:
            return
        except ConnectionError as error:
            self._finish(f"the connection broke: {error}")
        except ValueError as error:
            self._finish(f"the peer broke the lane's protocol: {error}")
        except MemoryError as error:
            self._finish(f"there is no memory for a message from the peer: {error}")

    def _before_reading(self) -> None:
        """Writes what waits; ends what was closed here or found broken."""
        if self._out and not self._done:
            self._flush()
        if self._end_reason is not None and not self._out and not self._done:
            self._finish(self._end_reason)

    def _receive(self) -> bool:
        """Reads once and delivers what is complete; True when there is nothing more to read."""
        data = self._sock.recv(_READ)
        size = len(data)
        self._received += size
        if size >= 32 and not self._rest:
            count, notes, total, length, _ = SINGLE.unpack_from(data)
            if total == size and count == 1 and not notes and length <= size - 32:  # the usual message, alone
                if self._end_reason is None:
                    deliver(self._on_parts, [data[32 : 32 + length]])
                return not self._source.hung_up  # type: ignore[union-attr]
        elif not size:
            raise ConnectionResetError("end of file")
        self._rest = self._rest + data if self._rest else data
        self._deliver_rest()
        return size < _READ and not self._source.hung_up  # type: ignore[union-attr]

    def _receive_partial(self, memory: memoryview, seen: Any) -> bool:
        received = self._sock.recv_into(memory[self._have :])
        if not received:
            raise ConnectionResetError("end of file inside a message")
        self._received += received
        self._have += received
        if self._have == len(memory):
            self._partial = None
            del memory
            self._deliver(seen, 0, lane_wire.read_prefix(seen, 0))
        return False

    def _deliver_rest(self) -> None:
        data, offset = self._rest, 0
        try:
            while len(data) - offset >= 16:
                prefix = lane_wire.read_prefix(data, offset)
                total = prefix[2]
                have = len(data) - offset
                if have < total:
                    self._partial = memory, _ = _memory_for(total)
                    memory[:have] = memoryview(data)[offset:]
                    self._have, offset = have, len(data)
                    return
                start, offset = offset, offset + total
                self._deliver(memoryview(data), start, prefix)
        finally:  # also if Ctrl-C strikes in a handler: what follows is not lost
            self._rest = data[offset:] if offset < len(data) else b""

    def _deliver(self, data: Any, start: int, prefix: tuple[int, int, int]) -> None:
        parts, notes = lane_wire.unpack(data, start, prefix, self._borrow)
        del data  # the handler may be the last one to hold it
        if notes:
            self._read_notes(notes)
        if prefix[0] and self._end_reason is None:
            deliver(self._on_parts, parts)

    def _borrow(self, block_id: int) -> Any:
        if self._memory is None:
            raise ValueError("shared memory on a lane that has none")
        return self._memory.borrow(block_id)

    def _read_notes(self, notes: Sequence[int]) -> None:
        if self._memory is None:
            raise ValueError("notes on a lane without shared memory")
        self._memory.read_notes(notes)

    # -- the end -------------------------------------------------------------------------

    def close(self, reason: str = "closed here") -> None:
        with self._out.lock:
            self._set_end(reason)
        if self._out:
            self._reactor.call_later(_LINGER_S, self._drop_queue)
        if self._source is None:  # never started: nobody waits for the news
            self._release()

    def _break(self, reason: str) -> None:
        """Ends it at once: what is queued can go nowhere. Holds the lock."""
        self._out.clear()
        self._set_end(reason)

    def _set_end(self, reason: str) -> None:
        if self._end_reason is None:
            self._end_reason = reason
        if self._source is not None:
            self._source.again()

    def _drop_queue(self) -> None:
        with self._out.lock:
            self._out.clear()
        if self._source is not None:
            self._source.ready()

    def _finish(self, reason: str) -> None:
        self._end_reason = self._end_reason or reason
        if self._source is not None:
            self._reactor.unwatch(self._source)
        self._release()
        if self._on_closed is not None:
            deliver(self._on_closed, reason)

    def _release(self) -> None:
        self._done = True
        self._partial = None
        with self._out.lock:
            self._out.clear()
            self._sock.close()
            if self._memory is not None:
                self._memory.close()


def _memory_for(total: int) -> tuple[memoryview, Any]:
    """Memory for a message that comes in pieces, and its read-only face."""
    if total >= POOL_FROM:
        return RECEIVE_BUFFERS.take(total)
    memory = memoryview(bytearray(total))
    return memory, memory.toreadonly()
