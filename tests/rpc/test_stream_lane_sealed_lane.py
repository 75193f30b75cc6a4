"""Encrypted stream lanes: what is changed, repeated, left out or cut off on the way ends the lane."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tests.rpc.task_processes import until
from tfmini.rpc.reactor import get_reactor
from tfmini.rpc.stream_lane import RECORD_BYTES, RecordCipher, SealedLane, lane_name

TOKEN = b"t" * 32


class Eavesdropper:
    """A lane whose peer is a plain socket: the test sees and makes what travels."""

    def __init__(self) -> None:
        mine, self.wire = socket.socketpair()
        self.got: list[list[bytes]] = []
        self.ends: list[str] = []
        self.lane = SealedLane(mine, get_reactor(), "test", TOKEN, connecting=False)
        self.lane.start(lambda parts: self.got.append([bytes(p) for p in parts]), self.ends.append)
        theirs, self._sent = socket.socketpair()
        self.peer = SealedLane(theirs, get_reactor(), "test", TOKEN, connecting=True)

    def record(self, *parts: bytes) -> bytes:
        """What the true peer would send."""
        self.peer.send(parts)
        return self._sent.recv(1 << 20)

    def last_record(self) -> bytes:
        """What the true peer would send at its end."""
        self.peer.close()
        return self._sent.recv(1 << 20)

    def close(self) -> None:
        self.lane.close()
        self.wire.close()
        self.peer.close()
        self._sent.close()


@pytest.fixture
def tap() -> Iterator[Eavesdropper]:
    tap = Eavesdropper()
    yield tap
    tap.close()


def test_the_peer_is_heard(tap: Eavesdropper) -> None:
    for record in (tap.record(b"one"), tap.record(b"two", b"parts")):
        for byte in record:  # one at a time
            tap.wire.send(bytes([byte]))
    until(lambda: len(tap.got) == 2, "both messages")
    assert tap.got == [[b"one"], [b"two", b"parts"]]
    tap.wire.send(tap.last_record())
    until(lambda: tap.ends, "the end")
    assert tap.ends == ["the connection broke: end of file"]


@pytest.mark.parametrize("position", [0, 1, 3, 4, 10, -1])
def test_a_changed_byte_ends_the_lane(tap: Eavesdropper, position: int) -> None:
    record = bytearray(tap.record(b"one"))
    record[position] ^= 1
    tap.wire.send(record)
    tap.wire.shutdown(socket.SHUT_WR)  # a changed length may announce more than arrives
    until(lambda: tap.ends, "the end")
    assert not tap.got


@pytest.mark.parametrize("order", [(0, 0), (1,), (1, 0), (0, 2)])
def test_records_arrive_once_and_in_order(tap: Eavesdropper, order: tuple[int, ...]) -> None:
    records = [tap.record(b"%d" % i) for i in range(3)]
    tap.wire.send(b"".join(records[i] for i in order))
    until(lambda: tap.ends, "the end")
    assert "a record that the peer did not send" in tap.ends[0]
    assert tap.got == [[b"0"]][: order[0] == 0]


def test_a_record_sent_back_is_not_taken_for_the_peers(tap: Eavesdropper) -> None:
    tap.lane.send([b"mine"])
    tap.wire.send(tap.wire.recv(1000))
    until(lambda: tap.ends, "the end")
    assert not tap.got


def test_a_cut_is_told_from_a_close(tap: Eavesdropper) -> None:
    tap.wire.send(tap.record(b"one"))
    tap.wire.shutdown(socket.SHUT_WR)
    until(lambda: tap.ends, "the end")
    assert "end of file before the last record" in tap.ends[0]


@pytest.mark.parametrize("length", [0, 15, RECORD_BYTES + 17, (1 << 31) - 1])
def test_a_record_of_impossible_length_ends_the_lane(tap: Eavesdropper, length: int) -> None:
    tap.wire.send(struct.pack("<I", length))
    until(lambda: tap.ends, "the end")
    assert f"a record of {length} bytes" in tap.ends[0]


def test_nothing_is_readable_on_the_way() -> None:
    mine, wire = socket.socketpair()
    lane = SealedLane(mine, get_reactor(), "test", TOKEN, connecting=True)
    lane.start(lambda parts: None, lambda reason: None)
    lane.send([b"a secret"])
    lane.send([b"a secret"])
    seen = wire.recv(1 << 16)
    assert b"secret" not in seen
    assert seen[: len(seen) // 2] != seen[len(seen) // 2 :]
    assert TOKEN not in lane_name(TOKEN) != lane_name(b"u" * 32)
    lane.close()
    wire.close()


@pytest.mark.parametrize("size", [1, RECORD_BYTES - 64, RECORD_BYTES, RECORD_BYTES + 1, 5 * RECORD_BYTES + 7])
def test_messages_of_all_sizes_around_a_record_follow_each_other(size: int) -> None:
    mine, theirs = socket.socketpair()
    got: list[list[Any]] = []
    near = SealedLane(mine, get_reactor(), "near", TOKEN, connecting=True)
    far = SealedLane(theirs, get_reactor(), "far", TOKEN, connecting=False)
    near.start(lambda parts: None, lambda reason: None)
    far.start(got.append, lambda reason: None)
    data = np.random.default_rng(size).integers(0, 256, size, np.uint8)
    for i in range(10):
        near.send([b"%d" % i, memoryview(data)])
        near.send([b"small"])
    until(lambda: len(got) == 20, "all messages")
    assert near.backlog == 0
    for i in range(10):
        assert bytes(got[2 * i][0]) == b"%d" % i
        assert bytes(got[2 * i][1]) == data.tobytes()
    near.close()
    far.close()


def test_no_nonce_is_used_twice() -> None:
    cipher = RecordCipher(bytes(32))
    records = [bytes(cipher.seal(b"the same")) for _ in range(1000)]
    assert len(set(records)) == 1000  # with one nonce and one key, equal bytes give equal records
