"""Values assigned from a checkpoint or from Python."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import tfmini as tf
from tests.train.loops.square import square, trained

slim, training = tf.contrib.slim, tf.contrib.training


def test_variables_are_assigned_from_python_and_from_a_checkpoint(tmp_path: Path) -> None:
    trained(tmp_path)
    checkpoint = tf.train.latest_checkpoint(str(tmp_path))
    with tf.Graph().as_default():
        x, _ = square()
        other = tf.get_variable("other", [2], initializer=tf.zeros_initializer())
        with pytest.raises(ValueError, match=r"Checkpoint is missing variable \[other\]"):
            slim.assign_from_checkpoint(checkpoint, [x, other])
        restore = slim.assign_from_checkpoint_fn(checkpoint, [x, other], ignore_missing_vars=True)
        put = slim.assign_from_values_fn({"other": np.array([[3.0], [4.0]])})
        with pytest.raises(ValueError, match="Variable nothing wasn't found"):
            slim.assign_from_values({"nothing": 1})
        with tf.Session() as session:
            session.run(tf.global_variables_initializer())
            restore(session)
            put(session)
            assert session.run(x) == pytest.approx(2 * 0.8**4, rel=1e-5)
            assert session.run(other).tolist() == [3, 4]
    assert ("x", []) in tf.contrib.framework.list_variables(checkpoint)
