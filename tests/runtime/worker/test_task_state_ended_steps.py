"""Tensors that are lost with a connection after the sender's part of the step has ended."""

from __future__ import annotations

from typing import Any

import pytest

import tfmini as tf
from tfmini.runtime.process import current_process
from tfmini.runtime.worker.task_state import STEP_LIMIT, EndedSteps
from tfmini.testing import Delay, Drop, FaultPlan, Kill, Sever, SimulatedNetwork

CLUSTER = {"ps": ["ps0:2222", "ps1:2222"], "worker": ["w0:2222"]}


def test_the_latest_steps_are_remembered_with_their_receivers() -> None:
    ended, one, two = EndedSteps(), object(), object()
    for step_id in range(STEP_LIMIT + 10):
        ended.add(step_id, "session", {"a": one} if step_id % 2 else {"b": two})
    assert 9 not in ended and 10 in ended
    assert ended.sent_to(one) == dict.fromkeys(range(11, STEP_LIMIT + 10, 2), "session")


class World:
    """Servers in virtual time, of which the first, w0, runs a program. The second, ps0, sends to the third, ps1."""

    def __init__(self, servers: dict[str, Any], *faults: Any) -> None:
        self.network = SimulatedNetwork(FaultPlan(faults))
        self.outcomes: list[Any] = []
        for host, definition in servers.items():
            self.network.host(host).run(lambda definition=definition: tf.train.Server(*definition))

    def run(
        self, devices: tuple[str, str], steps: int, config: Any = None, before: Any = lambda step: None,
        until_s: float = 30.0,
    ) -> None:  # fmt: skip
        """Runs steps in which one device sends to the other; each leaves a value or the text of an error."""

        def program() -> None:
            with tf.Graph().as_default():
                with tf.device(devices[0]):
                    sent = tf.random_uniform([])
                with tf.device(devices[1]):
                    result = sent + 1.0
                session = tf.Session("grpc://w0:2222", config=config)
                for step in range(steps):
                    before(step)
                    try:
                        self.outcomes.append(session.run(result))
                    except tf.errors.UnavailableError as error:
                        self.outcomes.append(error.message)
                    except tf.errors.AbortedError as error:  # a task was restarted
                        self.outcomes.append(error.message)
                        session.close()
                        session = tf.Session("grpc://w0:2222", config=config)
                session.close()

        thread = self.network.host("w0").spawn(program)
        self.network.run(until=until_s)
        assert not thread.is_alive(), "a step waits for tensors that are lost"
        assert thread.error is None and self.network.crashes == []
        for name in ("w0", "ps0", "ps1"):
            self.network.kill(name)
        self.network.run(until=until_s + 1.0)


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


def test_a_sender_that_dies_before_it_could_send_ends_the_step() -> None:
    """ps0 has ended its part and dies while its tensors wait for a connection to ps1; only the master knows both."""
    servers = {"w0": (CLUSTER, "worker", 0), "ps0": (CLUSTER, "ps", 0), "ps1": (CLUSTER, "ps", 1)}
    world = World(servers, Sever(("ps0", "ps1"), at=0.5), Kill("ps0", at=0.64))

    def before(step: int) -> None:
        current_process().sleep(0.6 * step)

    world.run(("/job:ps/task:0", "/job:ps/task:1"), 2, before=before)
    assert [type(outcome) is str for outcome in world.outcomes] == [False, True]
    assert "Tensors of /job:ps/replica:0/task:0" in world.outcomes[1]
    assert "to /job:ps/replica:0/task:1" in world.outcomes[1]


def test_tensors_that_are_dropped_because_no_connection_was_made_end_their_step() -> None:
    """ps0 has ended its part when it gives up to connect to ps1, which waits for the tensors."""
    servers = {"w0": (CLUSTER, "worker", 0), "ps0": (CLUSTER, "ps", 0), "ps1": (CLUSTER, "ps", 1)}
    world = World(servers, Sever(("ps0", "ps1"), at=0.0, until=5.0))

    def before(step: int) -> None:
        if step == 1:
            current_process().sleep(6.0)

    world.run(("/job:ps/task:0", "/job:ps/task:1"), 2, before=before)
    assert [type(outcome) is str for outcome in world.outcomes] == [True, False]
    assert "/job:ps/replica:0/task:0 could not send tensors" in world.outcomes[0]
    assert "/job:ps/replica:0/task:1 at " in world.outcomes[0]


def test_tensors_that_are_dropped_before_a_restarted_task_is_reached_end_their_step() -> None:
    """ps1 is another process than the one that ps0 knew; only w0 reaches it, and begins a step there."""
    servers = {"w0": (CLUSTER, "worker", 0), "ps0": (CLUSTER, "ps", 0), "ps1": (CLUSTER, "ps", 1)}
    world = World(servers, Sever(("ps0", "ps1"), at=0.5, until=6.0), Kill("ps1", at=1.0))
    network = world.network
    network.call_later(2.0, lambda: network.host("ps1").run(lambda: tf.train.Server(*servers["ps1"])))

    def before(step: int) -> None:
        current_process().sleep(3.0 if step in (1, 3) else 0.0)

    world.run(("/job:ps/task:0", "/job:ps/task:1"), 4, before=before)
    assert [type(outcome) is str for outcome in world.outcomes] == [False, True, True, False]
    assert "was restarted" in world.outcomes[1]
    assert "/job:ps/replica:0/task:0 could not send" in world.outcomes[2]


def test_tensors_that_can_never_be_sent_end_their_step() -> None:
    """ps0 cannot connect to ps1, as behind a firewall. Only the master reaches both."""
    servers = {"w0": (CLUSTER, "worker", 0), "ps0": (CLUSTER, "ps", 0), "ps1": (CLUSTER, "ps", 1)}
    world = World(servers, Sever(("ps0", "ps1"), at=0.0, until=1e9))
    world.run(("/job:ps/task:0", "/job:ps/task:1"), 2)
    for outcome in world.outcomes:
        assert "/job:ps/replica:0/task:0 could not send tensors" in outcome
        assert "/job:ps/replica:0/task:1, which waits for them" in outcome


def test_a_receiver_that_cannot_be_told_does_not_wait_for_ever() -> None:
    """ps0 has ended its part when its connection to ps1 breaks for good. The RunGraph for ps1 comes later."""
    servers = {"w0": (CLUSTER, "worker", 0), "ps0": (CLUSTER, "ps", 0), "ps1": (CLUSTER, "ps", 1)}
    faults = Drop(("ps0", "ps1"), "SendTensors", nth=2), Delay(("w0", "ps1"), "RunGraph", nth=2, seconds=1.0)
    world = World(servers, *faults, Sever(("ps0", "ps1"), at=2.5, until=1e9))

    def before(step: int) -> None:
        if step == 1:
            current_process().sleep(2.0 - current_process().now())

    world.run(("/job:ps/task:0", "/job:ps/task:1"), 2, before=before, until_s=400.0)
    assert [type(outcome) is str for outcome in world.outcomes] == [False, True]
    assert "/job:ps/replica:0/task:0 could not send tensors" in world.outcomes[1]
    assert "For 300 s it could not be told" in world.outcomes[1]


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
