"""Layers of `tf.contrib.layers`: names, collections, shapes."""

from __future__ import annotations

import numpy as np

import tfmini as tf
from tests.layers.contrib.images import IMAGES, names
from tests.ops.session_run import run

layers, slim = tf.contrib.layers, tf.contrib.slim


def test_variables_and_outputs_have_tensorflows_names_and_collections() -> None:
    net = layers.conv2d(IMAGES, 4, 3, outputs_collections="ends", variables_collections=["mine"])
    net = layers.max_pool2d(net, 2, scope="pool")
    net = layers.flatten(net)
    net = layers.fully_connected(net, 5, weights_regularizer=layers.l2_regularizer(0.1))
    assert names() == ["Conv/weights", "Conv/biases", "fully_connected/weights", "fully_connected/biases"]
    assert names(tf.GraphKeys.MODEL_VARIABLES) == names() and names("mine") == names()[:2]
    assert net.op.name == "fully_connected/Relu" and net.shape.as_list() == [2, 5]
    assert list(layers.utils.convert_collection_to_dict("ends")) == ["Conv"]
    assert len(tf.losses.get_regularization_losses()) == 1
    assert run(net).min() >= 0


def test_normalizer_replaces_biases() -> None:
    slim.conv2d(IMAGES, 2, 3, normalizer_fn=slim.batch_norm, normalizer_params={"is_training": False}, scope="c")
    assert names() == ["c/weights", "c/BatchNorm/beta", "c/BatchNorm/moving_mean", "c/BatchNorm/moving_variance"]


def test_repeat_and_stack_number_their_scopes_and_reuse_shares_them() -> None:
    net = slim.repeat(IMAGES, 2, slim.conv2d, 3, [3, 3], scope="block")
    slim.stack(layers.flatten(net), slim.fully_connected, [4, 5], scope="fc")
    assert [n for n in names() if n.endswith("weights")] == [
        "block/block_1/weights", "block/block_2/weights", "fc/fc_1/weights", "fc/fc_2/weights",
    ]  # fmt: skip
    before = len(names())
    slim.conv2d(IMAGES, 3, 3, scope="block/block_1", reuse=True)
    assert len(names()) == before


def test_outputs_have_their_shapes() -> None:
    up = layers.conv2d_transpose(IMAGES, 5, 3, stride=2)
    deep = layers.separable_conv2d(IMAGES, 6, 3, depth_multiplier=2, stride=2)
    shallow = slim.separable_conv2d(IMAGES, None, 3)
    norm = layers.layer_norm(IMAGES)
    values = run([up, deep, shallow, norm, layers.softmax(IMAGES), layers.one_hot_encoding([0, 2], 3)])
    assert [v.shape for v in values] == [
        (2, 16, 16, 5), (2, 4, 4, 6), (2, 8, 8, 3), (2, 8, 8, 3), (2, 8, 8, 3), (2, 3),
    ]  # fmt: skip
    np.testing.assert_allclose(values[3].reshape(2, -1).std(1), 1, rtol=1e-3)
