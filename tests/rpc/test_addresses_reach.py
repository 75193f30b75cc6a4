"""Which address of a host is used, and why none can be."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Iterator

import pytest

from tfmini.rpc import addresses
from tfmini.rpc.addresses import UnreachableError, choose, explain, explain_failure, parse_address, source_towards


@pytest.fixture
def listening() -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


@pytest.fixture
def refused() -> Iterator[str]:
    with socket.socket() as bound:  # which does not listen
        bound.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{bound.getsockname()[1]}"


def test_the_only_address_is_used_untried(refused: str) -> None:
    assert choose([refused], 1.0) == f"tcp://{refused}"


def test_of_several_addresses_one_that_accepts_is_used(listening: str, refused: str) -> None:
    assert choose([refused, listening], 10.0) == f"tcp://{listening}"


def test_if_none_accepts_the_first_one_tells_why(refused: str) -> None:
    assert choose([refused, refused.replace("127.0.0.1", "127.0.0.2")], 10.0) == f"tcp://{refused}"
    assert explain_failure(parse_address(refused), 0.1, 1.0) == "connection refused: no process listens there"


def test_a_name_that_is_known_is_used_beside_one_that_is_not(listening: str) -> None:
    assert choose(["no-such-host.invalid:1", listening], 1.0) == f"tcp://{listening}"
    with pytest.raises(UnreachableError, match="the name 'no-such-host.invalid' was not found"):
        choose(["no-such-host.invalid:1"], 1.0)


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (TimeoutError("timed out"), "silent: no answer from 10.0.0.1 .* firewall drops connections to port 2222"),
        (OSError(errno.ECONNREFUSED, ""), "connection refused"),
        (OSError(errno.EHOSTUNREACH, ""), "no route to 10.0.0.1"),
        (OSError(errno.ENETUNREACH, ""), "no route to 10.0.0.1"),
        (OSError(errno.EACCES, ""), "a firewall of this host forbids"),
        (OSError(errno.EMFILE, ""), os.strerror(errno.EMFILE)),
    ],
)
def test_each_failure_is_told_apart(error: OSError, said: str) -> None:
    import re

    assert re.search(said, explain(error, parse_address("10.0.0.1:2222")))


def test_the_source_of_packets_is_told() -> None:
    assert source_towards("127.0.0.1") == "127.0.0.1"
    assert source_towards("localhost") == "127.0.0.1"
    assert source_towards("no-such-host.invalid") == ""


def test_names_mean_all_their_addresses(monkeypatch: pytest.MonkeyPatch, listening: str) -> None:
    port = int(listening.rpartition(":")[2])
    infos = [(socket.AF_INET, 0, 0, "", (host, port)) for host in ("127.0.0.9", "127.0.0.1", "127.0.0.9")]
    monkeypatch.setattr(addresses.socket, "getaddrinfo", lambda *_, **__: infos)
    assert addresses.resolve("both", port) == ["127.0.0.9", "127.0.0.1"]
    assert choose([f"both:{port}"], 10.0) == f"tcp://{listening}"
