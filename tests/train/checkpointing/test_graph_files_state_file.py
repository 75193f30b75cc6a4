"""The file that says which checkpoint is the latest."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

import tfmini as tf
from tfmini.train.checkpointing import graph_files


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
    assert graph_files.meta_graph_filename("/x/m-?????-of-00002") == "/x/m.meta"


def _training(directory: Path, version: int, steps: int = 3) -> None:
    """A chief that takes over the checkpoints of a directory and keeps one."""
    with tf.Graph().as_default():
        step = tf.train.get_or_create_global_step()
        advance = tf.assign_add(step, 1)
        saver = tf.train.Saver(max_to_keep=1, write_version=version)
        hook = tf.train.CheckpointSaverHook(str(directory), save_steps=1, saver=saver)
        creator = tf.train.ChiefSessionCreator(tf.train.Scaffold(saver=saver), checkpoint_dir=str(directory))
        with tf.train.MonitoredSession(creator, hooks=[hook]) as session:
            for _ in range(steps):
                session.run(advance)


@pytest.mark.parametrize("version", [tf.train.SaverDef.V1, tf.train.SaverDef.V2])
def test_what_a_state_file_lists_elsewhere_is_not_removed(tmp_path: Path, version: int) -> None:
    """The state file of a directory from somebody else may name any file, by a pattern, a link or a way up."""
    here, other = tmp_path / "here", tmp_path / "other"
    here.mkdir()
    other.mkdir()
    names = {"precious", "precious.index", "precious.meta", "precious.data-00000-of-00001", "photo.jpg"}
    for folder in (here, other):
        for name in names:
            (folder / name).write_text("x")
    (here / "link").symlink_to(other)
    listed = [f"{other}/*", f"{other}/precious", "../other/precious", "link/precious", "ph*", f"{here}/../other/*.jpg"]
    lines = "".join(f'all_model_checkpoint_paths: "{name}"\n' for name in listed)
    _training(here, version, 1)
    (here / "checkpoint").write_text(f'model_checkpoint_path: "model.ckpt-1"\n{lines}')
    _training(here, version)
    assert {path.name for path in other.iterdir()} == names
    assert (here / "photo.jpg").exists()
    assert "model.ckpt-4" in (here / "checkpoint").read_text()


def test_a_manager_does_not_remove_what_lies_elsewhere(tmp_path: Path, session: Any) -> None:
    here, other = tmp_path / "here", tmp_path / "other"
    here.mkdir()
    other.mkdir()
    (other / "precious.index").write_text("x")
    text = f'model_checkpoint_path: "ckpt-1"\nall_model_checkpoint_paths: "{other}/precious"\n'
    (here / "checkpoint").write_text(text + "all_model_checkpoint_timestamps: 9\nlast_preserved_timestamp: 1\n")
    checkpoint = tf.train.Checkpoint(v=tf.Variable(1.0, name="managed"))
    manager = tf.train.CheckpointManager(checkpoint, str(here), max_to_keep=1)
    assert manager.checkpoints == [f"{other}/precious"]
    session.run(tf.global_variables_initializer())
    with session.as_default():
        manager.save()
    assert (other / "precious.index").exists() and len(manager.checkpoints) == 1


def test_a_saver_removes_what_it_wrote_anywhere(tmp_path: Path, session: Any) -> None:
    tf.Variable(1.0, name="moved")
    session.run(tf.global_variables_initializer())
    saver = tf.train.Saver(max_to_keep=1)
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        saver.save(session, str(tmp_path / name / "model"), write_meta_graph=False)
    assert not list((tmp_path / "a").glob("model*")) and list((tmp_path / "b").glob("model*"))


def test_a_state_file_that_cannot_be_read_is_ignored(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for content in (b"\xff\xfe", b"model_checkpoint_path: 3", b"x { " * 500):
        (tmp_path / "checkpoint").write_bytes(content)
        assert graph_files.get_checkpoint_state(str(tmp_path)) is None
        assert "Checkpoint ignored" in caplog.text
        caplog.clear()
