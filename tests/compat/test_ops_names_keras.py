"""The private names that Keras's backend reads."""

from __future__ import annotations

from typing import Any

import numpy as np

import tfmini as tf
from tfmini.compat import internals


def private(owner: Any, name: str) -> Any:
    """What an owner has under a name that begins with an underscore."""
    return getattr(owner, f"_{name}")


def ops_module() -> Any:
    return internals.module("python.framework.ops")


def test_tensor_like_takes_what_stands_for_tensors() -> None:
    ops = ops_module()
    sparse = tf.SparseTensor([[0]], [1.0], [1])
    assert [isinstance(x, ops._TensorLike) for x in (tf.ones(1), sparse, 1)] == [True, True, False]
    assert ops.is_dense_tensor_like(tf.Variable(1.0))


def test_graph_element_of_a_variable_is_its_tensor() -> None:
    element_of = ops_module()._as_graph_element
    v = tf.Variable(1.0, use_resource=True)
    assert element_of(v).op.graph is tf.get_default_graph()
    assert element_of(tf.ones(1)) is None


def test_fields_of_tensors_and_shapes_have_their_private_names() -> None:
    x = tf.placeholder(tf.float32, [None, 3], name="x")
    assert [getattr(x, name) for name in ("_op", "_value_index", "_dtype")] == [x.op, 0, tf.float32]
    assert x.shape._dims[1] == tf.Dimension(3)


def test_device_functions_are_applied_to_an_object_like_an_op() -> None:
    class Captured:
        device: Any = None

        def _set_device(self, device: Any) -> None:
            self.device = device

    captured = Captured()
    with tf.device("/job:ps"), tf.device("/cpu:0"):
        tf.get_default_graph()._apply_device_functions(captured)
    assert captured.device == "/job:ps/device:CPU:0"


def test_callable_from_options_connects_tensors() -> None:
    x, fed = tf.placeholder(tf.float32, [2], name="x"), tf.placeholder(tf.float32, [], name="fed")
    draw = tf.random_uniform([2]) + fed
    both = tf.identity(x), tf.identity(draw)
    count = tf.Variable(0, name="count")
    options = internals.module("core.protobuf.config_pb2").CallableOptions()
    options.feed.append(fed.name)
    options.fetch.extend(t.name for t in both)
    options.target.append(tf.assign_add(count, 1).op.name)
    connection = options.tensor_connection.add()
    connection.from_tensor, connection.to_tensor = draw.name, x.name
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        call = session._make_callable_from_options(options)
        first, second = call(np.float32(5.0))
        assert (first == second).all() and (first > 5).all()  # one draw, for the input and for the fetch
        assert session.run(count) == 1
