"""Steps whose feeds and fetches come in several goes."""

from __future__ import annotations

import numpy as np
import pytest

import tfmini as tf


def _pair() -> tuple[tf.Tensor, ...]:
    a, b, c = (tf.placeholder(tf.float32, [], name=n) for n in "abc")
    r1 = a + b
    return a, b, c, r1, r1 * c


def test_later_feeds_may_depend_on_earlier_fetches() -> None:
    a, b, c, r1, r2 = _pair()
    with tf.Session() as session:
        handle = session.partial_run_setup([r1, r2], [a, b, c])
        first = session.partial_run(handle, r1, {a: 1, b: 2})
        assert session.partial_run(handle, {"r": [r2]}, {c: first * 17}) == {"r": [153]}
        with pytest.raises(tf.errors.InvalidArgumentError, match="Must run 'setup'"):
            session.partial_run(handle, r2)


def test_every_op_runs_once() -> None:
    calls: list[int] = []
    counted = tf.py_func(lambda: calls.append(1) or len(calls), [], tf.int64)
    x = tf.placeholder(tf.int64, [])
    first, second = counted + 1, counted + x
    with tf.Session() as session:
        handle = session.partial_run_setup([first, second], [x])
        assert session.partial_run(handle, first) == 2
        assert session.partial_run(handle, second, {x: 10}) == 11
    assert calls == [1]


def test_variables_are_shared_by_the_calls_of_a_partial_run() -> None:
    variable = tf.Variable(1.0)
    x = tf.placeholder(tf.float32, [])
    doubled, assign = variable * 2, variable.assign(x).op
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        handle = session.partial_run_setup([doubled, assign], [x])
        assert session.partial_run(handle, doubled) == 2
        session.partial_run(handle, assign, {x: 5})
        assert session.run(variable) == 5


@pytest.mark.parametrize(
    ("go", "message"),
    [
        (lambda s, h, t: s.partial_run(h, t[3], {t[0]: 1, t[2]: 2}), "c:0 was not specified in partial_run_setup.$"),
        (lambda s, h, t: s.partial_run(h, t[4], {t[0]: 1}), "mul:0 was not specified in partial_run_setup.$"),
        (lambda s, h, t: s.partial_run(h, t[3], {t[0]: 1}), "can't be computed .* still to feed: b:0"),
        (lambda s, h, t: [s.partial_run(h, [], {t[0]: 1}) for _ in "12"], "a:0 has already been fed.$"),
    ],
)
def test_wrong_calls_of_a_partial_run_are_refused(go: object, message: str) -> None:
    tensors = _pair()
    with tf.Session() as session:
        handle = session.partial_run_setup([tensors[3]], tensors[:2])
        with pytest.raises(tf.errors.InvalidArgumentError, match=message):
            go(session, handle, tensors)  # type: ignore[operator]


def test_setup_without_a_fetch_is_refused() -> None:
    with tf.Session() as session, pytest.raises(tf.errors.InvalidArgumentError, match="at least one target"):
        session.partial_run_setup([], [tf.placeholder(tf.float32)])


def test_a_control_edge_to_an_earlier_call_is_refused_by_name() -> None:
    x = tf.placeholder(tf.float32, [], name="x")
    y = tf.placeholder(tf.float32, [], name="y")
    first = tf.identity(x, name="first")
    with tf.control_dependencies([first]):
        second = tf.identity(y, name="second")
    with tf.Session() as session:
        handle = session.partial_run_setup([first, second], ["x:0", "y:0"])
        session.partial_run(handle, first, {x: 1})
        with pytest.raises(tf.errors.UnimplementedError, match="control edge from 'first'"):
            session.partial_run(handle, second, {"y:0": 2})


def test_arrays_of_one_call_may_be_changed_before_the_next() -> None:
    x, y = tf.placeholder(tf.float32, [2]), tf.placeholder(tf.float32, [2])
    first = x + 1
    second = x * 10 + y * first
    with tf.Session() as session:
        handle = session.partial_run_setup([first, second, x], [x, y])
        fed = np.ones(2, np.float32)
        result, again = session.partial_run(handle, [first, x], {x: fed})
        fed[:] = result[:] = again[:] = 1000
        assert session.partial_run(handle, second, {y: np.ones(2, np.float32)}).tolist() == [12, 12]


def test_a_reference_that_was_fetched_may_be_updated_later() -> None:
    x = tf.placeholder(tf.float32, [])
    v = tf.Variable(0.0)
    update = tf.assign_add(v, x)
    with tf.Session() as session:
        session.run(v.initializer)
        handle = session.partial_run_setup([v, update], [x])
        assert session.partial_run(handle, v) == 0.0
        assert session.partial_run(handle, update, {x: 3.0}) == 3.0


def test_the_result_of_a_loop_is_carried_to_later_calls_and_its_inside_is_not() -> None:
    p, q = (tf.placeholder(tf.float32, [], name=name) for name in "pq")
    count, y = tf.while_loop(lambda i, _: i < 3, lambda i, y: (i + 1, y * p), [0, 1.0])
    later, gradient = y * q + tf.to_float(count), tf.gradients(y * q, p)[0]
    with tf.Session() as session:
        handle = session.partial_run_setup([y, later], [p, q])
        assert session.partial_run(handle, y, {p: 2}) == 8
        assert session.partial_run(handle, later, {q: 5}) == 43
        handle = session.partial_run_setup([y, gradient], [p, q])
        with pytest.raises(tf.errors.UnimplementedError, match="cannot carry"):
            session.partial_run(handle, y, {p: 2})
        # As the error says: both in one call, which may feed the same once more.
        assert session.partial_run(handle, [y, gradient], {p: 2, q: 5}) == [8, 60]
