"""Layers as functions: each is its class, made and applied, with the class's arguments."""

from __future__ import annotations

import inspect
from dataclasses import dataclass

import numpy as np
import pytest

import tfmini as tf
from tfmini.layers.core import sharing, without

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


@dataclass
class Ending:
    """Arguments of several functions."""

    end: str = "."
    times: int = 1


@sharing(Ending, before={"capital": "times"})
def spoken(given: Ending, word: str, *, capital: bool = False, after: str = "") -> str:
    """Says a word."""
    return (word.capitalize() if capital else word) + given.end * given.times + after


def test_shared_arguments_come_after_a_functions_own() -> None:
    assert str(inspect.signature(spoken)) == (
        "(word: 'str', end: 'str' = '.', capital: 'bool' = False, times: 'int' = 1, after: 'str' = '') -> 'str'"
    )
    assert (spoken.__name__, spoken.__doc__) == ("spoken", "Says a word.")
    assert spoken("yes") == "yes." and spoken("yes", "!", True, 2) == spoken("yes", times=2, capital=True, end="!")
    with pytest.raises(TypeError, match="word"):
        spoken()
    with pytest.raises(TypeError, match="loud"):
        spoken("yes", loud=True)


def test_a_function_without_an_argument_of_another_keeps_its_default() -> None:
    def power(base: int, exponent: int = 2, modulus: int = 7) -> int:
        return base**exponent % modulus

    other = inspect.Parameter("divisor", inspect.Parameter.POSITIONAL_OR_KEYWORD, default=5)
    assert without(power, "exponent")(3, 8) == 1
    assert without(power, "exponent", modulus=other)(3) == without(power, "exponent", modulus=other)(3, divisor=5) == 4
    with pytest.raises(TypeError, match="exponent"):
        without(power, "exponent")(3, exponent=3)


def test_batch_normalization_and_dropout_take_the_arguments_of_their_calls() -> None:
    names = list(inspect.signature(tf.layers.batch_normalization).parameters)
    assert names[14:18] == ["training", "trainable", "name", "reuse"]
    kept = tf.layers.dropout(IMAGES, 1.0)
    with tf.Session() as session:
        assert (session.run(kept) == IMAGES).all()
