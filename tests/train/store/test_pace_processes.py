"""Stores of several workers whose tasks are real processes, which are killed at seeded moments."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tfmini as tf
from tfmini.launch.local_cluster import ProcessCluster

pytestmark = pytest.mark.cluster

WORKERS, KILLS = 3, 3
LATE_S = 90.0
NAMES = ("a", "e")  # on different parameter servers


@pytest.fixture
def cluster() -> Iterator[ProcessCluster]:
    with ProcessCluster(ps=2, workers=WORKERS) as cluster:
        for task in cluster.processes:
            cluster.wait_ready(task.job, task.task)
        yield cluster


AFTERWARDS = 20  # updates after the last kill


class _Worker:
    """A thread that pushes as one worker until an array has had so many updates.

    Attributes:
      goal: so many, which is unknown until the kills are over.
      version: the updates that it has seen.
      acknowledged: how many pushes have returned.
      late: how many of them came after their round.
      failed: the errors of pushes and of stores, which the worker makes again.
      history: (acknowledged pushes, value) of each pull.
    """

    def __init__(self, cluster: ProcessCluster, index: int, goal: list[float], **settings: Any) -> None:
        self.cluster, self.index, self.goal, self.settings = cluster, index, goal, settings
        self.version = 0
        self.acknowledged = self.late = 0
        self.failed: list[tf.errors.OpError] = []
        self.history: list[tuple[int, np.ndarray]] = []
        self.has_pushed = threading.Event()
        self.is_over = False
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self) -> None:
        while not self.is_over:
            try:
                # Its steps run in the process that is killed.
                target = self.cluster.target("worker", self.index)
                with tf.ParameterStore(target, worker=self.index, workers=WORKERS, **self.settings) as store:
                    self._train(store)
            except tf.errors.OpError as error:
                self.failed.append(error)

    def _train(self, store: tf.ParameterStore) -> None:
        own = (np.arange(WORKERS) == self.index).astype(np.int64)
        for name in NAMES:
            store.declare(name, [WORKERS], tf.int64)
        while (version := store.version(NAMES[0])) < self.goal[0]:
            self.version = version
            self.history.append((self.acknowledged, store.pull(NAMES[0])))
            store.push(dict.fromkeys(NAMES, own))
            self.acknowledged += 1
            self.has_pushed.set()
        if self.settings["staleness"] == 0:
            self.late = store.late()[self.index]
        self.is_over = True


def _restart(cluster: ProcessCluster, job: str, task: int) -> None:
    cluster.kill(job, task)
    cluster.start_task(job, task)
    cluster.wait_ready(job, task)


def _run(cluster: ProcessCluster, seed: int, **settings: Any) -> tuple[list[_Worker], set[int], dict[str, np.ndarray]]:
    """The workers after a run with kills, which of them were killed, and the arrays."""
    goal = [float("inf")]
    rng = random.Random(seed)
    victims = [rng.randrange(WORKERS) for _ in range(KILLS)]
    workers = [_Worker(cluster, i, goal, timeout_s=LATE_S, **settings) for i in range(WORKERS)]
    for victim in victims:
        for _ in range(rng.randint(2, 12)):  # pushes, and so a moment in one
            workers[victim].has_pushed.clear()
            assert workers[victim].has_pushed.wait(LATE_S)
        _restart(cluster, "worker", victim)
    goal[0] = max(worker.version for worker in workers) + AFTERWARDS
    for worker in workers:
        worker.thread.join(LATE_S)
        assert not worker.thread.is_alive(), worker.failed
    with tf.ParameterStore(cluster.target("worker", 0), worker=0, workers=WORKERS, **settings) as store:
        for name in NAMES:
            store.declare(name, [WORKERS], tf.int64)
        assert {store.places(name)[0] for name in NAMES} == {"/job:ps/task:0", "/job:ps/task:1"}
        return workers, set(victims), store.pull()


def test_synchronous_updates_have_a_push_of_each_worker_whoever_is_killed(cluster: ProcessCluster) -> None:
    workers, victims, found = _run(cluster, 1, staleness=0)
    for name in NAMES:  # each round once, on both tasks, with one push of each worker
        assert found[name].tolist() == [workers[0].goal[0]] * WORKERS
    for worker in workers:
        assert not worker.failed or worker.index in victims, worker.failed
        assert all(value.min() == value.max() for _, value in worker.history)


def test_a_backup_worker_that_is_killed_holds_nobody_up(cluster: ProcessCluster) -> None:
    workers, victims, found = _run(cluster, 2, staleness=0, backup=1)
    assert found[NAMES[0]].tolist() == found[NAMES[1]].tolist()  # the rounds have the same members on both tasks
    for worker in workers:
        assert not worker.failed or worker.index in victims, worker.failed
        used = found[NAMES[0]][worker.index] + worker.late
        assert worker.acknowledged <= used <= worker.acknowledged + len(worker.failed)


def test_staleness_is_bounded_whoever_is_killed(cluster: ProcessCluster) -> None:
    staleness = 2
    workers, _, found = _run(cluster, 3, staleness=staleness)
    for worker in workers:
        assert all(value.min() >= pushes - staleness for pushes, value in worker.history)
        for name in NAMES:  # a push that was cut may have changed the arrays of one task, once
            assert 0 <= found[name][worker.index] - worker.acknowledged <= len(worker.failed)


def test_a_restarted_ps_applies_no_round_twice(cluster: ProcessCluster, tmp_path: Path) -> None:
    """Task 0 decides the rounds; both have gradients of the round that is cut."""

    def store_of(worker: int) -> tf.ParameterStore:
        target = cluster.target("worker", worker)
        store = tf.ParameterStore(target, worker=worker, workers=2, staleness=0, timeout_s=LATE_S)
        for name in NAMES:
            store.declare(name, (), tf.int64)
        return store

    def push(store: tf.ParameterStore, rounds: int) -> None:
        for _ in range(rounds):
            store.push(dict.fromkeys(NAMES, 1))

    lost = tf.errors.UnavailableError, tf.errors.AbortedError
    stores = [store_of(0), store_of(1)]
    for turn, ps in enumerate((1, 0)):
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(push, stores, [5, 5]))
            path = stores[0].save(str(tmp_path / "model"), turn)
            list(pool.map(push, stores, [3, 3]))
            waiting = pool.submit(push, stores[0], 1)  # half of a round
            _restart(cluster, "ps", ps)
            with pytest.raises(lost):
                waiting.result(LATE_S)
            with pytest.raises(lost):
                push(stores[1], 1)
            stores = [store_of(0), store_of(1)]
            stores[0].restore(path)
            list(pool.map(push, stores, [5, 5]))
        rounds = 10 * (turn + 1)
        assert stores[1].pull() == dict.fromkeys(NAMES, 2 * rounds)
        assert [stores[0].version(name) for name in NAMES] == [rounds, rounds]
    for store in stores:
        store.close()
