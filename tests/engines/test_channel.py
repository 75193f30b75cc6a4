"""The stream between a launcher and its agents."""

from __future__ import annotations

import hashlib
import hmac
import os
import socket
from collections.abc import Iterator

import pytest
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from tfmini.engines.channel import Channel, ChannelError

SECRET = bytes(32)


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        one = socket.create_connection(listener.getsockname())
        other, _ = listener.accept()
    with one, other:
        yield one, other


def received(channel: Channel, count: int) -> list[list[object]]:
    """Drives a channel until it has so many messages."""
    found: list[list[object]] = []
    while len(found) < count:
        found += channel.receive()
    return found


def test_messages_arrive_in_order_in_both_directions(pair: tuple[socket.socket, socket.socket]) -> None:
    hub, agent = Channel(pair[0], SECRET, is_hub=True), Channel(pair[1], SECRET, is_hub=False)
    agent.send("hello", 1)
    agent.send("output", b"x" * 100_000)
    told: list[list[object]] = []
    heard: list[list[object]] = []
    answered = False
    while len(told) < 2 or len(heard) < 2:  # the agent's messages wait for the hub's nonce
        heard += agent.receive()
        told += hub.receive()
        if told and not answered:
            hub.send("start", {"a": [1, None]})
            hub.send("stop")
            answered = True
    assert agent.is_trusted and hub.is_trusted
    assert told == [["hello", 1], ["output", b"x" * 100_000]]
    assert heard == [["start", {"a": [1, None]}], ["stop"]]


def test_another_secret_ends_the_connection_at_the_first_frame(pair: tuple[socket.socket, socket.socket]) -> None:
    hub, agent = Channel(pair[0], SECRET, is_hub=True), Channel(pair[1], os.urandom(32), is_hub=False)
    agent.send("hello", 1)
    while agent.unsent or not agent.receive() and agent._held:
        pass
    with pytest.raises(ChannelError, match="does not hold the secret"):
        received(hub, 1)
    assert not hub.is_trusted


def test_a_large_first_frame_is_refused_before_it_is_read(pair: tuple[socket.socket, socket.socket]) -> None:
    hub = Channel(pair[0], SECRET, is_hub=True)
    pair[1].sendall(X25519PrivateKey.generate().public_key().public_bytes_raw() + (1 << 20).to_bytes(4))
    with pytest.raises(ChannelError, match="does not speak the protocol"):
        received(hub, 1)


def test_an_end_is_an_error(pair: tuple[socket.socket, socket.socket]) -> None:
    hub = Channel(pair[0], SECRET, is_hub=True)
    pair[1].close()
    with pytest.raises(ChannelError, match="closed|reset"):
        received(hub, 1)


def test_the_secret_and_a_recording_do_not_open_a_message(pair: tuple[socket.socket, socket.socket]) -> None:
    """The secret of a run may become known after it; the key of the cluster has travelled by the channel."""
    hub, agent = Channel(pair[0], SECRET, is_hub=True), Channel(pair[1], SECRET, is_hub=False)
    agent.send("hello", 1)
    hub_public, agent_public = hub._public, agent._public
    while agent._sending is None or hub._receiving is None:
        agent.receive()
        hub.receive()
    again = [hub_public + agent_public, hub_public + agent_public + bytes(32)]
    known = [hmac.new(SECRET, way + both, hashlib.sha256).digest() for way in (b"hub", b"agent") for both in again]
    agent._queue(b"the key of the cluster")
    sealed = bytes(agent._waiting[4:])
    for key in known:
        with pytest.raises(InvalidTag):
            AESGCM(key).decrypt((agent._sent - 1).to_bytes(12), sealed, None)
    assert hub._receiving is not None
    assert hub._receiving.decrypt((agent._sent - 1).to_bytes(12), sealed, None) == b"the key of the cluster"


@pytest.mark.parametrize("point", [bytes(32), b"\x01" + bytes(31)])
def test_a_public_key_that_makes_the_result_known_is_refused(
    pair: tuple[socket.socket, socket.socket], point: bytes
) -> None:
    hub = Channel(pair[0], SECRET, is_hub=True)
    pair[1].sendall(point)
    with pytest.raises(ChannelError, match="does not speak the protocol"):
        received(hub, 1)
