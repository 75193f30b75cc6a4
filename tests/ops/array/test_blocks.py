"""Blocks between space and batch: TensorFlow's errors, when the graph is built and in the step."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tfmini as tf

IMAGES = np.arange(16, dtype=np.float32).reshape(4, 2, 2, 1)
NONE = [[0, 0], [0, 0]]


@pytest.mark.parametrize("build", [tf.batch_to_space_nd, tf.space_to_batch_nd])
@pytest.mark.parametrize(
    ("block", "edges", "told"),
    [
        ([2, 2], [[-1, 0], [0, 0]], "cannot be negative"), ([0, 2], NONE, "block_shape must be positive"),
        ([2, 2], [[0, 0]], "must be equal"), ([2, 2], [[0, 0, 0]] * 2, "must be equal"),
        ([2, 2], [0, 0], "equal rank, but are 1 and 2"), (2, [[0, 0]], "block_shape must have rank 1"),
        ([2] * 4, [[0, 0]] * 4, "at least rank 5 but is rank 4"),
    ],
)  # fmt: skip
def test_wrong_constants_are_refused_when_the_graph_is_built(build: Any, block: Any, edges: Any, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        build(IMAGES, block, edges)


def test_crops_larger_than_the_space_are_refused() -> None:
    with pytest.raises(ValueError, match="Negative dimension size caused by subtracting 2 from 1"):
        tf.batch_to_space_nd(IMAGES, [2, 2], [[3, 2], [0, 0]])
    assert tf.batch_to_space_nd(IMAGES, [2, 2], [[2, 2], [0, 0]]).shape.as_list() == [1, 0, 4, 1]


def test_the_number_of_blocks_must_be_known() -> None:
    with pytest.raises(ValueError, match="block_shape must have known size"):
        tf.space_to_batch_nd(IMAGES, tf.placeholder(tf.int32, [None]), NONE)


@pytest.mark.parametrize(
    ("name", "images", "block", "edges", "told"),
    [
        ("batch_to_space_nd", IMAGES, [2, 2], [[-1, 0], [0, 0]], "Crops must be non-negative"),
        ("space_to_batch_nd", IMAGES, [2, 2], [[-1, 0], [0, 0]], "Paddings must be non-negative"),
        ("batch_to_space_nd", IMAGES, [2, 2], [[3, 2], [0, 0]], "cropped_shape[0]=-1 must be non-negative"),
        ("space_to_batch_nd", IMAGES, [2, 2], [[3, 2], [0, 0]], "padded_shape[0]=7 is not divisible by block_shape"),
        ("batch_to_space_nd", IMAGES, [-2, 2], NONE, "Product of block sizes must be positive, got -4"),
        ("space_to_batch_nd", IMAGES, [2, -2], NONE, "must be positive, got value, -2 at index 1."),
        ("batch_to_space_nd", IMAGES[:3], [2, 2], NONE, "Input batch dimension (3) is not divisible by product of"),
        ("batch_to_space_nd", IMAGES, [2, 2], [[0, 0]], "crops should have shape [2, 2] instead of [1,2]"),
        ("space_to_batch_nd", IMAGES, [2, 2], [0, 0], "paddings should have shape [2, 2] instead of [2]"),
        ("space_to_batch_nd", IMAGES[:, 0, 0], [2, 2], NONE, "input rank should be >= 3 instead of 2"),
    ],
)
def test_wrong_values_are_refused_in_the_step(name: str, images: Any, block: Any, edges: Any, told: str) -> None:
    fed = [tf.placeholder(tf.float32), tf.placeholder(tf.int32, [2]), tf.placeholder(tf.int32)]
    result = getattr(tf, name)(*fed)
    with tf.Session() as session, pytest.raises(tf.errors.InvalidArgumentError) as caught:
        session.run(result, dict(zip(fed, (images, block, edges))))
    assert told in caught.value.message


def test_blocks_of_one_change_nothing() -> None:
    with tf.Session() as session:
        for found in session.run([tf.batch_to_space(IMAGES, NONE, 1), tf.space_to_batch(IMAGES, NONE, 1)]):
            assert found.tolist() == IMAGES.tolist()


def test_one_size_stands_for_both_axes() -> None:
    blocks = tf.zeros([8, 2, 2, 1])
    for found in (
        tf.compat.v2.batch_to_space(blocks, 2, [[0, 0], [0, 0]]),
        tf.batch_to_space(blocks, crops=[[0, 0], [0, 0]], block_size=2),
    ):
        assert found.shape.as_list() == [2, 4, 4, 1]
    with pytest.raises(ValueError, match="rank 1"):
        tf.compat.v2.batch_to_space(blocks, tf.constant(2), [[0, 0], [0, 0]])
