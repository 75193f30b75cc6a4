"""A ZeroMQ message without an end cannot fill the memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.rpc.task_processes import Call, until
from tests.rpc.test_zmq_router_pending import assert_serves, is_closed, raw, server, shake_hands
from tfmini.rpc import messages as m
from tfmini.rpc import zmq_router
from tfmini.rpc.codec import encode
from tfmini.rpc.endpoint import Endpoint
from tfmini.rpc.messages import Hello
from tfmini.rpc.reactor import get_reactor
from tfmini.rpc.records import PROTOCOL_VERSION
from tfmini.rpc.zmq_pump import KernelSocket
from tfmini.rpc.zmq_router import ADMITTED_BYTES, PENDING_BYTES, MessageProgress

__all__ = ["server"]
MORE = b"\x01\x00"  # an empty frame that another one follows


def frame(data: bytes) -> bytes:
    return b"\x02" + len(data).to_bytes(8, "big") + data


@pytest.mark.parametrize("server", ["open"], indirect=True)
@pytest.mark.parametrize("says_hello", [False, True])
def test_a_message_of_endless_small_frames_ends_its_connection(
    server: Endpoint, says_hello: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 64 bytes in memory each, before the Hello and after it."""
    closed: list[KernelSocket] = []
    close = KernelSocket.close
    monkeypatch.setattr(KernelSocket, "close", lambda kernel: (closed.append(kernel), close(kernel)))
    sock = raw(server)
    shake_hands(sock)
    if says_hello:
        sock.send(frame(encode(Hello(PROTOCOL_VERSION, "", 9, "", b"", False, "", 0, 0), 1)[0]))
    sent, block = 0, MORE * (16 << 10)

    def is_cut() -> bool:
        nonlocal sent
        try:
            while sent < 40 << 20:
                sent += sock.send(block)
        except BlockingIOError:
            pass
        except ConnectionError:
            return True
        return is_closed(sock)

    until(is_cut, "the end")
    sock.close()
    until(lambda: closed, "the end of the connection")
    assert_serves(server)


def test_large_messages_pass(server: Endpoint) -> None:
    """Their pieces are complete messages."""
    got: list[Any] = []
    server.serve({m.RunGraph: lambda peer, request, respond: (got.append(request), respond(m.RunGraphReply(())))})
    client = Endpoint(get_reactor(), "", 7, keys=server.keys, insecure=True, lanes=False)
    peer = client.peer(server.address)
    value = np.arange(5 << 20, dtype=np.float32)
    for step in range(5):
        answer = Call(peer, m.RunGraph(1, step, (value,))).wait()
        assert isinstance(answer, m.RunGraphReply), answer
    assert len(got) == 5 and np.array_equal(got[4].feed_values[0], value)
    client.close()


def test_who_completes_messages_may_send_without_end() -> None:
    sends, sends_on = MessageProgress(), MessageProgress()
    found = []
    for look in range(1, 21):
        for progress in (sends, sends_on):
            progress.is_admitted = True
        sends.messages += 1
        found.append((sends.is_endless(look * ADMITTED_BYTES), sends_on.is_endless(look * ADMITTED_BYTES)))
    assert found == [(False, False), *[(False, True)] * 19]


def test_messages_that_wait_to_be_read_are_no_fault_of_their_sender(
    server: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The loop is busy, or the inboxes are full, while more arrives than one message may have."""
    client = Endpoint(get_reactor(), "", 7, keys=server.keys, insecure=True, lanes=False)
    peer = client.peer(server.address)
    server.serve({m.RunGraph: lambda peer, request, respond: respond(m.RunGraphReply(()))})
    Call(peer, m.RunGraph(1, 0, ())).wait()
    link = peer.link
    waiting: list[Call] = []
    with monkeypatch.context() as full:
        full.setattr(zmq_router, "INBOX_LIMIT", -1)
        looks = [0]
        real = MessageProgress.is_endless

        def is_endless(self: MessageProgress, nbytes: int) -> bool:
            looks[0] += 1
            real(self, nbytes)
            return True

        waiting += [Call(peer, m.RunGraph(1, step, ())) for step in (1, 2)]  # the second one is not read
        full.setattr(MessageProgress, "is_endless", is_endless)
        until(lambda: looks[0] > 5, "the looks")
    waiting.append(Call(peer, m.RunGraph(1, 3, ())))
    assert all(isinstance(call.wait(), m.RunGraphReply) for call in waiting) and peer.link is link
    client.close()


def test_a_connection_that_is_not_admitted_may_send_a_handshake() -> None:
    progress = MessageProgress()
    assert not progress.is_endless(PENDING_BYTES)
    assert progress.is_endless(PENDING_BYTES + 1)
    progress.messages += 1
    assert not progress.is_endless(PENDING_BYTES + 1)
    progress.is_admitted = True
    assert not progress.is_endless(PENDING_BYTES + ADMITTED_BYTES)
