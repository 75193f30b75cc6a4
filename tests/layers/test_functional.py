"""Layers as functions: each is its class, made and applied, with the class's arguments."""

from __future__ import annotations

import inspect

import numpy as np
import pytest

import tfmini as tf

IMAGES = np.ones((2, 6, 5, 3), np.float32)
VOLUMES = np.ones((2, 3, 4, 5, 3), np.float32)
PAIRS = [
    (tf.layers.conv1d, tf.layers.Conv1D),
    (tf.layers.conv2d, tf.layers.Conv2D),
    (tf.layers.conv3d, tf.layers.Conv3D),
    (tf.layers.conv2d_transpose, tf.layers.Conv2DTranspose),
    (tf.layers.conv3d_transpose, tf.layers.Conv3DTranspose),
    (tf.layers.dense, tf.layers.Dense),
    (tf.layers.max_pooling2d, tf.layers.MaxPooling2D),
    (tf.layers.separable_conv1d, tf.layers.SeparableConv1D),
    (tf.layers.separable_conv2d, tf.layers.SeparableConv2D),
]


@pytest.mark.parametrize(("function", "layer"), PAIRS)
def test_a_function_takes_the_arguments_of_its_class(function, layer) -> None:
    own = [name for name, p in inspect.signature(layer).parameters.items() if p.kind is not p.VAR_KEYWORD]
    found = list(inspect.signature(function).parameters)
    assert found[: len(own) + 1] == ["inputs", *own]
    assert found[len(own) + 1 :] == ([] if "pool" in function.__name__ else ["reuse"])
    assert function.__name__ in function.__doc__ and layer.__name__ in function.__doc__


def test_defaults_are_spelled_as_in_tensorflow() -> None:
    defaults = {name: p.default for name, p in inspect.signature(tf.layers.conv3d).parameters.items()}
    assert defaults["strides"] == defaults["dilation_rate"] == (1, 1, 1)
    assert (defaults["padding"], defaults["use_bias"], defaults["reuse"]) == ("valid", True, None)


def test_arguments_can_be_given_by_position_and_by_name() -> None:
    by_position = tf.layers.conv2d(IMAGES, 4, 3, 2, "same")
    by_name = tf.layers.conv2d(inputs=IMAGES, filters=4, kernel_size=3, strides=2, padding="same")
    assert by_position.shape.as_list() == by_name.shape.as_list() == [2, 3, 3, 4]
    with pytest.raises(TypeError, match="filters"):
        tf.layers.conv2d(IMAGES)
    with pytest.raises(TypeError, match="colour"):
        tf.layers.conv2d(IMAGES, 4, 3, colour="red")
    with pytest.raises(TypeError, match="reuse"):
        tf.layers.max_pooling2d(IMAGES, 2, 2, reuse=True)


def test_transposed_convolutions_of_volumes_have_tensorflows_names() -> None:
    outputs = tf.layers.conv3d_transpose(VOLUMES, 2, 3, 2)
    assert outputs.shape.as_list() == [2, 7, 9, 11, 2]
    convolution = outputs.op.inputs[0].op
    assert (convolution.name, convolution.type) == ("conv3d_transpose/conv3d_transpose", "Conv3DBackpropInputV2")
