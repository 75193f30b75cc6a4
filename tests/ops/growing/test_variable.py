"""`tf.get_embedding_variable` in graphs: names, lookups, gradients, errors."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import tfmini as tf


@pytest.fixture(autouse=True)
def graph() -> Iterator[None]:
    with tf.Graph().as_default():
        yield


def started() -> tf.Session:
    session = tf.Session()
    session.run(tf.global_variables_initializer())
    return session


@pytest.mark.parametrize("parts", [1, 3])
def test_lookups_give_rows_in_the_order_of_the_ids(parts: int) -> None:
    init = np.arange(40, dtype=np.float32).reshape(10, 4)
    table = tf.get_embedding_variable("t", 4, initializer=init, partitioner=tf.fixed_size_partitioner(parts))
    ids = tf.constant([[3, -1], [12, 3]], tf.int64)
    rows = tf.nn.embedding_lookup(table, ids)
    assert rows.shape.as_list() == [2, 2, 4]
    with started() as session:
        # An id gets the row of its remainder, as an unsigned number.
        np.testing.assert_array_equal(session.run(rows), init[[[3, (2**64 - 1) % 10], [2, 3]]])
        assert session.run(table.size()) == 3
        assert session.run(tf.report_uninitialized_variables()).size == 0


def test_rows_do_not_depend_on_the_number_of_parts() -> None:
    option = tf.EmbeddingVariableOption(init_option=tf.InitializerOption(tf.glorot_uniform_initializer(seed=3)))
    found = []
    for parts in (1, 2, 5):
        with tf.Graph().as_default():
            partitioner = tf.fixed_size_partitioner(parts)
            table = tf.get_embedding_variable("t", 3, partitioner=partitioner, ev_option=option)
            rows = tf.nn.embedding_lookup(table, tf.range(100, dtype=tf.int32))
            with started() as session:
                found.append(session.run(rows))
    np.testing.assert_array_equal(found[0], found[1])
    np.testing.assert_array_equal(found[0], found[2])
    limit = np.sqrt(6 / (4096 + 3))  # Glorot's, for the shape of `InitializerOption`
    assert 0.9 * limit < np.abs(found[0]).max() <= limit


@pytest.mark.parametrize("parts", [1, 2])
def test_lookups_of_a_table_that_is_read_only_change_nothing(parts: int) -> None:
    table = tf.get_embedding_variable("t", 3, partitioner=tf.fixed_size_partitioner(parts))
    ids = tf.constant([5, 6, 5], tf.int64)
    read, made = (tf.nn.embedding_lookup(each, ids) for each in (table.read_only(), table))
    with started() as session:
        found = session.run(read)
        assert session.run(table.size()) == 0
        np.testing.assert_array_equal(session.run(made), found)
        assert session.run(table.size()) == 2


def test_sparse_lookups_combine_rows() -> None:
    init = np.arange(12, dtype=np.float32).reshape(4, 3)
    table = tf.get_embedding_variable("t", 3, initializer=init, partitioner=tf.fixed_size_partitioner(2))
    ids = tf.SparseTensor([[0, 0], [0, 1], [2, 0]], tf.constant([1, 2, 3], tf.int64), [3, 2])
    sums = tf.nn.embedding_lookup_sparse(table, ids, None, combiner="sum")
    means = tf.nn.safe_embedding_lookup_sparse(table, ids)
    with started() as session:
        np.testing.assert_array_equal(session.run(sums), [init[1] + init[2], [0] * 3, init[3]])
        np.testing.assert_array_equal(session.run(means), [(init[1] + init[2]) / 2, [0] * 3, init[3]])


def test_gradients_are_slices_of_ids() -> None:
    table = tf.get_embedding_variable("t", 2, initializer=tf.ones_initializer())
    ids = tf.constant([[7, 8], [7, 9]], tf.int64)
    weights = tf.constant(np.arange(8, dtype=np.float32).reshape(2, 2, 2))
    (grad,) = tf.gradients(tf.nn.embedding_lookup(table, ids) * weights, [table])
    assert isinstance(grad, tf.IndexedSlices)
    with started() as session:
        found_ids, values = session.run([grad.indices, grad.values])
    assert found_ids.tolist() == [7, 8, 7, 9]
    np.testing.assert_array_equal(values, np.arange(8).reshape(4, 2))


def test_a_filter_holds_rare_ids_back() -> None:
    init = tf.InitializerOption(tf.ones_initializer(), default_value_no_permission=-2.0)
    option = tf.EmbeddingVariableOption(filter_option=tf.CounterFilter(3), init_option=init)
    table = tf.get_embedding_variable("t", 1, ev_option=option)
    ids = tf.placeholder(tf.int64, [None])
    rows = tf.nn.embedding_lookup(table, ids)
    train = tf.train.GradientDescentOptimizer(0.5).minimize(tf.reduce_sum(rows))
    with started() as session:
        found = [session.run([rows, train], {ids: feed})[0].ravel().tolist() for feed in ([1, 1], [1, 2], [1, 2, 3])]
        assert found == [[-2, -2], [1, -2], [0.5, -2, -2]]
        keys, values, freqs, _ = session.run(table.export())
    assert (keys.tolist(), values.tolist(), freqs.tolist()) == ([1], [[0]], [4])


def test_old_and_small_rows_are_evicted() -> None:
    both = [tf.GlobalStepEvict(2), tf.L2WeightEvict(0.5)]
    init = np.array([[1.0], [0.25], [3.0]], np.float32)
    table = tf.get_embedding_variable("t", 1, initializer=init, ev_option=tf.EmbeddingVariableOption(evict_option=both))
    step = tf.train.get_or_create_global_step()
    ids = tf.placeholder(tf.int64, [None])
    rows = tf.nn.embedding_lookup(table, ids)
    train = tf.train.GradientDescentOptimizer(0.0).minimize(tf.reduce_sum(rows), step)
    evicted = table.evict()
    with started() as session:
        session.run(train, {ids: [0, 1, 2]})
        assert session.run(evicted) == 1  # the row of 0.25
        for _ in range(3):
            session.run(train, {ids: [2]})
        assert session.run(evicted) == 1
        keys, _, _, versions = session.run(table.export())
    assert (keys.tolist(), versions.tolist()) == ([2], [3])


def test_an_age_needs_a_global_step() -> None:
    option = tf.EmbeddingVariableOption(evict_option=tf.GlobalStepEvict(2))
    table = tf.get_embedding_variable("t", 1, ev_option=option)
    loss = tf.reduce_sum(tf.nn.embedding_lookup(table, tf.constant([1], tf.int64)))
    with pytest.raises(ValueError, match="have an age.*give minimize or apply_gradients a global_step"):
        tf.train.GradientDescentOptimizer(0.1).minimize(loss)


def test_scopes_give_names_and_decide_about_reuse() -> None:
    with tf.variable_scope("a"):
        one = tf.get_embedding_variable("t", 2)
        with pytest.raises(ValueError, match="Table a/t already exists"):
            tf.get_embedding_variable("t", 2)
    with tf.variable_scope("a", reuse=True):
        assert tf.get_embedding_variable("t", 2) is one
        with pytest.raises(ValueError, match="Table a/u does not exist"):
            tf.get_embedding_variable("u", 2)
    assert one.op.name == "a/t" and one.op.type == "KvVarHandleOp"
    with tf.variable_scope("b", partitioner=tf.fixed_size_partitioner(2)):
        parts = tf.get_embedding_variable("t", 2)
    assert [part.op.name for part in parts] == ["b/t/part_0", "b/t/part_1"]
    assert tf.trainable_variables() == [one, *parts]


def test_parts_are_spread_over_the_parameter_servers() -> None:
    with tf.device(tf.train.replica_device_setter(2)):
        table = tf.get_embedding_variable("t", 2, partitioner=tf.fixed_size_partitioner(2))
        rows = tf.nn.embedding_lookup(table, tf.constant([1], tf.int64))
    assert [part.device for part in table] == ["/job:ps/task:0", "/job:ps/task:1"]
    assert rows.device == "/job:worker"


def test_a_table_is_no_tensor() -> None:
    table = tf.get_embedding_variable("t", 2)
    with pytest.raises(NotImplementedError, match="'t:0' grows.*tf.nn.embedding_lookup"):
        tf.convert_to_tensor(table)
    with pytest.raises(ValueError, match="regularizer is not supported by tables that grow"):
        tf.get_embedding_variable("u", 2, regularizer=abs)
    with pytest.raises(ValueError, match="must be int64 or int32, not string"):
        tf.get_embedding_variable("u", 2, key_dtype=tf.string)
    with pytest.raises(TypeError, match="is no option of an embedding variable"):
        tf.EmbeddingVariableOption(filter_option=tf.LFUEvict(3))


def test_one_table_has_one_kind_of_settings() -> None:
    """Sessions of a task share its tables."""
    server = tf.train.Server.create_local_server()
    tf.get_embedding_variable("t", 2)
    with tf.Session(server.target) as session:
        session.run(tf.global_variables_initializer())
    with tf.Graph().as_default():
        option = tf.EmbeddingVariableOption(filter_option=tf.CounterFilter(5))
        other = tf.get_embedding_variable("t", 2, ev_option=option)
        with (
            tf.Session(server.target) as session,
            pytest.raises(tf.errors.InvalidArgumentError, match="on its task already, with other settings"),
        ):
            session.run(other.size())
    server.stop()


@pytest.mark.parametrize("lookup", [tf.nn.embedding_lookup_sparse, tf.nn.safe_embedding_lookup_sparse])
def test_a_sparse_lookup_counts_each_occurrence_of_an_id(lookup: Any) -> None:
    option = tf.EmbeddingVariableOption(filter_option=tf.CounterFilter(filter_freq=2))
    table = tf.get_embedding_variable("occurring", embedding_dim=2, ev_option=option)
    ids = tf.SparseTensor([[0, 0], [0, 1], [0, 2]], tf.constant([7, 7, 8], tf.int64), [1, 3])
    rows = lookup(table, ids, None, combiner="sum")
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        session.run(rows)
        assert session.run(table.total_count()) == 1  # 7 has come twice, 8 once
