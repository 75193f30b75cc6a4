"""Tensors that are lost with a connection after the sender's part of the step has ended."""

from __future__ import annotations

from typing import Any

import pytest

import tfmini as tf
from tfmini.runtime.worker.ended_steps import STEP_LIMIT, EndedSteps
from tfmini.testing.simulated import Delay, Drop, FaultPlan, SimulatedNetwork

CLUSTER = {"ps": ["ps0:2222", "ps1:2222"], "worker": ["w0:2222"]}


def test_the_latest_steps_are_remembered_with_their_receivers() -> None:
    ended, one, two = EndedSteps(), object(), object()
    for step_id in range(STEP_LIMIT + 10):
        ended.add(step_id, {"a": one} if step_id % 2 else {"b": two})
    assert 9 not in ended and 10 in ended
    assert ended.sent_to(one) == list(range(11, STEP_LIMIT + 10, 2))


class World:
    """Servers in virtual time, of which the first, w0, runs a program. The second, ps0, sends to the third, ps1."""

    def __init__(self, servers: dict[str, Any], *faults: Any) -> None:
        self.network = SimulatedNetwork(FaultPlan(faults))
        self.outcomes: list[Any] = []
        for host, definition in servers.items():
            self.network.host(host).run(lambda definition=definition: tf.train.Server(*definition))

    def run(self, devices: tuple[str, str], steps: int, config: Any = None, before: Any = lambda step: None) -> None:
        """Runs steps in which one device sends to the other; each leaves a value or the text of an error."""

        def program() -> None:
            with tf.Graph().as_default():
                with tf.device(devices[0]):
                    sent = tf.random_uniform([])
                with tf.device(devices[1]):
                    result = sent + 1.0
                with tf.Session("grpc://w0:2222", config=config) as session:
                    for step in range(steps):
                        before(step)
                        try:
                            self.outcomes.append(session.run(result))
                        except tf.errors.UnavailableError as error:
                            self.outcomes.append(error.message)

        thread = self.network.host("w0").spawn(program)
        self.network.run(until=30.0)
        assert not thread.is_alive(), "a step waits for tensors that are lost"
        assert thread.error is None and self.network.crashes == []
        for name in ("w0", "ps0", "ps1"):
            self.network.kill(name)
        self.network.run(until=31.0)


@pytest.mark.parametrize("cut_at", [0.5, 1.5])
def test_tensors_that_are_lost_before_their_step_begins_end_it(cut_at: float) -> None:
    """ps0 has ended its part when its connection to ps1 breaks. The RunGraph for ps1 is still in flight."""
    lost = Drop(("ps0", "ps1"), "SendTensors", nth=2)
    servers = {"w0": (CLUSTER, "worker", 0), "ps0": (CLUSTER, "ps", 0), "ps1": (CLUSTER, "ps", 1)}
    world = World(servers, lost, Delay(("w0", "ps1"), "RunGraph", nth=2, seconds=1.0))

    def before(step: int) -> None:
        if step == 1:
            world.network.call_later(cut_at, world.network.sever, "ps0", "ps1")

    world.run(("/job:ps/task:0", "/job:ps/task:1"), 3, before=before)
    assert [type(outcome) is str for outcome in world.outcomes] == [False, True, False]
    assert "/job:ps/replica:0/task:0 " in world.outcomes[1]


def test_the_loss_of_a_sender_is_noticed_under_the_name_of_the_session() -> None:
    """Each server is a cluster of its own, and the session gives the servers other names."""
    hosts = ("w0", "ps0", "ps1")
    servers = {host: ({f"own{i}": [f"{host}:2222"]}, f"own{i}", 0) for i, host in enumerate(hosts)}
    world = World(servers, Drop(("ps0", "ps1"), "SendTensors", nth=2))
    config = tf.ConfigProto()
    for index, host in enumerate(hosts):
        config.cluster_def.job.add(name=f"crew{index}").tasks[0] = f"{host}:2222"

    def before(step: int) -> None:
        if step == 1:
            world.network.call_later(0.5, world.network.kill, "ps0")

    world.run(("/job:crew1/task:0", "/job:crew2/task:0"), 2, config, before)
    assert [type(outcome) is str for outcome in world.outcomes] == [False, True]
    assert "/job:own1/replica:0/task:0 was lost by /job:own2/replica:0/task:0" in world.outcomes[1]
