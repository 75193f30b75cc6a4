"""Clusters that hang, explained in one look. All tasks are servers in this process."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any, cast

import numpy as np
import pytest

import tfmini as tf
from tests.polling import poll
from tfmini.launch.local import reserve_cluster
from tfmini.launch.supervision import TaskId
from tfmini.runtime import snapshot as s
from tfmini.runtime import task_status
from tfmini.show.status.explanation import RUNS_NOTHING, Explanation, explain, explanation_lines
from tfmini.show.status.gather import Gatherer

PS = "/job:ps/replica:0/task:0"
LIMIT_S = 200.0  # the stuck kernels must outlast the questions of a slow machine


def worker(index: int) -> str:
    return f"/job:worker/replica:0/task:{index}"


class Cluster:
    """A ps and some workers; ``ask`` explains what hangs."""

    def __init__(self, workers: int) -> None:
        tasks = [TaskId("ps", 0), *(TaskId("worker", index) for index in range(workers))]
        reserved = reserve_cluster(tasks)
        reserved.close()
        spec = reserved.spec
        self.servers = [tf.train.Server(spec, "ps", 0)]
        self.servers += [tf.train.Server(spec, "worker", index) for index in range(workers)]
        self.threads: list[threading.Thread] = []
        self.sessions: list[Any] = []

    def session(self, index: int) -> Any:
        """A session of a worker."""
        self.sessions.append(tf.Session(self.servers[1 + index].target))
        return self.sessions[-1]

    def start(self, call: Callable[[], Any]) -> None:
        """Makes a call that hangs until its session is closed."""

        def run() -> None:
            with contextlib.suppress(tf.errors.OpError):
                call()

        self.threads.append(threading.Thread(target=run))
        self.threads[-1].start()

    def explained(self, is_complete: Callable[[Explanation], Any]) -> Explanation:
        """Asks until the explanation is complete; waits of 0.2 s count."""
        lines: list[str] = []
        with Gatherer(self.servers[0].target) as gatherer:

            def complete() -> Explanation | None:
                cluster = gatherer.gather(timeout_s=60)
                found = explain(cluster, least_s=0.2)
                lines[:] = [*explanation_lines(found), repr(cluster)]
                return found if is_complete(found) else None

            try:
                return cast(Explanation, poll(complete, "a complete explanation"))
            except AssertionError as error:
                error.add_note("\n".join(lines))
                raise

    def stop(self) -> None:
        for session in self.sessions:
            session.close()
        for thread in self.threads:
            thread.join(LIMIT_S)
        for server in self.servers:
            server.stop()


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Iterator[Cluster]:
    monkeypatch.setattr(task_status, "FRESH_S", 0.0)
    with tf.Graph().as_default():
        made = Cluster(request.param)
        try:
            yield made
        finally:
            made.stop()


@pytest.mark.parametrize("cluster", [2], indirect=True)
def test_a_deadlock_between_two_queues(cluster: Cluster) -> None:
    """Each worker takes from the queue that the other one fills, before it fills the other's."""
    with tf.device("/job:ps/task:0"):
        queues = [tf.FIFOQueue(1, tf.float32, shapes=(), shared_name=name) for name in ("left", "right")]
        steps = []
        for mine, theirs in (queues, queues[::-1]):
            element = mine.dequeue()
            steps.append(theirs.enqueue(element + 1.0))
    for index, step in enumerate(steps):
        session = cluster.session(index)
        cluster.start(lambda session=session, step=step: session.run(step))
    found = cluster.explained(lambda each: each.cycles)
    (cycle,) = found.cycles
    assert {(hop.who, hop.task, hop.wait.kind, hop.wait.on) for hop in cycle} == {
        (worker(0), PS, s.ELEMENT, "left"), (worker(1), PS, s.ELEMENT, "right"),
    }  # fmt: skip
    assert found.culprits == ()
    text = "\n".join(explanation_lines(found))
    assert 'worker/0 waits for an element of FIFOQueue "left" (0 of 1 elements)' in text


@pytest.mark.parametrize("cluster", [3], indirect=True)
@pytest.mark.parametrize("is_idle", [True, False])
def test_the_stuck_worker_of_a_synchronous_run(cluster: Cluster, is_idle: bool) -> None:
    """In the second step two workers have sent their gradients and wait for tokens; the third is idle, or computes."""
    blocks, go_on = threading.Event(), threading.Event()

    def function() -> np.ndarray:
        if blocks.is_set():
            go_on.wait(LIMIT_S)
        return np.float32(1)

    with tf.device("/job:ps/task:0"):
        step = tf.train.get_or_create_global_step()
        weight = tf.get_variable("W", initializer=2.0)
    optimizers, train_ops, sessions = [], [], [cluster.session(index) for index in range(3)]
    for index in range(3):
        with tf.device(f"/job:worker/task:{index}"):
            data = tf.py_func(function, [], tf.float32, name="data") if index == 2 else tf.constant(1.0)
            optimizers.append(tf.train.SyncReplicasOptimizer(tf.train.GradientDescentOptimizer(0.1), 3))
            train_ops.append(optimizers[-1].minimize(data * weight, global_step=step))
    sessions[0].run(tf.global_variables_initializer())
    sessions[0].run(optimizers[0].chief_init_op)
    for session, optimizer in zip(sessions, optimizers):
        session.run(optimizer.local_step_init_op)
    update = optimizers[0].get_chief_queue_runner().enqueue_ops[0]
    calls = [(sessions[0], update), *zip(sessions, train_ops)]
    for session, op in calls:
        cluster.start(lambda session=session, op=op: session.run(op))
    for thread in cluster.threads:
        thread.join(LIMIT_S)
    blocks.set()
    for session, op in calls[: 3 if is_idle else 4]:
        cluster.start(lambda session=session, op=op: session.run(op))
    kind = RUNS_NOTHING if is_idle else s.COMPUTES
    try:
        found = cluster.explained(lambda each: [c.kind for c in each.culprits if len(c.steps) >= 3] == [kind])
    finally:
        go_on.set()
    assert found.cycles == ()
    culprit = found.culprits[0]
    assert culprit.task == worker(2)
    assert [hop.wait.kind for hop in culprit.way][:2] == [s.TOKEN, s.GRADIENT]
    text = "\n".join(explanation_lines(found))
    assert "worker/2 runs no step" in text if is_idle else "node data" in text


@pytest.mark.parametrize("cluster", [2], indirect=True)
def test_a_slow_ps(cluster: Cluster) -> None:
    """Both workers wait for the ps, where a kernel takes long."""
    go_on = threading.Event()

    def slow_function(x: np.ndarray) -> np.ndarray:
        go_on.wait(LIMIT_S)
        return x

    with tf.device("/job:ps/task:0"):
        slow = tf.py_func(slow_function, [tf.constant(1.0)], tf.float32, name="slow")
    losses = []
    for index in range(2):
        with tf.device(f"/job:worker/task:{index}"):
            losses.append(slow * 2.0)
    for index in range(2):
        session = cluster.session(index)
        cluster.start(lambda session=session, loss=losses[index]: session.run(loss))
    try:
        # While the steps begin, the ps may be the culprit for another reason.
        found = cluster.explained(lambda each: {(c.task, c.kind) for c in each.culprits} == {(PS, s.COMPUTES)})
    finally:
        go_on.set()
    assert found.cycles == ()
    assert "slow" in "\n".join(explanation_lines(found))
