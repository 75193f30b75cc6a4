"""Collectives go through the NICs, with the bytes that the inspector lists."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest

import tfmini as tf
from tests.simulation.profiles import plain
from tfmini.devices import task_of_device
from tfmini.placement.task_graph import Route
from tfmini.simulation.cores import Events
from tfmini.simulation.exchange import exchange
from tfmini.simulation.links import Cluster, Nics
from tfmini.simulation.prediction import Event, Prediction
from tfmini.simulation.predictor import predict_step, tasks_of
from tfmini.simulation.waits import MEET, Member, Wait

RATE = 1e9  # bytes per second: 8Gbit
LATENCY_S = 50e-6


def _task(index: int) -> str:
    return f"/job:worker/replica:0/task:{index}"


def _begin(nics: Nics, size: int, nbytes: int, kind: str = "all-reduce", root: int = 0) -> list[Event]:
    """Begins a collective now; the list receives its event once for each member."""
    found: list[Event] = []
    tasks = [_task(i) for i in range(size)]
    members = [
        Member(task, Wait(MEET, "key", size, kind, nbytes, i == root), lambda cause, cpu_s: found.append(cause))
        for i, task in enumerate(tasks)
    ]
    exchange(members[::-1], Event("before", tasks[0], nics.clock.now(), None), nics)
    return found


def _end(nics: Nics, *found: list[Event]) -> list[Event]:
    """The events of collectives, after all have ended."""
    events = nics.clock
    assert isinstance(events, Events)
    events.run()
    assert all(len(set(map(id, each))) == 1 for each in found)
    return [each[0] for each in found]


def _nics(size: int) -> Nics:
    return Nics(Cluster.on_own_machines([_task(i) for i in range(size)], plain(), "8Gbit"), Events())


@pytest.mark.parametrize("size", [2, 4, 12])
def test_a_ring_takes_the_bytes_of_one_member_and_all_latencies(size: int) -> None:
    nics, nbytes = _nics(size), 12_000_000
    share = 2 * (size - 1) / size * nbytes
    (event,) = _end(nics, _begin(nics, size, nbytes))
    assert event.end == pytest.approx(share / RATE + 2 * (size - 1) * LATENCY_S)
    assert nics.carried[_task(size - 1), _task(0)] == pytest.approx(share)  # task 10 comes after task 9
    assert all(usage.nbytes == pytest.approx(share) for usage in [*nics.sent.values(), *nics.received.values()])


def test_a_broadcast_begins_at_its_root() -> None:
    nics = _nics(3)
    _end(nics, _begin(nics, 3, 1000, kind="broadcast", root=1))
    assert dict(nics.carried) == {(_task(1), _task(2)): 1000, (_task(2), _task(0)): 1000}


def test_two_collectives_share_the_links() -> None:
    nics, nbytes = _nics(4), 8_000_000
    first, second = _end(nics, _begin(nics, 4, nbytes), _begin(nics, 4, nbytes))
    share_s = 1.5 * nbytes / RATE
    assert second.end - first.end == pytest.approx(share_s)


def test_a_collective_waits_for_other_messages() -> None:
    nics = _nics(4)
    nics.send(_task(1), _task(3), 5_000_000, lambda: None)
    (event,) = _end(nics, _begin(nics, 4, 8_000_000))
    assert event.end == pytest.approx(5e-3 + 12e-3 + 6 * LATENCY_S)
    assert event.task in (f"{_task(1)} -> {_task(2)}", f"{_task(2)} -> {_task(3)}")  # both waited for it


def test_no_nic_carries_more_than_its_rate() -> None:
    chance, nics, at = random.Random(3), _nics(6), 0.0
    events = nics.clock
    kinds = ["all-reduce", "broadcast", "gather", "all-to-all", "reduce-scatter"]
    for _ in range(200):
        at += chance.uniform(0.0, 2e-3)
        if chance.random() < 0.5:
            events.call_later(at, _begin, nics, 6, chance.randint(0, 1_000_000), chance.choice(kinds))
        else:
            source, target = chance.sample(range(6), 2)
            events.call_later(at, nics.send, _task(source), _task(target), chance.randint(0, 1_000_000), _nothing)
    _end(nics)
    for usage in [*nics.sent.values(), *nics.received.values()]:
        assert usage.nbytes <= events.now() * RATE * (1 + 1e-9)
        assert usage.busy_s == pytest.approx(usage.nbytes / RATE)
    assert sum(nics.carried.values()) == sum(usage.nbytes for usage in nics.received.values())


def _nothing() -> None:
    pass


def test_members_on_one_machine_share_memory() -> None:
    cluster = Cluster({_task(i): "a" for i in range(2)} | {"other": "b"}, {}, plain().local, plain().link("8Gbit"))
    nics = Nics(cluster, Events())
    (event,) = _end(nics, _begin(nics, 2, 1_000_000))
    assert event.end == pytest.approx(15e-6)
    assert not nics.carried


def test_a_rank_that_reduces_in_shared_memory_pays_for_the_bytes_that_others_read() -> None:
    found = _found(2, 1_000_000)

    def step_s(reduce_us_per_mb: float) -> float:
        profile = plain()
        local = replace(profile.local, reduce_s_per_byte=reduce_us_per_mb * 1e-12)
        cluster = Cluster.on_one_machine(tasks_of(found), replace(profile, links={**profile.links, "local": local}))
        return predict_step(found, cluster, profile, workers=2, steps=3).step_s

    assert step_s(500.0) - step_s(100.0) == pytest.approx(400e-6 * 4)  # 4 MB: each reads half of them twice


def _found(workers: int, count: int) -> Any:
    with tf.Graph().as_default() as graph, tf.device("/job:worker/task:0"):
        w = tf.get_variable("w", [count])
        loss = tf.reduce_sum(tf.square(w))
        train = tf.train.AllReduceOptimizer(tf.train.GradientDescentOptimizer(0.1), workers, 0).minimize(loss)
    return tf.inspect(graph, ps=0, workers=workers, fetches=train)


def _predicted(found: Any, workers: int, link: str = "8Gbit", hosts: str = "") -> Prediction:
    """``hosts``: a letter for the host of each task; by default each has a host of its own."""
    tasks, profile = tasks_of(found), plain()
    cluster = Cluster.on_own_machines(tasks, profile, link)
    if hosts:
        machines = dict.fromkeys(hosts, profile.machine)
        cluster = Cluster(dict(zip(tasks, hosts)), machines, profile.local, profile.link(link))
    return predict_step(found, cluster, profile, workers=workers, steps=3)


@pytest.mark.parametrize(("workers", "count"), [(2, 10), (3, 100), (3, 1_000_003), (5, 300_000)])
def test_the_bytes_are_those_of_the_inspector(workers: int, count: int) -> None:
    found = _found(workers, count)
    wanted: dict[tuple[str, str], int] = {}
    for transfer in found.transfers:
        assert transfer.route is Route.EXCHANGED
        link = task_of_device(transfer.src), task_of_device(transfer.dst)
        wanted[link] = wanted.get(link, 0) + 3 * (transfer.bytes or 0)
    assert _predicted(found, workers).nbytes == wanted


def test_the_links_are_busy_and_equal_inputs_give_equal_results() -> None:
    found = _found(4, 1_000_000)
    first = _predicted(found, 4, "1Gbit")
    assert min(min(shares) for shares in first.links.values()) > 0.7
    assert first.steps_s == _predicted(found, 4, "1Gbit").steps_s
    assert " -> " in next(event.task for event in first.critical if event.label == "all-reduce")


def test_the_ring_passes_each_nic_once_if_tasks_of_a_host_are_neighbours() -> None:
    found = _found(4, 1_000_000)
    wire_s = 6_000_000 / 125e6  # what each task sends
    near, far = (_predicted(found, 4, "1Gbit", hosts) for hosts in ("aabb", "abab"))
    assert sum(near.nbytes.values()) == sum(far.nbytes.values()) == 4 * 3 * 6_000_000
    assert far.step_s - near.step_s == pytest.approx(wire_s, rel=0.05)  # two tasks send through each NIC
