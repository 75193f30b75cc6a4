"""Encrypted stream lanes: the format of a lane in records of AES-256-GCM.

Both sides know a token that one of them made for this lane and that travelled inside the encrypted
ZeroMQ connection. From it they derive a name, by which the listener recognizes the lane, and a key for each
direction. A record is::

    u32 length of the ciphertext, with the top bit set in the last record | ciphertext and its tag

The nonce is the number of the record, and the length is authenticated with it. So a record that was changed,
repeated, left out or moved ends the lane, and so does an end without a last record.
"""

from __future__ import annotations

import hashlib
import socket
import struct
from collections.abc import Callable
from typing import Any

from tfmini.rpc.lane_connection import LaneConnection
from tfmini.rpc.reactor import Reactor
from tfmini.rpc.send_queue import TURN, SendQueue

RECORD_BYTES = 128 << 10  # of plaintext in a full record
_TAG_BYTES = 16
_HEADER = struct.Struct("<I")
RECORD_LIMIT = _HEADER.size + RECORD_BYTES + _TAG_BYTES  # bytes of a full record
_LAST = 1 << 31


def lane_name(token: bytes) -> bytes:
    """Returns the proof that the connecting side sends to the listener; it does not reveal the token."""
    return _derive(token, b"tfmini lane name")


def _derive(token: bytes, purpose: bytes) -> bytes:
    return hashlib.blake2b(key=token, person=purpose, digest_size=32).digest()


class RecordCipher:
    """Seals or opens the records of one direction, in order.

    It writes into memory that is used again: fresh memory costs five times the encryption, in page faults.
    """

    def __init__(self, key: bytes) -> None:
        from cryptography.exceptions import InvalidTag  # slow to import
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        self._aead = AESGCM(key)
        self._invalid = InvalidTag
        self._count = 0
        self._buffer = memoryview(bytearray(RECORD_LIMIT))

    def _nonce(self) -> bytes:
        self._count += 1
        return self._count.to_bytes(12, "little")

    def seal(self, plain: Any, is_last: bool = False) -> memoryview:
        """Returns the record for up to `RECORD_BYTES` bytes, in memory that the next call changes."""
        size = len(plain) + _TAG_BYTES
        header = _HEADER.pack(size | (_LAST if is_last else 0))
        end = _HEADER.size + size
        self._buffer[: _HEADER.size] = header
        self._aead.encrypt_into(self._nonce(), plain, header, self._buffer[_HEADER.size : end])
        return self._buffer[:end]

    def open(self, header: Any, sealed: Any, into: memoryview | None = None) -> memoryview:
        """Opens the next record; returns its plaintext.

        Args:
          into: memory for it, of the right size; None: memory that the next call changes.

        Raises:
          ValueError: the record is not the next one of the peer.
        """
        plain = self._buffer[: len(sealed) - _TAG_BYTES] if into is None else into
        try:
            self._aead.decrypt_into(self._nonce(), sealed, header, plain)
        except self._invalid:
            raise ValueError("a record that the peer did not send") from None
        return plain


class SealedSendQueue(SendQueue):
    """A send queue that encrypts its bytes. The queue holds plaintext, and one record that is being sent."""

    def __init__(
        self,
        sock: socket.socket,
        on_backlog: Callable[[], None],
        on_broken: Callable[[str], None],
        cipher: RecordCipher,
    ) -> None:
        super().__init__(sock, on_backlog, on_broken)
        self._cipher = cipher
        self._record: Any = b""  # the unsent rest of a record
        self._record_size = 0  # its plaintext bytes
        self._must_end = False  # whether the last record is still to be made

    def __bool__(self) -> bool:
        return bool(self._queue or self._record or self._must_end)

    def write(self, pieces: list[Any], total: int) -> None:
        if self._queue or self._record:
            if self.has_room(total):
                self._enqueue(pieces, 0)
            return
        if total <= RECORD_BYTES:  # the usual case
            self._backlog.add(total)
            self._seal(pieces[0] if len(pieces) == 1 else b"".join(pieces))
        else:
            self._enqueue(pieces, 0)
        self.flush()
        if self:
            self._on_backlog()

    def _seal(self, plain: Any) -> None:
        self._record, self._record_size = self._cipher.seal(plain, is_last=not plain), len(plain)

    def write_last(self) -> None:
        """Ends the stream after the queued messages."""
        self._must_end = True
        self.flush()
        if self:
            self._on_backlog()

    def flush(self) -> bool:
        budget = TURN
        while budget > 0 and self:
            if not self._record:
                plain = self._next_plain() if self._queue else b""
                self._must_end = self._must_end and bool(plain)
                self._seal(plain)
            try:
                sent = self._sock.send(self._record)
            except BlockingIOError:
                return False
            except OSError as error:
                self._on_broken(f"the connection broke: {error}")
                return False
            budget -= sent
            self._record = self._record[sent:]
            if not self._record:
                self._backlog.take(self._record_size)
        return True

    def _next_plain(self) -> Any:
        """Takes up to `RECORD_BYTES` bytes from the queue."""
        queue, taken, size = self._queue, [], 0
        while queue and size < RECORD_BYTES:
            piece = memoryview(queue[0])[: RECORD_BYTES - size]
            if len(piece) < len(queue[0]):
                queue[0] = memoryview(queue[0])[len(piece) :]
            else:
                queue.popleft()
            taken.append(piece)
            size += len(piece)
        return taken[0] if len(taken) == 1 else b"".join(taken)

    def clear(self) -> None:
        super().clear()
        self._record, self._must_end = b"", False


class SealedLane(LaneConnection):
    """An encrypted stream lane.

    Args:
      token: the secret of this lane.
      connecting: whether this side opened the connection.
    """

    def __init__(self, sock: socket.socket, reactor: Reactor, address: str, token: bytes, connecting: bool) -> None:
        super().__init__(sock, None, reactor, address)
        keys = [_derive(token, b"tfmini to listen"), _derive(token, b"tfmini from list")]
        if not connecting:
            keys.reverse()
        self._out: SealedSendQueue = SealedSendQueue(sock, self._on_backlog, self._break, RecordCipher(keys[0]))
        self._cipher = RecordCipher(keys[1])
        self._sealed = memoryview(bytearray(2 * RECORD_LIMIT))
        self._filled = 0

    def _receive(self) -> bool:
        received = self._sock.recv_into(self._sealed[self._filled :])
        if not received:
            raise ConnectionResetError("end of file before the last record")
        self._received += received
        self._filled += received
        is_empty = self._filled < len(self._sealed) and not self._source.hung_up
        self._open_records()
        return is_empty

    def _receive_partial(self, memory: memoryview, view: Any) -> bool:
        return self._receive()

    def _open_records(self) -> None:
        """Opens the complete records and delivers the complete messages in them."""
        sealed, start, filled = self._sealed, 0, self._filled
        try:
            while filled - start >= _HEADER.size:
                (length,) = _HEADER.unpack_from(sealed, start)
                is_last, length = length >= _LAST, length & ~_LAST
                if not _TAG_BYTES <= length <= RECORD_BYTES + _TAG_BYTES:
                    raise ValueError(f"a record of {length} bytes")
                body = start + _HEADER.size
                end = body + length
                if filled < end:
                    return
                header, start = sealed[start:body], end
                self._open(header, sealed[body:end], length - _TAG_BYTES)
                if is_last:
                    raise ConnectionResetError("end of file")
        finally:  # also on KeyboardInterrupt in a handler, so that the following records are kept
            self._filled = filled - start
            if self._filled:
                sealed[: self._filled] = sealed[start:filled]

    def _open(self, header: Any, sealed: Any, size: int) -> None:
        """Opens one record and delivers the messages that it completes."""
        if self._partial is None or size > len(self._partial[0]) - self._have:
            self._deliver_plain(bytes(self._cipher.open(header, sealed)))
            return
        memory, view = self._partial
        self._cipher.open(header, sealed, memory[self._have : self._have + size])
        self._have += size
        if self._have == len(memory):
            self._partial = None
            del memory
            self._deliver_whole(view)

    def _deliver_plain(self, plain: bytes) -> None:
        if self._partial is None:
            self._rest = self._rest + plain if self._rest else plain
        else:  # the end of a message and the beginning of another
            memory, view = self._partial
            size = len(memory) - self._have
            memory[self._have :] = plain[:size]
            self._rest, self._partial = plain[size:], None
            del memory
            self._deliver_whole(view)
        self._deliver_rest()
