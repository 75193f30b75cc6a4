"""Initial values from a checkpoint."""

from __future__ import annotations

from pathlib import Path

import pytest

import tfmini as tf
from tests.train.checkpointing.saved_variables import values


def test_initial_values_are_read_from_a_checkpoint(tmp_path: Path) -> None:
    prefix = str(tmp_path / "m")
    with tf.Graph().as_default(), tf.Session() as session:
        with tf.variable_scope("old"):
            tf.get_variable("a", initializer=tf.constant([1.0, 2.0]))
            tf.get_variable("b", initializer=tf.constant([3.0]))
            tf.get_variable("p", initializer=tf.reshape(tf.range(6.0), [6, 1]))
        session.run(tf.global_variables_initializer())
        tf.train.Saver().save(session, prefix)
    with tf.variable_scope("new"):
        a = tf.get_variable("a", [2])
        b = tf.get_variable("b", [1], use_resource=True)
        p = tf.get_variable("p", [6, 1], partitioner=tf.fixed_size_partitioner(2))
    other = tf.get_variable("other", [2])
    tf.train.init_from_checkpoint(str(tmp_path), {"old/": "new/", "old/a": other})
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        assert values(session, [a, b, other]) == [[1.0, 2.0], [3.0], [1.0, 2.0]]
        assert session.run(p.as_tensor()).ravel().tolist() == list(range(6))
    with pytest.raises(ValueError, match="Tensor nope is not found in"):
        tf.train.init_from_checkpoint(prefix, {"nope": a})
    with pytest.raises(ValueError, match="Shape of variable new/b:0 .*doesn't match with shape of tensor old/a"):
        tf.train.init_from_checkpoint(prefix, {"old/a": b})
    with pytest.raises(ValueError, match="Assignment map with scope only name new should map to scope only old"):
        tf.train.init_from_checkpoint(prefix, {"old": "new/"})
