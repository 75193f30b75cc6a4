"""Tables that grow, for numpy programs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tfmini as tf


def test_rows_are_pulled_and_pushed() -> None:
    with tf.ParameterStore(optimizer=tf.train.GradientDescentOptimizer(0.5)) as store:
        table = tf.EmbeddingTable(store, "t", 3, init=tf.ones_initializer())
        rows = table.pull([[5, -(2**60)], [7, 5]])
        assert rows.shape == (2, 2, 3) and (rows == 1).all() and not rows.flags.writeable
        table.push([5, 7, 5], np.ones((3, 3)))
        np.testing.assert_array_equal(table.pull([5, 7, 9], insert=False)[:, 0], [0, 0.5, 1])
        assert len(table) == 3
        keys, values = table.export()
        assert dict(zip(keys.tolist(), values[:, 0].tolist())) == {5: 0, -(2**60): 1, 7: 0.5}


def work(task: Any) -> None:
    with tf.ParameterStore(task) as store:
        table = tf.EmbeddingTable(store, "t", 2, init=tf.zeros_initializer())
        for turn in range(20):
            ids = np.arange(10) + turn % 3
            table.pull(ids)
            table.push(ids, np.ones((10, 2)))
        store.barrier()


def test_the_pushes_of_all_workers_arrive() -> None:
    with tf.LocalCluster(ps=2, workers=2) as cluster:
        cluster.run(work)
        with tf.ParameterStore(cluster) as store:
            keys, rows = tf.EmbeddingTable(store, "t", 2, init=tf.zeros_initializer()).export()
    counts = np.zeros(12)
    for turn in range(20):
        counts[turn % 3 : turn % 3 + 10] += 2
    np.testing.assert_array_equal(rows[np.argsort(keys)], np.repeat(counts[:, None], 2, axis=1))


def test_a_checkpoint_goes_from_a_store_to_a_graph_and_on(tmp_path: Path) -> None:
    with tf.ParameterStore(optimizer=tf.train.AdamOptimizer(0.1)) as store:
        table = tf.EmbeddingTable(store, "t", 2)
        table.pull([1, 2])
        table.push([1, 2], np.ones((2, 2)))
        rows, path = table.pull([1, 2]), table.save(str(tmp_path / "m"))
    with tf.Graph().as_default(), tf.Session() as session:
        variable = tf.get_embedding_variable("t", 2)
        tf.train.Saver().restore(session, path)
        ids = tf.constant([1, 2], tf.int64)
        np.testing.assert_array_equal(session.run(tf.nn.embedding_lookup(variable, ids)), rows)
    with tf.ParameterStore(optimizer=tf.train.AdamOptimizer(0.1)) as store:
        table = tf.EmbeddingTable(store, "t", 2)
        table.restore(path)
        np.testing.assert_array_equal(table.pull([1, 2]), rows)


def adam_table(store: tf.ParameterStore) -> tf.EmbeddingTable:
    return tf.EmbeddingTable(store, "t", 2, init=tf.zeros_initializer())


def push_some(table: tf.EmbeddingTable, times: int) -> None:
    for _ in range(times):
        table.push([1, 2, 4], [[1, -1], [0.5, 2], [-3, 0.1]])


def test_adam_goes_on_from_a_checkpoint_as_if_nothing_had_happened(tmp_path: Path) -> None:
    """Its powers of beta are in the checkpoint, too, whatever the numbers of parts, and graphs find them."""
    with tf.ParameterStore(optimizer=tf.train.AdamOptimizer(0.1)) as store:
        table = adam_table(store)
        table.pull([1, 2, 4])
        push_some(table, 10)
        path = table.save(str(tmp_path / "m"))
        push_some(table, 10)
        expected = table.pull([1, 2, 4])
    adam = tf.train.AdamOptimizer(0.1)
    with tf.LocalCluster(ps=2, workers=1) as cluster, tf.ParameterStore(cluster, adam) as store:
        table = adam_table(store)
        table.restore(path)
        path = table.save(str(tmp_path / "n"))
        push_some(table, 10)
        np.testing.assert_array_equal(table.pull([1, 2, 4]), expected)
    with tf.Graph().as_default(), tf.Session() as session:
        rows = tf.nn.embedding_lookup(tf.get_embedding_variable("t", 2), tf.constant([1], tf.int64))
        adam = tf.train.AdamOptimizer(0.1)
        adam.minimize(tf.reduce_sum(rows))
        tf.train.Saver().restore(session, path)
        powers = session.run(adam.variables())
        np.testing.assert_allclose(powers, [0.9**11, 0.999**11], rtol=1e-5)


def _store_with_tables(store: tf.ParameterStore) -> list[tf.EmbeddingTable]:
    store.declare("w", [3])
    return [tf.EmbeddingTable(store, name, 2, init=tf.zeros_initializer()) for name in ("t", "u")]


def _push_all(store: tf.ParameterStore, tables: list[tf.EmbeddingTable], times: int) -> None:
    for _ in range(times):
        store.push({"w": np.float32([1, -2, 3])})
        push_some(tables[0], 1)
        push_some(tables[1], 2)


def _values(store: tf.ParameterStore, tables: list[tf.EmbeddingTable]) -> list[Any]:
    return [store.pull("w"), *(table.pull([1, 2, 4]) for table in tables)]


def test_a_checkpoint_of_a_store_has_its_tables(tmp_path: Path) -> None:
    """With what Adam keeps for each array and each table: they have had other numbers of updates."""
    with tf.ParameterStore(optimizer=tf.train.AdamOptimizer(0.1)) as store:
        tables = _store_with_tables(store)
        [table.pull([1, 2, 4]) for table in tables]
        _push_all(store, tables, 3)
        path = store.save(str(tmp_path / "m"))
        before = _values(store, tables)
        _push_all(store, tables, 3)
        expected = _values(store, tables)
        store.restore(path)
        for found, wanted in zip(_values(store, tables), before):
            np.testing.assert_array_equal(found, wanted)
    adam = tf.train.AdamOptimizer(0.1)
    with tf.LocalCluster(ps=2, workers=1) as cluster, tf.ParameterStore(cluster, adam) as store:
        tables = _store_with_tables(store)
        store.restore(store.save(str(tmp_path / "empty")))
        store.restore(path)
        _push_all(store, tables, 3)
        for found, wanted in zip(_values(store, tables), expected):
            np.testing.assert_array_equal(found, wanted)
    with tf.Graph().as_default(), tf.Session() as session:
        rows = tf.nn.embedding_lookup(tf.get_embedding_variable("u", 2), tf.constant([1, 2, 4], tf.int64))
        tf.train.Saver().restore(session, path)
        np.testing.assert_array_equal(session.run(rows), before[2])
    with tf.ParameterStore() as store:
        tf.EmbeddingTable(store, "other", 2)
        with pytest.raises(tf.errors.NotFoundError, match="other"):
            store.restore(path)


@pytest.mark.parametrize("second", ["array", "table", "shards"])
@pytest.mark.parametrize("first", ["array", "table", "shards"])
def test_two_things_of_a_store_have_two_names(first: str, second: str) -> None:
    with tf.ParameterStore() as store:
        make = {
            "array": lambda: store.declare("x", [2]),
            "table": lambda: tf.EmbeddingTable(store, "x", 2),
            "shards": lambda: store.shards("x", 10),
        }
        make[first]()
        if first != second:
            with pytest.raises(ValueError, match="something else by the name of 'x'"):
                make[second]()


def test_a_table_whose_first_step_failed_can_be_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    with tf.ParameterStore(optimizer=tf.train.AdamOptimizer(0.1)) as store:
        with monkeypatch.context() as patched, pytest.raises(tf.errors.UnavailableError, match="away"):
            patched.setattr(store.session, "run", lambda *_: raised(tf.errors.UnavailableError(None, None, "away")))
            tf.EmbeddingTable(store, "t", 2, init=tf.ones_initializer())
        with pytest.raises(ValueError, match="Table t already exists"):
            tf.EmbeddingTable(store, "t", 3)
        table = tf.EmbeddingTable(store, "t", 2, init=tf.ones_initializer())
        assert table.pull([5]).tolist() == [[1.0, 1.0]]
        table.push([5], [[1.0, -1.0]])
        np.testing.assert_allclose(table.pull([5]), [[0.9, 1.1]], rtol=1e-5)


def test_ids_and_options_that_are_none_are_refused() -> None:
    with tf.ParameterStore() as store:
        table = tf.EmbeddingTable(store, "t", 2)
        assert table.pull(np.array([3], np.uint64)).shape == (1, 2)
        with pytest.raises(tf.errors.InvalidArgumentError, match="int64; 18446744073709551615 is none"):
            table.pull(np.array([2**64 - 1], np.uint64))
        with pytest.raises(TypeError, match="EmbeddingVariableOption"):
            tf.EmbeddingTable(store, "u", 2, option=tf.CounterFilter(2))


def test_restore_names_what_was_not_declared(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with tf.ParameterStore(optimizer=tf.train.AdamOptimizer(0.1)) as store:
        store.declare("w", [2])
        tf.EmbeddingTable(store, "t", 2).pull([1])
        store.push({"w": np.ones(2)})
        path = store.save(str(tmp_path / "all"))
        store.restore(path)
        assert "restore()" not in caplog.text
    with tf.ParameterStore(optimizer=tf.train.AdamOptimizer(0.1)) as store:
        store.declare("w", [2])
        store.restore(path)
    assert f"has not declared: t of {path}" in caplog.text


def raised(error: Exception) -> None:
    raise error


def test_errors() -> None:
    with tf.ParameterStore() as store:
        table = tf.EmbeddingTable(store, "t", 2)
        with pytest.raises(tf.errors.InvalidArgumentError, match="integers; got float64"):
            table.pull([1.5])
        with pytest.raises(
            tf.errors.InvalidArgumentError, match=r"Gradients of shape \(1, 3\) for ids of shape \(1,\)"
        ):
            table.push([1], np.ones((1, 3)))
        with pytest.raises(tf.errors.InvalidArgumentError, match="complex128 lose what table 't'"):
            table.push([1], np.ones((1, 2), complex))
        with pytest.raises(ValueError, match="Table t already exists"):
            tf.EmbeddingTable(store, "t", 2)
        option = tf.EmbeddingVariableOption(evict_option=tf.GlobalStepEvict(3))
        with pytest.raises(ValueError, match="can have no age"):
            tf.EmbeddingTable(store, "u", 2, option=option)
