"""Caches of datasets in files."""

from __future__ import annotations

from pathlib import Path

import pytest

import tfmini as tf
from tests.data.elements import drain, elements

Dataset = tf.data.Dataset
experimental = tf.data.experimental


def test_a_cache_outlives_its_session(tmp_path: Path) -> None:
    path = str(tmp_path / "deeper" / "cache")
    first = Dataset.from_tensor_slices(([1, 2], ["a", "b"])).cache(path)
    assert elements(first) == [(1, b"a"), (2, b"b")]
    with tf.Graph().as_default():
        assert elements(Dataset.from_tensor_slices(([7], ["x"])).cache(path)) == [(1, b"a"), (2, b"b")]


def test_a_reading_that_stops_early_leaves_no_cache(tmp_path: Path) -> None:
    path = str(tmp_path / "cache")
    iterator = Dataset.range(5).cache(path).make_initializable_iterator()
    element = iterator.get_next()
    with tf.Session() as session:
        session.run(iterator.initializer)
        assert session.run(element) == 0
        assert (tmp_path / "cache.lockfile").exists()
        session.run(iterator.initializer)
        assert list(tmp_path.iterdir()) == []
        assert drain(session, element) == [0, 1, 2, 3, 4]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["cache.data-00000-of-00001", "cache.index"]


def test_two_iterators_cannot_write_one_cache(tmp_path: Path) -> None:
    path = str(tmp_path / "cache")
    readers = [Dataset.range(3).cache(path).make_initializable_iterator() for _ in range(2)]
    a, b = [reader.get_next() for reader in readers]
    with tf.Session() as session:
        session.run([reader.initializer for reader in readers])
        assert session.run(a) == 0
        with pytest.raises(tf.errors.AlreadyExistsError, match="concurrent caching iterator.*cache.lockfile"):
            session.run(b)
        assert drain(session, a) == [1, 2]
        session.run(readers[1].initializer)
        assert drain(session, b) == [0, 1, 2]


def test_a_cache_in_files_holds_dense_tensors_only(tmp_path: Path) -> None:
    data = Dataset.from_tensors(tf.SparseTensor([[0]], [1], [2])).cache(str(tmp_path / "cache"))
    with pytest.raises(tf.errors.UnimplementedError, match="dense tensors only"):
        elements(data)
    assert list(tmp_path.iterdir()) == []
