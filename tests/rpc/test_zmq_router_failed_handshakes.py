"""How many handshakes of an address may fail."""

from __future__ import annotations

import pytest

from tests.rpc.task_processes import until
from tests.rpc.test_zmq_router_pending import assert_serves, is_closed, raw, server
from tfmini.rpc import zmq_router
from tfmini.rpc.endpoint import Endpoint
from tfmini.rpc.zmq_pump import KernelSocket
from tfmini.rpc.zmq_router import BURST, PER_SECOND, FailedHandshakes

__all__ = ["server"]
STRANGER, OTHER = "203.0.113.7", "203.0.113.8"


def test_an_address_of_many_failures_has_to_wait() -> None:
    failures = FailedHandshakes()
    for _ in range(BURST):
        assert not failures.must_wait(STRANGER, 10.0)
        failures.failed(STRANGER, 10.0)
    assert failures.must_wait(STRANGER, 10.0)
    assert not failures.must_wait(OTHER, 10.0)
    now, passed = 10.0, 0
    while now < 20.0:  # it never stops trying
        now += 0.001
        if not failures.must_wait(STRANGER, now):
            failures.failed(STRANGER, now)
            passed += 1
    assert passed == pytest.approx(10 * PER_SECOND, abs=2)
    failures.admitted(STRANGER)
    assert not failures.must_wait(STRANGER, now)


def test_users_of_this_host_keep_nobody_out() -> None:
    failures = FailedHandshakes()
    for host in ("127.0.0.1", "::1", "::ffff:127.0.0.1", ""):
        for _ in range(2 * BURST):
            failures.failed(host, 1.0)
        assert not failures.must_wait(host, 1.0)


def test_an_ipv6_network_counts_as_one_address_and_few_are_remembered() -> None:
    failures = FailedHandshakes()
    for i in range(BURST):
        failures.failed(f"2001:db8::{i:x}", 1.0)
    assert failures.must_wait("2001:db8::ffff", 1.0) and not failures.must_wait("2001:db8:1::1", 1.0)
    for i in range(10_000):
        failures.failed(f"198.51.{i // 250}.{i % 250}", 1.0)
    assert not failures.must_wait("2001:db8::ffff", 1.0)  # the oldest one is forgotten


def test_further_connections_are_ended_at_once(server: Endpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    class Elsewhere(KernelSocket):
        def __init__(self, fd: int) -> None:
            super().__init__(fd)
            self.host = STRANGER

    monkeypatch.setattr(zmq_router, "KernelSocket", Elsewhere)
    looked: list[FailedHandshakes] = []
    failed: list[str] = []
    must_wait, fail = FailedHandshakes.must_wait, FailedHandshakes.failed

    def noted_look(failures: FailedHandshakes, host: str, now: float) -> bool:
        looked.append(failures)
        return must_wait(failures, host, now)

    def noted_failure(failures: FailedHandshakes, host: str, now: float) -> None:
        failed.append(host)
        fail(failures, host, now)

    monkeypatch.setattr(FailedHandshakes, "must_wait", noted_look)
    monkeypatch.setattr(FailedHandshakes, "failed", noted_failure)
    first = raw(server)
    until(lambda: looked, "the connection")
    first.close()
    until(lambda: failed, "its failure")
    for _ in range(BURST):
        looked[0].failed(STRANGER, server.reactor.now())
    sock = raw(server)
    until(lambda: is_closed(sock), "the end")
    sock.close()
    monkeypatch.undo()
    assert_serves(server)
