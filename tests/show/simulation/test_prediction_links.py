"""Messages between machines."""

from __future__ import annotations

import random

import pytest

from tests.show.simulation.profiles import Events, plain
from tfmini.show.simulation.prediction import Nics, Topology


class _Wires:
    """NICs in virtual time that note when messages arrive."""

    def __init__(self, cluster: Topology) -> None:
        self.events = Events()
        self.nics = Nics(cluster, self.events)
        self.arrivals: list[float] = []

    def send(self, source: str, target: str, nbytes: int, at: float = 0.0) -> int:
        """Sends a message at a time; returns its index in ``arrivals``."""
        self.arrivals.append(-1.0)
        index = len(self.arrivals) - 1
        self.events.call_later(at, self.nics.send, source, target, nbytes, lambda: self._arrived(index))
        return index

    def _arrived(self, index: int) -> None:
        self.arrivals[index] = self.events.now()

    def run(self) -> list[float]:
        """When each message arrives."""
        self.events.run()
        return self.arrivals


def _wires(tasks: int = 3) -> _Wires:
    return _Wires(Topology.on_own_machines([f"t{i}" for i in range(tasks)], plain(), "8Gbit"))


def test_a_message_takes_its_bytes_and_the_latency() -> None:
    wires = _wires()
    wires.send("t0", "t1", 1_000_000, 2.0)
    assert wires.run() == [pytest.approx(2.0 + 1e-3 + 50e-6)]


def test_messages_wait_for_the_senders_and_the_receivers_nic() -> None:
    wires = _wires()
    wires.send("t0", "t1", 1_000_000)
    wires.send("t0", "t2", 1_000_000)  # after the first one
    wires.send("t2", "t1", 1_000_000)  # both into t1
    assert wires.run() == pytest.approx([1e-3 + 50e-6, 2e-3 + 50e-6, 2e-3 + 50e-6])
    assert wires.nics.received["t1"].busy_s == pytest.approx(2e-3)


def test_a_message_in_its_senders_queue_does_not_keep_the_receiver() -> None:
    """The receiver's NIC is free for another sender's message until the first byte comes."""
    wires = _wires()
    wires.send("t0", "t2", 10_000_000)
    queued = wires.send("t0", "t1", 1_000_000, 1e-4)
    other = wires.send("t2", "t1", 1_000_000, 2e-4)
    arrivals = wires.run()
    assert arrivals[other] == pytest.approx(2e-4 + 1e-3 + 50e-6)
    assert arrivals[queued] == pytest.approx(11e-3 + 50e-6)


def test_a_message_of_one_packet_passes_between_those_of_other_connections() -> None:
    wires = _wires()
    wires.send("t0", "t1", 10_000_000)
    asks = wires.send("t2", "t1", 0, 1e-3)
    answers = wires.send("t0", "t2", 100, 1e-3)
    behind = wires.send("t0", "t1", 0, 1e-3)
    arrivals = wires.run()
    assert arrivals[asks] == pytest.approx(1e-3 + 50e-6)
    assert arrivals[answers] == pytest.approx(1e-3 + 50e-6, abs=1e-6)
    assert arrivals[behind] == pytest.approx(10e-3 + 50e-6)  # a connection keeps the order


def test_no_direction_carries_more_than_its_rate() -> None:
    """In no interval between two arrivals do more bytes come than the rate allows, beside the first message's."""
    chance, wires = random.Random(1), _wires(5)
    now, sizes = 0.0, []
    for _ in range(300):
        now += chance.uniform(0.0, 1e-4)
        source, target = chance.sample([f"t{i}" for i in range(5)], 2)
        sizes.append((source, target, chance.randint(2_000, 200_000)))
        wires.send(*sizes[-1], at=now)
    arrivals = wires.run()
    for place in range(5):
        came = sorted((at, size) for at, (_, target, size) in zip(arrivals, sizes) if target == f"t{place}")
        for first, (begin, _) in enumerate(came):
            carried = 0
            for end, size in came[first + 1 :]:
                carried += size
                assert carried <= (end - begin) * 1e9 + 1e-3
    nics = wires.nics
    assert sum(size for *_, size in sizes) == sum(nics.carried.values()) == sum(u.nbytes for u in nics.sent.values())


def test_tasks_of_one_machine_have_no_nic() -> None:
    wires = _Wires(Topology.on_one_machine(["a", "b"], plain()))
    wires.send("a", "b", 10**9, 1.0)
    assert wires.run() == [pytest.approx(1.0 + 15e-6)]
    assert not wires.nics.sent
    assert wires.nics.carried["a", "b"] == 10**9
