"""Python functions of one step that wait for each other."""

from __future__ import annotations

import threading

import pytest

import tfmini as tf


@pytest.fixture(autouse=True)
def graph():
    with tf.Graph().as_default() as g:
        yield g


def meeting(stateful=True):
    """Two functions, each of which returns only when the other has been called."""
    first, second = threading.Event(), threading.Event()

    def a():
        first.set()
        assert second.wait(60)
        return 1

    def b():
        second.set()
        assert first.wait(60)
        return 2

    return tf.py_func(a, [], tf.int64, stateful=stateful), tf.py_func(b, [], tf.int64, stateful=stateful)


@pytest.mark.parametrize("stateful", [True, False])
def test_two_functions_of_a_step_run_at_the_same_time(stateful: bool) -> None:
    x, y = meeting(stateful)
    with tf.Session() as session:
        for _ in range(2):
            assert session.run([x + y, y]) == [3, 2]


def test_functions_in_a_loop_may_wait_for_each_other() -> None:
    def body(i):
        x, y = meeting()
        return tf.ensure_shape(i + x + y, [])

    out = tf.while_loop(lambda i: i < 4, body, [tf.constant(0, tf.int64)])
    with tf.Session() as session:
        session.run(out)


def test_control_edges_order_the_functions() -> None:
    called = []
    first = tf.py_func(lambda: called.append("first"), [], [])
    with tf.control_dependencies([first]):
        second = tf.py_func(lambda: called.append("second"), [], [])
    with tf.Session() as session:
        session.run(second)
    assert called == ["first", "second"]


def test_an_error_of_a_function_names_its_node() -> None:
    def bad():
        raise ValueError("no good")

    fine, failing = tf.py_func(lambda: 1, [], tf.int64), tf.py_func(bad, [], tf.int64, name="bad")
    with tf.Session() as session, pytest.raises(tf.errors.InvalidArgumentError, match="no good") as caught:
        session.run([fine, failing])
    assert caught.value.op is failing.op


def test_an_exit_in_a_function_ends_the_step() -> None:
    def leave():
        raise SystemExit("enough")

    outputs = [tf.py_func(leave, [], tf.int64), tf.py_func(lambda: 1, [], tf.int64)]
    with tf.Session() as session, pytest.raises(tf.errors.UnknownError, match="SystemExit: enough"):
        session.run(outputs)


def test_a_step_does_not_wait_longer_than_its_time() -> None:
    release = threading.Event()
    x = tf.py_func(lambda: release.wait(60), [], tf.bool)
    y = tf.py_func(lambda: 1, [], tf.int64)
    with tf.Session() as session:
        with pytest.raises(tf.errors.DeadlineExceededError):
            session.run([x, y], options=tf.RunOptions(timeout_in_ms=50))
        release.set()


def test_a_dataset_function_may_have_several_python_functions() -> None:
    def body(i):
        return tf.py_func(lambda v: v + 1, [i], tf.int64) + tf.py_func(lambda v: v * 2, [i], tf.int64)

    element = tf.data.Dataset.range(3).map(body).make_one_shot_iterator().get_next()
    with tf.Session() as session:
        assert [session.run(element) for _ in range(3)] == [1, 4, 7]
