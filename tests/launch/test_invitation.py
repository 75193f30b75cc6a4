"""Invitations of launchers to agents, and the connections that they lead to."""

from __future__ import annotations

import base64
import contextlib
import os
import socket
import struct
import threading
from collections.abc import Iterator

import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.poly1305 import Poly1305
from zmq.utils import z85

from tests.rpc.task_processes import Call
from tfmini.cluster import parse_address
from tfmini.launch import agent_messages as m
from tfmini.launch.invitation import LAUNCHER, Invitation, endpoint_of_run, parse_invitation
from tfmini.rpc.keys import new_keys
from tfmini.rpc.zmq_pump import KernelSocket


def test_a_word_stands_for_its_invitation() -> None:
    keys = new_keys()
    made = Invitation((parse_address("a:1"), parse_address("[::1]:2")), keys.secret)
    assert parse_invitation(made.to_word()) == made
    assert made.keys == keys
    assert keys.secret.decode() not in repr(made)


@pytest.mark.parametrize(
    "content",
    [
        *(b"", b"[1]", b"{}", b'{"at": 3, "secret": ""}', b'{"at": [], "secret": 3}', b'{"at": ["a"], "secret": ""}'),
        *(b"[" * 3000, b"\xff", b'{"at": [], "secret": "short"}', b'{"at": [], "secret": "%s"}' % (b"\\t" * 40)),
    ],
)
def test_another_word_is_refused(content: bytes) -> None:
    with pytest.raises(ValueError, match="does not hold the invitation of a launcher"):
        parse_invitation(base64.urlsafe_b64encode(content).decode())
    with pytest.raises(ValueError, match="does not hold the invitation of a launcher"):
        parse_invitation("é")


def test_the_kernel_notices_a_host_that_has_vanished(monkeypatch: pytest.MonkeyPatch) -> None:
    """After 20 s, whether it sends or not; a process may be silent for as long as it likes."""
    kernels: list[socket.socket] = []  # the TCP connections of both ends
    begin = KernelSocket.__init__

    def noted(connection: KernelSocket, fd: int) -> None:
        begin(connection, fd)
        kernels.append(socket.socket(fileno=os.dup(fd)))

    monkeypatch.setattr(KernelSocket, "__init__", noted)
    launcher, agent = endpoint_of_run(LAUNCHER, keys := new_keys()), endpoint_of_run("", keys)
    launcher.serve({m.EnterRun: lambda peer, request, respond: respond(ORDER)})
    peer = agent.peer(launcher.listen("127.0.0.1:0"), LAUNCHER)
    Call(peer, m.EnterRun(0, "127.0.0.1", 1, 1, "here")).wait()
    assert len(kernels) >= 2
    for kernel in kernels:
        names = ("TCP_KEEPIDLE", "TCP_KEEPINTVL", "TCP_KEEPCNT", "TCP_USER_TIMEOUT")
        found = [kernel.getsockopt(socket.IPPROTO_TCP, getattr(socket, name)) for name in names]
        assert kernel.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) and found == [5, 5, 3, 20_000]
        kernel.close()
    agent.close()
    launcher.close()


# ---------------------------------------------------------------- a recording and the secret

ORDER = m.TaskOrder(("run",), {}, {}, b"the key of the cluster", False, 5.0)


@contextlib.contextmanager
def recording(port: int) -> Iterator[tuple[int, dict[str, bytearray]]]:
    """A port whose connection leads to another port, and what each side has sent over it."""
    sent = {"agent": bytearray(), "launcher": bytearray()}
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def carry(source: socket.socket, target: socket.socket, record: bytearray) -> None:
            with contextlib.suppress(OSError):
                while data := source.recv(65536):
                    record += data
                    target.sendall(data)
            with contextlib.suppress(OSError):
                target.shutdown(socket.SHUT_WR)

        def serve() -> None:
            one, _ = listener.accept()
            other = socket.create_connection(("127.0.0.1", port))
            with one, other:
                back = threading.Thread(target=carry, args=(other, one, sent["launcher"]))
                back.start()
                carry(one, other, sent["agent"])
                back.join()

        thread = threading.Thread(target=serve)
        thread.start()
        yield listener.getsockname()[1], sent
        thread.join()


def frames(stream: bytes) -> Iterator[bytes]:
    """The frames of a ZMTP stream after its greeting."""
    position = 64
    while position < len(stream):
        is_long = stream[position] & 2
        size = int.from_bytes(stream[position + 1 : position + (9 if is_long else 2)])
        start = position + (9 if is_long else 2)
        yield bytes(stream[start : start + size])
        position = start + size


def salsa(key: bytes, block: bytes, is_last: bool) -> bytes:
    """Salsa20's core for a key and 16 bytes; HSalsa20 if it is not the last of XSalsa20."""
    k, n = struct.unpack("<8I", key), struct.unpack("<4I", block)
    c = struct.unpack("<4I", b"expand 32-byte k")
    x = before = [c[0], *k[:4], c[1], *n, c[2], *k[4:], c[3]]
    x = list(x)
    turns = [(0, 4, 8, 12), (5, 9, 13, 1), (10, 14, 2, 6), (15, 3, 7, 11)]
    turns += [(0, 1, 2, 3), (5, 6, 7, 4), (10, 11, 8, 9), (15, 12, 13, 14)]
    for _ in range(10):
        for a, b, d, e in turns:
            for target, one, other, shift in ((b, a, e, 7), (d, b, a, 9), (e, d, b, 13), (a, e, d, 18)):
                total = (x[one] + x[other]) & 0xFFFFFFFF
                x[target] ^= (total << shift | total >> 32 - shift) & 0xFFFFFFFF
    if is_last:
        return struct.pack("<16I", *((one + other) & 0xFFFFFFFF for one, other in zip(x, before)))
    return struct.pack("<8I", *(x[i] for i in (0, 5, 10, 15, 6, 7, 8, 9)))


def opened(box: bytes, nonce: bytes, secret: bytes, public: bytes) -> bytes:
    """NaCl's crypto_box_open, as CurveZMQ uses it.

    Raises:
      InvalidSignature: it is not the key of the box.
    """
    common = X25519PrivateKey.from_private_bytes(secret).exchange(X25519PublicKey.from_public_bytes(public))
    key = salsa(salsa(common, bytes(16), False), nonce[:16], False)
    blocks = range(len(box) // 64 + 1)
    stream = b"".join(salsa(key, nonce[16:] + block.to_bytes(8, "little"), True) for block in blocks)
    Poly1305.verify_tag(stream[:32], box[16:], box[:16])
    return bytes(one ^ other for one, other in zip(box[16:], stream[32:]))


def test_the_secret_and_a_recording_do_not_open_a_message() -> None:
    """The secret of a run may become known after it; the key of the cluster has travelled by the connection."""
    keys = new_keys()
    launcher, agent = endpoint_of_run(LAUNCHER, keys), endpoint_of_run("", keys)
    launcher.serve({m.EnterRun: lambda peer, request, respond: respond(ORDER)})
    port = int(launcher.listen("127.0.0.1:0").rpartition(":")[2])
    with recording(port) as (recorded, sent):
        peer = agent.peer(f"127.0.0.1:{recorded}", LAUNCHER)
        assert Call(peer, m.EnterRun(0, "127.0.0.1", 1, 1, "here")).wait() == ORDER
        agent.close()
        launcher.close()
    assert ORDER.key not in sent["launcher"]
    secret, public = z85.decode(keys.secret), z85.decode(keys.public)
    hello = next(frame for frame in frames(sent["agent"]) if frame.startswith(b"\x05HELLO"))
    of_agent = hello[80:112]  # made for this connection
    welcome = next(frame for frame in frames(sent["launcher"]) if frame.startswith(b"\x07WELCOME"))
    of_launcher = opened(welcome[24:], b"WELCOME-" + welcome[8:24], secret, of_agent)[:32]
    messages = [frame for frame in frames(sent["launcher"]) if frame.startswith(b"\x07MESSAGE")]
    assert messages and of_launcher not in (public, of_agent)
    for frame in messages:
        for known in (of_agent, of_launcher, public):
            with pytest.raises(InvalidSignature):
                opened(frame[16:], b"CurveZMQMESSAGES" + frame[8:16], secret, known)
