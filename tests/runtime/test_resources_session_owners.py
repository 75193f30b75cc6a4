"""What clients and masters that die leave behind, and what it takes to keep a session."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

import tfmini as tf
from tests.rpc.task_processes import until
from tfmini.launch.local import reserve_cluster
from tfmini.launch.supervision import TaskId
from tfmini.rpc import messages as m
from tfmini.rpc.peer import State
from tfmini.runtime import resources
from tfmini.runtime.resources import SessionOwners, hold
from tfmini.testing import ProcessCluster


class Clock:
    """Timers that a test fires itself."""

    def __init__(self) -> None:
        self.due: list[tuple[Callable[..., Any], tuple[Any, ...]]] = []

    def call_later(self, delay: float, call: Callable[..., Any], *args: Any) -> Any:
        entry = (call, args)
        self.due.append(entry)
        return SimpleNamespace(cancel=lambda: entry in self.due and self.due.remove(entry))

    def fire(self) -> None:
        for call, args in self.due[:]:
            self.due.remove((call, args))
            call(*args)


class FakePeer:
    """One connection of a task or client."""

    def __init__(self, task: str, incarnation: int, key: bytes = b"") -> None:
        self.task, self.identity, self.state, self.why = task, (task, incarnation, key), State.READY, ""
        self.callbacks: list[Callable[[Any, str], None]] = []

    def on_lost(self, callback: Callable[[Any, str], None]) -> Callable[[], None]:
        self.callbacks.append(callback)
        return lambda: self.callbacks.remove(callback)

    def lose(self, why: str = "gone") -> None:
        self.state, self.why = State.LOST, why
        for callback in self.callbacks[:]:
            callback(self, why)


@pytest.fixture
def world() -> Any:
    clock = Clock()
    world = SimpleNamespace(clock=clock, owners=SessionOwners(clock), dropped=[])
    world.adopt = lambda handle, peer: world.owners.adopt(handle, peer, lambda why: world.dropped.append((handle, why)))
    return world


def test_sessions_go_when_their_owner_does_not_come_back(world: Any) -> None:
    peer, other = FakePeer("", 1), FakePeer("", 2)
    world.adopt("a", peer)
    world.adopt("b", peer)
    world.adopt("c", other)
    peer.lose("end of file")
    assert not world.dropped
    world.clock.fire()
    assert [handle for handle, _ in world.dropped] == ["a", "b"]
    assert "the client that opened it was lost 60 s ago and has not come back: end of file" in world.dropped[0][1]
    assert not peer.callbacks and other.callbacks


def test_an_owner_that_comes_back_keeps_its_sessions(world: Any) -> None:
    for _ in range(3):
        peer = FakePeer("/job:worker", 5)
        world.owners.peer_ready(peer)
        world.adopt("a", peer)
        peer.lose()
        assert len(world.clock.due) == 1
    again = FakePeer("/job:worker", 5)
    world.owners.peer_ready(again)
    assert not world.clock.due
    again.lose()
    world.clock.fire()
    assert len(world.dropped) == 1


def test_one_of_two_connections_keeps_a_session(world: Any) -> None:
    one, two = FakePeer("t", 5), FakePeer("t", 5)
    world.adopt("a", one)
    world.owners.peer_ready(two)
    one.lose()
    assert not world.clock.due
    two.lose()
    assert len(world.clock.due) == 1


def test_a_restarted_owner_is_not_waited_for(world: Any) -> None:
    peer = FakePeer("t", 5)
    world.adopt("a", peer)
    peer.lose()
    world.owners.peer_ready(FakePeer("u", 7))
    assert not world.dropped
    world.owners.peer_ready(FakePeer("t", 6))
    assert world.dropped == [("a", "t was restarted.")]
    assert not world.clock.due


def test_a_restarted_owner_whose_loss_is_noticed_later_is_not_waited_for(world: Any) -> None:
    peer = FakePeer("t", 5)
    world.owners.peer_ready(peer)
    world.adopt("a", peer)
    world.owners.peer_ready(FakePeer("t", 6, b"another key"))
    world.owners.peer_ready(FakePeer("t", 6))
    assert not world.dropped  # both are up
    peer.lose("silent")
    assert world.dropped == [("a", "t was restarted.")]
    assert not world.clock.due


def test_servers_of_one_name_and_different_clusters_replace_none(world: Any) -> None:
    owners = world.owners = SessionOwners(world.clock, "t")
    peer = FakePeer("t", 5)
    world.adopt("a", peer)
    owners.peer_ready(FakePeer("t", 6))
    peer.lose()
    owners.peer_ready(FakePeer("t", 7))
    assert not world.dropped and len(world.clock.due) == 1


def test_sessions_of_different_clients_are_distinguished(world: Any) -> None:
    peer = FakePeer("", 5)
    world.adopt("a", peer)
    peer.lose()
    world.owners.peer_ready(FakePeer("", 6))
    assert not world.dropped


def test_a_peer_that_is_lost_before_it_is_held_is_connected_anew() -> None:
    peer, calls = FakePeer("/job:worker/task:0", 1), list[Any]()
    held: Any = peer
    held.call = lambda request, *args, **options: calls.append(request)
    peer.lose()
    hold(held)
    assert calls == [m.GetStatus()]


def test_an_owner_that_is_lost_at_once_is_noticed(world: Any) -> None:
    peer = FakePeer("", 5)
    peer.lose()
    world.adopt("a", peer)
    world.clock.fire()
    assert [handle for handle, _ in world.dropped] == ["a"]


def test_closed_sessions_are_forgotten(world: Any) -> None:
    peer = FakePeer("", 5)
    world.adopt("a", peer)
    world.adopt("b", peer)
    world.owners.release("a")
    world.owners.release("a")
    peer.lose()
    world.owners.release("b")
    world.clock.fire()
    assert not world.dropped and not peer.callbacks


# ---------------------------------------------------------------------------------------------
# With processes
# ---------------------------------------------------------------------------------------------


@pytest.fixture
def short_grace(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(resources, "GRACE_S", 0.2)
    yield


_CLIENT = """
import sys, tfmini as tf
with tf.device("/job:local/task:0"):
    queue = tf.FIFOQueue(10, [tf.float32], [[]]); put = queue.enqueue([1.0])
session = tf.Session(sys.argv[1])
session.run(put)
print("ran", flush=True)
sys.stdin.read()
"""


def test_a_killed_client_leaves_nothing_on_its_server(short_grace: None) -> None:
    with tf.train.Server.create_local_server() as server:
        command = [sys.executable, "-c", _CLIENT, server.target]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as client:
            assert client.stdout is not None
            assert client.stdout.readline() == "ran\n"
            assert len(server.master.sessions) == len(server.worker.sessions) == 1
            assert server.worker.graphs and server.worker.resources.statistics()["local"]
            client.send_signal(signal.SIGKILL)
        until(lambda: not server.master.sessions, "the end of the session")
        until(lambda: not server.worker.sessions and not server.worker.graphs, "its end on the worker")
        until(lambda: not any(server.worker.resources.statistics()["local"].values()), "the end of its queue")


def test_a_killed_master_leaves_nothing_on_a_ps_but_variables(short_grace: None) -> None:
    with ProcessCluster(ps=1, workers=1, local=("ps", 0)) as cluster:
        with tf.device("/job:ps/task:0"):
            v = tf.Variable(1.0, name="v")
        session = tf.Session(cluster.target("worker", 0))
        session.run(v.initializer)
        worker = cluster.server.worker
        assert worker.sessions and worker.graphs
        cluster.kill("worker", 0)
        until(lambda: not worker.sessions and not worker.graphs, "the end of the session")
        assert sum(worker.resources.statistics()["ps"].values()) == 1
        session.close()


def test_a_session_outlasts_a_broken_connection() -> None:
    with ProcessCluster(ps=1, workers=0, local=("ps", 0)) as cluster:
        server = cluster.server
        command = [sys.executable, "-c", _STAYING, server.target]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as client:
            assert client.stdout is not None and client.stdin is not None
            assert client.stdout.readline() == "1.0\n"
            (handle,) = server.master.sessions
            for link in server.endpoint.links():
                link.end("cut by a test")
            until(server.endpoint.links, "another connection")  # without the client having anything to say
            client.stdin.write("go on\n")
            client.stdin.flush()
            assert client.stdout.readline() == "2.0\n"
            assert list(server.master.sessions) == [handle]
            client.stdin.close()
        until(lambda: not server.master.sessions, "the end of the session")


_STAYING = """
import sys, tfmini as tf
v = tf.Variable(0.0); add = v.assign_add(1.0)
with tf.Session(sys.argv[1]) as session:
    session.run(v.initializer)
    print(session.run(add), flush=True)
    sys.stdin.readline()
    print(session.run(add), flush=True)
    sys.stdin.read()
"""


# ---------------------------------------------------------------------------------------------
# Plans that do not come about, devices that nobody has seen
# ---------------------------------------------------------------------------------------------


def free_cluster(*tasks: tuple[str, int]) -> Any:
    """A ClusterSpec whose ports this process can bind."""
    reserved = reserve_cluster([TaskId(*task) for task in tasks])
    for listener in reserved.listeners.values():
        listener.close()
    return reserved.spec


def test_a_graph_that_is_registered_too_late_is_withdrawn() -> None:
    """One task refuses its part; the other's answer comes when the plan has failed."""
    spec = free_cluster(("ps", 0), ("ps", 1), ("worker", 0))
    with (
        tf.train.Server(spec, "ps", 0) as refusing,
        tf.train.Server(spec, "ps", 1) as slow,
        tf.train.Server(spec, "worker", 0) as master,
        tf.Session(master.target) as session,
    ):
        held: list[Callable[[], None]] = []
        refused: list[Callable[[Any], None]] = []
        registered: list[int] = []  # how many graphs there were when the answer went out
        genuine = slow.endpoint.handlers[m.RegisterGraph]

        def hold(peer: Any, request: Any, respond: Callable[[Any], None]) -> None:
            def answer(reply: Any) -> None:
                registered.append(len(slow.worker.graphs))
                respond(reply)

            held.append(lambda: genuine(peer, request, answer))
            refuse_when_both_are_asked()

        def refuse(peer: Any, request: Any, respond: Callable[[Any], None]) -> None:
            refused.append(respond)
            refuse_when_both_are_asked()

        def refuse_when_both_are_asked() -> None:
            if held and refused:
                refused.pop()(tf.errors.InvalidArgumentError.of("not this one"))

        slow.endpoint.handlers[m.RegisterGraph] = hold
        refusing.endpoint.handlers[m.RegisterGraph] = refuse
        with tf.device("/job:ps/task:0"):
            x = tf.random_uniform([2])
        with tf.device("/job:ps/task:1"):
            y = x + 1
        with pytest.raises(tf.errors.InvalidArgumentError, match="not this one"):
            session.run(y)
        held.pop()()
        until(lambda: registered == [1], "the late answer")
        until(lambda: not slow.worker.graphs, "the withdrawal")


def test_devices_that_only_their_task_knows_are_asked_for() -> None:
    two = tf.ConfigProto(device_count={"CPU": 2})
    spec = free_cluster(("ps", 0), ("worker", 0))
    with tf.train.Server(spec, "ps", 0, config=two), tf.train.Server(spec, "worker", 0) as master:
        with tf.device("/job:ps/task:0/device:CPU:1"):
            c = tf.random_uniform([1])
        with tf.Session(master.target) as session:
            assert session.run(c).shape == (1,)
        with tf.device("/job:ps/task:0/device:CPU:7"):
            d = tf.random_uniform([1])
        with tf.Session(master.target) as session, pytest.raises(tf.errors.InvalidArgumentError, match="CPU:1"):
            session.run(d)


def test_devices_are_listed_to_a_remote_client_too() -> None:
    with ProcessCluster(ps=1, workers=1, program=_TWO_CPUS) as cluster:
        with tf.Session(cluster.target("worker", 0)) as session:
            assert session.run(tf.constant(1.0)) == 1.0
            with tf.device("/job:ps/task:0/device:CPU:1"):
                c = tf.random_uniform([1])
            assert session.run(c).shape == (1,)
        with tf.Session(cluster.target("worker", 0)) as session:
            assert session.run(c).shape == (1,)


_TWO_CPUS = """
import json, sys
import tfmini as tf
config = tf.ConfigProto(device_count={"CPU": 2})
tf.train.Server(json.loads(sys.argv[1]), job_name=sys.argv[2], task_index=int(sys.argv[3]), config=config).join()
"""
