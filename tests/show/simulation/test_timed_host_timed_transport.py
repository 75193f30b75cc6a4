"""Connections that take time."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.show.simulation.profiles import plain
from tfmini.show.simulation.prediction import Topology
from tfmini.show.simulation.timed_host import TimedNetwork


def test_messages_of_a_task_with_several_threads_keep_their_order() -> None:
    """The work before the first one takes longer than that before the second one, in another thread."""
    profile = plain()
    machine = replace(profile.machine, cores=4, threads=4)
    cluster = Topology.on_one_machine(["one", "other"], replace(profile, machines={"plain": machine}))
    network = TimedNetwork(cluster, lambda network, machine: None)
    one, other = network.timed_host("one"), network.timed_host("other")
    got: list[Any] = []
    other.transport.listen("sim://other", lambda far: far.start(got.append, lambda reason: None))
    connection = one.transport.connect("sim://other")
    connection.start(lambda parts: None, lambda reason: None)

    def send(seconds: float, text: bytes) -> None:
        one.charge(seconds)
        connection.send([text])

    one.call_later(0.1, send, 5e-3, b"first")
    one.call_later(0.1, send, 0.0, b"second")
    network.run_while(lambda: True, 1.0)
    assert got == [[b"first"], [b"second"]]
