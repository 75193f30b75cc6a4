"""Ports of tasks that agents reserve."""

from __future__ import annotations

import socket

import pytest

from tfmini.engines.places import listen_at


def test_a_firewall_may_leave_a_range_of_ports(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as busy:
        port = busy.getsockname()[1]
        monkeypatch.setenv("TFMINI_PORTS", str(port))
        with pytest.raises(OSError, match="in use"):
            listen_at("127.0.0.1")
    with listen_at("127.0.0.1") as listener:
        assert listener.getsockname() == ("127.0.0.1", port)


def test_any_port_will_do_otherwise() -> None:
    with listen_at("127.0.0.1") as one, listen_at("127.0.0.1") as other:
        assert one.getsockname() != other.getsockname()
