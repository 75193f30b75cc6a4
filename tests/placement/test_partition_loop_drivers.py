"""Conditionals and loops whose parts run on different tasks give what they give on one device."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import tfmini as tf

_TASKS = ["/job:worker/task:0", "/job:worker/task:1", "/job:ps/task:0"]


@pytest.fixture(scope="module")
def target() -> Iterator[str]:
    """The target of worker 0 in a cluster of three servers in this process."""
    workers, servers = tf.test.create_local_cluster(num_workers=2, num_ps=1)
    yield workers[0].target
    for server in [*workers, *servers]:
        server.stop()


class _Somewhere:
    """Gives each op that asks the next of a random sequence of tasks."""

    def __init__(self, seed: int, tasks: list[str]) -> None:
        self._random = random.Random(seed)
        self._tasks = tasks

    def __call__(self, value: Any) -> Any:
        with tf.device(self._random.choice(self._tasks)):
            return tf.identity(value) * 1.0

    def on(self, make: Callable[[], Any]) -> Any:
        with tf.device(self._random.choice(self._tasks)):
            return make()


def _cond(at: _Somewhere, x: Any, y: Any) -> Any:
    return tf.cond(at(x) > y, lambda: at(x) * 2.0 + at(y), lambda: at(at(x) - y))


def _nested_cond(at: _Somewhere, x: Any, y: Any) -> Any:
    return tf.cond(
        at.on(lambda: x > 0.0),
        lambda: tf.cond(at.on(lambda: y > x), lambda: at(x) * y, lambda: at(at(y) + 1.0)),
        lambda: at(y) - 3.0,
    )


def _loop(at: _Somewhere, x: Any, y: Any) -> Any:
    _, total = tf.while_loop(lambda i, _: at.on(lambda: i < 4), lambda i, a: (i + 1, at(at(a) * 0.5 + x)), [0, y])
    return at(total)


def _nested_loop(at: _Somewhere, x: Any, y: Any) -> Any:
    def body(i: Any, a: Any) -> Any:
        _, b = tf.while_loop(lambda j, _: j < 2, lambda j, b: (j + 1, at(b * 0.5) + at(x)), [0, at(a)])
        return i + 1, at(b) - y

    return tf.while_loop(lambda i, _: i < 3, body, [0, y])[1]


def _cond_in_loop(at: _Somewhere, x: Any, y: Any) -> Any:
    def body(i: Any, a: Any) -> Any:
        return i + 1, tf.cond(at.on(lambda: a > x), lambda: at(a) - 2.0 * x, lambda: at(at(a) + y * y + 1.0))

    return tf.while_loop(lambda i, _: i < 5, body, [0, x])[1]


def _loop_in_cond(at: _Somewhere, x: Any, y: Any) -> Any:
    return tf.cond(at.on(lambda: x > y), lambda: _loop(at, x, y), lambda: at(y) * _loop(at, y, x))


def _loop_in_cond_in_loop(at: _Somewhere, x: Any, y: Any) -> Any:
    def inner(a: Any) -> Any:
        step = lambda j, b: (j + 1, at(b * 0.5) - at(x))  # noqa: E731
        return tf.while_loop(lambda j, _: at.on(lambda: j < 2), step, [0, a])[1]

    def body(i: Any, a: Any) -> Any:
        return i + 1, tf.cond(at.on(lambda: a > 0.0), lambda: inner(a), lambda: at(a + y * y))

    return tf.while_loop(lambda i, _: i < 4, body, [0, x])[1]


def _tensor_array(at: _Somewhere, x: Any, y: Any) -> Any:
    def body(i: Any, array: Any, a: Any) -> Any:
        return i + 1, array.write(i, at(a)), at(a * x + y)

    array = tf.while_loop(lambda i, *_: i < 4, body, [0, tf.TensorArray(tf.float32, 4), x])[1]
    return tf.reduce_sum(at(array.stack()) * tf.range(4.0))


def _scan(at: _Somewhere, x: Any, y: Any) -> Any:
    return tf.reduce_sum(tf.scan(lambda a, e: at(at(a) * e + x), tf.stack([x, y, x + y]), initializer=y))


_PROGRAMS = [
    _cond, _nested_cond, _loop, _nested_loop, _cond_in_loop, _loop_in_cond, _loop_in_cond_in_loop, _tensor_array, _scan,
]  # fmt: skip


def _values(target: str, program: Any, seed: int, tasks: list[str], feeds: list[tuple[float, float]]) -> list[Any]:
    with tf.Graph().as_default():
        with tf.device("/job:worker/task:0"):
            x, y = tf.placeholder(tf.float32, []), tf.placeholder(tf.float32, [])
            result = program(_Somewhere(seed, tasks), x, y)
            grads = tf.gradients(result, [x, y])
        with tf.Session(target, config=tf.ConfigProto(operation_timeout_in_ms=60000)) as session:
            return [session.run([result, *grads], {x: a, y: b}) for a, b in feeds]


@settings(max_examples=12)
@example(seed=0, program=_loop)  # a loop's condition shared a message with what the condition waited for
@given(seed=st.integers(0, 2**31), program=st.sampled_from(_PROGRAMS))
def test_random_placements_do_not_change_results(target: str, seed: int, program: Any) -> None:
    feeds = [(1.5, -0.5), (-1.0, 2.0)]
    expected = _values(target, program, seed, _TASKS[:1], feeds)
    np.testing.assert_allclose(_values(target, program, seed, _TASKS, feeds), expected, rtol=1e-5)


@pytest.mark.parametrize(("program", "seed"), list(itertools.product(_PROGRAMS, [1, 2])))
def test_each_program_gives_the_same_on_three_tasks(target: str, program: Any, seed: int) -> None:
    feeds = [(0.5, 1.0), (2.0, 0.25)]
    expected = _values(target, program, seed, _TASKS[:1], feeds)
    np.testing.assert_allclose(_values(target, program, seed, _TASKS, feeds), expected, rtol=1e-5)


def test_a_branch_that_is_not_taken_leaves_remote_variables_alone(target: str) -> None:
    with tf.device("/job:ps/task:0"):
        v = tf.Variable(1.0, name="flow_v")
    p = tf.placeholder(tf.bool, [])
    changed = tf.cond(p, lambda: tf.assign_add(v, 1.0), lambda: tf.identity(v) * 10.0)
    with tf.Session(target) as session:
        session.run(v.initializer)
        assert session.run(changed, {p: False}) == 10.0
        assert session.run(v) == 1.0
        assert session.run(changed, {p: True}) == 2.0


def test_fetching_a_dead_tensor_names_it(target: str) -> None:
    with tf.device("/job:worker/task:1"):
        p = tf.placeholder(tf.bool, [])
        _, taken = tf.raw_ops.Switch(data=tf.constant(1.0), pred=p)
        value = taken + 1.0
    with tf.Session(target) as session:
        assert session.run(value, {p: True}) == 2.0
        with pytest.raises(tf.errors.InvalidArgumentError, match=r"Retval\[0\] does not have value"):
            session.run(value, {p: False})


def test_a_loop_body_may_wait_for_a_remote_queue(target: str) -> None:
    with tf.device("/job:ps/task:0"):
        queue = tf.FIFOQueue(10, [tf.float32], shapes=[[]], shared_name="flow_queue")
    with tf.device("/job:worker/task:0"):
        x = tf.placeholder(tf.float32, [None])
        fill = queue.enqueue_many(x)
        _, total = tf.while_loop(lambda i, _: i < 3, lambda i, a: (i + 1, a + queue.dequeue()), [0, 0.0])
    with tf.Session(target, config=tf.ConfigProto(operation_timeout_in_ms=60000)) as session:
        session.run(fill, {x: [1.0, 2.0, 4.0, 8.0]})
        assert session.run(total) == 7.0
        assert session.run(queue.size()) == 1


def _gradient_elsewhere(target: str, there: str, config: tf.ConfigProto | None = None) -> list[Any]:
    x = tf.constant(0.5)
    y = tf.while_loop(lambda i, _: i < 3, lambda i, h: (i + 1, tf.square(h)), [0, x])[1]
    with tf.device(there):
        gradient = tf.gradients(y, x)
    with tf.Session(target, config=config) as session:
        return session.run(gradient)  # type: ignore[no-any-return]


def test_a_loops_gradient_may_be_on_another_task(target: str) -> None:
    assert _gradient_elsewhere(target, "/job:ps/task:0") == [0.0625]


def test_a_loops_gradient_may_be_on_another_device_of_its_task() -> None:
    assert _gradient_elsewhere("", "/cpu:1", tf.ConfigProto(device_count={"CPU": 2})) == [0.0625]


def test_a_constant_enters_a_loop_on_one_device_and_is_used_on_another() -> None:
    half, three = tf.constant(0.5), tf.Variable(3.0, use_resource=True)

    def body(i: Any, a: Any) -> Any:
        with tf.device("/cpu:0"):  # here they enter
            first = a * half + three
        with tf.device("/cpu:1"):
            return i + 1, first - half * three

    y = tf.while_loop(lambda i, _: i < 3, body, [0, 1.0])[1]
    with tf.Session(config=tf.ConfigProto(device_count={"CPU": 2})) as session:
        session.run(three.initializer)
        assert session.run([y, *tf.gradients(y, [half, three])]) == [2.75, -1.5, 0.875]
