"""tf.contrib.layers, slim and framework: names, collections, defaults by scope."""

from __future__ import annotations

import numpy as np
import pytest

import tfmini as tf

slim = tf.contrib.slim
layers = tf.contrib.layers
IMAGES = np.sin(np.arange(2 * 8 * 8 * 3, dtype=np.float32)).reshape(2, 8, 8, 3)


def names(collection: str = tf.GraphKeys.GLOBAL_VARIABLES) -> list[str]:
    return [v.op.name for v in tf.get_collection(collection)]


def run(*fetches):
    with tf.Session() as sess:
        sess.run([tf.global_variables_initializer(), tf.local_variables_initializer()])
        return sess.run(list(fetches))


def test_names_and_collections() -> None:
    net = layers.conv2d(IMAGES, 4, 3, outputs_collections="ends", variables_collections=["mine"])
    net = layers.max_pool2d(net, 2, scope="pool")
    net = layers.flatten(net)
    net = layers.fully_connected(net, 5, weights_regularizer=layers.l2_regularizer(0.1))
    assert names() == ["Conv/weights", "Conv/biases", "fully_connected/weights", "fully_connected/biases"]
    assert names(tf.GraphKeys.MODEL_VARIABLES) == names() and names("mine") == names()[:2]
    assert net.op.name == "fully_connected/Relu" and net.shape.as_list() == [2, 5]
    assert list(layers.utils.convert_collection_to_dict("ends")) == ["Conv"]
    assert len(tf.losses.get_regularization_losses()) == 1
    assert run(net)[0].min() >= 0


def test_arg_scope_sets_defaults_that_calls_override() -> None:
    with slim.arg_scope([slim.conv2d, slim.fully_connected], activation_fn=None, biases_initializer=None) as outer:
        with slim.arg_scope([slim.conv2d], padding="VALID"):
            first = slim.conv2d(IMAGES, 2, 3, scope="a")
        second = slim.conv2d(IMAGES, 2, 3, scope="b", activation_fn=tf.nn.relu)
    with slim.arg_scope(outer):
        slim.fully_connected(layers.flatten(IMAGES), 2, scope="c")
    assert first.shape.as_list() == [2, 6, 6, 2] and second.shape.as_list() == [2, 8, 8, 2]
    assert names() == ["a/weights", "b/weights", "c/weights"]
    assert first.op.type == "Conv2D" and second.op.type == "Relu"


def test_arg_scope_refuses_what_it_cannot_set() -> None:
    with pytest.raises(ValueError, match="is not decorated with @add_arg_scope"):  # noqa: SIM117
        with slim.arg_scope([tf.matmul], transpose_a=True):
            pass
    with pytest.raises(ValueError, match="kwargs must be empty"):  # noqa: SIM117
        with slim.arg_scope({}, x=1):
            pass


def test_own_functions_take_part() -> None:
    @slim.add_arg_scope
    def add(x: int, y: int = 1) -> int:
        return x + y

    with slim.arg_scope([add], y=10):
        assert add(1) == 11 and add(1, y=2) == 3
    assert add(1) == 2 and slim.arg_scoped_arguments(add) == ("y",)


def test_batch_norm_updates() -> None:
    net = layers.batch_norm(IMAGES, decay=0.5, scope="bn")
    assert names() == ["bn/beta", "bn/moving_mean", "bn/moving_variance"]
    updates = tf.get_collection(tf.GraphKeys.UPDATE_OPS)
    assert len(updates) == 2
    mean = tf.global_variables()[1]
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        value = sess.run(net)
        sess.run(updates)
        np.testing.assert_allclose(sess.run(mean), IMAGES.mean((0, 1, 2)) / 2, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(value.mean((0, 1, 2)), 0, atol=1e-5)


def test_batch_norm_in_place() -> None:
    net = layers.batch_norm(IMAGES, decay=0.0, updates_collections=None)
    assert tf.get_collection(tf.GraphKeys.UPDATE_OPS) == []
    mean = next(v for v in tf.global_variables() if v.op.name.endswith("moving_mean"))
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        sess.run(net)
        np.testing.assert_allclose(sess.run(mean), IMAGES.mean((0, 1, 2)), rtol=1e-4, atol=1e-6)


def test_normalizer_replaces_biases() -> None:
    slim.conv2d(IMAGES, 2, 3, normalizer_fn=slim.batch_norm, normalizer_params={"is_training": False}, scope="c")
    assert names() == ["c/weights", "c/BatchNorm/beta", "c/BatchNorm/moving_mean", "c/BatchNorm/moving_variance"]


def test_repeat_stack_and_reuse() -> None:
    net = slim.repeat(IMAGES, 2, slim.conv2d, 3, [3, 3], scope="block")
    slim.stack(layers.flatten(net), slim.fully_connected, [4, 5], scope="fc")
    assert [n for n in names() if n.endswith("weights")] == [
        "block/block_1/weights", "block/block_2/weights", "fc/fc_1/weights", "fc/fc_2/weights",
    ]  # fmt: skip
    before = len(names())
    slim.conv2d(IMAGES, 3, 3, scope="block/block_1", reuse=True)
    assert len(names()) == before


def test_shapes_of_the_others() -> None:
    up = layers.conv2d_transpose(IMAGES, 5, 3, stride=2)
    deep = layers.separable_conv2d(IMAGES, 6, 3, depth_multiplier=2, stride=2)
    shallow = slim.separable_conv2d(IMAGES, None, 3)
    norm = layers.layer_norm(IMAGES)
    values = run(up, deep, shallow, norm, layers.softmax(IMAGES), layers.one_hot_encoding([0, 2], 3))
    assert [v.shape for v in values] == [
        (2, 16, 16, 5), (2, 4, 4, 6), (2, 8, 8, 3), (2, 8, 8, 3), (2, 8, 8, 3), (2, 3),
    ]  # fmt: skip
    np.testing.assert_allclose(values[3].reshape(2, -1).std(1), 1, rtol=1e-3)


def test_dropout_follows_is_training() -> None:
    on = layers.dropout(tf.ones([1000]), 0.5)
    off = layers.dropout(tf.ones([1000]), 0.5, is_training=False)
    on_value, off_value = run(on, off)
    assert set(np.unique(on_value)) == {0.0, 2.0} and (off_value == 1).all()


def test_finding_variables() -> None:
    framework = tf.contrib.framework
    with tf.variable_scope("a"):
        framework.model_variable("w", shape=[2], initializer=tf.zeros_initializer())
        framework.variable("b", shape=[1], trainable=False)
    framework.local_variable(1.0, name="local")
    assert [v.op.name for v in framework.get_variables("a")] == ["a/w", "a/b"]
    assert [v.op.name for v in framework.get_variables_by_suffix("w")] == ["a/w"]
    assert [v.op.name for v in framework.get_model_variables()] == ["a/w"]
    assert [v.op.name for v in framework.get_local_variables()] == ["local"]
    assert [v.op.name for v in framework.get_variables_to_restore(exclude=["a/b"])] == ["a/w"]
    assert framework.get_unique_variable("a/w").op.name == "a/w"
    with pytest.raises(ValueError, match="does not uniquely identify"):
        framework.get_unique_variable("c")


@pytest.mark.parametrize(
    ("regularizer", "wanted"),
    [
        (lambda: layers.l1_regularizer(0.5), 0.5 * 3),
        (lambda: layers.l2_regularizer(0.5), 0.5 * 5 / 2),
        (lambda: layers.l1_l2_regularizer(0.5, 0.5), 0.5 * 3 + 0.5 * 5 / 2),
        (lambda: layers.sum_regularizer([layers.l1_regularizer(1.0), None]), 3),
    ],
)
def test_regularizers(regularizer, wanted: float) -> None:
    assert run(regularizer()(tf.constant([1.0, -2.0])))[0] == pytest.approx(wanted)


def test_regularizers_check_their_scale() -> None:
    assert layers.l2_regularizer(0.0)(tf.constant(1.0)) is None
    for scale, told in ((1, "cannot be an integer"), (-1.0, "less than 0")):
        with pytest.raises(ValueError, match=told):
            layers.l2_regularizer(scale)


def test_initializers_have_the_wanted_spread() -> None:
    uniform = layers.xavier_initializer(seed=1)([300, 200])
    normal = layers.variance_scaling_initializer(seed=1)([300, 200])
    u, n = run(uniform, normal)
    assert u.std() == pytest.approx(np.sqrt(2 / 500), rel=0.02)
    assert n.std() == pytest.approx(np.sqrt(2.0 / 300), rel=0.02)
