"""Where a server listens, and what it tells others."""

from __future__ import annotations

import socket

import pytest

from tfmini import errors
from tfmini.cluster import HostPort
from tfmini.rpc import addresses
from tfmini.rpc.addresses import BIND_ENV, PORTS_ENV, allowed_ports, interface_of, listen, listening_socket

_ELSEWHERE = "192.0.2.7"  # of the range that is kept for documentation: no host has it


class Listener:
    """Listens nowhere, and notes where it was asked to; some ports are in use."""

    def __init__(self, *in_use: int) -> None:
        self.asked: list[str] = []
        self._in_use = in_use

    def __call__(self, address: str) -> str:
        self.asked.append(address)
        host, _, port = address.rpartition(":")
        if int(port) in self._in_use:
            raise errors.UnknownError.of("in use")
        return f"tcp://{host}:{int(port) or 4711}"


def test_a_server_listens_at_its_address_in_the_cluster() -> None:
    listener = Listener()
    assert listen(listener, HostPort("127.0.0.1", 2222), [], may_move=False) == HostPort("127.0.0.1", 2222)
    assert listen(listener, HostPort("::1", 0), [], may_move=False) == HostPort("::1", 4711)
    assert listener.asked == ["127.0.0.1:2222", "[::1]:0"]


def test_a_server_at_all_interfaces_tells_the_one_that_leads_to_the_others() -> None:
    assert listen(Listener(), HostPort("0.0.0.0", 2222), ["127.0.0.1:1"], may_move=False).host == "127.0.0.1"


def test_an_address_of_another_host_is_an_error_that_says_so() -> None:
    with pytest.raises(errors.InvalidArgumentError, match=f"{_ELSEWHERE} is not an address of this host .*{BIND_ENV}"):
        interface_of(_ELSEWHERE)


def test_a_task_that_has_moved_listens_where_it_is_now() -> None:
    listener = Listener(2222)
    found = listen(listener, HostPort(_ELSEWHERE, 2222), ["127.0.0.1:1"], may_move=True)
    assert found == HostPort("127.0.0.1", 4711)
    every = str(HostPort(addresses.all_interfaces(), 2222))
    assert listener.asked == [every, every.replace(":2222", ":0")]


def test_a_port_that_is_in_use_is_not_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The port of the ClusterSpec may also be the last of the allowed ones."""
    monkeypatch.setattr(addresses, "allowed_ports", lambda: [2305, 2222])
    assert listen(Listener(2222), HostPort("127.0.0.1", 2222), [], may_move=True).port == 2305


def test_the_interface_can_be_chosen_by_name_and_address(monkeypatch: pytest.MonkeyPatch) -> None:
    for wanted in ("lo", "127.0.0.1", "localhost"):
        monkeypatch.setenv(BIND_ENV, wanted)
        assert listen(listener := Listener(), HostPort(_ELSEWHERE, 2222), [], may_move=False).port == 2222
        assert listener.asked[0] in ("127.0.0.1:2222", "localhost:2222")
    monkeypatch.setenv(BIND_ENV, "no-such-interface.invalid")
    with pytest.raises(errors.InvalidArgumentError, match="one of the interfaces .*lo"):
        listen(Listener(), HostPort("localhost", 2222), [], may_move=False)


def test_ports_are_taken_from_the_range(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PORTS_ENV, "2300-2309")
    assert sorted(allowed_ports()) == list(range(2300, 2310))
    busy = [port for port in range(2300, 2310) if port != 2304]
    assert listen(Listener(*busy), HostPort("localhost", 0), [], may_move=False).port == 2304
    with pytest.raises(errors.UnknownError):
        listen(Listener(*busy, 2304), HostPort("localhost", 0), [], may_move=False)


@pytest.mark.parametrize("text", ["x", "-5", "5-", "9-8", "0-3", "1-70000"])
def test_a_malformed_range_is_an_error(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PORTS_ENV, text)
    with pytest.raises(errors.InvalidArgumentError, match=f"{PORTS_ENV} must be a range of ports"):
        allowed_ports()


@pytest.mark.parametrize(
    ("found", "interface"),
    [
        (["127.0.1.1"], "all"),  # as Debian has it: others could not connect
        (["127.0.0.1", "127.0.0.2"], "all"),  # any of them may be the one that a peer finds
        ([_ELSEWHERE], "all"),  # of a service in front of this host
    ],
)
def test_a_name_that_does_not_tell_the_interface_means_all(
    found: list[str], interface: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(addresses, "resolve", lambda host, port: found)
    assert interface_of(socket.gethostname()) == addresses.all_interfaces()


def test_a_name_of_one_interface_means_that(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(addresses, "resolve", lambda host, port: ["127.0.0.3"])
    assert interface_of("another-name") == "127.0.0.3"


def test_a_firewall_may_leave_a_range_of_ports(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as busy:
        port = busy.getsockname()[1]
        monkeypatch.setenv(PORTS_ENV, str(port))
        with pytest.raises(OSError, match="in use"):
            listening_socket("127.0.0.1")
    with listening_socket("127.0.0.1") as listener:
        assert listener.getsockname() == ("127.0.0.1", port)


def test_any_port_will_do_otherwise() -> None:
    with listening_socket("127.0.0.1") as one, listening_socket("127.0.0.1") as other:
        assert one.getsockname() != other.getsockname()
