"""Opening lanes: who may, and between whom a local one can work. See `local_lane` for the lane itself."""

from __future__ import annotations

import hmac
import os
import secrets
import socket
import struct
from collections.abc import Callable
from typing import Any

from tfmini.rpc.local_lane import LaneConnection
from tfmini.rpc.reactor import Reactor
from tfmini.rpc.source import Source
from tfmini.rpc.transport import Listener

TOKEN_BYTES = 32
_AUTH_S = 5.0
_UNPROVEN_LIMIT = 256  # connections that have not shown a token yet

OnLane = Callable[[LaneConnection], None]


def host_id() -> str:
    """The same for two processes exactly if a lane between them can work; "" when lanes are off.

    ``TFMINI_LANE=off`` switches lanes off.
    """
    if os.environ.get("TFMINI_LANE", "").lower() in ("off", "0", "no"):
        return ""
    try:
        boot = _read_line("/proc/sys/kernel/random/boot_id")
        network = os.stat("/proc/self/ns/net").st_ino
        machine = _read_line("/etc/machine-id") if os.path.exists("/etc/machine-id") else ""
    except OSError:
        return ""
    return f"{boot}/{machine}/{network}/{os.geteuid()}"


def _read_line(path: str) -> str:
    with open(path) as file:
        return file.readline().strip()


class TokenListener(Listener):
    """Accepts lanes from holders of a token, on a socket that listens already.

    Subclasses say whom they trust and how the token is shown.
    """

    def __init__(self, sock: socket.socket, address: str, reactor: Reactor) -> None:
        self.address = address
        self._reactor = reactor
        self._expected: dict[bytes, tuple[bool, OnLane]] = {}
        self._unproven: dict[int, tuple[socket.socket, Source, Any]] = {}
        self._sock = sock
        self._source = reactor.source(self._sock.fileno(), self._accept)
        reactor.watch(self._source)

    def invite(self, on_connection: OnLane, once: bool = True) -> bytes:
        """A token; ``on_connection`` gets the lane of the one who shows it."""
        token = secrets.token_bytes(TOKEN_BYTES)
        self._expected[token] = (once, on_connection)
        return token

    def uninvite(self, token: bytes) -> None:
        """Makes a token worthless."""
        self._expected.pop(token, None)

    def _is_trusted(self, sock: socket.socket) -> bool:
        """Whether the one who connects may show a token at all."""
        return True

    def _read_token(self, sock: socket.socket) -> tuple[bytes, socket.socket | None]:
        """The token, and the socket for descriptors.

        Raises:
          BlockingIOError: it has not come yet.
          OSError: it will not come.
        """
        raise NotImplementedError

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._sock.accept()
            except (BlockingIOError, ConnectionError):
                return
            sock.setblocking(False)
            if len(self._unproven) >= _UNPROVEN_LIMIT or not self._is_trusted(sock):
                sock.close()
                continue
            fd = sock.fileno()
            source = self._reactor.source(fd, lambda fd=fd: self._prove(fd))  # type: ignore[misc]
            self._unproven[fd] = (sock, source, self._reactor.call_later(_AUTH_S, self._reject, fd, sock))
            self._reactor.watch(source)

    def _prove(self, fd: int) -> None:
        entry = self._unproven.get(fd)
        if entry is None:
            return
        sock = entry[0]
        try:
            token, fd_sock = self._read_token(sock)
        except BlockingIOError:
            return
        except OSError:
            self._reject(fd, sock)
            return
        on_connection = self._redeem(token)
        if on_connection is None:
            if fd_sock is not None:
                fd_sock.close()
            self._reject(fd, sock)
            return
        self._forget(fd)
        on_connection(LaneConnection(sock, fd_sock, self._reactor, self.address))

    def _redeem(self, token: bytes) -> OnLane | None:
        for known, (once, on_connection) in list(self._expected.items()):
            if hmac.compare_digest(known, token):
                if once:
                    self._expected.pop(known, None)
                return on_connection
        return None

    def _reject(self, fd: int, sock: socket.socket) -> None:
        if fd in self._unproven and self._unproven[fd][0] is sock:
            self._forget(fd)
            sock.close()

    def _forget(self, fd: int) -> None:
        _, source, timer = self._unproven.pop(fd)
        timer.cancel()
        self._reactor.unwatch(source)

    def close(self) -> None:
        self._reactor.unwatch(self._source)
        self._sock.close()
        for fd, (sock, _, _) in list(self._unproven.items()):
            self._reject(fd, sock)


class LaneListener(TokenListener):
    """Accepts local lanes.

    Nothing unprotected listens: the socket's abstract name is unguessable, the kernel vouches for
    the peer's user id, and the first bytes must be the one-time token from the Hello. With the
    token comes one end of a second socket, by which the descriptors of shared memory travel.
    """

    def __init__(self, reactor: Reactor) -> None:
        name = f"tfmini-{secrets.token_hex(16)}"
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        sock.bind("\0" + name)
        sock.listen(128)
        super().__init__(sock, f"lane://{name}", reactor)

    def _is_trusted(self, sock: socket.socket) -> bool:
        return _peer_uid(sock) == os.geteuid()

    def _read_token(self, sock: socket.socket) -> tuple[bytes, socket.socket | None]:
        token, fds, _, _ = socket.recv_fds(sock, TOKEN_BYTES, 1)
        if len(fds) != 1:
            for passed in fds:
                os.close(passed)
            raise ConnectionAbortedError("no socket for descriptors came with the token")
        return token, socket.socket(fileno=fds[0])


def _peer_uid(sock: socket.socket) -> int:
    credentials = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    return int(struct.unpack("3i", credentials)[1])


def connect_lane(address: str, token: bytes, reactor: Reactor) -> LaneConnection:
    """Connects to a `LaneListener` and shows the token.

    Raises:
      OSError: nobody listens there, or somebody else does.
    """
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    try:
        sock.connect("\0" + address.removeprefix("lane://"))
        if _peer_uid(sock) != os.geteuid():
            raise PermissionError("the lane is held by another user")
        mine, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            socket.send_fds(sock, [token], [theirs.fileno()])
    except OSError:
        sock.close()
        raise
    return LaneConnection(sock, mine, reactor, address)
