"""Variables in conds and loops: read, assigned, passed on as references."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tfmini as tf
from tests.ops.session_run import run


@pytest.mark.parametrize("use_resource", [False, True])
def test_a_loop_reads_variables_and_has_gradients_by_them(use_resource: bool) -> None:
    with tf.variable_scope("s", use_resource=use_resource):
        v = tf.get_variable("v", initializer=[1.0, 2.0])
    _, y = tf.while_loop(lambda i, y: i < 3, lambda i, y: (i + 1, y * v), [0, tf.constant([1.0, 1.0])])
    (grad,) = tf.gradients(y, [v])
    np.testing.assert_allclose(run([y, grad]), [[1.0, 8.0], [3.0, 12.0]])


@pytest.mark.parametrize("use_resource", [False, True])
@pytest.mark.parametrize("taken, expected", [(True, [2.0, 4.0]), (False, [0.0, 0.0])])
def test_a_cond_reads_variables_and_has_gradients_by_them(
    use_resource: bool, taken: bool, expected: list[float]
) -> None:
    with tf.variable_scope("s", use_resource=use_resource):
        v = tf.get_variable("v", initializer=[1.0, 2.0])
    p = tf.placeholder(tf.bool, [])
    y = tf.cond(p, lambda: v * v, lambda: tf.constant([1.0, 1.0]))
    (grad,) = tf.gradients(y, [v])
    np.testing.assert_allclose(run(grad, {p: taken}), expected)


@pytest.mark.parametrize("use_resource", [False, True])
def test_variables_are_assigned_in_loops_and_conds(use_resource: bool) -> None:
    with tf.variable_scope("s", use_resource=use_resource):
        v = tf.get_variable("v", initializer=1.0)

    def body(i: Any) -> Any:
        change = tf.cond(i < 2, lambda: tf.assign_add(v, 1.0), lambda: tf.assign(v, v.read_value() * 2.0))
        with tf.control_dependencies([change]):
            return i + 1

    loop = tf.while_loop(lambda i: i < 4, body, [0])
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        assert session.run(loop) == 4
        assert session.run(v) == 12.0


def test_the_condition_of_a_loop_sees_assignments_of_its_body() -> None:
    v = tf.Variable(0)

    def body(i: Any) -> Any:
        with tf.control_dependencies([tf.assign_add(v, 2)]):
            return tf.identity(i + 1)

    loop = tf.while_loop(lambda i: v < 10, body, [0], parallel_iterations=1)
    assert run(loop) == 5


def test_ref_select_and_ref_identity_pass_references_on() -> None:
    a, b = tf.Variable([1.0, 2.0]), tf.Variable([3.0, 4.0])
    index = tf.placeholder(tf.int32, [])
    chosen = tf.raw_ops.RefSelect(index=index, inputs=[a._ref(), b._ref()])
    assert chosen.shape == [2]
    change = tf.raw_ops.AssignAdd(ref=tf.raw_ops.RefIdentity(input=chosen), value=[1.0, 1.0])
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        session.run(change, {index: 1})
        np.testing.assert_allclose(session.run([a, b]), [[1.0, 2.0], [4.0, 5.0]])
        with pytest.raises(tf.errors.InvalidArgumentError, match=r"Index must be in the range \[0, 2\) but got 2"):
            session.run(chosen, {index: 2})


def test_a_loop_variable_may_become_a_reference() -> None:
    v = tf.Variable([3.0, 4.0, 5.0])
    _, last = tf.while_loop(
        lambda i, _: i < 3, lambda i, _: (i + 1, tf.scatter_update(v, i, 10.0)), [0, tf.identity(v)]
    )
    assert run(last).tolist() == [10.0, 10.0, 10.0]
