"""Variables in conds and loops: read, assigned, passed on as references."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tfmini as tf
from tests.ops.session_run import run

# Gradients of several reads of one tensor add slices up as a whole, and say so.
pytestmark = pytest.mark.filterwarnings("ignore:Converting sparse IndexedSlices to a dense Tensor:UserWarning")


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
    chosen = tf.raw_ops.RefSelect(index=index, inputs=[a.op.outputs[0], b.op.outputs[0]])
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


def _even(i: Any, a: Any, value: Any) -> Any:
    return tf.cond(tf.equal(i % 2, 0), value, lambda: a)


def _inner_loop(body: Any) -> Any:
    return lambda v, x, i, a: tf.while_loop(
        lambda j, _: j < tf.cast(tf.reduce_sum(x) / 3.0, tf.int32), lambda j, b: (j + 1, b + body(v, x, j, b)), [0, a]
    )[1]


READS: dict[str, Any] = {
    "one branch": lambda v, x, i, a: _even(i, a, lambda: tf.reduce_sum(v * x)),
    "both branches": lambda v, x, i, a: tf.cond(i < 1, lambda: tf.reduce_sum(v * v), lambda: tf.reduce_sum(v * x)),
    "no branch that is taken": lambda v, x, i, a: tf.cond(i > 99, lambda: tf.reduce_sum(v * x), lambda: tf.sin(a)),
    "nested": lambda v, x, i, a: _even(i, a, lambda: _even(i + 1, a, lambda: tf.reduce_sum(v * x))),
    "rows": lambda v, x, i, a: tf.reduce_sum(tf.gather(v, [i % 2])) * 2.0,
    "rows in a branch": lambda v, x, i, a: _even(i, a, lambda: tf.reduce_sum(tf.gather(v, [1, 0, 1]))),
    "rows and the whole": lambda v, x, i, a: tf.cond(
        i < 1, lambda: tf.reduce_sum(tf.gather(v, [1, 0, 1])), lambda: tf.reduce_sum(v * x)
    ),
}  # fmt: skip
READS |= {f"{name}, in an inner loop": _inner_loop(body) for name, body in READS.items()}


def _gradient_by(read: Any, use_resource: bool, is_known: bool) -> list[Any]:
    """The gradients of a loop by the variable that its body reads and by a tensor, whose shapes may be unknown."""
    values = np.arange(6.0, dtype=np.float32).reshape(2, 3)
    with tf.Graph().as_default():
        start: Any = values if is_known else lambda: tf.placeholder_with_default(values, [None, None])
        v = tf.get_variable("v", initializer=start, validate_shape=is_known, use_resource=use_resource)
        x = tf.placeholder_with_default(np.ones([2, 3], np.float32), [2, 3] if is_known else [None, None])
        body = lambda i, a: (i + 1, a * 0.5 + read(v, x, i, a))  # noqa: E731
        y = tf.while_loop(lambda i, _: i < 3, body, [0, 0.5])[1]
        by_v, by_x = tf.gradients(y, [v, x])
        fetches = [y, tf.convert_to_tensor(by_v), *([] if by_x is None else [by_x])]
        return run(fetches)  # type: ignore[no-any-return]


@pytest.mark.parametrize("is_known", [True, False])
@pytest.mark.parametrize("name", READS)
def test_resource_variables_in_loops_have_the_gradients_of_reference_variables(name: str, is_known: bool) -> None:
    expected = _gradient_by(READS[name], False, True)
    for found, value in zip(_gradient_by(READS[name], True, is_known), expected, strict=True):
        np.testing.assert_allclose(found, value, rtol=1e-6)


def test_a_handle_may_be_a_loop_variable() -> None:
    v = tf.get_variable("v", initializer=[1.0, 2.0], use_resource=True)

    def body(i: Any, a: Any, handle: Any) -> Any:
        return i + 1, a * tf.raw_ops.ReadVariableOp(resource=handle, dtype=tf.float32), handle

    y = tf.while_loop(lambda i, *_: i < 3, body, [0, tf.constant([1.0, 1.0]), v.handle])[1]
    np.testing.assert_allclose(run([y, *tf.gradients(y, [v.handle])]), [[1.0, 8.0], [3.0, 12.0]])
