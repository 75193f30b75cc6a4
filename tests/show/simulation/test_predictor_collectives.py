"""Collectives go through the NICs, with the bytes that the inspector lists."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

import tfmini as tf
from tests.show.simulation.profiles import plain
from tfmini.devices import task_of_device
from tfmini.placement.task_graph import Route
from tfmini.show.simulation.modelled_kernels import MOST_RANKS
from tfmini.show.simulation.prediction import Prediction, Topology
from tfmini.show.simulation.predictor import StepModel, tasks_of


def test_a_rank_that_reduces_in_shared_memory_pays_for_the_bytes_that_others_read() -> None:
    found = _found(2, 1_000_000)

    def step_s(reduce_us_per_mb: float) -> float:
        profile = plain()
        local = replace(profile.local, reduce_s_per_byte=reduce_us_per_mb * 1e-12)
        cluster = Topology.on_one_machine(tasks_of(found), replace(profile, links={**profile.links, "local": local}))
        return StepModel(found, cluster, profile, workers=2, steps=3).predict().step_s

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
    cluster = Topology.on_own_machines(tasks, profile, link)
    if hosts:
        machines = dict.fromkeys(hosts, profile.machine)
        cluster = Topology(dict(zip(tasks, hosts)), machines, profile.local, profile.link(link))
    return StepModel(found, cluster, profile, workers=workers, steps=3).predict()


@pytest.mark.parametrize(("workers", "count"), [(2, 10), (3, 100), (3, 1_000_003), (5, 300_000)])
def test_the_bytes_are_those_of_the_inspector(workers: int, count: int) -> None:
    found = _found(workers, count)
    wanted: dict[tuple[str, str], int] = {}
    for transfer in found.transfers:
        assert transfer.route is Route.EXCHANGED
        link = task_of_device(transfer.src), task_of_device(transfer.dst)
        wanted[link] = wanted.get(link, 0) + 3 * (transfer.bytes or 0)
    carried = {link: nbytes for link, nbytes in _predicted(found, workers).nbytes.items() if nbytes}
    assert carried == pytest.approx(wanted, abs=3 * 16)  # a tensor may not be divisible by the number of ranks


def test_the_links_are_busy_and_equal_inputs_give_equal_results() -> None:
    found = _found(4, 1_000_000)
    first = _predicted(found, 4, "1Gbit")
    assert min(min(shares) for shares in first.links.values()) > 0.7
    assert first.steps_s == _predicted(found, 4, "1Gbit").steps_s
    assert any(event.label == "CollectiveData" and " -> " in event.task for event in first.critical)


def test_the_ring_passes_each_nic_once_if_tasks_of_a_host_are_neighbours() -> None:
    found = _found(4, 1_000_000)
    wire_s = 6_000_000 / 125e6  # what each task sends
    near, far = (_predicted(found, 4, "1Gbit", hosts) for hosts in ("aabb", "abab"))
    assert sum(near.nbytes.values()) == sum(far.nbytes.values()) == 4 * 3 * 6_000_000
    assert far.step_s - near.step_s == pytest.approx(wire_s, rel=0.05)  # two tasks send through each NIC


@pytest.mark.parametrize("workers", [4, MOST_RANKS + 1])
def test_a_ring_goes_on_beside_back_propagation(workers: int) -> None:
    """The gradient of the last layer travels while that of the first is computed, in another thread of each task."""
    with tf.Graph().as_default() as graph, tf.device("/job:worker/task:0"):
        first, last = tf.get_variable("first", [1000]), tf.get_variable("last", [1_000_000])
        loss = tf.reduce_sum(last)
        gradient = tf.fill([1_000_000], loss)
        back = tf.fill([1000], tf.negative(loss, name="back"))
        descent: Any = tf.train.GradientDescentOptimizer(0.1)
        descent.compute_gradients = lambda *args, **kwargs: [(gradient, last), (back, first)]
        train = tf.train.AllReduceOptimizer(descent, workers, 0, bucket_bytes=1 << 20).minimize(loss)
    found = tf.inspect(graph, ps=0, workers=workers, fetches=train)

    def step_s(back_s: float) -> float:
        profile = replace(plain(), ops={"back": back_s})
        machine = replace(profile.machine, cores=4, threads=4)
        tasks = tasks_of(found)
        cluster = Topology(dict(zip(tasks, tasks)), dict.fromkeys(tasks, machine), profile.local, profile.link("1Gbit"))
        return StepModel(found, cluster, profile, workers=workers, steps=3).predict().step_s

    wire_s = 2 * (workers - 1) / workers * 4_000_000 / 125e6
    assert wire_s < step_s(0.0) < 1.2 * wire_s
    assert step_s(0.5 * wire_s) < 1.05 * step_s(0.0)
