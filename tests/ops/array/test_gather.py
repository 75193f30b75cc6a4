"""`tf.gather_nd` with axes that are a batch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tfmini as tf

PARAMS = np.arange(24).reshape(2, 3, 4)
INDICES = [[[1], [0]], [[2], [1]]]
WANTED = [[PARAMS[0, 1].tolist(), PARAMS[0, 0].tolist()], [PARAMS[1, 2].tolist(), PARAMS[1, 1].tolist()]]


def test_a_batch_is_gathered_from_its_own_part() -> None:
    unknown = tf.placeholder_with_default(PARAMS, None)
    with tf.Session() as session:
        for batch_dims in (1, tf.constant(1)):
            assert session.run(tf.gather_nd(PARAMS, INDICES, batch_dims=batch_dims)).tolist() == WANTED
        assert session.run(tf.gather_nd(unknown, INDICES, batch_dims=1)).tolist() == WANTED


@pytest.mark.parametrize(
    ("indices", "batch_dims", "error", "told"),
    [
        (INDICES, -1, ValueError, "does not allow negative batch_dims"),
        ([[1], [0]], 2, ValueError, r"must be less than rank\(indices\) = 2"),
        (np.zeros([2, 3, 4, 1], int), 3, ValueError, r"must be less than rank\(params\) = 3"),
        (INDICES[:1], 1, ValueError, "must be equal"), (INDICES, 1.5, TypeError, "must be an int"),
    ],
)  # fmt: skip
def test_other_batches_are_refused(indices: Any, batch_dims: Any, error: Any, told: str) -> None:
    with pytest.raises(error, match=told):
        tf.gather_nd(PARAMS, indices, batch_dims=batch_dims)


def test_batches_of_different_sizes_are_refused_in_the_step() -> None:
    params, indices = tf.placeholder(tf.int32, [None] * 3), tf.placeholder(tf.int32, [None] * 3)
    found = tf.gather_nd(params, indices, batch_dims=1)
    with tf.Session() as session:
        assert session.run(found, {params: PARAMS, indices: INDICES}).tolist() == WANTED
        with pytest.raises(tf.errors.InvalidArgumentError, match="should match"):
            session.run(found, {params: PARAMS, indices: INDICES[:1]})
