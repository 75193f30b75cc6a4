"""Stream lanes: a TCP socket in place of a ZeroMQ connection, for tasks on different hosts.

ZeroMQ copies a large message once more, wakes an I/O thread on each side and faults in fresh
memory for every message; a socket of our own needs half the time, and less with encryption. It is no more
exposed than the ZeroMQ connection that it replaces: it is on the same interface, encrypted if there are keys,
and the peer must show that it has the one-time token from the HelloReply. If the port cannot be reached
(because of a firewall, say), the link stays with ZeroMQ.
"""

from __future__ import annotations

import hashlib
import logging
import os
import socket
import struct
from collections.abc import Callable
from typing import Any

from tfmini.rpc.addresses import family_of, listening_socket
from tfmini.rpc.lane_connection import LaneConnection
from tfmini.rpc.lane_listener import TOKEN_BYTES, TokenListener
from tfmini.rpc.reactor import Reactor
from tfmini.rpc.send_queue import TURN, SendQueue
from tfmini.rpc.waiter import EventSource, Timer

_log = logging.getLogger("tfmini.rpc")

# ---- Encrypted stream lanes: the format of a lane in records of AES-256-GCM ----------------------------------------
# Both sides know a token that one of them made for this lane and that travelled inside the encrypted
# ZeroMQ connection. From it they derive a name, by which the listener recognizes the lane, and a key for each
# direction. A record is::
#
#     u32 length of the ciphertext, with the top bit set in the last record | ciphertext and its tag
#
# The nonce is the number of the record, and the length is authenticated with it. So a record that was changed,
# repeated, left out or moved ends the lane, and so does an end without a last record.

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


# ---- How a stream lane is opened and accepted ----------------------------------------------------------------------

_CONNECT_S = 4.0
SCHEME = "stream://"


def streams_wanted() -> bool:
    """Whether stream lanes are enabled; ``TFMINI_STREAM=off`` disables them."""
    return os.environ.get("TFMINI_STREAM", "").lower() not in ("off", "0", "no")


class StreamListener(TokenListener):
    """Accepts stream lanes. Its address contains only the port.

    Args:
      interface: numeric address to bind, the same as the ZeroMQ listener's.
      sealed: whether its lanes are encrypted.

    Raises:
      OSError: the address cannot be bound.
    """

    def __init__(self, interface: str, reactor: Reactor, sealed: bool) -> None:
        self._is_sealed = sealed
        sock = listening_socket(interface)
        super().__init__(sock, f"{SCHEME}{sock.getsockname()[1]}", reactor)

    def _read_token(self, sock: socket.socket) -> tuple[bytes, socket.socket | None]:
        shown = sock.recv(TOKEN_BYTES, socket.MSG_PEEK)
        if not shown:
            raise ConnectionResetError("end of file")
        if len(shown) < TOKEN_BYTES:
            raise BlockingIOError
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return sock.recv(TOKEN_BYTES), None

    def shown(self, token: bytes) -> bytes:
        return lane_name(token)

    def _make_lane(self, sock: socket.socket, fd_sock: socket.socket | None, token: bytes) -> LaneConnection:
        if self._is_sealed:
            return SealedLane(sock, self._reactor, self.address, token, connecting=False)
        return super()._make_lane(sock, fd_sock, token)


class StreamOpening:
    """Connects to a `StreamListener` without blocking and shows the token.

    Args:
      sealed: whether the lane is encrypted.
      on_open: gets the lane before the token is sent, so before the peer can use the lane; not called
        if connecting fails.
    """

    def __init__(
        self,
        host: str,
        port: int,
        token: bytes,
        reactor: Reactor,
        on_open: Callable[[LaneConnection], None],
        sealed: bool,
    ) -> None:
        self._token = token
        self._is_sealed = sealed
        self._reactor = reactor
        self._on_open = on_open
        self._address = f"tcp://{host}:{port}"
        self._over = False
        self._sock = socket.socket(family_of(host), socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        self._sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._source: EventSource = reactor.source(self._sock.fileno(), self._on_ready)
        self._timer: Timer | None = None
        try:
            self._sock.connect((host, port))
        except BlockingIOError:  # in progress
            pass
        except OSError as error:
            reactor.call_soon(self._fail, str(error))
            return
        reactor.watch(self._source, writable=True)
        # Last, since each of them may be due at once. One that is left over after the end does nothing.
        self._timer = reactor.call_later(_CONNECT_S, self._fail, "no answer")

    def _on_ready(self) -> None:
        if self._over:
            return
        fault = self._sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if fault:
            self._fail(os.strerror(fault))
            return
        try:
            self._sock.getpeername()
        except OSError:  # not connected yet
            return
        self._end()
        lane = (
            SealedLane(self._sock, self._reactor, self._address, self._token, connecting=True)
            if self._is_sealed
            else LaneConnection(self._sock, None, self._reactor, self._address)
        )
        self._on_open(lane)
        try:
            self._sock.send(lane_name(self._token))
        except OSError as error:
            lane.close(f"the connection broke: {error}")

    def _fail(self, reason: str) -> None:
        if not self._over:
            self._end()
            self._sock.close()
            _log.info("no stream lane to %s: %s", self._address, reason)

    def _end(self) -> None:
        self._over = True
        if self._timer is not None:
            self._timer.cancel()
        self._reactor.unwatch(self._source)
