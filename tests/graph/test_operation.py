"""Operations and tensors of a graph."""

from __future__ import annotations

import pytest

import tfmini as tf


def test_an_input_can_be_replaced_by_one_of_its_type_and_shape_only() -> None:
    a, b = tf.constant(1), tf.constant(2)
    total = a + b
    total.op._update_input(0, b)
    assert b.consumers() == [total.op, total.op]
    assert a.experimental_ref() == a.experimental_ref() != b.experimental_ref()
    with pytest.raises(tf.errors.InvalidArgumentError, match="incompatible shapes"):
        total.op._update_input(0, tf.constant([1, 2]))
    with pytest.raises(tf.errors.OutOfRangeError, match="Input index"):
        total.op._update_input(2, a)


@pytest.mark.parametrize("index", [0, 1])
def test_an_input_of_another_dtype_is_refused_before_the_step(index: int) -> None:
    """``_update_input`` itself accepts it, as in TensorFlow, and another update may put it right."""
    total, text, number = tf.add(tf.constant(1), tf.constant(2), name="total"), tf.constant("x"), tf.constant(5)
    total.op._update_input(index, text)
    wrong = rf"Input {index} of node total was passed string from {text.name} incompatible with expected int32\."
    with tf.Session() as session:
        with pytest.raises(tf.errors.InvalidArgumentError, match=wrong):
            session.run(total)
        total.op._update_input(index, number)
        assert session.run(total) == (7 if index == 0 else 6)


def test_libraries_may_keep_attributes_of_their_own_at_tensors_and_operations() -> None:
    tensor = tf.constant(1.0)
    tensor.aliases = ["one"]
    tensor.op.layer = "dense"
    assert tensor.op.outputs[0].aliases == ["one"] and vars(tensor.op) == {"layer": "dense"}
    assert not hasattr(tf.constant(1.0), "aliases")


def test_a_shape_is_the_same_object_until_it_changes() -> None:
    tensor = tf.placeholder(tf.float32, [None, 3])
    before = tensor.shape
    assert tensor.shape is before is tensor.get_shape()
    tensor.set_shape([2, 3])
    assert tensor.shape.as_list() == [2, 3] and before.as_list() == [None, 3]


def test_some_of_the_inputs_are_a_list_to_which_others_can_be_added() -> None:
    x = tf.constant([1.0])
    inputs = tf.concat([x, x], 0).op.inputs
    assert inputs[1:] + [x] == [*inputs[1:], x] and [x] + inputs[:1] == [x, x]
    assert inputs[0] is x and inputs[-1] is not x and isinstance(inputs, tuple)
