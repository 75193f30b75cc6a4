"""Lookup tables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tfmini as tf

lookup = tf.contrib.lookup


def test_a_static_table_is_looked_up_once_it_is_initialized() -> None:
    initializer = tf.lookup.KeyValueTensorInitializer(["a", "b"], [1.0, 2.0])
    table = tf.lookup.StaticHashTable(initializer, -1.0)
    found = table.lookup(tf.constant([["a", "x"], ["b", "a"]]))
    with tf.Session() as session:
        with pytest.raises(tf.errors.FailedPreconditionError, match="Table not initialized."):
            session.run(found)
        session.run(tf.tables_initializer())
        session.run(table.initializer)  # once more with the same data is no error
        assert session.run(found).tolist() == [[1.0, -1.0], [2.0, 1.0]]
        assert session.run(table.size()) == 2
    assert found.shape == [2, 2]
    with pytest.raises(TypeError, match="Signature mismatch. Keys must be dtype"):
        table.lookup(tf.constant([1]))


def test_an_initialized_table_refuses_other_data() -> None:
    tables = [
        lookup.HashTable(lookup.KeyValueTensorInitializer(keys, np.arange(len(keys))), -1, shared_name="t")
        for keys in (["a"], ["a", "b"])
    ]
    with tf.Session() as session:
        session.run(tables[0].initializer)
        with pytest.raises(tf.errors.FailedPreconditionError, match="already initialized with different data"):
            session.run(tables[1].initializer)
        assert session.run(tables[1].lookup(tf.constant("a"))) == 0


def test_duplicate_keys_with_different_values_are_refused() -> None:
    table = lookup.HashTable(lookup.KeyValueTensorInitializer(["a", "a"], [1, 2]), -1)
    text = "different value for same key. Key a"
    with tf.Session() as session, pytest.raises(tf.errors.FailedPreconditionError, match=text):
        session.run(table.initializer)


def test_vocabulary_files_map_words_to_ids_and_back(tmp_path: Path) -> None:
    path = tmp_path / "words.txt"
    path.write_text("x\ny\nz\n")
    to_id = lookup.index_table_from_file(str(path))
    to_word = lookup.index_to_string_table_from_file(str(path), default_value="?")
    short = lookup.index_table_from_file(str(path), vocab_size=2)
    long = lookup.index_table_from_file(str(path), vocab_size=4)
    with tf.Session() as session:
        session.run([to_id.initializer, to_word.initializer, short.initializer])
        assert session.run(to_id.lookup(tf.constant(["z", "q"]))).tolist() == [2, -1]
        assert session.run(to_word.lookup(tf.constant([0, 9], tf.int64))).tolist() == [b"x", b"?"]
        assert session.run(short.size()) == 2
        with pytest.raises(tf.errors.InvalidArgumentError, match="expected 4 but got 3"):
            session.run(long.initializer)
    assert tf.get_collection(tf.GraphKeys.ASSET_FILEPATHS)


def test_columns_of_a_text_file_are_read_and_checked(tmp_path: Path) -> None:
    path = tmp_path / "columns.txt"
    path.write_text("a\t1\nb\tx\n")
    good = lookup.TextFileInitializer(str(path), tf.string, 0, tf.string, 1)
    bad = lookup.TextFileInitializer(str(path), tf.string, 0, tf.int64, 1)
    wide = lookup.TextFileInitializer(str(path), tf.string, 0, tf.string, 2)
    table = lookup.HashTable(good, "")
    with tf.Session() as session:
        session.run(table.initializer)
        assert session.run(table.lookup(tf.constant("b"))) == b"x"
        with pytest.raises(tf.errors.InvalidArgumentError, match="Field x in line 1 is not a valid int64"):
            session.run(lookup.HashTable(bad, 0).initializer)
        with pytest.raises(tf.errors.InvalidArgumentError, match="Invalid number of columns"):
            session.run(lookup.HashTable(wide, "").initializer)
    with pytest.raises(ValueError, match="Keys must be dtype"):
        lookup.TextFileInitializer("x", tf.string, lookup.TextFileIndex.LINE_NUMBER, tf.int64, 0)


@pytest.mark.parametrize("default", [-1, [0, 0]])
def test_a_mutable_table_inserts_removes_and_exports(default: object) -> None:
    table = lookup.MutableHashTable(tf.string, tf.int64, default)
    row = np.array(default) + 7
    with tf.Session() as session:
        session.run(table.insert(["a", "b"], [row, row]))
        session.run(table.remove(tf.constant(["b", "c"])))
        assert session.run(table.lookup(["a", "b"])).tolist() == [row.tolist(), np.array(default).tolist()]
        keys, values = session.run(table.export())
        assert keys.tolist() == [b"a"] and values.tolist() == [row.tolist()]
        with pytest.raises(tf.errors.InvalidArgumentError, match="Expected shape"):
            session.run(table.insert(["a"], [[1, 2, 3]]))


def test_a_dense_table_refuses_its_reserved_keys() -> None:
    table = lookup.MutableDenseHashTable(tf.int64, tf.float32, -1.0, empty_key=0, deleted_key=-1)
    with tf.Session() as session:
        session.run(table.insert([5, 6], [1.0, 2.0]))
        assert session.run(table.lookup([5, 7])).tolist() == [1.0, -1.0]
        with pytest.raises(tf.errors.InvalidArgumentError, match="Using the empty_key as a table key"):
            session.run(table.insert([0], [1.0]))
        with pytest.raises(tf.errors.InvalidArgumentError, match="Using the deleted_key as a table key"):
            session.run(table.lookup([-1]))


def test_a_dense_table_may_hold_vectors() -> None:
    table = lookup.MutableDenseHashTable(tf.int64, tf.int64, [-1, -1], empty_key=[0, 0], deleted_key=[-1, -1])
    with tf.Session() as session:
        session.run(table.insert([[1, 2], [3, 4]], [[5, 6], [7, 8]]))
        assert session.run(table.lookup([[3, 4], [9, 9]])).tolist() == [[7, 8], [-1, -1]]
        assert session.run(table.size()) == 2


def test_mutable_tables_are_saved(tmp_path: Path) -> None:
    table = lookup.MutableHashTable(tf.string, tf.int64, -1, name="words")
    saver = tf.train.Saver()
    with tf.Session() as session:
        session.run(table.insert(["a"], [3]))
        path = saver.save(session, str(tmp_path / "model"))
    with tf.Session() as session:
        saver.restore(session, path)
        assert session.run(table.lookup("a")) == 3


def test_a_dense_table_exports_its_buckets_in_tensorflows_order() -> None:
    table = lookup.MutableDenseHashTable(tf.int64, tf.int64, -1, empty_key=0, deleted_key=-9, initial_num_buckets=8)

    def insert(*keys: int) -> None:
        session.run(table.insert(np.array(keys), np.array(keys) * 10))

    def exported() -> list[list[int]]:
        return [np.ravel(column).tolist() for column in session.run(table.export())]

    with tf.Session() as session:
        insert(11, 12, 13, 5, 3)
        assert exported() == [[0, 3, 0, 11, 12, 13, 5, 0], [0, 30, 0, 110, 120, 130, 50, 0]]
        session.run(table.remove(tf.constant([13, 3], tf.int64)))
        insert(21)
        assert exported() == [[0, -9, 0, 11, 12, 21, 5, 0], [0, 30, 0, 110, 120, 210, 50, 0]]
        insert(1, 2, 3, 4, 6, 7, 8, 29)
        assert session.run(table.export())[0].shape == (16, 1)
        assert exported()[0] == [0, 1, 2, 3, 4, 21, 5, 6, 7, 8, 0, 11, 12, 29, 0, 0]


def test_dense_tables_hash_strings_and_vectors() -> None:
    keys = [[b"a", b"b"], [b"c", b"d"], [b"e", b"f"]]
    table = lookup.MutableDenseHashTable(
        tf.string, tf.int64, -1, empty_key=["", ""], deleted_key=["", "$"], initial_num_buckets=8
    )
    with tf.Session() as session:
        session.run(table.insert(keys, np.array([1, 2, 3])))
        assert session.run(table.export())[1].ravel().tolist() == [3, 0, 0, 0, 0, 1, 0, 2]  # as in TensorFlow


@pytest.mark.parametrize(("empty", "deleted", "default"), [(0, -1, [0, 0]), ([0, 0], [-1, 0], 0), ([0], [-1], [0])])
def test_dense_tables_restore_their_buckets(tmp_path: Path, empty: Any, deleted: Any, default: Any) -> None:
    table = lookup.MutableDenseHashTable(tf.int64, tf.int64, default, empty, deleted, initial_num_buckets=8)
    saver = tf.train.Saver()
    keys = np.array([7, 15, 8]).reshape(3, *[1] * np.ndim(empty)) + np.array(empty)  # the second is put where the third
    with tf.Session() as session:  # belongs, at the beginning
        session.run(table.insert(keys, [default, np.array(default) + 1, default]))
        session.run(table.remove(tf.constant(keys[:1])))
        saved = session.run(table.export())
        path = saver.save(session, str(tmp_path / "model"))
    with tf.Session() as session:
        session.run(table.insert(keys[:1], [default]))
        saver.restore(session, path)
        restored = session.run(table.export())
        assert [part.tolist() for part in restored] == [part.tolist() for part in saved]
        assert [session.run(table.size()), np.max(session.run(table.lookup(keys)))] == [2, 1]
        session.run(table.insert(keys[:1], [default]))  # where it was
        assert session.run(table.export())[0].tolist().count(np.ravel(keys[:1]).tolist()) == 1
