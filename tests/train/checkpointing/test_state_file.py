"""The file that says which checkpoint is the latest."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

import tfmini as tf
from tfmini.train.checkpointing import state_file


def test_relative_paths_survive_a_move_of_the_directory(tmp_path: Path, session: Any) -> None:
    v = tf.Variable(1.0)
    session.run(v.initializer)
    (tmp_path / "before").mkdir()
    tf.train.Saver(save_relative_paths=True).save(session, str(tmp_path / "before" / "m"))
    (tmp_path / "before").rename(tmp_path / "after")
    assert tf.train.latest_checkpoint(str(tmp_path / "after")) == str(tmp_path / "after" / "m")


def test_paths_may_be_file_urls(tmp_path: Path, session: Any) -> None:
    v = tf.Variable(1.0)
    session.run(v.initializer)
    saver = tf.train.Saver(sharded=True)
    prefix = saver.save(session, f"file://{tmp_path}/m")
    assert prefix == f"file://{tmp_path}/m" and tf.train.checkpoint_exists(prefix)
    saver.restore(session, prefix)
    assert tf.train.latest_checkpoint(f"file://{tmp_path}") == prefix
    expected = ["checkpoint", "m.data-00000-of-00001", "m.index", "m.meta"]
    assert sorted(os.listdir(tmp_path)) == expected


def test_the_state_file_is_written_read_and_checked(tmp_path: Path) -> None:
    directory = str(tmp_path)
    assert tf.train.get_checkpoint_state(directory) is None and tf.train.latest_checkpoint(directory) is None
    tf.train.update_checkpoint_state(directory, "/abs/m-2", ["/abs/m-1", "/abs/m-2"], last_preserved_timestamp=3.0)
    state = tf.train.get_checkpoint_state(directory)
    assert (state.model_checkpoint_path, state.last_preserved_timestamp) == ("/abs/m-2", 3.0)
    assert tf.train.latest_checkpoint(directory) is None  # its files are not there
    (tmp_path / "checkpoint").write_text("no proto {")
    assert tf.train.get_checkpoint_state(directory) is None
    (tmp_path / "checkpoint").write_text("")
    with pytest.raises(ValueError, match="Invalid checkpoint state loaded from"):
        tf.train.get_checkpoint_state(directory)
    with pytest.raises(ValueError, match="Checkpoint timestamps, if provided, must match checkpoint paths"):
        tf.train.generate_checkpoint_state_proto(directory, "m", ["m"], [1.0, 2.0])
    with pytest.raises(RuntimeError, match="conflicts with path used for checkpoint state"):
        tf.train.update_checkpoint_state(directory, str(tmp_path / "checkpoint"))
    assert state_file.meta_graph_filename("/x/m-?????-of-00002") == "/x/m.meta"
