"""Layers as objects: reuse, scopes, errors."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest

import tfmini as tf
from tests.ops.session_run import run
from tfmini.layers.base import to_tensor_shape

X = np.linspace(-1, 1, 12, dtype=np.float32).reshape(4, 3)


def test_a_layer_that_is_called_twice_shares_its_variables() -> None:
    layer = tf.layers.Dense(2)
    a, b = layer(X), layer(X)
    assert len(tf.trainable_variables()) == 2 and layer.built and layer.count_params() == 8
    assert (a.op.name, b.op.name) == ("dense/BiasAdd", "dense/BiasAdd_1")
    assert [w.op.name for w in layer.weights] == ["dense/kernel", "dense/bias"] and layer.scope_name == "dense"


def test_layers_of_one_name_share_variables_if_asked() -> None:
    tf.layers.dense(X, 2, name="d")
    with pytest.raises(ValueError, match="already exists"):
        tf.layers.dense(X, 2, name="d")
    tf.layers.dense(X, 2, name="d", reuse=True)
    with tf.variable_scope("s", reuse=tf.AUTO_REUSE):
        tf.layers.dense(X, 2, name="e")
        tf.layers.dense(X, 2, name="e")
    assert [v.op.name for v in tf.global_variables()] == ["d/kernel", "d/bias", "s/e/kernel", "s/e/bias"]


def test_a_frozen_layer_is_not_trained() -> None:
    layer = tf.layers.Dense(2, trainable=False)
    layer(X)
    assert tf.trainable_variables() == [] and len(layer.non_trainable_weights) == 2


def test_a_users_layer_has_weights_and_losses() -> None:
    class Scale(tf.layers.Layer):
        def build(self, input_shape) -> None:
            self.factor = self.add_weight("factor", [], initializer=tf.constant_initializer(3.0))

        def call(self, inputs):
            self.add_loss(tf.reduce_sum(self.factor))
            return inputs * self.factor

    layer = Scale()
    out = layer(X)
    assert [v.op.name for v in layer.variables] == ["scale/factor"]
    assert tf.losses.get_regularization_losses() == layer.losses
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        np.testing.assert_allclose(sess.run(out), X * 3)


@pytest.mark.parametrize(
    ("build", "told"),
    [
        (lambda: tf.layers.dense(tf.placeholder(tf.float32, [None]), 2), "expected min_ndim=2, found ndim=1"),
        (lambda: tf.layers.dense(tf.placeholder(tf.float32, [3, None]), 2), "last dimension of the inputs"),
        (lambda: tf.layers.conv2d(X, 2, 3), "expected ndim=4, found ndim=2"),
        (lambda: tf.layers.conv2d(np.zeros((1, 4, 4, 1), "f"), 2, (1, 2, 3)), "must be a tuple of 2 integers"),
        (lambda: tf.layers.conv2d(np.zeros((1, 4, 4, 1), "f"), 2, 3, padding="all"), "must be one of"),
        (lambda: tf.layers.batch_normalization(X, axis=5), "Invalid axis"),
        (lambda: tf.losses.mean_squared_error(X, X, weights=np.ones((3, 1), "f")), "can not be broadcast"),
        (lambda: tf.losses.mean_squared_error(X, X, reduction="no"), "Invalid Reduction Key"),
        (lambda: tf.losses.absolute_difference(None, X), "labels must not be None"),
        (lambda: tf.metrics.auc([1], [0.5], curve="X"), "curve must be either ROC or PR"),
        (lambda: tf.nn.dynamic_rnn(tf.nn.rnn_cell.GRUCell(2), np.zeros((1, 2, 3), "f")), "must give a dtype"),
    ],
)
def test_wrong_arguments_are_refused(build, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        build()


def test_dropout_follows_a_fed_training_flag() -> None:
    training = tf.placeholder_with_default(False, [])
    out = tf.layers.dropout(tf.ones([200]), 0.5, training=training)
    with tf.Session() as sess:
        assert (sess.run(out) == 1).all()
        assert set(np.unique(sess.run(out, {training: True}))) == {0.0, 2.0}


def test_layers_over_volumes_have_their_shapes() -> None:
    volume = tf.ones([1, 4, 4, 4, 2])
    assert tf.layers.conv3d(volume, 3, 2, dilation_rate=1).shape.as_list() == [1, 3, 3, 3, 3]
    assert tf.layers.conv3d_transpose(volume, 3, 2, strides=2).shape.as_list() == [1, 8, 8, 8, 3]
    assert run(tf.layers.average_pooling3d(volume, 2, 2)).tolist() == np.ones([1, 2, 2, 2, 2]).tolist()
    assert tf.layers.max_pooling3d(volume, 2, 2, data_format="channels_first").shape.as_list() == [1, 4, 2, 2, 1]


def test_losses_belong_to_the_inputs_that_they_were_made_for() -> None:
    x, y = tf.placeholder(tf.float32, [None, 3]), tf.placeholder(tf.float32, [None, 3])
    dense = tf.layers.Dense(2, kernel_regularizer=tf.nn.l2_loss, activity_regularizer=tf.reduce_sum, name="d")
    dense(x)
    dense(y)
    assert [len(dense.get_losses_for(inputs)) for inputs in (x, y, None)] == [1, 1, 1]
    assert dense.get_losses_for(x)[0].name == "d/ActivityRegularizer/truediv:0"
    norm = tf.layers.BatchNormalization()
    norm(x, training=True)
    assert [len(norm.get_updates_for(inputs)) for inputs in (x, y, None)] == [2, 0, 0]


def test_the_loss_of_an_activity_is_divided_by_the_batch_size() -> None:
    dense = tf.layers.Dense(1, kernel_initializer=tf.ones_initializer(), activity_regularizer=tf.reduce_sum)
    dense(tf.ones([4, 3]))
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        assert session.run(dense.losses) == [3.0]


def test_layers_can_be_copied_deeply() -> None:
    first = tf.layers.Dense(2, name="d")
    second = copy.deepcopy(first)
    x = tf.ones([1, 3])
    first(x)
    second(x)
    assert [v.name for v in second.variables] == ["d_1/kernel:0", "d_1/bias:0"]
    third = copy.deepcopy(first)  # of a layer in use: it shares the variables
    third(x)
    assert third.kernel is first.kernel and len(tf.global_variables()) == 4


def test_inputs_and_outputs_may_be_dictionaries() -> None:
    class Pair(tf.layers.Layer):
        def build(self, input_shape: Any) -> None:
            self.shapes = input_shape

        def call(self, inputs: Any) -> Any:
            return {"sum": inputs["a"] + inputs["b"]}

    layer = Pair()
    assert run(layer({"a": [[1.0, 2.0]], "b": tf.ones([1, 2])})["sum"]).tolist() == [[2.0, 3.0]]
    assert {name: shape.as_list() for name, shape in layer.shapes.items()} == {"a": [1, 2], "b": [1, 2]}


def test_volumes_with_channels_first_are_pooled_with_channels_last() -> None:
    """As TensorFlow's layer does, whose op on CPUs takes no other layout."""
    volume = tf.random_uniform([2, 3, 6, 4, 4], seed=1)
    first = tf.layers.max_pooling3d(volume, 2, 2, data_format="channels_first")
    last = tf.layers.max_pooling3d(tf.transpose(volume, [0, 2, 3, 4, 1]), 2, 2)
    assert first.op.type == "Transpose" and first.shape.as_list() == [2, 3, 3, 2, 2]
    with tf.Session() as session:
        one, other = session.run([first, tf.transpose(last, [0, 4, 1, 2, 3])])
    np.testing.assert_array_equal(one, other)


def test_the_regularizer_of_a_layer_is_computed_where_the_layer_is() -> None:
    setter = tf.train.replica_device_setter(ps_tasks=1, worker_device="/job:worker/task:0")
    with tf.device(setter):
        tf.layers.dense(tf.ones([2, 4]), 3, kernel_regularizer=lambda w: tf.nn.l2_loss(w, name="penalty"))
    op = tf.get_default_graph().get_operation_by_name("dense/kernel/Regularizer/penalty")
    assert op.device == "/job:worker/task:0"


def test_the_seeds_of_a_models_ops_are_tensorflows() -> None:
    tf.set_random_seed(1)
    y = tf.layers.conv2d(tf.placeholder(tf.float32, [None, 8, 8, 1]), 4, 3, activation=tf.nn.relu)
    y = tf.layers.conv3d(tf.expand_dims(tf.layers.separable_conv2d(y, 4, 3), -1), 2, 2)
    (y,), _ = tf.clip_by_global_norm([tf.layers.dense(tf.layers.flatten(y), 5)], 1.0)
    y = tf.nn.dropout(y, keep_prob=0.5)
    ids = tf.SparseTensor([[0, 0]], tf.constant([1], tf.int64), tf.placeholder(tf.int64, [2]))
    rows = tf.nn.safe_embedding_lookup_sparse(tf.get_variable("table", [4, 5]), ids)
    tf.contrib.layers.fully_connected(y + rows, 5)
    ops = [op for op in tf.get_default_graph().get_operations() if op.type == "RandomUniform"]
    # A graph's seed makes an op's by the number of the ops before it, so each layer must make as many as TensorFlow's.
    assert [op.get_attr("seed2") for op in ops] == [4, 22, 32, 53, 78, 115, 133, 200]


def test_the_axes_of_an_input_spec_are_numbers_within_its_shape() -> None:
    spec = tf.layers.InputSpec(ndim=3, axes={1: 3, "-1": 2})
    assert to_tensor_shape(spec).as_list() == [None, 3, 2]
    assert to_tensor_shape(tf.layers.InputSpec(shape=[1, None])).as_list() == [1, None]
    assert to_tensor_shape(tf.layers.InputSpec(min_ndim=2)).ndims is None
    with pytest.raises(ValueError, match="Axis 4 is greater than the maximum allowed value: 3"):
        tf.layers.InputSpec(shape=[1, None, 2, 3], axes={4: 5})
    with pytest.raises(TypeError, match="keys in axes must be integers"):
        tf.layers.InputSpec(ndim=2, axes={"last": 5})


def test_the_seeds_behind_batch_normalizations_are_tensorflows() -> None:
    tf.set_random_seed(1)
    y = tf.layers.conv2d(tf.placeholder(tf.float32, [None, 8, 8, 1]), 3, 3)
    y = tf.layers.dense(tf.layers.flatten(tf.layers.batch_normalization(y, training=True)), 4)
    tf.layers.dense(tf.layers.batch_normalization(y, training=True), 2)
    ops = [op for op in tf.get_default_graph().get_operations() if op.type == "RandomUniform"]
    assert [op.get_attr("seed2") for op in ops] == [4, 59, 115]


@pytest.mark.parametrize(
    ("layer", "wanted"),
    [
        (lambda: tf.contrib.layers.conv2d(tf.placeholder(tf.float32, [2, 4, 4, 3]), 2, 1), 22),
        (lambda: tf.contrib.layers.conv3d(tf.placeholder(tf.float32, [2, 4, 4, 4, 3]), 2, 1), 22),
        (lambda: tf.layers.flatten(tf.placeholder(tf.float32, [2, None, 3])), 6),
        (lambda: tf.layers.flatten(tf.placeholder(tf.float32, [0, 3, 4])), 12),
    ],
)
def test_the_seed_behind_a_layer_is_tensorflows(layer: Any, wanted: int) -> None:
    tf.set_random_seed(1)
    layer()
    tf.random_uniform([1])
    ops = [op for op in tf.get_default_graph().get_operations() if op.type == "RandomUniform"]
    assert ops[-1].get_attr("seed2") == wanted
