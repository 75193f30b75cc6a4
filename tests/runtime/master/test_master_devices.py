"""`Session.list_devices` in a cluster."""

from __future__ import annotations

import threading

import pytest

import tfmini as tf
from tfmini.launch.local import reserve_cluster
from tfmini.launch.supervision import TaskId
from tfmini.rpc import messages as m
from tfmini.rpc.peer import State

WORKER = "/job:worker/replica:0/task:0/device:CPU:0"
PS = "/job:ps/replica:0/task:0/device:CPU:0"


@pytest.fixture(params=["in this process", "remote"])
def spec(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> tf.train.ClusterSpec:
    """A cluster of a ps and a worker; the session's master is in this process, or reached by messages."""
    if request.param == "remote":
        monkeypatch.setattr("tfmini.runtime.process.server_at", lambda address: None)
    reserved = reserve_cluster([TaskId("ps", 0), TaskId("worker", 0)])
    for listener in reserved.listeners.values():
        listener.close()
    return reserved.spec


def names(session: tf.Session) -> list[str]:
    return [device.name for device in session.list_devices()]


def test_a_task_that_is_not_up_is_named(spec: tf.train.ClusterSpec, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TFMINI_CONNECT_TIMEOUT", "0.3")
    with (
        tf.train.Server(spec, "worker", 0) as worker,
        tf.Session(worker.target) as session,
        pytest.raises(tf.errors.UnavailableError, match="/job:ps/replica:0/task:0 at .* cannot be listed"),
    ):
        session.list_devices()


def test_a_task_that_is_not_up_is_waited_for(spec: tf.train.ClusterSpec) -> None:
    with tf.train.Server(spec, "worker", 0) as worker, tf.Session(worker.target) as session:
        found: list[str] = []
        asking = threading.Thread(target=lambda: found.extend(names(session)))
        asking.start()
        peer = worker.endpoint.peer(spec.task_address("ps", 0), "/job:ps/replica:0/task:0")
        peer.call(m.GetStatus(), lambda answer: None)
        lost = threading.Event()
        while peer.state is not State.LOST:  # the first attempt has failed
            lost.wait(0.01)
        with tf.train.Server(spec, "ps", 0):
            asking.join(60)
        assert found == [WORKER, PS]


def test_filters_leave_tasks_out(spec: tf.train.ClusterSpec) -> None:
    filters = tf.ConfigProto(device_filters=["/job:worker"])
    with tf.train.Server(spec, "worker", 0) as worker, tf.Session(worker.target, config=filters) as session:
        assert names(session) == [WORKER]
        with tf.device("/job:ps"):
            left_out = tf.constant(1)
        with pytest.raises(tf.errors.InvalidArgumentError, match="The cluster has /job:ps/.* device_filters of this"):
            session.run(left_out)
