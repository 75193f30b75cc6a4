"""An encrypted, authenticated stream of messages between the launcher and the agent of a task.

Both sides hold the secret of the run, which the engine has handed to the agent. Each side makes an X25519 key pair for
the connection and sends its public key in clear. The keys of the two directions derive from the secret, both public
keys and what the two key pairs have in common, so who learns the secret later cannot read what was recorded. After that
a frame is its length (4 bytes, big endian) and its AES-256-GCM ciphertext, whose nonce is the number of the frame. A
message is a list, encoded by msgpack.

A peer without the secret can make no frame that decrypts: the first one ends the connection.
"""

from __future__ import annotations

import hashlib
import hmac
import socket
from typing import Any

import msgpack
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

SECRET_BYTES = 32
_PUBLIC_BYTES = 32
_LENGTH_BYTES = 4
_TAG_BYTES = 16
_MOST_BYTES = 1 << 22  # of a frame
_MOST_BEFORE = 1 << 12  # of the first frame, which shows that the peer has the secret
_KEEPALIVE_S = 5
_LOST_AFTER_MS = 20_000


class ChannelError(Exception):
    """The peer has gone, does not hold the secret, or does not keep to the protocol."""


class Channel:
    """One end of a stream of messages over a connected tcp socket. Not thread-safe.

    Args:
      connection: a connected socket, which the channel owns and makes non-blocking.
      secret: the secret of the run.
      is_hub: whether this is the launcher's end.

    Raises:
      OSError: the connection has failed.
    """

    def __init__(self, connection: socket.socket, secret: bytes, is_hub: bool) -> None:
        self._socket = connection
        self._secret = secret
        self._is_hub = is_hub
        self._private = X25519PrivateKey.generate()
        self._public = self._private.public_key().public_bytes_raw()
        self._received = b""
        self._waiting = bytearray(self._public)
        self._sending: AESGCM | None = None
        self._receiving: AESGCM | None = None
        self._sent = self._taken = 0
        self._held: list[bytes] = []  # messages from before the keys
        connection.setblocking(False)
        _watch(connection)
        self.flush()

    def fileno(self) -> int:
        """The socket's descriptor, for a selector."""
        return self._socket.fileno()

    @property
    def is_trusted(self) -> bool:
        """Whether the peer has shown that it holds the secret."""
        return self._taken > 0

    @property
    def unsent(self) -> int:
        """The number of bytes that wait for the socket."""
        return len(self._waiting)

    def own_host(self) -> str:
        """The address of this end."""
        return str(self._socket.getsockname()[0])

    def send(self, *message: Any) -> None:
        """Queues a message and sends what the socket takes. (`unsent` bytes remain for `flush`.)"""
        data = msgpack.packb(list(message))
        if self._sending is None:
            self._held.append(data)
        else:
            self._queue(data)
        self.flush()

    def flush(self) -> None:
        """Sends waiting bytes, as many as the socket takes now.

        Raises:
          ChannelError: the connection is broken.
        """
        while self._waiting:
            try:
                del self._waiting[: self._socket.send(self._waiting)]
            except BlockingIOError:
                return
            except OSError as error:
                raise ChannelError(f"the connection broke: {error.strerror}") from None

    def receive(self) -> list[list[Any]]:
        """The complete messages that have arrived.

        Raises:
          ChannelError: the peer has closed the connection, or does not hold the secret.
        """
        try:
            data = self._socket.recv(1 << 16)
        except BlockingIOError:
            return []
        except OSError as error:
            raise ChannelError(f"the connection broke: {error.strerror}") from None
        if not data:
            raise ChannelError("the connection was closed")
        self._received += data
        self._agree()
        return self._messages() if self._receiving is not None else []

    def close(self) -> None:
        """Closes the connection."""
        self._socket.close()

    def _agree(self) -> None:
        """Derives the keys when the peer's public key is here."""
        if self._receiving is not None or len(self._received) < _PUBLIC_BYTES:
            return
        theirs, self._received = self._received[:_PUBLIC_BYTES], self._received[_PUBLIC_BYTES:]
        try:
            common = self._private.exchange(X25519PublicKey.from_public_bytes(theirs))
        except ValueError:  # a point that would make the result known
            raise ChannelError("the peer does not speak the protocol of the launcher") from None
        both = (self._public + theirs if self._is_hub else theirs + self._public) + common
        keys = [AESGCM(hmac.new(self._secret, way + both, hashlib.sha256).digest()) for way in (b"hub", b"agent")]
        self._sending, self._receiving = keys if self._is_hub else reversed(keys)
        for data in self._held:
            self._queue(data)
        self._held.clear()
        self.flush()

    def _queue(self, data: bytes) -> None:
        assert self._sending is not None
        sealed = self._sending.encrypt(self._sent.to_bytes(12), data, None)
        self._sent += 1
        self._waiting += len(sealed).to_bytes(_LENGTH_BYTES) + sealed

    def _messages(self) -> list[list[Any]]:
        assert self._receiving is not None
        found = []
        while len(self._received) >= _LENGTH_BYTES:
            length = int.from_bytes(self._received[:_LENGTH_BYTES])
            if not _TAG_BYTES < length <= (_MOST_BYTES if self._taken else _MOST_BEFORE):
                raise ChannelError("the peer does not speak the protocol of the launcher")
            end = _LENGTH_BYTES + length
            if len(self._received) < end:
                break
            sealed, self._received = self._received[_LENGTH_BYTES:end], self._received[end:]
            try:
                data = self._receiving.decrypt(self._taken.to_bytes(12), sealed, None)
            except InvalidTag:
                raise ChannelError("the peer does not hold the secret of this run") from None
            self._taken += 1
            message = msgpack.unpackb(data)
            if not isinstance(message, list) or not message:
                raise ChannelError("the peer does not speak the protocol of the launcher")
            found.append(message)
        return found


def _watch(connection: socket.socket) -> None:
    """Lets the kernel end the connection when the peer's host has vanished."""
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (
        ("TCP_KEEPIDLE", _KEEPALIVE_S), ("TCP_KEEPINTVL", _KEEPALIVE_S), ("TCP_KEEPCNT", 3),
        ("TCP_USER_TIMEOUT", _LOST_AFTER_MS),
    ):  # fmt: skip
        if hasattr(socket, option):
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
