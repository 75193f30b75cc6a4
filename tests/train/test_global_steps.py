"""The global step of a graph."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

import tfmini as tf
from tests.ops.stateful import run


def test_the_global_step_is_made_once() -> None:
    assert tf.train.get_global_step() is None
    step = tf.train.get_or_create_global_step()
    assert tf.train.get_or_create_global_step() is tf.train.get_global_step() is step
    assert step.name == "global_step:0" and step.dtype.base_dtype == tf.int64 and not step.trainable
    assert tf.get_default_graph().get_collection(tf.GraphKeys.TRAINABLE_VARIABLES) == []
    with pytest.raises(ValueError, match=r'^"global_step" already exists\.$'):
        tf.train.create_global_step()


def test_a_tensor_named_global_step_is_found() -> None:
    tensor = tf.constant(3, name="global_step")
    assert tf.train.get_global_step() is tensor
    session = SimpleNamespace(run=run)
    assert tf.train.global_step(session, tensor) == 3


@pytest.mark.parametrize(
    "make,message",
    [
        (lambda: 3, 'Existing "global_step" must be a Variable or Tensor: 3.'),
        (lambda: tf.constant(1.0), "Existing \"global_step\" does not have integer type: <dtype: 'float32'>"),
        (lambda: tf.constant([1]), 'Existing "global_step" is not scalar: (1,)'),
    ],
)
def test_a_global_step_of_the_wrong_type_is_refused(make: Any, message: str) -> None:
    with pytest.raises(TypeError) as caught:
        tf.train.assert_global_step(make())
    assert str(caught.value) == message
