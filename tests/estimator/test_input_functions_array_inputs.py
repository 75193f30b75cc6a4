"""Input functions of arrays: epochs, order, the last batch, labels, errors."""

from __future__ import annotations

import numpy as np
import pytest

import tfmini as tf

numpy_input_fn = tf.estimator.inputs.numpy_input_fn


def batches(input_fn, limit=20):
    """The batches that an input function gives, up to a limit."""
    with tf.Graph().as_default():
        fetched = input_fn()
        found = []
        with tf.train.MonitoredSession() as session:
            while not session.should_stop() and len(found) < limit:
                found.append(session.run(fetched))
    return found


def test_batches_reach_into_the_next_epoch() -> None:
    found = batches(numpy_input_fn({"a": np.arange(5)}, np.arange(5) * 10, batch_size=2, num_epochs=2, shuffle=False))
    assert [features["a"].tolist() for features, _ in found] == [[0, 1], [2, 3], [4, 0], [1, 2], [3, 4]]
    assert [labels.tolist() for _, labels in found][2] == [40, 0]
    last = batches(numpy_input_fn(np.arange(5), batch_size=3, shuffle=False))
    assert [row.tolist() for row in last] == [[0, 1, 2], [3, 4]]


def test_without_a_number_of_epochs_there_is_no_end() -> None:
    input_fn = numpy_input_fn(np.arange(3), batch_size=2, num_epochs=None, shuffle=True)
    assert input_fn().shape.as_list() == [2]
    found = np.concatenate(batches(input_fn, 30))
    assert sorted(found[:3]) == [0, 1, 2] and sorted(found[3:6]) == [0, 1, 2]


def test_texts_and_several_labels() -> None:
    x = {"text": np.array(["a", "bc"]), "f": np.ones((2, 3), np.float32)}
    features, labels = batches(numpy_input_fn(x, {"u": np.array([1, 2]), "v": np.zeros(2)}, shuffle=False))[0]
    assert features["text"].tolist() == [b"a", b"bc"] and features["f"].shape == (2, 3)
    assert labels["u"].tolist() == [1, 2] and labels["v"].dtype == np.float64


def test_wrong_arguments() -> None:
    with pytest.raises(ValueError, match="shuffle must be provided"):
        numpy_input_fn(np.arange(3))
    with pytest.raises(ValueError, match="mismatched"):
        numpy_input_fn({"a": np.arange(3)}, np.arange(2), shuffle=False)()
    with pytest.raises(ValueError, match="empty dict"):
        numpy_input_fn({}, shuffle=False)
    with pytest.raises(TypeError, match="dict or array"):
        numpy_input_fn("abc", shuffle=False)


def test_data_frames() -> None:
    pandas = pytest.importorskip("pandas")
    x, y = pandas.DataFrame({"a": [1, 2], "b": ["u", "v"]}), pandas.Series([3.0, 4.0])
    features, labels = batches(tf.estimator.inputs.pandas_input_fn(x, y, shuffle=False))[0]
    assert features["a"].tolist() == [1, 2] and features["b"].tolist() == [b"u", b"v"] and labels.tolist() == [3.0, 4.0]
