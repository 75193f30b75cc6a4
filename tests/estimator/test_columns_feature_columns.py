"""Feature columns become TensorFlow's numbers; wrong ones are refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tfmini as tf
from tests.estimator import premade_programs
from tests.estimator.agreement import assert_same
from tests.oracle import sent

fc = tf.feature_column


@pytest.mark.oracle_1x
def test_the_layers_are_tensorflows(oracle_1x) -> None:
    ours = sent(premade_programs.layers(tf))
    assert_same(ours, oracle_1x.call(premade_programs.layers))


def values(columns, features):
    """The input layer's values."""
    with tf.Session() as session:
        layer = fc.input_layer(features, columns)
        session.run([tf.global_variables_initializer(), tf.tables_initializer()])
        return session.run(layer).tolist()


def test_columns_in_the_order_of_their_names() -> None:
    features = {"b": tf.constant([[1.0], [2.0]]), "a": tf.constant([5, 6])}
    assert values([fc.numeric_column("b"), fc.numeric_column("a")], features) == [[5.0, 1.0], [6.0, 2.0]]
    buckets = fc.bucketized_column(fc.numeric_column("b"), [1.0, 2.0])
    assert values([buckets], features) == [[0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]


def test_categories() -> None:
    words = fc.categorical_column_with_vocabulary_list("w", ["a", "b"])
    features = {"w": tf.constant([["a", "a"], ["b", "x"], ["", ""]])}
    assert values(fc.indicator_column(words), features) == [[2.0, 0.0], [0.0, 1.0], [0.0, 0.0]]
    sparse = {"w": tf.SparseTensor([[0, 0], [1, 0]], ["b", "a"], [3, 1])}
    views = fc.categorical_column_with_vocabulary_list("w", dict.fromkeys("ab").keys())
    assert values(fc.indicator_column(views), features) == values(fc.indicator_column(words), features)
    ones = fc.embedding_column(words, 1, initializer=tf.constant_initializer([[1.0], [3.0]]))
    assert values(ones, sparse) == [[3.0], [1.0], [0.0]]


def test_an_iterator_is_no_vocabulary() -> None:
    with pytest.raises(TypeError, match=r"vocabulary_list of w is a map: write list\(...\)"):
        fc.categorical_column_with_vocabulary_list("w", map(str, [1, 2]))  # type: ignore[arg-type]


def test_wrong_columns() -> None:
    number, word = fc.numeric_column("x"), fc.categorical_column_with_hash_bucket("w", 3)
    for make in (
        lambda: fc.numeric_column("x", shape=0),
        lambda: fc.bucketized_column(number, [2, 1]),
        lambda: fc.bucketized_column(word, [1]),
        lambda: fc.categorical_column_with_hash_bucket("w", 0),
        lambda: fc.categorical_column_with_vocabulary_list("w", ["a", "a"]),
        lambda: fc.categorical_column_with_identity("w", 3, default_value=3),
        lambda: fc.embedding_column(number, 3),
        lambda: fc.embedding_column(word, 0),
        lambda: fc.input_layer({"w": tf.constant(["a"])}, [word]),
        lambda: fc.input_layer({"y": tf.constant([1.0])}, [number]),
        lambda: fc.input_layer({"x": tf.constant([1.0])}, [number, fc.numeric_column("x")]),
        lambda: fc.linear_model({}, []),
        lambda: fc.crossed_column(["w", word], 10),
        lambda: fc.crossed_column(["w"], 10),
        lambda: fc.crossed_column(["w", number], 10),
        lambda: fc.crossed_column(["w", "x"], 0),
    ):
        with pytest.raises(ValueError):
            make()


def test_a_linear_model_starts_at_zero() -> None:
    made: dict = {}
    column = fc.numeric_column("x", shape=[2])
    out = fc.linear_model({"x": tf.constant([[1.0, 2.0]])}, [column], units=3, cols_to_vars=made)
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        assert session.run(out).tolist() == [[0.0] * 3]
    names = [v.op.name for v in (*made[column], *made["bias"])]
    assert names == ["linear_model/x/weights", "linear_model/bias_weights"]
    assert np.prod(made[column][0].shape.as_list()) == 6


def test_the_variables_of_a_column_are_the_parts_of_a_partitioned_one() -> None:
    column = tf.feature_column.categorical_column_with_identity("a", 4)
    found: dict[Any, Any] = {}
    with tf.variable_scope("", partitioner=tf.fixed_size_partitioner(2)):
        tf.feature_column.linear_model({"a": [[1], [3]]}, [column], cols_to_vars=found)
    assert [part.shape.as_list() for part in found[column]] == [[2, 1], [2, 1]]
