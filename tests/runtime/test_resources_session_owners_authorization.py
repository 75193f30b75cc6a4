"""Sessions and graphs of others: only the process that opened a session may use it."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

import tfmini as tf
from tfmini.graph.operation import node_of
from tfmini.rpc import messages as m
from tfmini.rpc.endpoint import Endpoint
from tfmini.rpc.keys import admit, generate_keys, load_keys
from tfmini.rpc.peer import Peer, State
from tfmini.rpc.reactor import get_reactor
from tfmini.runtime import resources
from tfmini.runtime.client.answer import Answer
from tfmini.runtime.resources import SessionOwners

NOTHING: dict[str, list[Any]] = {table: [] for table in ("nodes", "places", "sends", "receives", "feeds", "fetches")}


def registration(session: str, nodes: Sequence[Any] = ()) -> m.RegisterGraph:
    """Asks a worker to register a graph without sends and receives."""
    return m.RegisterGraph(session, {**NOTHING, "nodes": list(nodes)}, True, False)


class FakePeer:
    """One connection of a task or client."""

    state, why = State.READY, ""

    def __init__(self, task: str, incarnation: int, key: bytes = b"") -> None:
        self.task, self.identity = task, (task, incarnation, key)

    def on_lost(self, callback: Any) -> Callable[[], None]:
        return lambda: None


def test_a_stranger_is_refused_and_the_owner_is_not() -> None:
    owners = SessionOwners(get_reactor())
    owners.adopt("a", FakePeer("/job:worker/replica:0/task:0", 5), print)
    owners.adopt("b", FakePeer("", 7), print)
    owners.check("a", FakePeer("/job:worker/replica:0/task:0", 5))  # on another connection
    for handle, stranger, owner in [
        ("a", FakePeer("/job:worker/replica:0/task:0", 6), "/job:worker/replica:0/task:0"),
        ("a", FakePeer("", 5), "/job:worker/replica:0/task:0"),
        ("b", FakePeer("", 8), "another client"),
        ("b", FakePeer("", 7, b"another key"), "another client"),
        ("unowned", FakePeer("", 7), "a client in the process of this task"),
    ]:
        with pytest.raises(tf.errors.PermissionDeniedError, match=f"was opened by {owner}, not by"):
            owners.check(handle, stranger)
    owners.release("a")
    with pytest.raises(tf.errors.PermissionDeniedError):
        owners.check("a", FakePeer("/job:worker/replica:0/task:0", 5))


def test_a_task_that_has_another_key_is_not_the_owner_that_has_restarted() -> None:
    dropped: list[str] = []
    owners = SessionOwners(get_reactor())
    owner = FakePeer("/job:worker/replica:0/task:0", 5, b"key")
    owner.state = State.LOST
    owners.adopt("a", owner, dropped.append)
    owners.peer_ready(FakePeer("/job:worker/replica:0/task:0", 6, b"another key"))
    assert not dropped
    owners.peer_ready(FakePeer("/job:worker/replica:0/task:0", 6, b"key"))
    assert dropped
    owners.close()


def ask(endpoint: Endpoint, target: str, request: Any) -> Any:
    answer: Answer[Any] = Answer(get_reactor())
    endpoint.peer(target.replace("grpc://", "tcp://")).call(request, answer.answered, timeout_s=30)
    return answer.result()


@pytest.fixture
def clients() -> Iterator[list[Endpoint]]:
    endpoints = [Endpoint(get_reactor(), "", 11), Endpoint(get_reactor(), "", 12)]
    yield endpoints
    for endpoint in endpoints:
        endpoint.close()


def test_a_server_that_stops_does_not_take_owners_for_strangers(
    clients: list[Endpoint], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A request may come between the end of its sessions and that of its connections (schedule 1004915)."""
    with tf.train.Server.create_local_server() as server:
        graph = [node_of(tf.constant(2.0, name="c").op).to_wire()]
        handle = ask(clients[0], server.target, m.CreateSession(graph, b"", server.target)).session_handle
        with monkeypatch.context() as patch:
            patch.setattr(server.endpoint, "close", lambda reason: None)
            server.stop()
        with pytest.raises(tf.errors.UnavailableError, match="is shutting down"):
            ask(clients[0], server.target, m.RunStep(handle, (), (), ("c:0",), (), b""))
        server.endpoint.close("has stopped")


def test_a_client_cannot_use_the_session_of_another(clients: list[Endpoint]) -> None:
    owner, stranger = clients
    graph = [node_of(tf.constant(2.0, name="c").op).to_wire()]
    run = ("c:0",)
    with tf.train.Server.create_local_server() as server:
        handle = ask(owner, server.target, m.CreateSession(graph, b"", server.target)).session_handle
        # The first step opens the session on the worker.
        assert ask(owner, server.target, m.RunStep(handle, (), (), run, (), b"")).values[0] == 2.0
        for request in [
            m.ExtendSession(handle, [], 1),
            m.RunStep(handle, (), (), run, (), b""),
            m.ListDevices(handle),
            m.DescribeWait(handle, (), run, ()),
            registration(handle),
            m.DeleteWorkerSession(handle),
            m.CreateWorkerSession(handle, False, {}, ""),
            m.CloseSession(handle),
        ]:
            with pytest.raises(tf.errors.PermissionDeniedError, match="opened by another client"):
                ask(stranger, server.target, request)
        assert ask(owner, server.target, m.RunStep(handle, (), (), run, (), b"")).values[0] == 2.0
        ask(owner, server.target, m.CloseSession(handle))


def test_a_client_cannot_use_the_graph_of_another(clients: list[Endpoint]) -> None:
    owner, stranger = clients
    with tf.train.Server.create_local_server() as server:
        ask(owner, server.target, m.CreateWorkerSession("s", False, {}, ""))
        numbers = [ask(owner, server.target, registration("s")).graph_handle for _ in range(20)]
        assert min(numbers) > 1 << 32 and len(set(numbers)) == 20  # the probability of a smaller one is 1e-8
        run = m.RunGraph(numbers[0], 5, ())
        for request in [run, m.DeregisterGraph(numbers[0]), m.DeleteWorkerSession("s")]:
            with pytest.raises(tf.errors.PermissionDeniedError, match="opened by another client"):
                ask(stranger, server.target, request)
        with pytest.raises(tf.errors.AbortedError, match="Graph handle is not found"):
            ask(stranger, server.target, m.RunGraph(1, 6, ()))
        ask(owner, server.target, run)


def test_a_client_cannot_take_the_place_of_a_step_of_another(clients: list[Endpoint]) -> None:
    owner, stranger = clients
    with tf.Graph().as_default() as graph, tf.device("/job:local/task:0/device:CPU:0"):
        tf.FIFOQueue(1, [tf.int32], name="q").dequeue(name="d")
        nodes = [node_of(operation).to_wire() for operation in graph.get_operations()]
    with tf.train.Server.create_local_server() as server:
        graphs = []
        for client, handle in ((owner, "s"), (stranger, "t")):
            ask(client, server.target, m.CreateWorkerSession(handle, False, {}, ""))
            graphs.append(ask(client, server.target, registration(handle, nodes)).graph_handle)
        peer = owner.peer(server.target.replace("grpc://", "tcp://"))
        answer: Answer[Any] = Answer(get_reactor())
        peer.call(m.RunGraph(graphs[0], 5, ()), answer.answered, timeout_s=30)
        with pytest.raises(tf.errors.AlreadyExistsError, match="Step 5 runs on"):
            ask(owner, server.target, m.RunGraph(graphs[0], 5, ()))
        with pytest.raises(tf.errors.PermissionDeniedError):
            ask(stranger, server.target, m.RunGraph(graphs[1], 5, ()))
        assert server.worker.runs[5].graph.session_handle == "s"
        server.worker.abort_step(5, tf.errors.AbortedError(None, None, "over"))
        with pytest.raises(tf.errors.AbortedError, match="over"):
            answer.result()


def test_a_large_graph_is_compiled_in_the_pool(clients: list[Endpoint], monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread that answers other tasks, with heartbeats too, is free meanwhile."""
    nodes = [node_of(tf.constant(1.0, name=f"c{i}").op).to_wire() for i in range(1000)]
    with tf.train.Server.create_local_server() as server:
        threads: list[str] = []
        genuine = server.worker.register_graph

        def register(*args: Any) -> Any:
            threads.append(threading.current_thread().name)
            return genuine(*args)

        monkeypatch.setattr(server.worker, "register_graph", register)
        ask(clients[0], server.target, m.CreateWorkerSession("s", False, {}, ""))
        handle = ask(clients[0], server.target, registration("s", nodes)).graph_handle
        assert handle in server.worker.graphs and threads[0].startswith("tfmini-kernels")
        with pytest.raises(tf.errors.InvalidArgumentError, match="The places of the graph have a malformed row"):
            ask(clients[0], server.target, m.RegisterGraph("s", {"nodes": nodes}, True, False))


def test_a_client_cannot_use_a_session_inside_the_server(clients: list[Endpoint]) -> None:
    with tf.train.Server.create_local_server() as server, tf.Session(server.target) as session:
        session.run(tf.constant(1.0))
        (handle,) = server.master.sessions
        with pytest.raises(tf.errors.PermissionDeniedError, match="a client in the process of this task"):
            ask(clients[0], server.target, m.CloseSession(handle))
        assert session.run(tf.constant(2.0)) == 2.0


def test_an_incarnation_is_no_proof_without_the_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that knows the incarnation of another one has still a key of its own."""
    cluster = load_keys(generate_keys(str(tmp_path), "cluster"))
    guest = load_keys(generate_keys(str(tmp_path), "guest", cluster.public))
    admit(cluster.file, guest.public, "mallory")
    monkeypatch.setenv("TFMINI_KEYS", cluster.file)
    owner, thief = Endpoint(get_reactor(), "", 11), Endpoint(get_reactor(), "", 11, keys=guest)
    with tf.train.Server.create_local_server() as server:
        try:
            handle = ask(owner, server.target, m.CreateSession([], b"", server.target)).session_handle
            with pytest.raises(tf.errors.PermissionDeniedError, match="opened by another client"):
                ask(thief, server.target, m.CloseSession(handle))
            assert handle in server.master.sessions
            ask(thief, server.target, m.Reset((), ()))  # every client of the cluster may, and is named
            with pytest.raises(tf.errors.AbortedError, match="reset by a client at 127.0.0.1 with the key of mallory"):
                ask(owner, server.target, m.CloseSession(handle))
            assert not server._owners._sessions
        finally:
            owner.close()
            thief.close()


def test_a_reset_is_logged_and_counted_and_ends_steps_with_its_reason(
    clients: list[Endpoint], caplog: pytest.LogCaptureFixture
) -> None:
    with tf.train.Server.create_local_server() as server:
        dequeue = tf.FIFOQueue(1, [tf.float32], [[]]).dequeue()
        found: list[Exception] = []

        def wait() -> None:
            with pytest.raises(tf.errors.AbortedError) as info:
                session.run(dequeue)
            found.append(info.value)

        session = tf.Session(server.target)
        thread = threading.Thread(target=wait)
        thread.start()
        limit = time.monotonic() + 60
        while not server.worker.runs:
            assert time.monotonic() < limit
        with caplog.at_level(logging.WARNING):
            ask(clients[0], server.target, m.Reset((), ()))
        thread.join(60)
        (error,) = found
        assert "was reset by a client at 127.0.0.1" in str(error) and "Make a new session" in str(error)
        assert server.master.resets == server.worker.cleanups == 1
        assert "reset by a client at 127.0.0.1" in caplog.text and "which closes 1 sessions" in caplog.text
        assert "clears containers: the default one" in caplog.text
        with pytest.raises(tf.errors.AbortedError, match="was reset by a client at"):
            session.run(dequeue)
        tf.Session.reset(server.target, ["some"])
        assert "reset by a client in the process of /job:local/replica:0/task:0" in caplog.text
        ask(clients[0], server.target, m.CleanupAll(("other",)))
        assert server.worker.cleanups == 3 and "['other']" in caplog.text


def test_a_reset_of_this_process_ends_its_sessions_with_its_reason() -> None:
    x = tf.constant(1.0)
    with tf.Session() as session:
        session.run(x)
        tf.Session.reset("")
        with pytest.raises(tf.errors.AbortedError, match="was reset by its own process"):
            session.run(x)


def test_sessions_of_a_client_are_bounded(clients: list[Endpoint], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resources, "SESSIONS_OF_CLIENT", 3)
    greedy, other = clients
    with tf.train.Server.create_local_server() as server:
        create = m.CreateSession([], b"", server.target)
        handles = [ask(greedy, server.target, create).session_handle for _ in range(3)]
        with pytest.raises(tf.errors.ResourceExhaustedError, match="client has 3 open sessions at /job:local.*Close"):
            ask(greedy, server.target, create)
        with pytest.raises(tf.errors.ResourceExhaustedError, match="3 open sessions"):
            ask(greedy, server.target, m.CreateWorkerSession("w", False, {}, ""))
        assert len(server.master.sessions) == 3 and not server.worker.sessions
        ask(other, server.target, create)
        ask(greedy, server.target, m.CloseSession(handles[0]))
        ask(greedy, server.target, create)


def test_sessions_of_all_clients_are_bounded(clients: list[Endpoint], monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that connects anew has another identity and no more room."""
    monkeypatch.setattr(resources, "SESSIONS_OF_SERVER", 3)
    with tf.train.Server.create_local_server() as server:
        create = m.CreateSession([], b"", server.target)
        handles = [ask(clients[i % 2], server.target, create).session_handle for i in range(3)]
        for client in clients:
            with pytest.raises(tf.errors.ResourceExhaustedError, match="has 3 open sessions of all its clients"):
                ask(client, server.target, create)
        ask(clients[0], server.target, m.CloseSession(handles[0]))
        ask(clients[1], server.target, create)


def test_a_client_that_reads_no_answers_starts_no_steps(
    clients: list[Endpoint], monkeypatch: pytest.MonkeyPatch
) -> None:
    with tf.train.Server.create_local_server() as server:
        handle = ask(clients[0], server.target, m.CreateSession([], b"", server.target)).session_handle
        run = m.RunStep(handle, (), (), (), (), b"")
        with pytest.raises(tf.errors.InvalidArgumentError, match="at least one target"):
            ask(clients[0], server.target, run)
        monkeypatch.setattr(Peer, "backlog", property(lambda peer: 2 << 30))
        with pytest.raises(tf.errors.ResourceExhaustedError, match="2147483648 bytes of answers wait for client"):
            ask(clients[0], server.target, run)
