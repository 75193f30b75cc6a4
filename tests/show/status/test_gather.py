"""Asking a cluster."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

import tfmini as tf
from tfmini import errors
from tfmini.cluster import ClusterSpec
from tfmini.jobs import RunningJob
from tfmini.rpc.keys import Keys, keys_in_memory
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
        cluster = tf.cluster_status(server.target, rates=False, timeout_s=30)
    assert f'tfmini_up{{task="{cluster.tasks[0].task}"}} 1' in tf.prometheus_metrics(cluster)
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


def test_a_job_is_asked_by_its_address_or_its_name_with_its_key(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    with keys_in_memory() as key_file, RunningJob("/home/me/train.py", key_file) as job:
        with monkeypatch.context() as launched:
            launched.setenv("TFMINI_KEYS", key_file)
            server = tf.train.Server({"worker": ["127.0.0.1:0"]})
        with server:
            address = server.target.partition("//")[2]
            job.begin(ClusterSpec({"worker": [address]}))
            for target in (address, server.target, address.replace("127.0.0.1", "localhost"), "train", "train.py"):
                assert [task.state for task in gather(target, rates=False, timeout_s=30).tasks] == [OK]
            with pytest.raises(errors.NotFoundError, match="called 'rain' runs here. The jobs are train-.*HOST:PORT"):
                gather("rain")
            with pytest.raises(errors.OpError):  # the key is needed
                gather(address, tasks={}, timeout_s=10.0)
