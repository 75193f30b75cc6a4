"""Clusters on this machine for notebooks and tests."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
import threading
import urllib.request
from typing import Any

import numpy as np
import pytest

import tfmini as tf
from tests.polling import poll
from tfmini.launch import local_cluster
from tfmini.show.inspection.clusters import read_cluster


def train(task: Any, steps: int = 20) -> float:
    """Trains a line with the other workers; returns the loss at the end."""
    x = tf.placeholder(tf.float32, [8, 3])
    w = tf.get_variable("w", [3, 1], initializer=tf.zeros_initializer())
    loss = tf.reduce_mean(tf.square(tf.matmul(x, w) - tf.reduce_sum(x, 1, keepdims=True)))
    step = tf.train.get_or_create_global_step()
    update = tf.train.GradientDescentOptimizer(0.1).minimize(loss, global_step=step)
    assert w.device.startswith("/job:ps") and loss.device == task.device
    random = np.random.RandomState(task.index)
    with tf.train.MonitoredTrainingSession(task.target, is_chief=task.is_chief) as session:
        for _ in range(steps):
            _, last = session.run([update, loss], {x: random.randn(8, 3)})
    return float(last)


@pytest.mark.parametrize("processes", [False, pytest.param(True, marks=pytest.mark.cluster)])
def test_each_worker_trains_and_its_result_comes_back(processes: bool) -> None:
    with tf.LocalCluster(ps=1, workers=2, processes=processes) as cluster:
        losses = cluster.run(train, steps=40)
        assert len(losses) == 2 and max(losses) < 1.0
        with tf.Session(cluster.target) as session:
            names = [device.name for device in session.list_devices()]
        assert "/job:ps/replica:0/task:0/device:CPU:0" in names


def test_the_error_of_a_worker_ends_the_others() -> None:
    waits = threading.Event()

    def fail_beside_one_that_waits(task: Any) -> None:
        if task.index == 1:
            assert waits.wait(60)
            raise ZeroDivisionError("worker 1 has an error")
        queue = tf.FIFOQueue(1, tf.float32, shared_name="never")
        with tf.Session(task.target) as session:
            waits.set()
            session.run(queue.dequeue())  # nobody will enqueue

    cluster = tf.LocalCluster(ps=1, workers=2)
    with pytest.raises(ZeroDivisionError, match="worker 1 has an error"):
        cluster.run(fail_beside_one_that_waits)
    cluster.close()  # has happened already


def test_a_call_that_takes_too_long_is_named() -> None:
    def wait_for_ever(task: Any) -> None:
        queue = tf.FIFOQueue(1, tf.float32)
        with tf.Session(task.target) as session:
            session.run(queue.dequeue())

    with (
        tf.LocalCluster(ps=1, workers=1) as cluster,
        pytest.raises(tf.errors.DeadlineExceededError, match=r"worker 0 did not return within 0\.2 s"),
    ):
        cluster.run(wait_for_ever, timeout_s=0.2)


def test_a_cluster_is_shown_with_its_tasks() -> None:
    with tf.LocalCluster(ps=1, workers=2) as cluster:
        assert repr(cluster) == f"<LocalCluster ps=1, worker=2 at {cluster.target}>"
        assert [task.device for task in cluster.tasks] == ["/job:worker/task:0", "/job:worker/task:1"]
        assert list(read_cluster(cluster) or ()) == ["ps", "worker"]
        shown = cluster._repr_html_()
        assert "/job:ps/task:0" in shown and cluster.cluster_spec.task_address("ps", 0) in shown
    assert repr(cluster) == "<LocalCluster ps=1, worker=2 closed>"
    assert cluster._repr_html_() == "<b>LocalCluster</b>, closed"


def test_the_live_page_is_served_until_the_cluster_ends() -> None:
    pytest.importorskip("starlette")
    with tf.LocalCluster(ps=1, workers=1) as cluster:
        address = cluster.dashboard
        assert address == cluster.dashboard and address in cluster._repr_html_()
        with urllib.request.urlopen(address, timeout=60) as page:
            assert b"<html" in page.read().lower()
    with pytest.raises(OSError):
        urllib.request.urlopen(address, timeout=60)


def test_a_cluster_can_be_closed_from_asynchronous_code() -> None:
    async def use() -> list[int]:
        async with tf.LocalCluster(ps=0, workers=2) as cluster:
            return await asyncio.to_thread(cluster.run, lambda task: task.index * 10)

    assert asyncio.run(use()) == [0, 10]


def test_what_cannot_be_a_cluster_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one task"):
        tf.LocalCluster(ps=0, workers=0)
    with pytest.raises(ValueError, match="servers of this process"):
        tf.LocalCluster(processes=True, config=tf.ConfigProto())
    with (
        tf.LocalCluster(ps=1, workers=0) as cluster,
        pytest.raises(tf.errors.FailedPreconditionError, match="no workers"),
    ):
        cluster.run(train)


def test_a_closed_cluster_says_so() -> None:
    with tf.LocalCluster(ps=0, workers=1) as cluster:
        pass
    with pytest.raises(tf.errors.FailedPreconditionError, match="closed"):
        cluster.run(train)
    with pytest.raises(tf.errors.FailedPreconditionError, match="closed"):
        _ = cluster.dashboard


def ends(program: str) -> tuple[int, str]:
    """The exit code and the output of a program that must end by itself."""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    return done.returncode, done.stdout


def test_a_call_that_goes_on_does_not_keep_the_process() -> None:
    code, said = ends(
        "import threading, tfmini as tf\n"
        "cluster = tf.LocalCluster(ps=1, workers=2)\n"
        "try:\n"
        "    cluster.run(lambda task: threading.Event().wait() if task.index else 1 / 0)\n"
        "except ZeroDivisionError:\n"
        "    print('told')\n"
    )
    assert (code, said) == (0, "told\n")


@pytest.mark.cluster
def test_processes_end_with_a_program_that_forgets_them() -> None:
    code, said = ends(
        "import tfmini as tf\n"
        "cluster = tf.LocalCluster(ps=1, workers=1, processes=True)\n"
        "print(*cluster.cluster_spec.job_tasks('ps'), *cluster.cluster_spec.job_tasks('worker'))\n"
    )
    assert code == 0
    for address in said.split():
        host, _, port = address.rpartition(":")
        where = host, int(port)
        poll(lambda where=where: not answers(*where), "the end of a task")


def answers(host: str, port: int) -> bool:
    try:
        socket.create_connection((host, port), timeout=5).close()
    except OSError:
        return False
    return True


@pytest.mark.cluster
def test_a_task_that_prints_much_goes_on() -> None:
    with tf.LocalCluster(ps=0, workers=1, processes=True) as cluster:
        config = tf.ConfigProto(log_device_placement=True, operation_timeout_in_ms=60_000)
        total = tf.add_n([tf.Variable(1.0, name=f"a_long_name_of_a_variable_{i}") for i in range(600)])
        with tf.Session(cluster.target, config=config) as session:
            session.run(tf.global_variables_initializer())
            assert session.run(total) == 600.0


@pytest.mark.cluster
def test_a_process_that_starts_no_server_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_cluster, "READY_S", 0.1)
    program = "import sys; sys.stdin.read()"  # it lives, and never says that it is ready
    with (
        local_cluster.ProcessCluster(ps=1, workers=0, program=program) as cluster,
        pytest.raises(RuntimeError, match=r"/job:ps/task:0 has not started its server within 0\.1 s"),
    ):
        cluster.wait_ready("ps", 0)


@pytest.mark.cluster
def test_a_task_can_be_killed_and_started_again() -> None:
    with tf.LocalCluster(ps=1, workers=1, processes=True) as cluster:
        with tf.device("/job:ps/task:0"):
            w = tf.get_variable("w", [2], initializer=tf.zeros_initializer())
        init = tf.global_variables_initializer()
        with tf.Session(cluster.target) as session:
            session.run(init)
            cluster.kill("ps", 0)
            with pytest.raises(tf.errors.UnavailableError, match="/job:ps/replica:0/task:0"):
                session.run(w)
        cluster.restart("ps", 0)
        with tf.Session(cluster.target) as session:
            with pytest.raises(tf.errors.FailedPreconditionError, match="uninitialized value w"):
                session.run(w)
            session.run(init)
            assert session.run(w).tolist() == [0, 0]
        with pytest.raises(tf.errors.FailedPreconditionError, match="is running"):
            cluster.restart("ps", 0)
        with pytest.raises(tf.errors.NotFoundError, match="the tasks are /job:ps/task:0, /job:worker/task:0"):
            cluster.kill("ps", 1)


def test_tasks_in_this_process_cannot_be_killed() -> None:
    with tf.LocalCluster() as cluster, pytest.raises(tf.errors.FailedPreconditionError, match="processes=True"):
        cluster.kill("ps", 0)
