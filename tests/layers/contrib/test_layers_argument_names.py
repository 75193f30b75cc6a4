"""Arguments that ``tf.contrib`` calls otherwise than the functions of ``tf`` that do the same, given by name."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import tfmini as tf

slim, framework = tf.contrib.slim, tf.contrib.framework


def test_functions_that_read_checkpoints(tmp_path: Path) -> None:
    w = tf.get_variable("w", initializer=[1.0, 2.0])
    with tf.Session() as session:
        session.run(w.initializer)
        tf.train.Saver().save(session, str(tmp_path / "m"))
    assert framework.list_variables(checkpoint_dir=str(tmp_path)) == [("w", [2])]
    assert framework.load_variable(checkpoint_dir=str(tmp_path), name="w").tolist() == [1.0, 2.0]
    assert framework.load_checkpoint(filepattern=str(tmp_path)).has_tensor("w")
    with tf.Graph().as_default(), tf.Session() as session:
        copy = tf.get_variable("copy", [2])
        framework.init_from_checkpoint(checkpoint_dir=str(tmp_path), assignment_map={"w": copy})
        session.run(copy.initializer)
        assert session.run(copy).tolist() == [1.0, 2.0]


def test_smart_cond_of_slim() -> None:
    chosen = slim.utils.smart_cond(tf.constant(True), fn1=lambda: "first", fn2=lambda: "second")
    assert chosen == "first"


def test_constant_value_of_slim_takes_any_value() -> None:
    found = [slim.utils.constant_value(v) for v in (True, 3.0, "x", tf.constant(7), tf.placeholder(tf.bool))]
    assert found == [True, 3.0, "x", 7, None]
    assert slim.utils.constant_value(tf.get_variable("w", [])) is None
    with pytest.raises(ValueError, match="wrong type <dtype: 'int32'> instead of <dtype: 'bool'>"):
        slim.utils.constant_value(tf.constant(1), tf.bool)
    with pytest.raises(ValueError, match="cannot be None"):
        slim.utils.constant_value(value_or_tensor_or_var=None)


def test_transpose_batch_time() -> None:
    assert tf.contrib.rnn.transpose_batch_time(x=tf.ones([2, 3, 4])).shape == [3, 2, 4]


def test_a_counter_has_a_type() -> None:
    numbers = tf.data.experimental.Counter(2, step=3, dtype=tf.int32)
    assert numbers.output_types == tf.int32
    read = numbers.make_one_shot_iterator().get_next()
    with tf.Session() as session:
        assert [session.run(read) for _ in range(3)] == [2, 5, 8]


def test_batch_norm_lists_its_model_variables_in_the_order_of_their_creation() -> None:
    slim.batch_norm(tf.ones([1, 2, 2, 3]), scale=True, scope="bn")
    names = [v.op.name for v in slim.get_model_variables()]
    assert names == [f"bn/{name}" for name in ("gamma", "beta", "moving_mean", "moving_variance")]
    assert np.all([v in tf.global_variables() for v in slim.get_model_variables()])
