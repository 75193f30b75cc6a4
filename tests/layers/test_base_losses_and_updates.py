"""Layers tell the losses and the updates of their calls."""

from __future__ import annotations

import pytest

import tfmini as tf


def test_a_regularizer_of_activities_adds_a_loss_of_the_inputs() -> None:
    with tf.Graph().as_default():
        layer = tf.layers.Layer(activity_regularizer=tf.reduce_sum)
        x = tf.placeholder(tf.float32, [2, 3])
        layer.apply(x)
        assert layer.get_losses_for(x) == layer.losses == tf.losses.get_regularization_losses()
        assert layer.get_losses_for(None) == []
        with tf.Session() as session:
            assert session.run(layer.losses, {x: [[1, 2, 3], [4, 5, 7]]}) == [11.0]


def test_updates_are_found_for_all_that_they_are_made_from() -> None:
    with tf.Graph().as_default():
        layer, x = tf.layers.BatchNormalization(), tf.placeholder(tf.float32, [3, 2])
        between = x + 1
        outputs = layer(between, training=True)
        assert [len(layer.get_updates_for(t)) for t in (x, between, outputs, None)] == [2, 2, 0, 0]


def test_several_inputs_may_have_several_types() -> None:
    with tf.Graph().as_default():
        layer = tf.layers.Layer()
        first, second = layer([tf.constant(1.0), tf.constant(1.0, tf.float64)])
        assert (layer.dtype, first.dtype, second.dtype) == ("float32", tf.float32, tf.float64)


def test_a_trainable_variable_cannot_be_summed_when_it_is_read() -> None:
    with tf.Graph().as_default(), pytest.raises(ValueError, match="only for non-trainable"):
        on_read = tf.VariableSynchronization.ON_READ
        tf.layers.Layer(name="mine").add_variable("v", [2], synchronization=on_read, trainable=True)


def test_pooling_needs_strides() -> None:
    with tf.Graph().as_default(), pytest.raises(ValueError, match="strides"):
        tf.layers.max_pooling2d(tf.zeros([5, 7, 9, 3]), 3, strides=None)
