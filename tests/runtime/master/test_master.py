"""Sessions whose tasks cannot be reached when they end are closed there as soon as the link returns.

A server that stops leaves no session that is created at the same time.
"""

from __future__ import annotations

from typing import Any

import pytest

import tfmini as tf
from tfmini.runtime.client.session import local_master
from tfmini.runtime.master import master as master_module
from tfmini.runtime.master.cluster import ClusterView
from tfmini.runtime.master.master import Master, open_session
from tfmini.runtime.options import SessionOptions
from tfmini.runtime.process import current_process
from tfmini.testing import Drop, FaultPlan, Sever, SimulatedNetwork

CLUSTER = {"ps": ["ps0:1"], "worker": ["w0:1"]}


def _sessions_left(*faults: Any, timeout_in_ms: int = 0) -> list[list[str]]:
    """A client runs a step on the ps at 1 s and closes its session at 10 s; the sessions of the ps at 9 and 50 s."""
    network = SimulatedNetwork(FaultPlan(faults))
    servers = {name: network.host(name).run(_serve(name)) for name in ("ps0", "w0")}
    found: list[list[str]] = []

    def client() -> None:
        process = current_process()
        process.sleep(1.0)
        with tf.Graph().as_default(), tf.device("/job:ps/task:0"):
            value = tf.constant(1.0) + tf.random_uniform([])
            config = tf.ConfigProto(operation_timeout_in_ms=timeout_in_ms)
            session = tf.Session("grpc://localhost:1", config=config)
            try:
                session.run(value)
            except tf.errors.DeadlineExceededError:
                assert timeout_in_ms
            process.sleep(10.0 - process.now())
            session.close()

    thread = network.host("w0").spawn(client)
    for until in (9.0, 50.0):
        network.run(until)
        found.append(list(servers["ps0"].worker.sessions))
    assert thread.error is None and not thread.is_alive() and not network.crashes
    return found


def _serve(name: str) -> Any:
    return lambda: tf.train.Server(CLUSTER, "ps" if name == "ps0" else "worker", 0)


def test_a_session_that_ends_while_a_link_is_cut_is_closed_when_it_returns() -> None:
    before, after = _sessions_left(Sever(("w0", "ps0"), at=8.0, until=20.0))
    assert len(before) == 1 and after == []


def test_a_session_that_a_task_opened_too_late_is_closed_there() -> None:
    """The master has no answer in time, and does not count the session as open on that task."""
    before, after = _sessions_left(Drop(("ps0", "w0"), "Acknowledged", 1), timeout_in_ms=2000)
    assert len(before) == 1 and after == []


def test_a_session_that_is_created_while_its_server_stops_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    master = local_master(SessionOptions())
    name = master_module.random_name
    monkeypatch.setattr(master_module, "random_name", lambda process: (master.close(), name(process))[1])
    with pytest.raises(tf.errors.UnavailableError, match="has been stopped"):
        open_session(master, (), SessionOptions(), "", lambda *found: None)
    assert not master.sessions


def test_a_server_that_stops_while_a_session_asks_for_its_cluster_opens_none(monkeypatch: pytest.MonkeyPatch) -> None:
    master = local_master(SessionOptions())
    found, listed = _asks_for_its_cluster(master, monkeypatch)
    master.close()
    listed(None, [])
    ((error, session),) = found
    assert isinstance(error, tf.errors.UnavailableError) and session is None and not master.sessions


def test_a_bug_while_a_session_with_its_own_cluster_is_created_is_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    master = local_master(SessionOptions())
    found, listed = _asks_for_its_cluster(master, monkeypatch)
    monkeypatch.setattr(master, "create_session", None)
    with pytest.raises(TypeError):
        listed(None, [])
    ((error, session),) = found
    assert isinstance(error, tf.errors.InternalError) and "TypeError: " in error.message and session is None


def test_a_reset_with_a_wrong_filter_closes_nothing() -> None:
    master = local_master(SessionOptions())
    session = master.create_session((), SessionOptions())
    with pytest.raises(ValueError, match="Malformed device"):
        master.reset((), ["/job:("], lambda error: None)
    assert not session.closed and master.resets == 0
    session.close()


def _asks_for_its_cluster(master: Master, monkeypatch: pytest.MonkeyPatch) -> tuple[list[Any], Any]:
    """A session that asks the tasks of its own cluster: where its outcome goes, and what takes their answer."""
    asked: list[Any] = []
    monkeypatch.setattr(ClusterView, "list_devices", lambda self, on_done, *filters: asked.append(on_done))
    found: list[Any] = []
    options = SessionOptions(cluster=(("/job:w/replica:0/task:0", "localhost:1"),))
    open_session(master, (), options, "grpc://localhost:1", lambda *outcome: found.append(outcome))
    return found, asked[0]
