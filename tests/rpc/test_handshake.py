"""What two sides compare in the Hello: hosts, and the addresses of a task in two ClusterSpecs."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import zmq

from tests.rpc.task_processes import PS, until
from tfmini.rpc import handshake
from tfmini.rpc.codec import decode, encode
from tfmini.rpc.endpoint import Endpoint
from tfmini.rpc.lane_listener import host_id
from tfmini.rpc.messages import Goodbye, Hello
from tfmini.rpc.reactor import get_reactor
from tfmini.rpc.records import PROTOCOL_VERSION


def test_a_host_is_recognized_without_being_named() -> None:
    proof = handshake.host_proof(host_id())
    assert handshake.is_same_host(proof, host_id())
    assert not handshake.is_same_host(proof, "another host")
    assert proof != handshake.host_proof(host_id())  # nobody can tell that it is the same host again
    for nothing in (b"", b"x" * 5, handshake.host_proof("")):
        assert not handshake.is_same_host(nothing, host_id())
        assert not handshake.is_same_host(nothing, "")


def test_a_hello_names_no_host_and_no_user() -> None:
    (sent,) = encode(Hello(1, "", 1, "", handshake.host_proof(host_id()), True, "", 0, 0))
    facts = [Path("/proc/sys/kernel/random/boot_id")]
    machine = Path("/etc/machine-id")
    if machine.exists():
        facts.append(machine)
    for fact in facts:
        assert fact.read_bytes().strip() not in sent
        assert fact.read_text().strip() not in host_id()


@pytest.mark.parametrize(
    ("ours", "theirs", "same_host", "conflict"),
    [
        ("10.0.0.1:1", "10.0.0.1:1", False, False),
        ("10.0.0.1:1", "10.0.0.1:2", False, True),
        ("10.0.0.1:1", "10.0.0.2:1", False, True),
        ("host-a:1", "host-b:1", False, True),
        ("Host-A:1", "host-a:1", False, False),
        ("host-a:1", "host-a.example.com:1", False, False),  # a short name
        ("host-a:1", "host-a2:1", False, True),
        ("host-a:1", "10.0.0.1:1", False, False),  # perhaps an alias
        ("host-a:1", "0.0.0.0:1", False, False),
        ("host-a:1", "localhost:2", False, False),  # how a task may write its own entry
        ("localhost:1", "localhost:2", False, False),  # of two hosts
        ("localhost:1", "127.0.0.1:2", True, True),
        ("localhost:1", "127.0.0.1:1", True, False),
        ("[::1]:1", "localhost:1", True, False),
        ("localhost:1", "localhost:0", True, False),  # the system chose the port
        ("", "localhost:1", True, False),  # not in the ClusterSpec
    ],
)
def test_only_addresses_that_certainly_differ_conflict(ours: str, theirs: str, same_host: bool, conflict: bool) -> None:
    assert handshake.addresses_conflict(ours, theirs, same_host) is conflict
    assert handshake.addresses_conflict(theirs, ours, same_host) is conflict


EVIL = "/job:ps\n2026-01-01 INFO tfmini.rpc: admitted\x1b[2J"


class Raw:
    """A peer without a link of its own: it sends what it likes to a server without keys."""

    def __init__(self, server: Endpoint) -> None:
        self.sock = zmq.Context.instance().socket(zmq.DEALER)
        self.sock.linger = 0
        self.sock.connect(server.address)

    def ask(self, message: Any) -> Any:
        self.sock.send_multipart(encode(message, 1))
        assert self.sock.poll(60_000), "no answer"
        return decode(self.sock.recv_multipart(), True)[0]


@pytest.fixture
def server() -> Iterator[Endpoint]:
    endpoint = Endpoint(get_reactor(), PS, 42, insecure=True)
    endpoint.address = endpoint.listen("127.0.0.1:0")
    yield endpoint
    endpoint.close()


@pytest.mark.parametrize(
    "fields",
    [{"task": EVIL}, {"task": "x" * 300}, {"expected_task": EVIL}, {"task": "\u202e/job:ps"},
     {"version": 1, "task": EVIL}],
)  # fmt: skip
def test_what_a_hello_says_cannot_forge_a_line_of_a_log(
    server: Endpoint, fields: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    proof = handshake.host_proof(host_id())
    hello = Hello(PROTOCOL_VERSION, "", 7, "", proof, False, "", 0, 0)
    raw = Raw(server)
    answer = raw.ask(dataclasses.replace(hello, **fields))
    raw.sock.close()
    assert isinstance(answer, Goodbye) and answer.reason.isprintable()
    texts = [line for record in caplog.records for line in logging.Formatter().format(record).split("\n")]
    assert texts and all(line.isprintable() for line in texts)
    assert not any(line.startswith("2026") for line in texts)


def test_the_reason_of_a_goodbye_cannot_forge_a_line(server: Endpoint) -> None:
    raw = Raw(server)
    raw.ask(Hello(PROTOCOL_VERSION, "", 7, "", b"", False, "", 0, 0))
    until(lambda: any(link.peer for link in server.links()), "the admission")
    (link,) = server.links()
    reasons: list[str] = []
    ended = link.peer.link_ended  # type: ignore[union-attr]

    def note(link: Any, reason: str, permanent: Any) -> None:
        reasons.append(reason)
        ended(link, reason, permanent)

    link.peer.link_ended = note  # type: ignore[union-attr, method-assign]
    raw.sock.send_multipart(encode(Goodbye(f"bye\nFORGED\x1b[2J{'x' * 10_000}"), 0))
    until(lambda: bool(reasons), "the end of the link")
    raw.sock.close()
    assert reasons[0].isprintable() and r"bye\nFORGED\x1b[2J" in reasons[0] and len(reasons[0]) <= 4000
