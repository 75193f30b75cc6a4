"""Large results that only go to a task on the same host: computed in shared memory, whatever becomes of the step."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import tfmini as tf
from tests.rpc.task_processes import until
from tfmini.rpc.lane_connection import LaneConnection
from tfmini.rpc.lane_memory import PartMemory
from tfmini.testing import ProcessCluster

pytestmark = pytest.mark.cluster
SIDE = 600  # numbers; a matrix has 1.4 MB


@pytest.fixture(scope="module")
def cluster() -> Iterator[ProcessCluster]:
    with ProcessCluster(ps=2, workers=1, local=("worker", 0)) as cluster:
        yield cluster


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The bytes of each result for which a connection has given memory."""
    sizes: list[int] = []
    make = PartMemory.make

    def counting(self: PartMemory, nbytes: int) -> Any:
        array = make(self, nbytes)
        if array is not None:
            sizes.append(nbytes)
        return array

    monkeypatch.setattr(PartMemory, "make", counting)
    return sizes


def lent_blocks() -> int:
    lanes = [thing for thing in gc.get_objects() if isinstance(thing, LaneConnection)]
    return sum(lane.statistics().get("lent_blocks", 0) for lane in lanes)


def variables(count: int) -> list[Any]:
    with tf.device("/job:ps/task:0"):
        return [tf.Variable(tf.zeros([SIDE, SIDE]), name=f"v{i}") for i in range(count)]


def assigned(targets: list[Any], values: list[Any]) -> tf.Operation:
    assignments = []
    for variable, value in zip(targets, values):
        with tf.device(variable.device):
            assignments.append(tf.assign(variable, value).op)
    return tf.group(*assignments)


def matrix(seed: int) -> Any:
    return np.random.RandomState(seed).randn(SIDE, SIDE).astype(np.float32)


def test_every_kind_of_result_arrives(cluster: ProcessCluster, made: list[int]) -> None:
    with tf.Graph().as_default(), tf.Session(cluster.server.target) as session:
        kept = variables(5)
        with tf.device("/job:worker/task:0"):
            x, y = tf.placeholder(tf.float32, [SIDE, SIDE]), tf.placeholder(tf.float32, [SIDE, SIDE])
            results = [x * 2.0, tf.matmul(x, y, transpose_a=True), tf.add_n([x, y, x]), tf.fill([SIDE, SIDE], y[0, 0])]
            results.append(x * y)  # also fetched, so it is computed in memory of its own
        push = assigned(kept, results)
        session.run(tf.global_variables_initializer())
        for step in range(5):
            a, b = matrix(step), matrix(step + 100)
            _, product = session.run([push, results[-1]], {x: a, y: b})
            expected = [a * 2, a.T @ b, a + b + a, np.full([SIDE, SIDE], b[0, 0]), a * b]
            for found, wanted in zip([*session.run(kept), product], [*expected, a * b]):
                np.testing.assert_allclose(found, wanted, rtol=1e-3, atol=1e-4)
        assert made == [SIDE * SIDE * 4] * len(made) and len(made) >= 4 * 4  # the lane opens beside the first step
        until(lambda: lent_blocks() == 0, "the return of the blocks")


def test_a_result_for_two_tasks_is_copied_for_each(cluster: ProcessCluster, made: list[int]) -> None:
    with tf.Graph().as_default(), tf.Session(cluster.server.target) as session:
        with tf.device("/job:ps/task:1"):
            other = tf.Variable(tf.zeros([SIDE, SIDE]))
        kept = [*variables(1), other]
        with tf.device("/job:worker/task:0"):
            x = tf.placeholder(tf.float32, [SIDE, SIDE])
            doubled = x * 2.0
        push = assigned(kept, [doubled, doubled])
        session.run(tf.global_variables_initializer())
        for step in range(3):
            session.run(push, {x: matrix(step)})
            for found in session.run(kept):
                np.testing.assert_array_equal(found, matrix(step) * 2)
        assert not made


def test_a_step_that_fails_midway_gives_the_memory_back(cluster: ProcessCluster, made: list[int]) -> None:
    with tf.Graph().as_default(), tf.Session(cluster.server.target) as session:
        kept = variables(2)
        with tf.device("/job:worker/task:0"):
            x = tf.placeholder(tf.float32, [SIDE, SIDE])
            is_right, wide = tf.placeholder(tf.bool, []), tf.placeholder(tf.float32, [None, None])
            doubled, product = x * 2.0, tf.matmul(x, x)
            with tf.control_dependencies([doubled, product]):
                check = tf.Assert(is_right, ["it is wrong"])
            with tf.control_dependencies([check]):
                late = [tf.identity(doubled), tf.identity(product)]
            misfit = x * wide
        push, bad = assigned(kept, late), assigned(kept[:1], [misfit])
        session.run(tf.global_variables_initializer())
        for step in range(4):
            a = matrix(step)
            session.run(push, {x: a, is_right: True})
            with pytest.raises(tf.errors.InvalidArgumentError, match="it is wrong"):
                session.run(push, {x: -a, is_right: False})
            with pytest.raises(tf.errors.InvalidArgumentError, match="shape"):
                session.run(bad, {x: a, wide: np.zeros([2, 3], np.float32)})
            found = session.run(kept)
            np.testing.assert_array_equal(found[0], a * 2)
            np.testing.assert_allclose(found[1], a @ a, rtol=1e-3, atol=1e-3)
        assert len(made) >= 2 * 2 * 3
        until(lambda: lent_blocks() == 0, "the return of the blocks")


def test_training_is_the_same_as_in_one_process(cluster: ProcessCluster, made: list[int]) -> None:
    def trained(target: str, ps: Any, worker: str) -> Any:
        with tf.Graph().as_default(), tf.Session(target) as session:
            with tf.device(ps):
                weights = tf.Variable(tf.constant(matrix(1) / SIDE), name="weights")
            with tf.device(worker):
                x = tf.placeholder(tf.float32, [None, SIDE])
                loss = tf.reduce_mean(tf.square(tf.matmul(x, weights) - x))
                optimizer = tf.train.AdagradOptimizer(0.1)
                train = optimizer.minimize(loss, var_list=[weights])
            session.run(tf.global_variables_initializer())
            for step in range(6):
                session.run(train, {x: matrix(step)[:50]})
            return session.run(weights)

    alone = trained("", None, "")
    together = trained(cluster.server.target, "/job:ps/task:0", "/job:worker/task:0")
    np.testing.assert_allclose(together, alone, rtol=1e-4, atol=1e-6)
    assert len(made) >= 4
