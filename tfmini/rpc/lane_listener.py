"""Opens lanes: one-time tokens authenticate the peer. See `lane_connection` for the lane itself."""

from __future__ import annotations

import errno
import hashlib
import hmac
import os
import secrets
import socket
from collections.abc import Callable

from tfmini.rpc.forks import AT_LIMIT, has_room, receive_descriptor
from tfmini.rpc.lane_connection import LaneConnection, peer_credentials
from tfmini.rpc.reactor import Reactor
from tfmini.rpc.transport import Listener
from tfmini.rpc.waiter import EventSource
from tfmini.rpc.zmq_router import PendingConnections

TOKEN_BYTES = 32
_TURN = 64  # lanes accepted before the reactor serves other sources
_PER_LANE = 2  # descriptors
_RETRY_S = 0.25  # seconds until the next attempt to accept, or to read a token, when there are no descriptors

OnLane = Callable[[LaneConnection], None]


def host_id() -> str:
    """Identifies the host, network namespace and user: equal in two processes if a local lane can connect them.

    It is a hash, so that no message tells the boot id, machine id or user.
    "" when local lanes are switched off (``TFMINI_LANE=off``) or unsupported.
    """
    if os.environ.get("TFMINI_LANE", "").lower() in ("off", "0", "no"):
        return ""
    try:
        boot = _read_line("/proc/sys/kernel/random/boot_id")
        network = os.stat("/proc/self/ns/net").st_ino
        machine = _read_line("/etc/machine-id") if os.path.exists("/etc/machine-id") else ""
    except OSError:
        return ""
    facts = f"{boot}/{machine}/{network}/{os.geteuid()}"
    return hashlib.blake2b(facts.encode(), digest_size=16).hexdigest()


def _read_line(path: str) -> str:
    with open(path) as file:
        return file.readline().strip()


class TokenListener(Listener):
    """Accepts lanes from peers that send a valid token. Subclasses define how the token is sent.

    Args:
      sock: a listening socket.
      address: the address that `HelloReply` gives to peers.
    """

    def __init__(self, sock: socket.socket, address: str, reactor: Reactor) -> None:
        self.address = address
        self._reactor = reactor
        self._expected: dict[bytes, tuple[bytes, bool, OnLane]] = {}  # by what the peer shows
        self._pending: PendingConnections[socket.socket, EventSource] = PendingConnections(reactor, self._end)
        self._is_closed = False
        self._is_late = False  # whether `_accept_later` is to come
        self._sock = sock
        self._source = reactor.source(self._sock.fileno(), self._accept)
        reactor.watch(self._source)

    def issue_token(self, on_connection: OnLane, once: bool = True) -> bytes:
        """Returns a new token; ``on_connection`` gets the lane of the peer that sends it."""
        token = secrets.token_bytes(TOKEN_BYTES)
        self._expected[self.shown(token)] = (token, once, on_connection)
        return token

    def revoke_token(self, token: bytes) -> None:
        """Makes a token invalid."""
        self._expected.pop(self.shown(token), None)

    def shown(self, token: bytes) -> bytes:
        """What the peer sends to show that it has the token."""
        return token

    def _make_lane(self, sock: socket.socket, fd_sock: socket.socket | None, token: bytes) -> LaneConnection:
        return LaneConnection(sock, fd_sock, self._reactor, self.address)

    def _is_trusted(self, sock: socket.socket) -> bool:
        """Whether the peer may try a token."""
        return True

    def _read_token(self, sock: socket.socket) -> tuple[bytes, socket.socket | None]:
        """Reads what shows the token, and the socket for descriptors if the lane has one.

        Raises:
          BlockingIOError: the token has not arrived yet.
          OSError: the connection broke; with an error of `AT_LIMIT`, there is no descriptor for that socket now.
        """
        raise NotImplementedError

    def _accept(self) -> None:
        for _ in range(_TURN):
            try:
                # The lanes that have not sent a token yet will need one for the socket that comes with it.
                if not has_room(_PER_LANE + len(self._pending)):
                    raise OSError(errno.EMFILE, "")
                sock, _ = self._sock.accept()
            except BlockingIOError:
                return
            except ConnectionError:  # the peer has gone already
                continue
            except OSError as error:
                if error.errno not in AT_LIMIT:
                    raise
                if not self._is_late:
                    self._is_late = True
                    self._reactor.call_later(_RETRY_S, self._accept_later)
                return
            sock.setblocking(False)
            if not self._is_trusted(sock):
                sock.close()
                continue
            self._await_token(sock)
        self._source.again()  # whoever connects all the time must not starve others

    def _await_token(self, sock: socket.socket) -> None:
        source = self._reactor.source(sock.fileno(), lambda: self._authenticate(sock, source))
        self._pending.add(sock, source)
        self._reactor.watch(source)

    def _accept_later(self) -> None:
        """Tries again: peers wait, and the kernel does not report them a second time."""
        self._is_late = False
        if not self._is_closed:
            self._source.ready()

    def _authenticate(self, sock: socket.socket, source: EventSource) -> None:
        if sock not in self._pending:
            return
        try:
            shown, fd_sock = self._read_token(sock)
        except BlockingIOError:
            return
        except OSError as error:
            if error.errno in AT_LIMIT:
                self._pending.add(sock, source)  # it waits for us, not we for it
                self._reactor.call_later(_RETRY_S, source.ready)
            else:
                self._reject(sock)
            return
        expected = self._take_expected(shown)
        if expected is None or self._pending.pop(sock) is None:
            if fd_sock is not None:
                fd_sock.close()
            self._reject(sock)
            return
        self._reactor.unwatch(source)
        token, _, on_connection = expected
        on_connection(self._make_lane(sock, fd_sock, token))

    def _take_expected(self, shown: bytes) -> tuple[bytes, bool, OnLane] | None:
        for known, expected in list(self._expected.items()):
            if hmac.compare_digest(known, shown):
                if expected[1]:
                    self._expected.pop(known, None)
                return expected
        return None

    def _reject(self, sock: socket.socket) -> None:
        source = self._pending.pop(sock)
        if source is not None:
            self._end(sock, source)

    def _end(self, sock: socket.socket, source: EventSource) -> None:
        self._reactor.unwatch(source)
        sock.close()

    def close(self) -> None:
        self._is_closed = True
        self._reactor.unwatch(self._source)
        self._sock.close()
        self._pending.close()


class LaneListener(TokenListener):
    """Accepts local lanes.

    Three checks authenticate the peer: the socket's abstract name is random, the kernel reports the
    peer's user id, and the first bytes must be the one-time token from the HelloReply. One end of a
    second socket, which carries the descriptors of shared memory, arrives with the token.
    """

    def __init__(self, reactor: Reactor) -> None:
        name = f"tfmini-{secrets.token_hex(16)}"
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        sock.bind("\0" + name)
        sock.listen(128)
        super().__init__(sock, f"lane://{name}", reactor)

    def _is_trusted(self, sock: socket.socket) -> bool:
        return peer_credentials(sock)[1] == os.geteuid()

    def _read_token(self, sock: socket.socket) -> tuple[bytes, socket.socket | None]:
        token, fd = receive_descriptor(sock, TOKEN_BYTES)
        if fd < 0:
            raise ConnectionAbortedError("the peer sent no socket for descriptors with the token")
        try:
            return token, socket.socket(fileno=fd)
        except OSError:  # it is no socket
            os.close(fd)
            raise


def connect_lane(address: str, token: bytes, reactor: Reactor) -> LaneConnection:
    """Connects to a `LaneListener` and sends the token.

    Raises:
      OSError: no process of this user listens there.
    """
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    try:
        sock.connect("\0" + address.removeprefix("lane://"))
        if peer_credentials(sock)[1] != os.geteuid():
            raise PermissionError("the lane belongs to another user")
        mine, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            socket.send_fds(sock, [token], [theirs.fileno()])
    except OSError:
        sock.close()
        raise
    return LaneConnection(sock, mine, reactor, address)
