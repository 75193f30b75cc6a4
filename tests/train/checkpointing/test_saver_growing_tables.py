"""Checkpoints of tables that grow: whole ones and incremental ones, in other numbers of parts, after kills."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tfmini as tf
from tfmini.checkpoint import files
from tfmini.ops.growing.checkpoints import bases
from tfmini.runtime.process import current_process


class Model:
    """A table, which forgets ids, in its own graph and session."""

    def __init__(self, parts: int = 2, **saver: Any) -> None:
        self.graph = tf.Graph()
        with self.graph.as_default():
            option = tf.EmbeddingVariableOption(filter_option=tf.CounterFilter(2), evict_option=tf.GlobalStepEvict(3))
            self.step = tf.train.get_or_create_global_step()
            partitioner = tf.fixed_size_partitioner(parts)
            self.table = tf.get_embedding_variable("t", 3, partitioner=partitioner, ev_option=option)
            self.ids = tf.placeholder(tf.int64, [None])
            rows = tf.nn.embedding_lookup(self.table, self.ids)
            self.train = tf.train.AdamOptimizer(0.1).minimize(tf.reduce_sum(rows * rows), self.step)
            self.exports = [part.export() for part in (self.table if parts > 1 else [self.table])]
            self.saver = tf.train.Saver(incremental_save_restore=True, **saver)
            self.session = tf.Session()
            self.init = tf.global_variables_initializer()
        self.random = np.random.default_rng(0)

    def run(self, steps: int = 1) -> None:
        for _ in range(steps):
            self.session.run(self.train, {self.ids: self.random.integers(0, 40, 12)})

    def content(self) -> list[np.ndarray[Any, Any]]:
        found = [np.concatenate(arrays) for arrays in zip(*self.session.run(self.exports))]
        return [array[np.argsort(found[0])] for array in found]


def started(parts: int = 2, **saver: Any) -> Model:
    model = Model(parts, **saver)
    model.session.run(model.init)
    model.run(3)
    return model


def check_same(one: list[Any], other: list[Any]) -> None:
    for a, b in zip(one, other):
        np.testing.assert_array_equal(a, b)


def test_every_checkpoint_of_a_chain_restores_exactly_in_any_parts(tmp_path: Path) -> None:
    model = started(max_to_keep=None)
    expected = {}
    for turn in range(6):
        model.run(2)
        save = model.saver.incremental_save if turn % 4 else model.saver.save
        path = save(model.session, str(tmp_path / "m"), model.step)
        expected[path] = model.content()
    names = [tf.train.load_variable(path, "t/part_0-base").decode() for path in expected]
    assert names == ["", "m-5", "m-7", "m-9", "", "m-13"]
    for path, content in expected.items():
        for parts in (1, 2, 3):
            other = Model(parts)
            other.saver.restore(other.session, path)
            check_same(other.content(), content)


def test_training_goes_on_as_if_nothing_had_happened(tmp_path: Path) -> None:
    """The slots, the counts of ids that wait and the ages are restored, too."""
    model = started()
    path = model.saver.save(model.session, str(tmp_path / "m"))
    model.run(2)
    path = model.saver.incremental_save(model.session, str(tmp_path / "n"))
    other = Model()
    other.saver.restore(other.session, path)
    other.random = np.random.default_rng(7)
    model.random = np.random.default_rng(7)
    for each in (model, other):
        each.run(5)
    check_same(other.content(), model.content())


def test_an_incremental_checkpoint_is_small(tmp_path: Path) -> None:
    model = started()
    model.session.run(model.table[0].initializer)
    rows = np.arange(0, 20_000, 2)
    for _ in range(2):
        model.session.run(model.train, {model.ids: rows})
    model.saver.save(model.session, str(tmp_path / "m"))
    for _ in range(2):
        model.session.run(model.train, {model.ids: [0, 2, 4]})
    model.saver.incremental_save(model.session, str(tmp_path / "n"))
    whole, changes = (os.path.getsize(tmp_path / f"{name}.data-00000-of-00001") for name in "mn")
    assert changes < whole / 50


def test_bases_stay_as_long_as_they_are_needed(tmp_path: Path) -> None:
    model = started(max_to_keep=2)
    kept = []
    for turn in range(7):
        model.run()
        save = model.saver.incremental_save if turn % 5 else model.saver.save
        save(model.session, str(tmp_path / "m"), turn)
        kept.append(sorted(int(path.stem.partition("-")[2]) for path in tmp_path.glob("*.index")))
    assert kept == [[0], [0, 1], [0, 1, 2], [0, 1, 2, 3], [0, 1, 2, 3, 4], [0, 1, 2, 3, 4, 5], [5, 6]]


def test_a_preserved_checkpoint_keeps_its_bases(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = current_process()
    monkeypatch.setattr(type(clock), "wall_time", lambda _: float(3600 * hour))
    hour = 0
    model = started(max_to_keep=1, keep_checkpoint_every_n_hours=1.5)
    content = []
    for hour in range(4):
        model.run()
        save = model.saver.incremental_save if hour in (1, 2) else model.saver.save
        save(model.session, str(tmp_path / "m"), hour)
        content.append(model.content())
    model.saver.save(model.session, str(tmp_path / "m"), 4)
    assert sorted(path.stem for path in tmp_path.glob("*.index")) == ["m-0", "m-1", "m-2", "m-4"]
    other = Model()
    other.saver.restore(other.session, str(tmp_path / "m-2"))
    check_same(other.content(), content[2])


def test_a_base_that_is_saved_anew_is_kept(tmp_path: Path) -> None:
    model = started(max_to_keep=1)
    model.saver.save(model.session, str(tmp_path / "m"), 0)
    model.saver.incremental_save(model.session, str(tmp_path / "m"), 1)
    model.saver.save(model.session, str(tmp_path / "m"), 0)
    assert [path.stem for path in tmp_path.glob("*.index")] == ["m-0"]


@pytest.mark.parametrize("name", ["knowledge", "rows"])
@pytest.mark.parametrize("value", [[1.0, 2.0, 3.0], 1.0, "text", ["a", "b"]])
def test_a_variable_may_be_called_a_base(tmp_path: Path, name: str, value: Any) -> None:
    with tf.Graph().as_default(), tf.Session() as session:
        tf.get_embedding_variable("t", 2)
        tf.get_variable(f"{name}-base", initializer=tf.constant(value))
        if name == "rows" and not isinstance(value, str):
            tf.get_variable("rows-keys", [])
        saver = tf.train.Saver(max_to_keep=1, incremental_save_restore=True)
        session.run(tf.global_variables_initializer())
        saver.save(session, str(tmp_path / "k"), 0)
        path = saver.incremental_save(session, str(tmp_path / "k"), 1)
        assert list(bases(path)) == [str(tmp_path / "k-0")]


def test_a_save_over_its_own_base_is_whole(tmp_path: Path) -> None:
    model = started()
    for _ in range(2):
        path = model.saver.incremental_save(model.session, str(tmp_path / "m"))
    assert tf.train.load_variable(path, "t/part_0-base") == b""


@pytest.mark.parametrize("is_incremental", [True, False])
def test_a_base_that_was_replaced_is_noticed(tmp_path: Path, is_incremental: bool) -> None:
    model = started()
    model.saver.save(model.session, str(tmp_path / "m"))
    model.run(2)
    path = model.saver.incremental_save(model.session, str(tmp_path / "m-day1"))
    model.run(2)
    with model.graph.as_default():
        saver = model.saver if is_incremental else tf.train.Saver()
    replaced = saver.save(model.session, str(tmp_path / "m"))
    newest = model.content()
    other = Model()
    with pytest.raises(tf.errors.DataLossError, match=r"/m-day1 holds the changes of t/part_. since .*/m, but"):
        other.saver.restore(other.session, path)
    other.saver.restore(other.session, replaced)
    check_same(other.content(), newest)


def test_a_restored_table_is_saved_whole(tmp_path: Path) -> None:
    """What a Saver knows of the changes belongs to the content that was replaced."""
    model = started()
    first = model.saver.save(model.session, str(tmp_path / "m"))
    model.run(2)
    model.saver.save(model.session, str(tmp_path / "n"))
    model.saver.restore(model.session, first)
    content = model.content()
    path = model.saver.incremental_save(model.session, str(tmp_path / "o"))
    assert tf.train.load_variable(path, "t/part_0-base") == b""
    other = Model()
    other.saver.restore(other.session, path)
    check_same(other.content(), content)


@pytest.mark.parametrize("change", ["create", "sync", "rename"])
def test_nothing_is_lost_by_a_save_that_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str) -> None:
    """The tables went on after the dump that no checkpoint holds; the next one holds what changed since the first."""
    model = started()
    model.saver.save(model.session, str(tmp_path / "m"), 0)

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    model.run(2)
    with monkeypatch.context() as patch:
        patch.setattr(files.DISK, change, fail)
        with pytest.raises(tf.errors.OpError):
            model.saver.incremental_save(model.session, str(tmp_path / "m"), 1)
    model.run(2)
    path = model.saver.incremental_save(model.session, str(tmp_path / "m"), 2)
    assert tf.train.load_variable(path, "t/part_0-base") == b"m-0"
    other = Model()
    other.saver.restore(other.session, path)
    check_same(other.content(), model.content())


@pytest.mark.slow
def test_kills_between_files_lose_nothing(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.train.checkpointing.killed_saves", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=400)
    assert done.returncode == 0, done.stderr
    assert "survived" in done.stdout


def test_errors(tmp_path: Path) -> None:
    model = started(parts=1)
    with model.graph.as_default():
        plain = tf.train.Saver()
    with pytest.raises(ValueError, match=r"needs a tf.train.Saver\(incremental_save_restore=True\)"):
        plain.incremental_save(model.session, str(tmp_path / "m"))
    with tf.Graph().as_default(), tf.Session() as session:
        tf.get_variable("other", [])
        tf.train.get_or_create_global_step()
        session.run(tf.global_variables_initializer())
        path = tf.train.Saver().save(session, str(tmp_path / "o"))
    with pytest.raises(tf.errors.NotFoundError, match="t-keys not found in checkpoint"):
        model.saver.restore(model.session, path)


def test_a_monitored_session_saves_changes_between_whole_checkpoints(tmp_path: Path) -> None:
    folder = str(tmp_path)
    with tf.Graph().as_default():
        table = tf.get_embedding_variable("t", 3)
        ids = tf.placeholder(tf.int64, [None])
        loss = tf.reduce_sum(tf.nn.embedding_lookup(table, ids))
        train = tf.train.GradientDescentOptimizer(0.1).minimize(loss, tf.train.get_or_create_global_step())
        export = table.export()
        scaffold = tf.train.Scaffold(saver=tf.train.Saver(max_to_keep=None))
        hook = tf.train.CheckpointSaverHook(folder, save_steps=4, scaffold=scaffold, incremental_save_secs=1e-9)
        with tf.train.MonitoredSession(
            tf.train.ChiefSessionCreator(scaffold, checkpoint_dir=folder), hooks=[hook]
        ) as session:
            for turn in range(6):
                session.run(train, {ids: [turn, turn + 1]})
        found = {}
        for index in sorted(tmp_path.glob("*.index")):
            path = str(index.with_suffix(""))
            found[path.rpartition("-")[2]] = tf.train.load_variable(path, "t-base").decode()
        assert found == {
            "0": "", "1": "model.ckpt-0", "2": "model.ckpt-1", "3": "model.ckpt-2", "4": "",
            "5": "model.ckpt-4", "6": "",  # the last one is whole
        }  # fmt: skip
        creator = tf.train.ChiefSessionCreator(scaffold, checkpoint_dir=folder)
        with tf.train.MonitoredSession(creator) as session:
            assert np.sort(session.run(export)[0]).tolist() == list(range(7))
