"""Assignment to parts of a variable."""

from __future__ import annotations

import numpy as np
import pytest

import tfmini as tf


def test_a_part_of_a_variable_is_assigned() -> None:
    for resource in (False, True):
        variable = tf.get_variable(f"v{resource}", initializer=[[1, 2, 3], [4, 5, 6]], use_resource=resource)
        with tf.Session() as session:
            session.run(variable.initializer)
            assert session.run(variable[1, 1:].assign([8, 9])).tolist() == [[1, 2, 3], [4, 8, 9]]
            assert session.run(tf.assign(variable[:, 0], [0, 0])).tolist() == [[0, 2, 3], [0, 8, 9]]
    with pytest.raises(ValueError, match="only supported for variables"):
        tf.constant([1, 2])[:1].assign([3])
    for resource in (False, True):  # a whole number for a part of floats
        real = tf.get_variable(f"r{resource}", initializer=[1.5, 2.5], use_resource=resource)
        with tf.Session() as session:
            session.run(real.initializer)
            assert session.run(real[1].assign(0)).tolist() == [1.5, 0.0]
    assert not hasattr(tf.constant(1), "assign")


@pytest.mark.parametrize("index_type", [np.int32, np.int64])
def test_batch_scatter_update_writes_along_the_last_dimension(index_type: type) -> None:
    variable = tf.Variable(np.zeros((2, 3, 2), np.float32))
    values = np.arange(8, dtype=np.float32).reshape(2, 2, 2)
    update = tf.batch_scatter_update(variable, np.array([[2, 0], [1, 1]], index_type), values)
    with tf.Session() as session:
        session.run(variable.initializer)
        found = session.run(update)
    assert found[0].tolist() == [[2, 3], [0, 0], [0, 1]]
    assert found[1].tolist() == [[0, 0], [6, 7], [0, 0]]
