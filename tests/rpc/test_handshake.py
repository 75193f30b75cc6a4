"""What two sides compare in the Hello: hosts, and the addresses of a task in two ClusterSpecs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tfmini.rpc import handshake
from tfmini.rpc.codec import encode
from tfmini.rpc.connection_messages import Hello
from tfmini.rpc.lane_listener import host_id


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
