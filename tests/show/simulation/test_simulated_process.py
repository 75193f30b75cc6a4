"""Threads, servers and sessions of simulated processes run in virtual time, one at a time, and end when killed."""

from __future__ import annotations

import types
from typing import Any

import pytest

import tfmini as tf
from tfmini.runtime.process import current_process
from tfmini.testing import FaultPlan, Kill, Sever, SimulatedNetwork, Stop

CLUSTER = {"ps": ["ps0:1"], "worker": ["w0:1"]}


def test_threads_sleep_and_wait_in_virtual_time() -> None:
    network = SimulatedNetwork()
    host, told = network.host("a"), []
    event = host.event()

    def program(name: str, seconds: float) -> None:
        process = current_process()
        assert process is host
        process.sleep(seconds)
        told.append((name, process.now()))
        assert event.wait(1000.0)
        told.append((name, process.now()))

    def waiter(threads: list[Any]) -> None:
        assert not event.wait(5.0)
        event.set()
        for thread in threads:
            thread.join()
        assert not any(thread.is_alive() for thread in threads)
        told.append(("joined", current_process().now()))

    threads = [host.spawn(program, "slow", 3.0), host.spawn(program, "fast", 2.0)]
    host.spawn(waiter, threads)
    network.run(100.0)
    assert told == [("fast", 2.0), ("slow", 3.0), ("fast", 5.0), ("slow", 5.0), ("joined", 5.0)]
    assert current_process() is not host


def test_a_killed_process_ends_its_threads_and_a_stopped_one_holds_them() -> None:
    network = SimulatedNetwork(FaultPlan([Kill("a", at=1.0), Stop("b", at=1.0, until=7.0)]))
    told = []

    def program(name: str) -> None:
        try:
            current_process().sleep(2.0)
        finally:
            told.append((name, network.now()))

    killed, stopped = network.host("a").spawn(program, "killed"), network.host("b").spawn(program, "stopped")
    network.run(10.0)
    assert told == [("killed", 1.0), ("stopped", 7.0)]
    assert killed.was_killed and not stopped.was_killed and killed.error is None


def test_an_error_of_a_program_is_kept_for_who_joins_it() -> None:
    network = SimulatedNetwork()
    thread = network.host("a").spawn(lambda: 1 // 0)
    network.run(1.0)
    assert isinstance(thread.error, ZeroDivisionError) and not thread.is_alive()


class Training:
    """A ps, a worker with a session in its process, and a client of that worker on a host of its own."""

    def __init__(self, *faults: Any, seed: int = 0) -> None:
        self.network = SimulatedNetwork(FaultPlan(faults, seed))
        self.values: dict[str, list[Any]] = {"w0": [], "c": []}
        self.errors: dict[str, tf.errors.OpError] = {}
        with tf.Graph().as_default() as self.graph, tf.device("/job:ps/task:0"):
            v = tf.Variable(0.0, name="v")
            self.init, self.add = v.initializer, v.assign_add(1.0).op.outputs[0]
        self.network.host("ps0").run(lambda: tf.train.Server(CLUSTER, "ps", 0))
        self.network.host("w0").run(lambda: tf.train.Server(CLUSTER, "worker", 0))
        self.network.host("w0").spawn(self.train, "w0", "grpc://localhost:1", True)
        self.network.host("c").spawn(self.train, "c", "grpc://w0:1", False)
        self.network.run(30.0)
        for name in ("ps0", "w0", "c"):
            self.network.kill(name)
        self.network.run(31.0)

    def train(self, name: str, target: str, initializes: bool) -> None:
        with tf.Session(target, graph=self.graph) as session:
            if initializes:
                session.run(self.init)
            current_process().sleep(1.0)
            try:
                for _ in range(5):
                    self.values[name].append(float(session.run(self.add)))
                    current_process().sleep(1.0)
            except tf.errors.OpError as error:
                self.errors[name] = error


def test_a_cluster_trains_in_virtual_time() -> None:
    training = Training()
    assert sorted(training.values["w0"] + training.values["c"]) == [float(i + 1) for i in range(10)]
    assert not training.errors and not training.network.crashes


def test_a_killed_ps_is_named_to_all_clients() -> None:
    training = Training(Kill("ps0", at=3.0))
    assert sorted(training.errors) == ["c", "w0"]
    for error in training.errors.values():
        assert isinstance(error, tf.errors.UnavailableError) and "/job:ps/replica:0/task:0" in error.message


@pytest.mark.parametrize("faults", [(), (Kill("ps0", at=3.0),), (Stop("w0", at=2.5, until=4.0),)])
def test_equal_seeds_give_equal_histories(faults: tuple[Any, ...]) -> None:
    first, second, other = (Training(*faults, seed=seed).network.history for seed in (1, 1, 2))
    assert first == second != other


def test_of_two_cuts_of_a_link_the_worse_one_counts() -> None:
    long, loud = Sever(("a", "b"), 1.0, 5.0, silent=True), Sever(("b", "a"), 2.0, 3.0)
    cuts = [long, loud, Sever(("a", "b"), 1.0, 4.0, silent=True)]
    network = SimulatedNetwork(FaultPlan(cuts))
    found = []
    for moment in (0.5, 1.5, 2.5, 4.5, 5.0):
        network.run(moment)
        found.append(network.severed("a", "b"))
    assert found == [None, cuts[0], cuts[1], cuts[0], None]


def test_overlapping_stops_keep_the_order_of_what_arrives() -> None:
    """A call that comes while the first stop lasts may not come after one that comes while both last."""
    network = SimulatedNetwork(FaultPlan([Stop("a", at=2.0, until=6.0), Stop("a", at=1.0, until=4.0)]))
    host, order = network.host("a"), []
    for moment in (1.5, 3.0, 5.0):
        host.call_later(moment, order.append, moment)
    network.run(10.0)
    assert order == [1.5, 3.0, 5.0]


def test_a_process_that_is_killed_while_its_servers_stop_holds_no_thread_of_another() -> None:
    """The thread that drives the network when the stop begins gets what it waits for, and another thread goes on."""
    network = SimulatedNetwork()
    event = network.host("v").event()

    def wait() -> None:
        current_process().sleep(3.0)
        event.wait()

    threads = [network.host("v").thread(wait), network.host("w").thread(lambda: current_process().sleep(3.23))]
    for thread in threads:
        thread.start()
    slow = types.SimpleNamespace(stop=lambda: current_process().sleep(5.0))
    network.host("ps").servers["ps:2222"] = (None, slow)
    network.call_later(3.2, network.end, "ps")
    network.call_later(3.22, event.set)
    network.run(15.0)
    assert not any(thread.is_alive() for thread in threads)
