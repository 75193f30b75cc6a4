"""Programs with ``tf.py_function``, for both implementations. This module imports neither."""

from __future__ import annotations

from typing import Any


def values(tf: Any) -> list[Any]:
    """What functions get, compute and return."""
    found: list[Any] = []

    def control_flow(x: Any) -> Any:
        total = tf.constant(0.0)
        for each in x:
            total = total + (each if each > 1.5 else -each)
        return tf.cond(total > 0.0, lambda: total * 10.0, lambda: total), tf.while_loop(
            lambda i: i < 5.0, lambda i: i + total, [tf.constant(0.0)]
        )

    def random_once(x: Any) -> Any:
        drawn = tf.random_uniform([])
        return drawn - float(drawn), tf.executing_eagerly()

    def described(x: Any) -> Any:
        return [len(x), x.shape[0], int(x[1]), range(5)[tf.constant(3)], f"{x[0]:.1f}", x.numpy().sum(), x.dtype.name]

    with tf.Graph().as_default(), tf.Session() as session:
        x = tf.constant([1.0, 2.0, 3.0])
        types = [tf.int32, tf.int32, tf.int32, tf.int32, tf.string, tf.float32, tf.string]
        for function, kinds in [
            (control_flow, [tf.float32, tf.float32]), (random_once, [tf.float32, tf.bool]), (described, types),
        ]:  # fmt: skip
            found.append(session.run(tf.py_function(function, [x], kinds)))
        found.append(session.run(tf.py_function(lambda: None, [], [])))
        data = tf.data.Dataset.from_tensor_slices([b"a", b"bcd"])
        data = data.map(lambda text: tf.py_function(lambda t: len(t.numpy()), [text], tf.int32))
        following = tf.data.make_one_shot_iterator(data).get_next()
        found.append([session.run(following), session.run(following)])
    return [[value.item() if hasattr(value, "item") else value for value in row or []] for row in found]


def gradients(tf: Any) -> list[Any]:
    """Gradients of functions that branch on values, have several results, or lose the connection."""

    def log_huber(x: Any, m: Any) -> Any:
        return x**2 if tf.abs(x) <= m else m**2 * (1 - 2 * tf.log(m) + tf.log(x**2))

    with tf.Graph().as_default(), tf.Session() as session:
        x, m = tf.placeholder(tf.float32, []), tf.constant(2.0)
        y = tf.py_function(log_huber, [x, m], tf.float32)
        a, b = tf.py_function(lambda x: (x * 4.0, x / 4.0), [x], [tf.float32, tf.float32])
        cut = tf.py_function(lambda x: x.numpy() ** 2, [x], tf.float32)
        found = [*tf.gradients(y, [x, m]), tf.gradients(a + 3.0 * b, x)[0], tf.gradients(cut, x)[0]]
        assert found[0].shape.as_list() == []
        return [[float(v) for v in session.run(found, {x: value})] for value in (1.0, 5.0)]


def errors(tf: Any) -> list[str]:
    """The classes of the errors of functions that return what was not declared."""
    found = []
    with tf.Graph().as_default(), tf.Session() as session:
        for function in [
            lambda: tf.constant(3), lambda: "text", lambda: 1 / 0, lambda: tf.Variable(1.0, use_resource=True),
            lambda: tf.constant([1.0, 2.0])[tf.constant("no")],
        ]:  # fmt: skip
            try:
                session.run(tf.py_function(function, [], tf.float32))
            except tf.errors.OpError as error:
                found.append(type(error).__name__)
    return found
