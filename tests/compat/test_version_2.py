"""Names of ``tf.compat.v2`` that do something else than those of version 1."""

from __future__ import annotations

import importlib.util

import pytest

import tfmini as tf


def test_where_broadcasts_as_in_version_2() -> None:
    chosen = tf.compat.v2.where([[True, False], [False, True]], tf.ones([]), [2.0, 3.0])
    with tf.Session() as session:
        assert session.run(chosen).tolist() == [[1.0, 3.0], [2.0, 1.0]]
        assert session.run(tf.compat.v2.where([False, True])).tolist() == [[1]]


def test_pooling_takes_the_rank_of_its_input() -> None:
    pool = tf.compat.v2.nn
    rows = tf.reshape(tf.range(6.0), [1, 6, 1])
    found = [pool.max_pool(rows, 2, 2, "VALID"), pool.avg_pool(rows, 2, 2, "VALID", data_format="NWC")]
    image, volume = tf.ones([1, 4, 4, 1]), tf.ones([1, 4, 4, 4, 1])
    shapes = [pool.max_pool(image, [2, 2], 2, "SAME").shape, pool.avg_pool(volume, 2, 2, "SAME").shape]
    assert [shape.as_list() for shape in shapes] == [[1, 2, 2, 1], [1, 2, 2, 2, 1]]
    with tf.Session() as session:
        assert [value.ravel().tolist() for value in session.run(found)] == [[1, 3, 5], [0.5, 2.5, 4.5]]


def test_the_transpose_of_a_convolution_of_volumes() -> None:
    image, kernel = tf.ones([1, 1, 1, 1, 1]), tf.fill([2, 2, 2, 1, 1], 3.0)
    found = tf.compat.v2.nn.conv3d_transpose(image, kernel, [1, 2, 2, 2, 1], 2)
    with tf.Session() as session:
        assert session.run(found).ravel().tolist() == [3.0] * 8


@pytest.mark.skipif(importlib.util.find_spec("keras") is None, reason="needs the extra keras")
def test_initializers_are_written_down_and_made_again() -> None:
    initializers = tf.compat.v2.initializers
    written = initializers.serialize(tf.keras.initializers.RandomUniform(-1.0, 1.0, seed=3))
    made = initializers.deserialize(written)
    assert (written["class_name"], made.get_config()) == ("RandomUniform", written["config"])
    assert initializers.get("zeros")([2]).shape.as_list() == [2]


def test_the_seed_of_the_graph() -> None:
    tf.compat.v2.random.set_seed(7)
    assert tf.get_default_graph().seed == 7


def test_sampled_losses_share_weights_by_contiguous_rows() -> None:
    weights = [tf.constant([[1.0], [2.0]]), tf.constant([[3.0], [4.0]])]  # of the classes 0 and 1, 2 and 3
    sampled = (tf.constant([0, 3], tf.int64), tf.constant([[0.5]]), tf.constant([0.5, 0.5]))
    given = {"labels": [[1]], "inputs": [[1.0]], "num_sampled": 2, "num_classes": 4, "sampled_values": sampled}
    for name in ("nce_loss", "sampled_softmax_loss"):
        made, wanted = (getattr(home, name) for home in (tf.compat.v2.nn, tf.nn))
        tensors = [
            made(weights, tf.zeros([4]), **given),
            wanted(weights, tf.zeros([4]), **given, partition_strategy="div"),
        ]
        with tf.Session() as session:
            one, other = session.run(tensors)
        assert one.tolist() == other.tolist()


def test_estimators_have_their_names_of_version_1() -> None:
    estimator = tf.compat.v2.estimator
    assert estimator.EstimatorSpec is tf.estimator.EstimatorSpec and estimator.ModeKeys.TRAIN == "train"
    assert estimator.export.PredictOutput is tf.estimator.export.PredictOutput
