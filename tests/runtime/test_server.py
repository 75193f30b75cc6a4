"""Servers in one process: constructor, errors, life."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import threading
import types
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import tfmini as tf
from tests.polling import poll
from tfmini.launch.local_cluster import TASK_PROGRAM
from tfmini.launch.supervision import TaskId
from tfmini.rpc import messages as m
from tfmini.rpc.keys import generate_keys
from tfmini.rpc.peer import Peer
from tfmini.rpc.reactor import get_reactor
from tfmini.runtime.master import master_session
from tfmini.runtime.master.registration import Registration
from tfmini.runtime.process import current_process
from tfmini.testing import ProcessCluster


def test_a_local_server_runs_a_session() -> None:
    with tf.train.Server.create_local_server() as server, tf.Session(server.target) as session:
        assert session.run(tf.constant(2.0) + 1.0) == 3.0
        names = [d.name for d in session.list_devices()]
        assert names == ["/job:local/replica:0/task:0/device:CPU:0"]


def test_sessions_of_one_server_share_variables() -> None:
    v = tf.Variable(1.0, name="v")
    with tf.train.Server.create_local_server() as server:
        with tf.Session(server.target) as one, tf.Session(server.target) as two:
            one.run(v.initializer)
            assert two.run(v) == 1.0
        isolated = tf.ConfigProto(isolate_session_state=True)
        with tf.Session(server.target, config=isolated) as three, pytest.raises(tf.errors.FailedPreconditionError):
            three.run(v)


@pytest.mark.parametrize(
    ("arguments", "kind", "text"),
    [
        (({"a": ["localhost:0"], "b": ["localhost:0"]},), ValueError, "Must specify an explicit `job_name`."),
        (({"a": ["localhost:0", "localhost:1"]},), ValueError, "Must specify an explicit `task_index`."),
        (({"a": ["localhost:0"]}, "a", 3), tf.errors.InvalidArgumentError, 'Task 3 was not defined in job "a"'),
        (({"a": ["localhost:0"]}, "zz", 0), tf.errors.InternalError, 'Job "zz" was not defined in cluster'),
        (
            ({"a": ["localhost"]},),
            tf.errors.InvalidArgumentError,
            'Could not parse port for local server from "localhost"',
        ),
        (({"a": ["localhost:0"]}, "a", 0, "carrier-pigeon"), tf.errors.NotFoundError, "No server factory registered"),
        ((3,), TypeError, "Could not convert `server_or_cluster_def`"),
        (({"a": ["localhost:0"]}, "a", "0"), TypeError, "got '0' (str); write int('0'), or 0 without quotes in TF_C"),
        (({"a": ["localhost:0"]}, "a", 0.5), TypeError, "task_index must be an integer, but got 0.5 (float)."),
    ],
)
def test_invalid_definitions_are_refused(arguments: tuple, kind: type[Exception], text: str) -> None:
    with pytest.raises(kind) as info:
        tf.train.Server(*arguments)
    assert text in str(info.value)


def test_a_port_in_use_is_named() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(tf.errors.UnknownError, match="Could not start gRPC server") as info:
            tf.train.Server({"a": [f"127.0.0.1:{port}"]})
        assert str(port) in str(info.value)


def test_stop_ends_join_and_frees_the_port() -> None:
    server = tf.train.Server({"a": ["localhost:0"]})
    address = server.target.partition("://")[2]
    joined = threading.Thread(target=server.join)
    joined.start()
    server.stop()
    joined.join(60)
    assert not joined.is_alive()
    with tf.train.Server({"a": [address]}):
        pass
    with pytest.raises(tf.errors.FailedPreconditionError, match="Server has stopped."):
        server.start()


def test_a_server_can_start_and_stop_many_times() -> None:
    def descriptors() -> int:
        return len(os.listdir("/proc/self/fd"))

    with tf.train.Server.create_local_server():
        pass
    before = descriptors()
    for _ in range(20):
        with tf.train.Server.create_local_server():
            pass
    # ZeroMQ's reaper thread closes sockets a moment after they were given up.
    poll(lambda: descriptors() <= before + 3, "the end of all but a few sockets")


def test_keys_of_the_environment_let_tasks_in_and_nobody_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TFMINI_KEYS", generate_keys(str(tmp_path)))
    with tf.device("/job:ps/task:0"):
        v = tf.Variable(1.0)
    with ProcessCluster(ps=1, workers=1, local=("worker", 0)) as cluster:
        with tf.Session(cluster.target("worker", 0)) as session:
            session.run(v.initializer)
            assert session.run(v) == 1.0
        for name in ("TFMINI_KEYS", "TFMINI_INSECURE"):
            monkeypatch.setenv(name, "" if name == "TFMINI_KEYS" else "1")
            current_process().client = None  # as in a process of its own
            # Without a limit of its own the session waits for minutes for a server that is not up yet.
            refused = pytest.raises(tf.errors.UnauthenticatedError, match="TFMINI_KEYS to the key file of the server")
            with refused, tf.Session(cluster.target("ps", 0)) as stranger:
                stranger.run(v)
        current_process().client = None


def test_clusters_that_overlap_by_mistake_are_told_apart() -> None:
    """A worker of another ClusterSpec would share the variables of this cluster's ps."""
    with socket.socket() as taken, tf.train.Server({"ps": ["localhost:0"], "worker": ["localhost:1"]}, "ps", 0) as ps:
        taken.bind(("localhost", 0))
        address = ps.target.removeprefix("grpc://")
        other = {"ps": [address], "worker": [f"localhost:{taken.getsockname()[1]}"]}
        taken.close()
        with tf.train.Server(other, "worker", 0) as worker, tf.Session(worker.target) as session:
            with tf.device("/job:ps/task:0"):
                v = tf.constant(1.0) + 1.0
            text = f"worker/replica:0/task:0 is at {other['worker'][0]} in its own ClusterSpec and at localhost:1"
            with pytest.raises(tf.errors.FailedPreconditionError, match=text):
                session.run(v)


def test_a_session_that_begins_after_its_server_was_stopped_says_so() -> None:
    server = tf.train.Server.create_local_server()
    session = tf.Session(server.target)
    server.stop()
    with pytest.raises(tf.errors.UnavailableError, match="/job:local/replica:0/task:0 has been stopped"):
        session.run(tf.constant(1.0))
    session.close()


def test_a_target_without_a_server_is_named() -> None:
    c = tf.constant(1.0)
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        target = f"grpc://127.0.0.1:{unused.getsockname()[1]}"
        session = tf.Session(target, config=tf.ConfigProto(operation_timeout_in_ms=400))
        with session, pytest.raises(tf.errors.UnavailableError, match="Start a tf.train.Server there"):
            session.run(c)


def test_an_unknown_device_lists_the_known_ones() -> None:
    with tf.device("/job:ps/task:7"):
        c = tf.constant(1.0)
    with tf.train.Server.create_local_server() as server, tf.Session(server.target) as session:
        with pytest.raises(tf.errors.InvalidArgumentError, match="available devices are .*job:local") as info:
            session.run(c)
        assert "Const" in str(info.value)


def test_conflicting_colocation_names_both() -> None:
    with tf.device("/cpu:0"):
        a = tf.Variable(1.0, name="a")
    with tf.device("/job:other/task:1"):
        b = tf.Variable(1.0, name="b")
    with tf.colocate_with(a.op), tf.colocate_with(b.op):
        c = tf.constant(1.0, name="c")
    with (
        tf.train.Server.create_local_server() as server,
        tf.Session(server.target) as session,
        pytest.raises(tf.errors.InvalidArgumentError),
    ):
        session.run(c)


def test_a_server_def_is_parsed_as_it_was_written() -> None:
    with tf.train.Server({"w": ["localhost:0"]}, config=tf.ConfigProto(log_device_placement=False)) as server:
        definition = server.server_def
        assert definition.job_name == "w" and definition.task_index == 0


def test_join_ends_by_sigterm_where_the_exception_is_swallowed() -> None:
    """The signal may arrive inside a weak reference's callback, out of which nothing can be raised."""
    server = tf.train.Server.create_local_server()

    def swallow() -> None:
        with contextlib.suppress(BaseException):
            handler: Any = signal.getsignal(signal.SIGTERM)  # which `join` has set
            handler(signal.SIGTERM, None)

    get_reactor().call_later(0.05, swallow)
    with pytest.raises(SystemExit) as ended:
        server.join()
    assert ended.value.code == 0
    with pytest.raises(tf.errors.FailedPreconditionError, match="has stopped"):
        server.start()


def press_ctrl_c_in_join(server: tf.train.Server) -> None:
    """Not before `join` has taken over the signals: who is outside of it would be interrupted instead."""

    def press() -> None:
        if getattr(signal.getsignal(signal.SIGTERM), "__self__", None) is server:
            os.kill(os.getpid(), signal.SIGINT)
        else:
            get_reactor().call_later(0.01, press)

    get_reactor().call_later(0.01, press)


@pytest.mark.usefixtures("ctrl_c")
def test_ctrl_c_ends_join_as_sigterm_does() -> None:
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    server = tf.train.Server({"a": ["localhost:0"]})
    press_ctrl_c_in_join(server)
    with pytest.raises(SystemExit) as ended:
        server.join()
    assert ended.value.code == 0
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before


def test_join_goes_on_ignoring_sigterm() -> None:
    """A scheduler sends SIGTERM to all processes at once; a ps that its agent has shielded waits for its workers."""
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        server = tf.train.Server.create_local_server()

        def terminate() -> None:
            os.kill(os.getpid(), signal.SIGTERM)
            get_reactor().call_later(0.01, server.stop)

        get_reactor().call_later(0.01, terminate)
        server.join()
    finally:
        signal.signal(signal.SIGTERM, before)


@pytest.mark.usefixtures("ctrl_c")
def test_at_a_prompt_ctrl_c_is_a_keyboard_interrupt(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.ps1", ">>> ", raising=False)
    with tf.train.Server({"a": ["localhost:0"]}) as server:
        press_ctrl_c_in_join(server)
        with pytest.raises(KeyboardInterrupt):
            server.join()


def test_a_ps_ended_by_a_signal_does_not_run_the_code_after_join() -> None:
    program = TASK_PROGRAM.replace("server.join()", "server.join()\nprint('went on', flush=True)")
    with ProcessCluster(ps=1, workers=0, program=program) as cluster:
        cluster.wait_ready("ps", 0)
        process = cluster.processes[TaskId("ps", 0)]
        process.terminate()
        assert process.communicate(timeout=60)[0] == "" and process.returncode == 0


def test_a_step_that_was_aborted_before_it_came_runs_nothing() -> None:
    v = tf.Variable(0.0, name="v")
    update = v.assign_add(1.0)
    with tf.train.Server.create_local_server() as server, tf.Session(server.target) as session:
        session.run(v.initializer)
        session.run(update)
        graph = list(server.worker.graphs.values())[-1]
        outcomes = []
        server.worker.abort_step(777, tf.errors.CancelledError.of("given up"))
        server.worker.run_graph(graph, 777, [], lambda error, _: outcomes.append(error))
        assert isinstance(outcomes[0], tf.errors.AbortedError)
        assert session.run(v) == 1.0


def test_requests_before_the_start_are_handled_in_order_and_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    handled: list[Any] = []
    failures: list[Any] = []
    link = types.SimpleNamespace(handler_failed=lambda message, respond, error: failures.append((message, str(error))))
    peer: Any = types.SimpleNamespace(link=link)

    def handler(peer: Any, request: str, respond: Any) -> None:
        if request == "first":
            handle(peer, "third", None)  # it comes while the first one is handled
            raise ValueError("a bug")
        handled.append(request)

    monkeypatch.setattr("tfmini.runtime.server.trace_handlers", lambda master: {m.TraceStep: handler})
    server = tf.train.Server.create_local_server(start=False)
    handle: Any = server.endpoint.handlers[m.TraceStep]
    with server:
        handle(peer, "first", None)
        handle(peer, "second", None)
        server.start()
        handle(peer, "fourth", None)
    assert handled == ["second", "third", "fourth"]
    assert failures == [("first", "a bug")]


def test_closing_a_session_while_a_plan_is_made_ends_its_run(monkeypatch: pytest.MonkeyPatch) -> None:
    workers, servers = tf.test.create_local_cluster(num_workers=1, num_ps=1)
    with tf.device("/job:ps/task:0"):
        fetched = tf.random_uniform([2])

    def closed_before(*args: Any) -> Registration:
        (opened,) = workers[0].master.sessions.values()
        opened.close()
        return Registration(*args)

    session = tf.Session(workers[0].target)
    monkeypatch.setattr(master_session, "Registration", closed_before)
    with pytest.raises(tf.errors.CancelledError, match="Session::Close"):
        session.run(fetched)
    for server in [*workers, *servers]:
        server.stop()


def test_a_task_that_opens_a_session_after_it_was_closed_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    workers, servers = tf.test.create_local_cluster(num_workers=1, num_ps=1)
    with tf.device("/job:ps/task:0"):
        fetched = tf.random_uniform([2])
    call = Peer.call

    def call_late(peer: Peer, request: Any, on_reply: Any, *args: Any, **options: Any) -> Any:
        def answered(reply: Any) -> None:
            if isinstance(request, m.CreateWorkerSession):
                (opened,) = workers[0].master.sessions.values()
                opened.book.closed = True  # as `close` does before it looks for registrations
            on_reply(reply)

        return call(peer, request, answered, *args, **options)

    session = tf.Session(workers[0].target)
    monkeypatch.setattr(Peer, "call", call_late)
    with pytest.raises(tf.errors.CancelledError, match="Session::Close"):
        session.run(fetched)
    for server in [*workers, *servers]:
        server.stop()


def test_a_step_on_a_task_that_shuts_down_ends_as_on_one_that_is_lost() -> None:
    """A session that recovers waits for its restart; a cancelled step would end the training."""
    workers, servers = tf.test.create_local_cluster(num_workers=1, num_ps=1)
    with tf.device("/job:ps/task:0"):
        fetched = tf.FIFOQueue(1, tf.float32, [[]]).dequeue()
    with ThreadPoolExecutor(1) as pool, tf.Session(workers[0].target) as session:
        step = pool.submit(session.run, fetched)
        poll(lambda: servers[0].worker.runs, "the step of the other thread")
        servers[0].stop()
        with pytest.raises(tf.errors.UnavailableError, match="ps/replica:0/task:0") as caught:
            step.result(60.0)
    assert caught.value.task == "/job:ps/replica:0/task:0"
    workers[0].stop()


def test_python_functions_of_several_steps_may_wait_for_one_another() -> None:
    meeting = threading.Barrier(4, timeout=60)
    fetched = tf.py_func(lambda: float(meeting.wait() >= 0), [], tf.float64)
    with tf.train.Server.create_local_server() as server, tf.Session(server.target) as session:
        clients = [threading.Thread(target=lambda: results.append(session.run(fetched))) for _ in range(4)]
        results: list[float] = []
        for client in clients:
            client.start()
        for client in clients:
            client.join(90)
    assert results == [1.0] * 4
