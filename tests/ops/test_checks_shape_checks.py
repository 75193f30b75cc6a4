"""`assert_shapes`: sizes by number and by symbol."""

from __future__ import annotations

import numpy as np
import pytest

import tfmini as tf
from tests.ops.session_run import run


def test_a_symbol_stands_for_one_size_in_all_shapes() -> None:
    x, y = tf.zeros([2, 3]), tf.placeholder(tf.float32, [None, 3])
    with pytest.raises(ValueError, match="dimension 1 must have size 2"):
        tf.debugging.assert_shapes({x: ("N", "N")})
    check = tf.debugging.assert_shapes([(x, ("N", "Q")), (y, ("N", 3))])
    run(check, {y: np.zeros((2, 3))})
    with pytest.raises(tf.errors.InvalidArgumentError, match="must have size"):
        run(check, {y: np.zeros((5, 3))})
