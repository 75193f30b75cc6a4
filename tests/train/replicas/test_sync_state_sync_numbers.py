"""A synchronous run whose number of workers changes."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, cast

import pytest

import tfmini as tf
from tests.train.replicas.test_sync_replicas import servers
from tfmini.train.replicas.elastic import NumbersFollower
from tfmini.train.replicas.sync_state import Numbers

LIMIT_S = 120


def test_backups_and_tokens_follow_the_number_of_workers() -> None:
    assert [Numbers(4, 4).scaled(n) for n in (1, 3, 8)] == [Numbers(1, 1), Numbers(3, 3), Numbers(8, 8)]
    assert Numbers(3, 4).scaled(8) == Numbers(6, 8) and Numbers(4, 2).scaled(3) == Numbers(6, 3)
    assert (Numbers(3, 4).tokens, Numbers(4, 2).tokens) == (4, 4)


class Team:
    """Workers in threads of this process; each makes steps for as long as `more` says."""

    def __init__(self, cluster: Any, targets: list[str], first: int) -> None:
        self._cluster, self._targets, self._first = cluster, targets, first
        self.threads: dict[int, threading.Thread] = {}
        self.errors: list[BaseException] = []
        self.chief: Any = None
        self.optimizer: Any = None
        self.updates = 0
        self.changed = threading.Condition()

    def start(self, task: int, more: Callable[[], bool]) -> None:
        self.threads[task] = threading.Thread(target=self._guarded, args=(task, more))
        self.threads[task].start()

    def _guarded(self, task: int, more: Callable[[], bool]) -> None:
        try:
            self._run(task, more)
        except BaseException as error:
            self.errors.append(error)

    def _run(self, task: int, more: Callable[[], bool]) -> None:
        setter = tf.train.replica_device_setter(cluster=self._cluster, worker_device=f"/job:worker/task:{task}")
        with tf.Graph().as_default(), tf.device(setter):
            weights = tf.get_variable("weights", [3], initializer=tf.zeros_initializer())
            step = tf.train.get_or_create_global_step()
            optimizer = tf.train.SyncReplicasOptimizer(
                tf.train.GradientDescentOptimizer(0.01), self._first, elastic=True
            )
            train = optimizer.minimize(tf.reduce_sum(tf.square(weights - 1.0)), global_step=step)
            with tf.train.MonitoredTrainingSession(
                self._targets[task], is_chief=task == 0, hooks=[optimizer.make_session_run_hook(task == 0, 0)],
                save_checkpoint_secs=None, save_summaries_steps=None, log_step_count_steps=None,
            ) as session:  # fmt: skip
                if task == 0:
                    self.chief, self.optimizer = session._tf_sess(), optimizer
                while more() and not session.should_stop():
                    session.run(train)
                    with self.changed:
                        self.updates = max(self.updates, session.run(step))
                        self.changed.notify_all()

    def until(self, updates: int) -> None:
        """Waits for so many updates since the start."""
        with self.changed:
            came = self.changed.wait_for(lambda: self.errors or self.updates >= updates, LIMIT_S)
        assert came and not self.errors, (self.updates, self.errors)

    def until_each_has(self, count: int) -> None:
        """Waits for an update with so many gradients."""
        while self.contributions(self.updates - 3)[-1:] != [count]:
            self.until(self.updates + 1)

    def latest(self) -> int:
        """The last update as the ps has it; a worker may be late to tell of it."""
        return int(self.optimizer.ledger(self.chief).steps[-1].step)

    def contributions(self, after: int) -> list[int]:
        """How many gradients each later update had."""
        made = self.updates  # before the ledger is read: it must have all of them
        steps = self.optimizer.ledger(self.chief).steps
        return [sum(each.applied.values()) for each in steps if after < each.step < made]


class Leaver:
    """A worker that goes on until it is told to be gone, as a process that was stopped: with its token and session."""

    def __init__(self, going: threading.Event) -> None:
        self._going = going
        self._leaves, self.gone, self.ends = threading.Event(), threading.Event(), threading.Event()

    def more(self) -> bool:
        if self._leaves.is_set():
            self.gone.set()
            self.ends.wait(LIMIT_S)
        return self._going.is_set()

    def leave(self) -> None:
        """Returns when it is gone: no longer in a step, where it might take a token that the others need."""
        self._leaves.set()
        assert self.gone.wait(LIMIT_S)


@pytest.mark.parametrize("least", [2, 1])
def test_the_others_go_on_without_a_worker_that_is_gone(least: int) -> None:
    """It is gone with its token. The update under way gets the gradients of the others."""
    going = threading.Event()
    going.set()
    leavers = {task: Leaver(going) for task in range(least, 3)}
    with servers(3) as (cluster, targets):
        team = Team(cluster, targets, 3)
        for task in range(3):
            team.start(task, leavers[task].more if task in leavers else going.is_set)
        team.until(3)
        for left, leaver in enumerate(leavers.values(), 1):
            leaver.leave()
            team.optimizer.resize(team.chief, 3 - left)
        changed_at = team.latest() + 2
        team.until(changed_at + 5)
        assert set(team.contributions(changed_at)) == {least}
        going.clear()
        for leaver in leavers.values():
            leaver.ends.set()
        for thread in team.threads.values():
            thread.join(LIMIT_S)
    assert not team.errors


def test_workers_that_join_are_counted_from_the_next_update_on() -> None:
    going = threading.Event()
    going.set()
    with servers(3) as (cluster, targets):
        team = Team(cluster, targets, 1)
        team.start(0, going.is_set)
        team.until(3)
        team.optimizer.resize(team.chief, 3)  # before they are there: the chief makes up for them
        changed_at = team.latest() + 2
        team.until(changed_at + 2)
        team.start(1, going.is_set)
        team.start(2, going.is_set)
        team.until(changed_at + 10)
        assert set(team.contributions(changed_at)) == {3}
        going.clear()
        for thread in team.threads.values():
            thread.join(LIMIT_S)
    assert not team.errors


def test_the_numbers_follow_the_workers_that_come_and_that_leave() -> None:
    going, stays = threading.Event(), threading.Event()
    going.set()
    stays.set()
    with servers(4) as (cluster, targets):
        team = Team(cluster, targets, 2)
        team.start(0, going.is_set)
        team.start(1, going.is_set)
        team.until(5)
        assert set(team.contributions(0)) == {2}
        for task in (2, 3):
            team.start(task, stays.is_set)
        team.until_each_has(4)
        stays.clear()
        team.until_each_has(2)
        going.clear()
        for thread in team.threads.values():
            thread.join(LIMIT_S)
    assert not team.errors


class Changed:
    """The numbers of a run, without its ops."""

    def __init__(self, total: int) -> None:
        self.first = self.wanted = Numbers(total, total)


def test_following_begins_when_the_workers_of_the_script_are_there() -> None:
    numbers = Changed(4)
    follower = NumbersFollower(cast(Any, numbers))

    def seen(count: int) -> int:
        total = follower.wanted(count)
        numbers.wanted = numbers.wanted if total is None else Numbers(total, total)
        return numbers.wanted.total

    assert [seen(count) for count in (1, 3, 2, 4, 6, 6, 5, 4)] == [4, 4, 4, 4, 6, 6, 5, 4]
    numbers.wanted = Numbers(3, 3)  # one is dead
    assert [seen(count) for count in (4, 5, 4)] == [3, 4, 3]
    numbers.wanted = Numbers(6, 6)  # two more will come
    assert [seen(count) for count in (4, 5, 6, 7, 6)] == [6, 6, 6, 7, 6]
    assert seen(0) == 1


def test_what_is_not_elastic_cannot_be_resized() -> None:
    optimizer = tf.train.SyncReplicasOptimizer(tf.train.GradientDescentOptimizer(0.1), 2)
    with pytest.raises(ValueError, match="elastic=True"):
        optimizer.resize(None, 3)
    elastic = tf.train.SyncReplicasOptimizer(tf.train.GradientDescentOptimizer(0.1), 2, elastic=True)
    weight = tf.Variable(1.0)
    elastic.apply_gradients([(tf.constant(1.0), weight)], tf.train.get_or_create_global_step())
    with pytest.raises(ValueError, match="at least 1 replica"):
        elastic.resize(None, 0)
