"""Initial values from a checkpoint of another model."""

from __future__ import annotations

from pathlib import Path

import pytest

import tfmini as tf
from tests.train.checkpointing.saved_variables import values


def test_a_warm_start_follows_changed_vocabularies(tmp_path: Path) -> None:
    (tmp_path / "old").write_text("a\nb\nc\n")
    (tmp_path / "new").write_text("c\nd\na\n")
    prefix = str(tmp_path / "m")
    with tf.Graph().as_default(), tf.Session() as session:
        tf.get_variable("rows", initializer=tf.constant([[1.0, 1.5], [2.0, 2.5], [3.0, 3.5]]))
        tf.get_variable("columns", initializer=tf.constant([[1.0, 2.0, 3.0]]))
        tf.get_variable("bias", initializer=tf.constant([7.0]))
        session.run(tf.global_variables_initializer())
        tf.train.Saver().save(session, prefix)
    rows = tf.get_variable("rows", [4, 2], partitioner=tf.fixed_size_partitioner(2))
    columns, shift = tf.get_variable("columns", [1, 3]), tf.get_variable("shift", [1])
    files = str(tmp_path / "new"), str(tmp_path / "old")
    info = tf.train.VocabInfo(files[0], 3, 1, files[1], backup_initializer=tf.constant_initializer(9.0))
    across = tf.train.VocabInfo(files[0], 3, 0, files[1], axis=1)
    tf.train.warm_start(prefix, ".*", {"rows": info, "columns": across}, {"shift": "bias"})
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        assert session.run(rows.as_tensor()).tolist() == [[3.0, 3.5], [9.0, 9.0], [1.0, 1.5], [9.0, 9.0]]
        assert values(session, [columns, shift]) == [[[3.0, 0.0, 1.0]], [7.0]]
    with pytest.raises(ValueError, match="var_name_to_prev_var_name that were not used: \\['nope'\\]"):
        tf.train.warm_start(prefix, ".*", None, {"nope": "bias"})
    with pytest.raises(ValueError, match="The only supported values for the axis argument are 0 and 1"):
        tf.train.VocabInfo(*files, 1, 1, axis=2)
