"""Large messages over ZeroMQ: pieces, their limits, and what passes while they travel."""

from __future__ import annotations

import socket
import struct
import tempfile
from typing import Any

import numpy as np
import pytest
import zmq

from tests.rpc.conformance import End
from tests.rpc.task_processes import until
from tfmini.rpc import lane_wire, send_queue
from tfmini.rpc.addresses import REFUSED
from tfmini.rpc.reactor import get_reactor
from tfmini.rpc.send_queue import ReceiveBuffers
from tfmini.rpc.zmq_pump import FRAME_LIMIT, PIECE_BYTES, Assembly, Pump, cut, is_large, is_piece
from tfmini.rpc.zmq_transport import ZmqTransport


@pytest.mark.parametrize(
    "sizes",
    [
        [PIECE_BYTES + 1],
        [3 * PIECE_BYTES],
        [100, 10 * PIECE_BYTES + 7, 0, 5],
        [PIECE_BYTES // 2, PIECE_BYTES // 2, PIECE_BYTES],
        [1000] * 3000,
    ],
)
def test_a_message_is_cut_and_joined(sizes: list[int]) -> None:
    generator = np.random.default_rng(len(sizes))
    parts = [memoryview(generator.integers(0, 256, size, np.uint8)) for size in sizes]
    assert is_large(parts)
    pieces = list(cut(parts))
    assert len(pieces) > 1
    assert all(is_piece(piece) and sum(map(len, piece)) <= PIECE_BYTES < FRAME_LIMIT for piece in pieces)
    assembly = Assembly()
    for piece in pieces[:-1]:
        assert assembly.add(piece) is None
    joined = assembly.add(pieces[-1])
    assert joined is not None
    assert [bytes(part) for part in joined] == [bytes(part) for part in parts]
    assert all(memoryview(part).readonly for part in joined)
    assert assembly.received == sum(sum(map(len, piece)) for piece in pieces)


def test_small_messages_are_left_alone() -> None:
    assert not is_large([b"x" * PIECE_BYTES])
    assert not is_large([b"x" * (PIECE_BYTES // 2)] * 2)
    assert not is_piece([b"", b"the reason of an end"]) and not is_piece([b"x", b"", b""])


def test_pieces_share_the_memory_of_the_message() -> None:
    value = np.zeros(4 * PIECE_BYTES, np.uint8)
    views = [frame for piece in cut([memoryview(value)]) for frame in piece[2:] if len(frame) > 100]
    assert all(np.shares_memory(np.frombuffer(view, np.uint8), value) for view in views)


def test_only_a_connection_that_stays_keeps_memory_for_the_next_message(monkeypatch: pytest.MonkeyPatch) -> None:
    """Most connections have moved to a lane before their second large message."""
    buffers = ReceiveBuffers()
    monkeypatch.setattr(send_queue, "RECEIVE_BUFFERS", buffers)
    assembly, kept = Assembly(), []
    for _ in range(3):
        for piece in cut([bytes(2 << 20)]):
            assembly.add(piece)
        kept.append(buffers.idle_bytes > 0)
    assert kept == [False, True, True]


def table(total: int, *sizes: int, notes: int = 0) -> bytes:
    return struct.pack(f"<IIQ{len(sizes)}Q", len(sizes) - notes, notes, total, *sizes)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"short",
        table(lane_wire.MESSAGE_LIMIT + 1, 1),
        table(1 << 62, 1),
        table(32, 1 << 63 | 16, 0),
        table(32, 100, 0),
        table(16, 8, 8),
        table(32, 0, 0, notes=2),
        table(16) + b"beyond its message",
    ],
)
def test_malformed_pieces_are_refused(data: bytes) -> None:
    with pytest.raises(ValueError):
        if Assembly().add([b"", b"", data]) is None:
            raise AssertionError("it was taken for the first piece of many")


@pytest.fixture
def ends() -> Any:
    """The two ends of a connection over a Unix socket, for which the kernel does not count bytes."""
    transport = ZmqTransport(get_reactor())
    accepted: list[End] = []
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        listener = transport.listen(
            f"ipc://{folder}/s", lambda connection: accepted.append(End(connection, get_reactor()).start())
        )
        near = End(transport.connect(listener.address), get_reactor()).start()
        near.connection.send([b"hello"])
        until(lambda: accepted, "the connection")
        yield near, accepted[0]
        near.connection.close()
        listener.close()


def test_pieces_of_an_incomplete_message_are_a_sign_of_life(ends: tuple[End, End]) -> None:
    near, far = ends
    far.connection.send([b"hello"])
    near.wait_messages(1)
    for sender, receiver in (ends, ends[::-1]):
        count = len(receiver.messages)
        *most, last = cut([memoryview(np.ones(3 * PIECE_BYTES, np.uint8))])
        for piece in most:
            before = receiver.connection.activity
            sender.connection.send(piece)
            until(lambda: receiver.connection.activity > before, "a sign of life")  # noqa: B023
        assert len(receiver.messages) == count
        sender.connection.send(last)
        receiver.wait_messages(count + 1)
        assert receiver.messages[-1] == [b"\x01" * (3 * PIECE_BYTES)]


def test_a_malformed_piece_ends_the_connection(ends: tuple[End, End]) -> None:
    near, far = ends
    near.connection.send([b"", b"", table(1 << 62, 1)])
    assert "violated the protocol" in far.wait_end()


def test_a_large_message_before_the_handshake_is_not_collected(ends: tuple[End, End]) -> None:
    near, far = ends
    far.connection.accepted.is_admitted = False
    message = [b"x" * PIECE_BYTES * 3]
    pieces = len(list(cut(message)))
    near.connection.send(message)
    far.wait_messages(1 + pieces)
    assert [piece[:2] for piece in far.messages[1:]] == [[b"", b""]] * pieces  # the link refuses it


def test_timers_run_while_large_messages_arrive(ends: tuple[End, End]) -> None:
    near, far = ends
    seen: list[int] = []
    message = memoryview(np.ones(400 * PIECE_BYTES, np.uint8))

    def tick() -> None:
        seen.append(far.connection.activity)
        if len(far.messages) < 2:
            get_reactor().call_later(0.0, tick)

    tick()
    near.connection.send([message])
    far.wait_messages(2)
    largest = max(b - a for a, b in zip(seen, seen[1:]))
    assert largest <= 100 * PIECE_BYTES, "no timer ran for that long"


def test_a_refusal_that_comes_while_the_connection_begins_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    """The reactor's thread reads it, while another one has not yet come back from ZeroMQ's connect."""
    begin = Pump.connect

    def connect(pump: Pump, endpoint: str) -> bool:
        begun = begin(pump, endpoint)
        pump._on_event(zmq.EVENT_CLOSED, 0)
        return begun

    monkeypatch.setattr(Pump, "connect", connect)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    assert (
        End(ZmqTransport(get_reactor()).connect(f"tcp://127.0.0.1:{port}"), get_reactor()).start().wait_end() == REFUSED
    )
