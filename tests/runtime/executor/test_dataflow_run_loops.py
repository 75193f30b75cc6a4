"""The iterations of loops that wait overlap, and such a loop starts before the inputs that come late."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import tfmini as tf

_TASKS = ["/job:worker/task:0", "/job:worker/task:1", "/job:ps/task:0"]
_names = itertools.count()


@pytest.fixture(scope="module")
def target() -> Iterator[str]:
    workers, servers = tf.test.create_local_cluster(num_workers=2, num_ps=1)
    yield workers[0].target
    for server in [*workers, *servers]:
        server.stop()


def _queue() -> Any:
    return tf.FIFOQueue(30, [tf.int32], shapes=[[]], shared_name=f"overlap_{next(_names)}")


def _run(fetches: Any, target: str = "", timeout_s: float = 20.0) -> list[int]:
    config = tf.ConfigProto(operation_timeout_in_ms=int(timeout_s * 1000))
    with tf.Session(target, config=config) as session:
        session.run(tf.global_variables_initializer())
        return [int(value) for value in session.run(fetches)]


def _at_first(i: Any, value: Callable[[], Any]) -> Any:
    return tf.cond(tf.equal(i, 0), value, lambda: 0)


def _ahead(queue: Any, count: int, **options: Any) -> Any:
    """Iteration 0 takes what it and the next ones give."""

    def body(i: Any, total: Any) -> Any:
        with tf.control_dependencies([queue.enqueue(i)]):
            following = i + 1
        return following, total + _at_first(i, lambda: tf.reduce_sum(queue.dequeue_many(count)))

    return tf.while_loop(lambda i, _: i < 3, body, [0, 0], **options)


def test_an_iteration_may_wait_for_what_later_ones_give() -> None:
    assert _run(_ahead(_queue(), 3)) == [3, 3]


@pytest.mark.parametrize("device", _TASKS)
def test_an_iteration_may_wait_for_later_ones_on_another_task(target: str, device: str) -> None:
    with tf.device(device):
        queue = _queue()
    assert _run(_ahead(queue, 3), target) == [3, 3]


def test_as_many_iterations_overlap_as_the_loop_says() -> None:
    queue = _queue()
    assert _run(_ahead(queue, 2, parallel_iterations=2)) == [3, 1]
    with pytest.raises(tf.errors.DeadlineExceededError, match="waits for 1 more elements"):
        _run(_ahead(_queue(), 2, parallel_iterations=1), timeout_s=0.5)


def test_a_variable_may_be_changed_in_iterations_that_overlap() -> None:
    queue, count = _queue(), tf.get_variable("count", [], tf.int32, initializer=tf.zeros_initializer())

    def body(i: Any, total: Any) -> Any:
        with tf.control_dependencies([queue.enqueue(i), tf.assign_add(count, 1)]):
            following = i + 1
        return following, total + _at_first(i, lambda: tf.reduce_sum(queue.dequeue_many(3)))

    assert _run(tf.while_loop(lambda i, _: i < 3, body, [0, 0])) == [3, 3]


def test_an_inner_loop_may_wait_for_a_later_iteration_of_the_outer_one() -> None:
    queue = _queue()

    def inner(i: Any, total: Any) -> Any:
        taken = lambda: tf.reduce_sum(queue.dequeue_many(3))  # noqa: E731
        return tf.while_loop(lambda k, _: k < 1, lambda k, u: (k + 1, u + _at_first(i, taken)), [0, total])[1]

    def body(i: Any, total: Any) -> Any:
        with tf.control_dependencies([queue.enqueue(i)]):
            following = i + 1
        return following, inner(i, total)

    assert _run(tf.while_loop(lambda i, _: i < 3, body, [0, 0])) == [3, 3]


def test_two_loops_may_feed_each_other() -> None:
    queue = _queue()
    taken = tf.while_loop(lambda i, _: i < 3, lambda i, t: (i + 1, t + queue.dequeue()), [0, 0])[1]
    given = tf.while_loop(lambda i: i < 3, lambda i: tf.tuple([i + 1], control_inputs=[queue.enqueue(i)]), [0])
    assert _run([taken, given]) == [3, 3]


@pytest.mark.parametrize("device", _TASKS)
@pytest.mark.parametrize("is_variable", [False, True])
def test_a_loop_may_give_what_it_waits_for_to_start(target: str, device: str, is_variable: bool) -> None:
    """The input is a loop variable or an invariant, and the queue is here or elsewhere."""
    with tf.device(device):
        queue = _queue()
        late = queue.dequeue()

    def body(i: Any, x: Any) -> Any:
        with tf.control_dependencies([queue.enqueue(7)]):
            return i + 1, x if is_variable else x + late

    found = _run(tf.while_loop(lambda i, _: i < 2, body, [0, late if is_variable else 0]), target)
    assert found == [2, 7 if is_variable else 14]


def test_a_python_function_may_wait_for_that_of_a_later_iteration_on_a_server() -> None:
    event = threading.Event()

    def function(i: Any) -> Any:
        if i == 2:
            event.set()
        return np.int32(i > 0 or event.wait(10.0))

    def body(i: Any, total: Any) -> Any:
        found = tf.py_func(function, [i], tf.int32)
        found.set_shape([])
        return i + 1, total + found

    with tf.train.Server.create_local_server() as server:
        assert _run(tf.while_loop(lambda i, _: i < 4, body, [0, 0]), server.target) == [4, 4]


@pytest.mark.parametrize("parallel_iterations", [1, 10])
@pytest.mark.parametrize(("there", "reader", "writer"), [(2, 0, 2), (1, 0, 0), (2, 1, 1), (2, 2, 0)])
def test_each_iteration_reads_the_assignment_of_the_one_before(
    target: str, there: int, reader: int, writer: int, parallel_iterations: int
) -> None:
    with tf.device(_TASKS[there]):
        state = tf.Variable(1.0)

    def body(i: Any, a: Any) -> Any:
        with tf.control_dependencies([a]), tf.device(_TASKS[reader]):
            old = state.read_value() + 0.0
        with tf.device(_TASKS[writer]):
            new = tf.assign(state, old * 0.5 + 1.0)
        with tf.control_dependencies([new]):
            return i + 1, a + old * 8.0

    result = tf.while_loop(lambda i, _: i < 3, body, [0, 0.0], parallel_iterations=parallel_iterations)[1]
    assert _run([result], target) == [34]  # 8 * (1 + 1.5 + 1.75)
