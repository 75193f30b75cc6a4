"""The local lane: a Unix-domain socket for messages, shared memory for large parts.

Two processes of one host that have met over ZeroMQ move to it, because a round trip takes a
tenth of the time (no I/O thread to wake on either side) and large parts are copied once.

Nothing unprotected listens: the socket's abstract name is unguessable, the kernel vouches for
the peer's user id, and the first bytes must be the one-time token from the Hello. With the
token the connecting side passes one end of a second socket, by which block descriptors travel;
so the message socket can be read without ancillary data. The death of a peer is seen at once,
as end-of-file.

A message on the wire, every piece padded to 16 bytes so that arrays are aligned::

    u32 parts, u32 notes, u64 total bytes | u64 per part: length | u64 per note | part, part, ...

The top bit of a part's length says that it is in shared memory and that its piece is the block's
id and the offset there. A note gives a block back to its owner, or, with the top bit set, tells
the receiver to forget one.
"""

from __future__ import annotations

import collections
import socket
import struct
from _thread import allocate_lock
from collections.abc import Sequence
from typing import Any

import numpy as np

from tfmini.rpc.reactor import Reactor, Source
from tfmini.rpc.shared_blocks import Block, BlockCache, BlockPool
from tfmini.rpc.transport import BACKLOG_LIMIT, Connection, OnClosed, OnParts, deliver

SHARE_FROM = 64 << 10  # bytes; smaller parts go through the socket
STREAM_LIMIT = 1 << 30  # bytes of one message in the socket
PARTS_LIMIT = 1 << 20
_READ = 32 << 10
_JOIN_LIMIT = 256 << 10  # bytes; up to here copying together beats scattered writing
_FLAG = 1 << 63
_LINGER_S = 1.0
_URGENT_BYTES = 1 << 20  # a freed block of this size goes back at once, smaller ones with the next message
_FREE_TICK_S = 0.02

_PREFIX = struct.Struct("<IIQ")
_SINGLE = struct.Struct("<IIQQQ")  # the whole table of a message of one part, padded
_NUMBERS: dict[int, struct.Struct] = {}
_PADDING = [bytes(-n % 16) for n in range(16)]
_PLACE = struct.Struct("<QQ")


def _numbers(count: int) -> struct.Struct:
    packer = _NUMBERS.get(count)
    if packer is None:
        packer = struct.Struct(f"<IIQ{count}Q")
        if count < 64:
            _NUMBERS[count] = packer
    return packer


class LaneConnection(Connection):
    """One lane. Both sides are alike once the token has been shown."""

    def __init__(self, sock: socket.socket, fd_sock: socket.socket, reactor: Reactor, address: str) -> None:
        self.address = address
        self._sock = sock
        self._fd_sock = fd_sock
        self._reactor = reactor
        self._source: Source | None = None
        self._on_parts: OnParts  # set, like the next, before the source exists
        self._on_closed: OnClosed | None = None
        self._lock = allocate_lock()  # guards sending
        self._queue: collections.deque[memoryview] = collections.deque()
        self._queued = 0
        self._end_reason: str | None = None
        self._done = False
        self._rest = b""  # received, not yet delivered
        self._partial: bytearray | None = None
        self._have = 0
        self._pool = BlockPool()
        self._cache = BlockCache(self._on_free)
        self._notes: collections.deque[int] = collections.deque()
        self._free_timer: Any = None
        sock.setblocking(False)
        fd_sock.setblocking(False)

    def start(self, on_parts: OnParts, on_closed: OnClosed) -> None:
        self._on_parts, self._on_closed = on_parts, on_closed
        if self._source is None:
            self._source = self._reactor.source(self._sock.fileno(), self._on_ready)
            with self._lock:
                self._reactor.watch(self._source, writable=bool(self._queue))
        if self._end_reason is not None:
            self._source.again()

    @property
    def backlog(self) -> int:
        return self._queued

    def statistics(self) -> dict[str, int]:
        """Shared memory blocks of this side, and transfers of the other side still in use here."""
        return {**self._pool.statistics(), "borrowed": self._cache.borrowed}

    # -- sending -------------------------------------------------------------------------

    def send(self, parts: Sequence[Any]) -> None:
        if self._end_reason is not None:
            return
        if len(parts) == 1 and not self._notes and len(parts[0]) < SHARE_FROM:
            size = len(parts[0])  # the usual message: a header with its small tensors inside
            padding = _PADDING[size & 15]
            total = 32 + size + len(padding)
            buffer = b"".join((_SINGLE.pack(1, 0, total, size, 0), parts[0], padding))
            with self._lock:
                self._write([buffer], total)
            return
        large = [part for part in parts if len(part) >= SHARE_FROM]
        block = self._share(large) if large else None
        with self._lock:
            try:
                if block is not None and not self._pass(block):
                    self._pool.give_back(block.id)
                    block = None
            except OSError as error:
                self._break(f"the connection broke: {error}")
                return
            self._write(*self._frame(parts, block))

    def _share(self, parts: list[Any]) -> Block | None:
        """Copies the parts into one block; None when there is none to be had."""
        block = self._pool.take(sum(len(part) + (-len(part) & 63) for part in parts))
        if block is not None:
            offset = 0
            for part in parts:
                size = len(part)
                np.copyto(block.bytes[offset : offset + size], np.frombuffer(part, np.uint8))
                offset += size + (-size & 63)
        return block

    def _pass(self, block: Block) -> bool:
        """Sends the descriptor ahead of the message; False when its socket is full."""
        if block.fd < 0:
            return True
        try:
            socket.send_fds(self._fd_sock, [_PLACE.pack(block.id, block.capacity)], [block.fd])
        except BlockingIOError:
            return False
        block.forget_fd()
        return True

    def _frame(self, parts: Sequence[Any], block: Block | None) -> tuple[list[Any], int]:
        """The pieces of a message, and how many bytes they are."""
        notes = self._take_notes()
        numbers: list[int] = []
        body: list[Any] = []
        offset = 0
        for part in parts:
            size = len(part)
            if block is not None and size >= SHARE_FROM:
                numbers.append(size | _FLAG)
                body.append(_PLACE.pack(block.id, offset))
                offset += size + (-size & 63)
            else:
                numbers.append(size)
                body.append(part)
                if size & 15:
                    body.append(_PADDING[size & 15])
        numbers += notes
        if len(numbers) & 1:
            numbers.append(0)
        total = _PREFIX.size + 8 * len(numbers) + sum(map(len, body))
        return [_numbers(len(numbers)).pack(len(parts), len(notes), total, *numbers), *body], total

    def _take_notes(self) -> list[int]:
        notes = []
        while self._notes:
            notes.append(self._notes.popleft())
        return notes

    def _write(self, pieces: list[Any], total: int) -> None:
        """Writes what the socket takes and queues a copy of the rest. Holds the lock."""
        if self._queue:
            self._enqueue(pieces, 0)
            return
        try:
            if len(pieces) == 1:
                sent = self._sock.send(pieces[0])
            elif total <= _JOIN_LIMIT:
                sent = self._sock.send(b"".join(pieces))
            else:
                sent = self._sock.sendmsg(pieces[:1000])
        except BlockingIOError:
            sent = 0
        except OSError as error:
            self._break(f"the connection broke: {error}")
            return
        if sent < total:
            self._enqueue(pieces, sent)

    def _enqueue(self, pieces: list[Any], skip: int) -> None:
        rest = memoryview(b"".join(pieces))[skip:]
        self._queue.append(rest)
        self._queued += len(rest)
        if self._queued > BACKLOG_LIMIT:
            self._break(f"the peer does not read: {self._queued} bytes are waiting for it")
        elif len(self._queue) == 1 and self._source is not None:
            self._reactor.watch_writable(self._source, True)

    def _flush(self) -> None:
        with self._lock:
            while self._queue:
                try:
                    sent = self._sock.send(self._queue[0])
                except BlockingIOError:
                    return
                except OSError as error:
                    self._break(f"the connection broke: {error}")
                    return
                self._queued -= sent
                if sent < len(self._queue[0]):
                    self._queue[0] = self._queue[0][sent:]
                else:
                    self._queue.popleft()
            if self._source is not None and not self._done:
                self._reactor.watch_writable(self._source, False)

    # -- receiving -----------------------------------------------------------------------

    def _on_ready(self) -> None:
        if self._queue or self._end_reason is not None:
            self._before_reading()
            if self._end_reason is not None:
                return
        try:
            while not (self._receive() if self._partial is None else self._receive_partial(self._partial)):
                pass
        except BlockingIOError:
            return
        except ConnectionError as error:
            self._finish(f"the connection broke: {error}")
        except ValueError as error:
            self._finish(f"the peer broke the lane's protocol: {error}")

    def _before_reading(self) -> None:
        """Writes what waits; ends what was closed here or found broken."""
        if self._queue and not self._done:
            self._flush()
        if self._end_reason is not None and not self._queue and not self._done:
            self._finish(self._end_reason)

    def _receive(self) -> bool:
        """Reads once and delivers what is complete; True when there is nothing more to read."""
        data = self._sock.recv(_READ)
        size = len(data)
        if size >= 32 and not self._rest:
            count, notes, total, length, _ = _SINGLE.unpack_from(data)
            if total == size and count == 1 and not notes and length <= size - 32:  # the usual message, alone
                if self._end_reason is None:
                    deliver(self._on_parts, [data[32 : 32 + length]])
                return not self._source.hung_up  # type: ignore[union-attr]
        elif not size:
            raise ConnectionResetError("end of file")
        self._rest = self._rest + data if self._rest else data
        self._deliver_rest()
        return size < _READ and not self._source.hung_up  # type: ignore[union-attr]

    def _receive_partial(self, partial: bytearray) -> bool:
        with memoryview(partial) as view:
            received = self._sock.recv_into(view[self._have :])
        if not received:
            raise ConnectionResetError("end of file inside a message")
        self._have += received
        if self._have == len(partial):
            self._partial = None
            self._deliver(memoryview(partial).toreadonly(), 0, *_PREFIX.unpack_from(partial))
        return False

    def _deliver_rest(self) -> None:
        data, offset = self._rest, 0
        try:
            while len(data) - offset >= 16:
                count, notes, total = _PREFIX.unpack_from(data, offset)
                if total > STREAM_LIMIT or count > PARTS_LIMIT or notes > PARTS_LIMIT or total < 16:
                    raise ValueError(f"a message of {count} parts and {total} bytes")
                if len(data) - offset < total:
                    self._partial = bytearray(total)
                    self._have = len(data) - offset
                    self._partial[: self._have] = memoryview(data)[offset:]
                    offset = len(data)
                    return
                start, offset = offset, offset + total
                self._deliver(memoryview(data), start, count, notes, total)
        finally:  # also if Ctrl-C strikes in a handler: what follows is not lost
            self._rest = data[offset:] if offset < len(data) else b""

    def _deliver(self, data: memoryview, start: int, count: int, notes: int, total: int) -> None:
        numbers_end = start + 16 + 8 * (count + notes)
        if numbers_end > start + total:
            raise ValueError("a message shorter than its table")
        table = struct.unpack_from(f"<{count + notes}Q", data, start + 16)
        if notes:
            self._read_notes(table[count:])
        if not count:
            return
        position = numbers_end + (-(numbers_end - start) % 16)
        parts: list[Any] = []
        owners: dict[int, Any] = {}
        for number in table[:count]:
            size = 16 if number & _FLAG else number
            if position + size > start + total:
                raise ValueError("a part that reaches beyond its message")
            if number & _FLAG:
                block_id, offset = _PLACE.unpack_from(data, position)
                if block_id not in owners:
                    owners[block_id] = self._borrow(block_id)
                part = owners[block_id][offset : offset + (number ^ _FLAG)]
                if len(part) != number ^ _FLAG:
                    raise ValueError("a part that reaches beyond its block")
                parts.append(part)
            else:
                parts.append(data[position : position + size])
            position += size + (-size % 16)
        if self._end_reason is None:
            deliver(self._on_parts, parts)

    # -- shared memory -------------------------------------------------------------------

    def _borrow(self, block_id: int) -> Any:
        while block_id not in self._cache:
            message, fds, _, _ = socket.recv_fds(self._fd_sock, _PLACE.size, 1)
            if len(message) != _PLACE.size or len(fds) != 1:
                raise ValueError("a shared memory block did not come")
            self._cache.add(_PLACE.unpack(message)[0], fds[0])
        if self._free_timer is None:
            self._free_timer = self._reactor.call_later(_FREE_TICK_S, self._return_blocks, _FREE_TICK_S)
        return self._cache.borrow(block_id)

    def _read_notes(self, notes: Sequence[int]) -> None:
        for note in notes:
            if note & _FLAG:
                self._cache.forget(note ^ _FLAG)
                continue
            try:
                self._notes.extend(block_id | _FLAG for block_id in self._pool.give_back(note))
            except KeyError:
                raise ValueError(f"block {note} was given back but not lent") from None

    def _on_free(self, block_id: int, nbytes: int) -> None:
        """The last view of a transfer has died; see `BlockCache` for what is allowed here."""
        self._notes.append(block_id)
        if nbytes >= _URGENT_BYTES and not self._done:
            self._reactor.call_soon(self._send_notes)

    def _return_blocks(self, delay: float) -> None:
        """Sends back what no message has taken along, ever more rarely while transfers are in use."""
        self._free_timer = None
        self._send_notes()
        if self._cache.borrowed and not self._done:
            delay = min(1.0, delay * 2)
            self._free_timer = self._reactor.call_later(delay, self._return_blocks, delay)

    def _send_notes(self) -> None:
        if self._notes and self._end_reason is None:
            with self._lock:
                self._write(*self._frame((), None))

    # -- the end -------------------------------------------------------------------------

    def close(self, reason: str = "closed here") -> None:
        with self._lock:
            self._set_end(reason)
        if self._queue:
            self._reactor.call_later(_LINGER_S, self._drop_queue)
        if self._source is None:  # never started: nobody waits for the news
            self._release()

    def _break(self, reason: str) -> None:
        """Ends it at once: what is queued can go nowhere. Holds the lock."""
        self._queue.clear()
        self._queued = 0
        self._set_end(reason)

    def _set_end(self, reason: str) -> None:
        if self._end_reason is None:
            self._end_reason = reason
        if self._source is not None:
            self._source.again()

    def _drop_queue(self) -> None:
        with self._lock:
            self._queue.clear()
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
        if self._free_timer is not None:
            self._free_timer.cancel()
        with self._lock:
            self._queue.clear()
            self._sock.close()
            self._fd_sock.close()
            self._pool.close()
            self._cache.close()
