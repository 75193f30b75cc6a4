"""The budget of bytes for peers that read slowly or not at all."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import zmq

from tests.rpc.conformance import LaneTransport
from tfmini import errors
from tfmini.rpc import transport as backlog_module
from tfmini.rpc.reactor import get_reactor
from tfmini.rpc.transport import FAIR_SHARE, SMALL_BYTES, Backlog
from tfmini.rpc.waiter import Waiter
from tfmini.rpc.zmq_pump import Outbox, Pump
from tfmini.rpc.zmq_transport import ZmqTransport
from tfmini.testing import SimulatedNetwork

LIMIT_S = 60.0  # limit of waits for events that are certain
BLOCK = memoryview(np.zeros(200_000, np.uint8))


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Any:
    clock = SimpleNamespace(now=100.0)
    monkeypatch.setattr(backlog_module, "time", SimpleNamespace(monotonic=lambda: clock.now))
    return clock


@pytest.mark.parametrize("transport", [ZmqTransport, LaneTransport])
def test_a_peer_that_never_reads_costs_bounded_memory(transport: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Large messages to it are refused with the reason; where small ones pile up, too, its connection ends."""
    monkeypatch.setattr(backlog_module, "BACKLOG_LIMIT", 1 << 20)
    monkeypatch.setattr(backlog_module, "FAIR_SHARE", 1 << 18)
    monkeypatch.setattr(backlog_module, "SMALL_LIMIT", 1 << 20)
    reactor = get_reactor()
    carrier = transport(reactor)
    accepted: list[Any] = []
    listener = carrier.listen("tcp://127.0.0.1:0", accepted.append)  # never started: never read
    near, ended, reasons = carrier.connect(listener.address), Waiter(), []
    near.start(lambda parts: None, lambda reason: (reasons.append(reason), ended.set()))
    if transport is ZmqTransport:  # ZeroMQ reads by itself; only a full queue of ours counts
        monkeypatch.setattr(Pump, "send", lambda pump, parts: False)
    else:
        monkeypatch.setattr("tfmini.rpc.shared_blocks.LENT_LIMIT", 1 << 20)
    with pytest.raises(errors.ResourceExhaustedError, match="reads too slowly.*200001 bytes is refused"):
        for _ in range(200):
            near.send([b"x", BLOCK])
    assert near.backlog < (8 << 20) + len(BLOCK) + 100
    near.send([b"an answer that says why"])
    assert not reasons
    for _ in range(200):
        near.send([b"x" * 10_000])
    assert reactor.drive(ended, reactor.now() + LIMIT_S)
    assert "reads too slowly" in reasons[0]
    assert near.backlog == 0
    listener.close()


def test_messages_that_are_queued_after_the_end_do_not_stay_in_the_budget() -> None:
    """A thread may be sending while another one ends the connection and clears its queue."""
    network, failures = SimulatedNetwork(), []
    is_open = True

    def push(parts: Any) -> bool:
        if not is_open:
            raise zmq.ZMQError(zmq.ENOTSOCK)
        return False

    before = set(backlog_module.large_queues)
    outbox = Outbox(network.host("ps"), push, failures.append)  # type: ignore[arg-type]
    outbox.clear()
    outbox.send([memoryview(np.zeros(FAIR_SHARE + 1, np.uint8))])
    assert outbox.bytes > FAIR_SHARE
    is_open = False
    network.run(until=1.0)
    assert len(failures) == 1 and outbox.bytes == 0
    assert backlog_module.large_queues <= before


def test_the_limit_is_lower_for_a_stalled_peer(clock: Any) -> None:
    backlog = Backlog()
    backlog.add(3 << 30)  # one message of any size is no reason
    assert not backlog.refusal(1 << 30)
    clock.now += 3.9
    backlog.take(1 << 20)
    clock.now += 3.9
    assert not backlog.refusal(1 << 30)
    clock.now += 0.2
    with pytest.raises(errors.ResourceExhaustedError, match="does not read: 3220176896 bytes are queued"):
        backlog.refusal(1 << 30)
    assert not backlog.refusal(SMALL_BYTES)
    backlog.clear()
    assert not backlog.refusal(1 << 30)
    backlog.add(17 << 30)
    with pytest.raises(errors.ResourceExhaustedError, match="reads too slowly"):  # although it reads
        backlog.refusal(1 << 30)
    backlog.clear()


def test_peers_that_do_not_read_have_a_common_limit(clock: Any) -> None:
    """However many there are: a client that connects anew gets no more."""
    queues = [Backlog() for _ in range(9)]
    for queue in queues:
        queue.add(1 << 30)
    clock.now += 2.0
    reader = Backlog()
    reader.add(1 << 30)
    small = Backlog()
    small.add(FAIR_SHARE)
    clock.now += 2.1
    with pytest.raises(errors.ResourceExhaustedError, match="and 9663676416 for all peers that do not"):
        queues[0].refusal(1 << 20)
    assert not reader.refusal(1 << 20)
    assert not small.refusal(1 << 20)
    queues[1].take(1 << 20)  # it reads after all
    assert not queues[0].refusal(1 << 20)
    for queue in (*queues, reader, small):
        queue.clear()
    assert not backlog_module.large_queues
