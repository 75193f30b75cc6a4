"""Messages between machines."""

from __future__ import annotations

import random

import pytest

from tests.simulation.profiles import plain
from tfmini.simulation.links import Cluster, Nics


def _nics(tasks: int = 3) -> Nics:
    return Nics(Cluster.on_own_machines([f"t{i}" for i in range(tasks)], plain(), "8Gbit"))


def test_a_message_takes_its_bytes_and_the_latency() -> None:
    assert _nics().arrival("t0", "t1", 1_000_000, 2.0) == pytest.approx(2.0 + 1e-3 + 50e-6)


def test_messages_wait_for_the_senders_and_the_receivers_nic() -> None:
    nics = _nics()
    assert nics.arrival("t0", "t1", 1_000_000, 0.0) == pytest.approx(1e-3 + 50e-6)
    assert nics.arrival("t0", "t2", 1_000_000, 0.0) == pytest.approx(2e-3 + 50e-6)  # after the first one
    assert nics.arrival("t2", "t1", 1_000_000, 0.0) == pytest.approx(2e-3 + 50e-6)  # both into t1
    assert nics.received["t1"].busy_s == pytest.approx(2e-3)


def test_no_direction_carries_more_than_its_rate() -> None:
    chance, nics = random.Random(1), _nics(5)
    now, sent = 0.0, {f"t{i}": 0 for i in range(5)}
    last = dict(sent)
    for _ in range(300):
        now += chance.uniform(0.0, 1e-4)
        source, target = chance.sample(sorted(sent), 2)
        nbytes = chance.randint(0, 200_000)
        last[target] = max(last[target], nics.arrival(source, target, nbytes, now))
        sent[target] += nbytes
        assert sent[target] <= last[target] * 1e9 + 1e-3
    assert sum(sent.values()) == sum(nics.carried.values()) == sum(u.nbytes for u in nics.sent.values())


def test_tasks_of_one_machine_have_no_nic() -> None:
    nics = Nics(Cluster.on_one_machine(["a", "b"], plain()))
    assert nics.arrival("a", "b", 10**9, 1.0) == pytest.approx(1.0 + 15e-6)
    assert not nics.sent
    assert nics.carried["a", "b"] == 10**9
