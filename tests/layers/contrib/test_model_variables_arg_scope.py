"""Defaults of arguments by scope."""

from __future__ import annotations

import pytest

import tfmini as tf
from tests.layers.contrib.images import IMAGES, names

layers, slim = tf.contrib.layers, tf.contrib.slim


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


def test_a_users_function_takes_defaults_from_the_scope() -> None:
    @slim.add_arg_scope
    def add(x: int, y: int = 1) -> int:
        return x + y

    with slim.arg_scope([add], y=10):
        assert add(1) == 11 and add(1, y=2) == 3
    assert add(1) == 2 and slim.arg_scoped_arguments(add) == ("y",)
