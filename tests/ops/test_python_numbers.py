"""Python and numpy values take the type of the tensors beside them, where TensorFlow's own code uses operators."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tfmini as tf

X = np.arange(6.0, dtype=np.float32).reshape(2, 3)


@pytest.mark.parametrize(
    ("build", "wanted"),
    [
        (lambda x: tf.nn.batch_normalization(x, tf.zeros([3]), tf.ones([3]), 0, 1, 1), X / np.sqrt(np.float32(2))),
        (lambda x: tf.nn.batch_normalization(x, np.ones(3), np.ones(3), np.ones(3), None, 0.0), X),
        (lambda x: tf.clip_by_average_norm(x, 1), X * 6 / np.sqrt(np.float32(55))),
        (lambda x: tf.divide(1, x + 1), 1 / (X + 1)),
        (lambda x: tf.divide([1, 2, 3], x + 1), np.array([1, 2, 3], np.float32) / (X + 1)),
    ],
)
def test_numbers_take_the_type_of_the_tensor(build: Callable[[Any], Any], wanted: Any) -> None:
    with tf.Graph().as_default(), tf.Session() as session:
        found = session.run(build(tf.constant(X)))
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, wanted, rtol=1e-6)
