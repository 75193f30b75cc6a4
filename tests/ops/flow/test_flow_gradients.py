"""Gradients of conds and loops: by differences, of second order, on other devices, in training."""

from __future__ import annotations

import numpy as np
import pytest

import tfmini as tf
from tests.ops.session_run import run

# Gradients of several reads of one tensor add slices up as a whole, and say so.
pytestmark = pytest.mark.filterwarnings("ignore:Converting sparse IndexedSlices to a dense Tensor:UserWarning")

GRADIENT_CASES = {
    "cond": lambda x: tf.cond(x[0] > 1.0, lambda: x * x, lambda: tf.sin(x)),
    "cond other branch": lambda x: tf.cond(x[0] > 9.0, lambda: x * x, lambda: tf.sin(x)),
    "nested cond": lambda x: tf.cond(x[0] > 1.0, lambda: tf.cond(x[1] > 9.0, lambda: x, lambda: x * x[0]), lambda: -x),
    "while": lambda x: tf.while_loop(lambda i, y: i < 4, lambda i, y: (i + 1, y * x + tf.sin(y)), [0, x])[1],
    "while shape": lambda x: tf.while_loop(
        lambda i, y: i < 3,
        lambda i, y: (i + 1, tf.concat([y, x * y[:1]], 0)),
        [0, x],
        shape_invariants=[tf.TensorShape([]), tf.TensorShape([None])],
    )[1],
    "nested while": lambda x: tf.while_loop(
        lambda i, y: i < 3,
        lambda i, y: (i + 1, tf.while_loop(lambda j, z: j < i, lambda j, z: (j + 1, z * x), [0, y])[1] + x),
        [0, x],
    )[1],
    "cond in while": lambda x: tf.while_loop(
        lambda i, y: i < 4,
        lambda i, y: (i + 1, tf.cond(tf.equal(i % 2, 0), lambda: y * x, lambda: y + tf.exp(x))),
        [0, x],
    )[1],
    "while in cond": lambda x: tf.cond(
        x[0] > 1.0, lambda: tf.while_loop(lambda y: y[0] < 20.0, lambda y: y * x, [x]), lambda: x
    ),
    "nested cond in while": lambda x: tf.while_loop(
        lambda i, y: i < 4,
        lambda i, y: (i + 1, tf.cond(i < 2, lambda: tf.cond(i < 1, lambda: y * x, lambda: y * y), lambda: y + x * x)),
        [0, x],
    )[1],
    "while in cond in while": lambda x: tf.while_loop(
        lambda i, y: i < 3,
        lambda i, y: (
            i + 1,
            tf.cond(
                i > 0, lambda: tf.while_loop(lambda j, z: j < i, lambda j, z: (j + 1, z * x), [0, y])[1], lambda: y + x
            ),
        ),
        [0, x],
    )[1],
    "gather in while": lambda x: tf.while_loop(
        lambda i, y: i < 3, lambda i, y: (i + 1, y * tf.gather(x, [i % 2, 1])), [0, x]
    )[1],
    "map_fn": lambda x: tf.map_fn(lambda a: a * a * x[0], x),
    "nested map_fn": lambda x: tf.map_fn(lambda a: tf.map_fn(lambda b: a * b * b, x), x),
    "scan": lambda x: tf.scan(lambda a, b: a * b + tf.sin(a), x),
    "scan reverse": lambda x: tf.scan(lambda a, b: a * b + x[0], x, initializer=x[1], reverse=True),
    "foldl": lambda x: tf.foldl(lambda a, b: a * b + b, x),
    "foldr": lambda x: tf.foldr(lambda a, b: a * b + b, x, initializer=x[0]),
    "tensor array": lambda x: tf.TensorArray(tf.float64, 3).write(0, x).write(2, x * x).write(1, tf.sin(x)).concat(),
    "tensor array read twice": lambda x: (lambda array: array.read(0) * array.read(1) + array.read(0))(
        tf.TensorArray(tf.float64, 2, clear_after_read=False).unstack(x)
    ),
}


@pytest.mark.parametrize("name", GRADIENT_CASES)
@pytest.mark.parametrize("known_shape", [True, False])
def test_gradient_agrees_with_differences(name: str, known_shape: bool) -> None:
    x = tf.placeholder(tf.float64, [2] if known_shape else [None])
    y = GRADIENT_CASES[name](x)
    weights = tf.constant(np.linspace(0.3, 1.1, 60))
    flat = tf.reshape(y, [-1])
    loss = tf.reduce_sum(flat * weights[: tf.size(flat)])
    (grad,) = tf.gradients(loss, [x])
    if isinstance(grad, tf.IndexedSlices):
        grad = tf.convert_to_tensor(grad)
    point, step = np.array([1.3, 0.7]), 1e-6
    with tf.Session() as session:
        found = session.run(grad, {x: point})
        for axis in np.eye(2):
            ends = [session.run(loss, {x: point + side * step * axis}) for side in (1, -1)]
            np.testing.assert_allclose(found @ axis, (ends[0] - ends[1]) / (2 * step), rtol=1e-5, atol=1e-7)


def test_second_derivatives_pass_through_conds() -> None:
    x = tf.placeholder(tf.float64, [])
    y = tf.cond(x > 1.0, lambda: x**3.0, lambda: tf.cond(x > 0.0, lambda: x * x, lambda: x))
    first = tf.gradients(y, x)[0]
    second = tf.gradients(first, x)[0]
    assert run([first, second], {x: 2.0}) == [12.0, 12.0]
    assert run([first, second], {x: 0.5}) == [1.0, 2.0]


def test_two_gradients_of_one_loop_do_not_interfere() -> None:
    x = tf.constant([1.0, 2.0])
    y = tf.map_fn(lambda a: a * a, x)
    first, second = tf.gradients(y, x)[0], tf.gradients(y * 3.0, x)[0]
    np.testing.assert_allclose(run([first, second, first]), [[2.0, 4.0], [6.0, 12.0], [2.0, 4.0]])


def test_embedding_in_a_loop_has_sparse_gradients() -> None:
    v = tf.get_variable("v", initializer=np.arange(6.0, dtype=np.float32).reshape(3, 2), use_resource=True)
    _, y = tf.while_loop(
        lambda i, y: i < 3, lambda i, y: (i + 1, y + tf.reduce_sum(tf.gather(v, [i, 0]))), [0, tf.constant(0.0)]
    )
    (grad,) = tf.gradients(y, [v])
    assert isinstance(grad, tf.IndexedSlices)
    np.testing.assert_allclose(run(tf.convert_to_tensor(grad)), [[4.0, 4.0], [1.0, 1.0], [1.0, 1.0]])


def test_a_variable_is_trained_through_a_loop() -> None:
    w = tf.get_variable("w", initializer=0.5)
    _, y = tf.while_loop(lambda i, y: i < 3, lambda i, y: (i + 1, y * w), [0, tf.constant(1.0)])
    loss = tf.square(y - 8.0)
    train = tf.train.GradientDescentOptimizer(0.001).minimize(loss)
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        for _ in range(300):
            session.run(train)
        assert abs(session.run(w) - 2.0) < 1e-3


@pytest.mark.parametrize("taken, expected", [(True, 8.0), (False, 0.0)])
def test_gradients_may_be_on_another_device_than_their_loop(taken: bool, expected: float) -> None:
    pred, x = tf.placeholder(tf.bool, []), tf.constant(1.0)
    with tf.device("/cpu:0"):
        _, z = tf.while_loop(
            lambda i, _: i < 3, lambda i, x: (i + 1, tf.cond(pred, lambda: x * 2.0, lambda: 10.0)), [0, x]
        )
    with tf.device("/cpu:1"):
        (grad,) = tf.gradients(z, x)
    with tf.Session(config=tf.ConfigProto(device_count={"CPU": 2})) as session:
        assert session.run(grad, {pred: taken}) == expected


def test_slices_are_the_gradient_of_a_loop_variable_that_forgets_its_last_value() -> None:
    """The gradient of a gather comes into the backprop loop as slices, of which the next iteration has none."""
    x = tf.placeholder(tf.float32, [None, 2])
    y = tf.while_loop(lambda i, _: i < 3, lambda i, a: (i + 1, x * tf.cast(i + 1, tf.float32)), [0, x])[1]
    (grad,) = tf.gradients(tf.gather(y, [1, 1, 0]), [x])
    assert run(grad, {x: np.ones([3, 2])}).tolist() == [[3.0, 3.0], [6.0, 6.0], [0.0, 0.0]]


def test_the_function_of_a_vectorized_map_may_ask_for_gradients_of_its_row() -> None:
    """TF-Privacy's vectorized optimizers do so; the values are those of TensorFlow 1.15.5."""
    x = tf.constant([3.0, 0.5])
    losses = tf.reduce_sum((tf.constant(np.arange(6.0, dtype=np.float32).reshape(3, 2)) - x) ** 2, 1)
    rows = tf.vectorized_map(lambda loss: (tf.gradients(loss, x)[0], loss), losses)
    assert [row.shape.as_list() for row in rows] == [[3, 2], [3]]
    assert run(rows[0]).tolist() == [[6.0, -1.0], [2.0, -5.0], [-2.0, -9.0]]
