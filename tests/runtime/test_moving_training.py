"""Training goes on while its variables move: monitored sessions, synchronous replicas, a store."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tfmini as tf
from tests.polling import poll
from tfmini.testing import ProcessCluster

pytestmark = pytest.mark.cluster
PS = ["/job:ps/replica:0/task:0", "/job:ps/replica:0/task:1"]


def test_a_monitored_session_saves_and_restores_what_has_moved(tmp_path: Path) -> None:
    with ProcessCluster(ps=2, workers=1) as cluster:
        with tf.device(tf.train.replica_device_setter(cluster=cluster.spec)):
            step = tf.train.get_or_create_global_step()
            w = tf.get_variable("w", [4], initializer=tf.zeros_initializer())
            train = tf.train.GradientDescentOptimizer(1.0).minimize(-tf.reduce_sum(w), global_step=step)
        target = cluster.target("worker", 0)

        moved: list[dict[str, str]] = []

        def trained(count: int) -> list[float]:
            with tf.train.MonitoredTrainingSession(target, True, str(tmp_path), save_summaries_steps=None) as session:
                for i in range(count):
                    if i == count // 2:  # the step and the weight change places
                        places = {"w": PS[0], "global_step": PS[1]}
                        moved.append(tf.move_variables(target, places))
                    session.run(train)
                return [session.run(step), *session.run(w)]

        assert trained(10) == [10, *[10.0] * 4]
        assert trained(10) == [20, *[20.0] * 4]
        cluster.kill("ps", 0)
        cluster.start_task("ps", 0)  # it has forgotten what it gave away; all begins again at the checkpoint
        assert trained(4) == [24, *[24.0] * 4]
        # The weight's old place still tells of the new one. The copy of the step that nobody could find was replaced.
        assert moved == [{"w": PS[0], "global_step": PS[1]}, {}, {"global_step": PS[1]}]


class StopAt(tf.train.SessionRunHook):
    """Stops at the step that ``last`` gets while the run goes on: all workers at the same one."""

    def __init__(self, last: list[int]) -> None:
        self._last = last

    def before_run(self, run_context: Any) -> Any:
        return tf.train.SessionRunArgs(tf.train.get_global_step())

    def after_run(self, run_context: Any, run_values: Any) -> None:
        if self._last and run_values.results >= self._last[0]:
            run_context.request_stop()


def test_synchronous_replicas_lose_no_update_while_their_variables_move() -> None:
    last, found, seen = list[int](), list[tuple[int, float]](), [0, 0]
    with ProcessCluster(ps=2, workers=2) as cluster:

        def work(index: int) -> None:
            with tf.Graph().as_default(), tf.device(tf.train.replica_device_setter(cluster=cluster.spec)):
                step = tf.train.get_or_create_global_step()
                w = tf.get_variable("w", [4], initializer=tf.zeros_initializer())
                optimizer = tf.train.SyncReplicasOptimizer(tf.train.GradientDescentOptimizer(1.0), 2)
                train = optimizer.minimize(-tf.reduce_sum(w), global_step=step)
                first = w[0]
                hooks = [optimizer.make_session_run_hook(index == 0), StopAt(last)]
                with tf.train.MonitoredTrainingSession(
                    cluster.target("worker", index), index == 0, hooks=hooks, save_summaries_steps=None
                ) as session:
                    while not session.should_stop():
                        session.run(train)
                        seen[index] += 1
                        if index == 0 and not session.should_stop():
                            found.append(tuple(float(x) for x in session.run([step, first])))

        threads = [threading.Thread(target=work, args=(index,)) for index in range(2)]
        for thread in threads:
            thread.start()
        poll(lambda: seen[0] > 3, "training")
        for place in (0, 1, 0):
            tf.move_variables(cluster.target("worker", 0), {"w": PS[place]})
        last.append(int(found[-1][0]) + 20)
        for thread in threads:
            thread.join()
        # Each step is one update by the mean of two gradients of one: none was lost, and none made twice.
        assert found and all(abs(at - value) <= 1 for at, value in found)
        assert found[-1][1] >= last[0] - 3


def test_a_store_goes_on_while_its_arrays_move() -> None:
    with ProcessCluster(ps=2, workers=1) as cluster:
        target = cluster.target("worker", 0)
        store = tf.ParameterStore(target, tf.train.MomentumOptimizer(1.0, 0.0))
        with store:
            for name in ("a", "b", "c"):
                store.declare(name, (8,), np.float32, np.zeros(8, np.float32))
            pushed = 0
            for place in (1, 0, 1):
                for _ in range(20):
                    store.push({name: -np.ones(8, np.float32) for name in ("a", "b", "c")})
                    pushed += 1
                tf.move_variables(target, dict.fromkeys(("a", "b", "c"), PS[place]))
            found = store.pull(["a", "b", "c"])
            for name in ("a", "b", "c"):
                np.testing.assert_array_equal(found[name], [pushed] * 8)
