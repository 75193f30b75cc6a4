"""Asking a cluster."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

import tfmini as tf
from tfmini import errors
from tfmini.rpc.keys import Keys
from tfmini.runtime.snapshot import OK, SILENT
from tfmini.show.status.gather import Gatherer, gather


@pytest.fixture
def free_address() -> Iterator[str]:
    """An address where nobody listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"localhost:{taken.getsockname()[1]}"


def test_any_server_tells_all_tasks_and_one_that_is_down_is_silent(free_address: str) -> None:
    with tf.train.Server({"ps": ["localhost:0"], "worker": [free_address]}, "ps", 0) as server:
        cluster = gather(server.target, rates=False, timeout_s=30)
    assert [(task.task, task.state) for task in cluster.tasks] == [
        ("/job:ps/replica:0/task:0", OK), ("/job:worker/replica:0/task:0", SILENT),
    ]  # fmt: skip
    assert "connection refused" in cluster.tasks[1].why


def test_rates_come_with_the_second_question() -> None:
    with tf.Graph().as_default(), tf.train.Server.create_local_server() as server, Gatherer(server.target) as gatherer:
        assert gatherer.gather(timeout_s=30).tasks[0].window_s == 0.0
        with tf.Session(server.target) as session:
            value = tf.constant(1.0)
            for _ in range(10):
                session.run(value)
        task = gatherer.gather(rates=True, timeout_s=30).tasks[0]
    assert task.steps_s == pytest.approx(10 / task.window_s)


def test_nobody_there_is_an_error_that_says_what_to_do(free_address: str) -> None:
    remedy = "Give the address of a server that runs, or the name of a job of `tfmini launch`"
    with pytest.raises(errors.UnavailableError, match=f"{free_address} answers: .*connection refused.*{remedy}"):
        gather(free_address)


def test_a_stranger_is_refused() -> None:
    import zmq

    public, secret = zmq.curve_keypair()
    with tf.train.Server.create_local_server() as server, pytest.raises(errors.OpError) as caught:
        gather(server.target, keys=Keys(public, secret), timeout_s=10.0)
    assert not isinstance(caught.value, errors.InternalError)
