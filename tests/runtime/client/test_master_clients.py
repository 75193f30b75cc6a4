"""The way to a master: threads that use a new session at the same time, and deadlines that the client keeps itself."""

from __future__ import annotations

import contextlib
import logging
import signal
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

import tfmini as tf
from tfmini.launch.local import reserve_cluster
from tfmini.launch.supervision import TaskId
from tfmini.rpc import messages as m
from tfmini.rpc.peer import Peer
from tfmini.runtime.client import answer as wait_reports
from tfmini.runtime.client import master_clients
from tfmini.runtime.client.master_clients import RemoteMaster
from tfmini.runtime.options import SessionOptions
from tfmini.testing import ProcessCluster


class Meeting:
    """A call in which two threads meet if nothing keeps them apart."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.calls = 0
        self._function = function
        self._barrier = threading.Barrier(2)

    def __call__(self, *args: Any, **options: Any) -> Any:
        self.calls += 1
        with contextlib.suppress(threading.BrokenBarrierError):
            self._barrier.wait(0.3)
        return self._function(*args, **options)


def together(*functions: Callable[[], Any]) -> None:
    """Calls functions in threads at the same time."""
    threads = [threading.Thread(target=function) for function in functions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_two_threads_open_one_session(monkeypatch: pytest.MonkeyPatch) -> None:
    meeting = Meeting(master_clients.open_session)
    monkeypatch.setattr(master_clients, "open_session", meeting)
    with tf.Session() as session:
        master: Any = session.master
        together(lambda: master.session, lambda: master.session)
    assert meeting.calls == 1


def test_a_listing_beside_the_first_graph_opens_one_remote_session(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[Any] = []

    def answer(peer: Peer, request: m.Message, on_reply: Callable[[Any], None], **options: Any) -> None:
        sent.append(request)
        replies: dict[type[m.Message], m.Message] = {
            m.CreateSession: m.CreateSessionReply("h", 0),
            m.ExtendSession: m.ExtendSessionReply(1),
            m.ListDevices: m.ListDevicesReply([]),
        }
        on_reply(replies[type(request)])

    meeting = Meeting(answer)
    monkeypatch.setattr(Peer, "call", lambda *args, **options: meeting(*args, **options))
    master = RemoteMaster("localhost:1", b"", SessionOptions())
    together(lambda: master.extend([]), master.list_devices)
    assert len([request for request in sent if isinstance(request, m.CreateSession)]) == 1


def test_the_deadline_of_a_step_ends_it_if_its_master_is_stopped() -> None:
    with ProcessCluster(ps=0, workers=1) as cluster, tf.Session(cluster.target("worker", 0)) as session:
        one = tf.constant(1.0) + 1.0
        assert session.run(one) == 2.0
        cluster.kill("worker", 0, signal.SIGSTOP)
        with pytest.raises(tf.errors.DeadlineExceededError, match="RunStep to .* had no answer within 1.3 s"):
            session.run(one, options=tf.RunOptions(timeout_in_ms=300))


def test_the_operation_timeout_ends_an_extension_if_the_master_is_stopped() -> None:
    with ProcessCluster(ps=0, workers=1) as cluster, tf.Session(cluster.target("worker", 0)) as session:
        one = tf.constant(1.0) + 1.0
        assert session.run(one) == 2.0
        session.master.options = SessionOptions(operation_timeout_s=0.3)  # not before: the task may start slowly
        cluster.kill("worker", 0, signal.SIGSTOP)
        two = one + 1.0
        with pytest.raises(tf.errors.DeadlineExceededError, match="ExtendSession to .* had no answer within 0.3 s"):
            session.run(two)
        # The master takes the extension in all the same, and then learns more of the graph than it has not answered.
        session.master.options = SessionOptions()
        cluster.kill("worker", 0, signal.SIGCONT)
        assert session.run([one, two, two + 1.0]) == [2.0, 3.0, 4.0]
        assert session.run(two + 2.0) == 5.0


def test_the_timeout_of_a_run_counts_for_the_session_that_it_opens() -> None:
    reserved = reserve_cluster([TaskId("worker", 0)])
    address = reserved.spec.task_address("worker", 0)
    reserved.close()
    with tf.Session(f"grpc://{address}") as session:
        began = time.monotonic()
        for _ in range(2):
            with pytest.raises(tf.errors.DeadlineExceededError, match="had no answer within 0.2 s"):
                session.run(tf.constant(1.0), options=tf.RunOptions(timeout_in_ms=200))
        assert time.monotonic() - began < 30.0  # without a timeout each would take a minute


def test_a_target_without_a_server_is_reported_while_the_session_waits(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The cause stands once in the line, and once in the error."""
    monkeypatch.setattr(wait_reports, "FIRST_S", 0.2)
    reserved = reserve_cluster([TaskId("worker", 0)])
    address = reserved.spec.task_address("worker", 0)
    reserved.close()
    config = tf.ConfigProto(operation_timeout_in_ms=700)
    session = tf.Session(f"grpc://{address}", config=config)
    with caplog.at_level(logging.WARNING, "tfmini"), pytest.raises(tf.errors.UnavailableError) as info:
        session.run(tf.constant(1.0) + 1.0)
    assert info.value.message.count("connection refused") == 1 and "Start a tf.train.Server there" in info.value.message
    (line, *_) = [record.getMessage() for record in caplog.records]
    assert f"as the server at tcp://{address} cannot be reached (connection refused" in line
    assert "its session has not been created" in line and "it gives up after 0.7 s" in line
