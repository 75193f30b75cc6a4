"""Layers as objects: reuse, scopes, errors; cells' wrappers; sampled losses."""

from __future__ import annotations

import numpy as np
import pytest

import tfmini as tf

X = np.linspace(-1, 1, 12, dtype=np.float32).reshape(4, 3)


def test_a_layer_keeps_its_variables() -> None:
    layer = tf.layers.Dense(2)
    a, b = layer(X), layer(X)
    assert len(tf.trainable_variables()) == 2 and layer.built and layer.count_params() == 8
    assert (a.op.name, b.op.name) == ("dense/BiasAdd", "dense/BiasAdd_1")
    assert [w.op.name for w in layer.weights] == ["dense/kernel", "dense/bias"] and layer.scope_name == "dense"


def test_reuse_by_name() -> None:
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


def test_own_layers() -> None:
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
def test_errors(build, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        build()


def test_weights_are_checked_in_the_step_when_shapes_are_not_known() -> None:
    weights = tf.placeholder(tf.float32, [None, 1])
    loss = tf.losses.mean_squared_error(X, X, weights)
    with tf.Session() as sess:
        assert sess.run(loss, {weights: np.ones((4, 1))}) == 0
        with pytest.raises(tf.errors.InvalidArgumentError, match="can not be broadcast"):
            sess.run(loss, {weights: np.ones((3, 1))})


def test_dropout_by_a_placeholder() -> None:
    training = tf.placeholder_with_default(False, [])
    out = tf.layers.dropout(tf.ones([200]), 0.5, training=training)
    with tf.Session() as sess:
        assert (sess.run(out) == 1).all()
        assert set(np.unique(sess.run(out, {training: True}))) == {0.0, 2.0}


def test_wrapped_cells() -> None:
    cells = tf.nn.rnn_cell
    cell = cells.DropoutWrapper(cells.BasicLSTMCell(3), output_keep_prob=0.5, seed=1)
    cell = cells.MultiRNNCell([cell, cells.ResidualWrapper(cells.GRUCell(3))])
    outputs, state = tf.nn.dynamic_rnn(cell, tf.ones([2, 4, 3]), dtype=tf.float32)
    grads = tf.gradients(outputs, tf.trainable_variables())
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        values, last, derived = sess.run([outputs, state, grads])
    assert values.shape == (2, 4, 3) and last[0].c.shape == (2, 3) and len(derived) == 6
    names = [v.op.name for v in tf.trainable_variables()]
    assert names[0] == "rnn/multi_rnn_cell/cell_0/basic_lstm_cell/kernel"


def test_an_lstms_kernels_are_cut_as_asked() -> None:
    cell = tf.nn.rnn_cell.LSTMCell(3, num_proj=2, num_unit_shards=2, num_proj_shards=3)
    outputs, _ = tf.nn.dynamic_rnn(cell, tf.ones([2, 4, 2]), dtype=tf.float32)
    assert [v.op.name.removeprefix("rnn/lstm_cell/") for v in tf.trainable_variables()] == [
        "kernel/part_0", "kernel/part_1", "bias",
        "projection/kernel/part_0", "projection/kernel/part_1", "projection/kernel/part_2",
    ]  # fmt: skip
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        assert sess.run(outputs).shape == (2, 4, 2)


def test_variational_dropout_drops_the_same_places_in_every_step() -> None:
    cells = tf.nn.rnn_cell
    still = cells.BasicRNNCell(50, activation=tf.ones_like)
    with pytest.raises(ValueError, match="dtype must be provided"):
        cells.DropoutWrapper(still, output_keep_prob=0.5, variational_recurrent=True)
    with pytest.raises(ValueError, match="input_size must be provided"):
        cells.DropoutWrapper(still, 0.5, variational_recurrent=True, dtype=tf.float32)
    cell = cells.DropoutWrapper(still, output_keep_prob=0.5, variational_recurrent=True, dtype=tf.float32)
    outputs, _ = tf.nn.dynamic_rnn(cell, tf.ones([2, 4, 3]), dtype=tf.float32)
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        values, again = sess.run(outputs), sess.run(outputs)
    assert set(np.unique(values)) == {0.0, 2.0} and (values == values[:1, :1]).all()
    assert (values != again).any()


def test_a_visitor_says_which_parts_of_a_state_are_dropped() -> None:
    cells = tf.nn.rnn_cell
    cell = cells.MultiRNNCell([cells.BasicLSTMCell(40), cells.GRUCell(40)])
    seen = []

    def visitor(state):
        seen.append(type(state).__name__)
        return [True, False] if type(state) is tuple else True

    wrapped = cells.DropoutWrapper(cell, state_keep_prob=0.5, dropout_state_filter_visitor=visitor)
    _, state = wrapped(tf.ones([1, 3]), wrapped.zero_state(1, tf.float32))
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        (c, h), gru = sess.run(state)
    assert seen == ["tuple", "LSTMStateTuple", "Tensor", "Tensor"]
    assert (c == 0).any() and (h == 0).any() and not (gru == 0).any()


def test_samplers_draw_distinct_classes_as_often_as_they_say() -> None:
    true = tf.constant([[0], [3]], tf.int64)
    drawn = tf.nn.log_uniform_candidate_sampler(true, 1, 5, True, 10, seed=3)
    seen = np.zeros(10)
    expected = []
    with tf.Session() as sess:
        for _ in range(200):
            sampled, counts, _ = sess.run(drawn)
            assert len(set(sampled)) == 5
            seen[sampled] += 1
            expected.append(counts[0, 0])
    # As in TensorFlow, a draw that needed no second try counts p * n, which is more than its share of 1.
    assert seen[0] / 200 == pytest.approx(np.mean(expected), abs=0.15) and seen[0] > seen[9]


def test_sampled_losses_leave_out_accidental_hits() -> None:
    weights, biases = tf.constant(np.eye(6, 3, dtype="f")), tf.zeros([6])
    values = (tf.constant([1, 2], tf.int64), tf.constant([[0.5]]), tf.constant([0.5, 0.5]))
    labels = tf.constant([[1]], tf.int64)
    args = (weights, biases, labels, tf.ones([1, 3]), 2, 6)
    kept = tf.nn.sampled_softmax_loss(*args, sampled_values=values, remove_accidental_hits=False)
    without = tf.nn.sampled_softmax_loss(*args, sampled_values=values)
    with tf.Session() as sess:
        assert sess.run(kept) == pytest.approx(np.log(3), rel=1e-5)
        assert sess.run(without) == pytest.approx(np.log(2), rel=1e-5)
