"""Metrics of `tf.contrib.metrics`."""

from __future__ import annotations

import pytest

import tfmini as tf

layers, slim = tf.contrib.layers, tf.contrib.slim


def test_metrics_take_predictions_before_labels() -> None:
    metrics = tf.contrib.metrics
    names = {
        "right": metrics.streaming_accuracy([1, 0, 1, 1], [1, 0, 0, 1]),
        "recall": slim.metrics.streaming_recall([True, False], [True, True]),
        "less": metrics.streaming_percentage_less([1.0, 3.0], 2.0),
    }
    found, updates = metrics.aggregate_metric_map(names)
    with tf.Session() as session:
        session.run(tf.local_variables_initializer())
        session.run(updates)
        assert session.run(found) == {"right": 0.75, "recall": 0.5, "less": 0.5}
        assert session.run(metrics.accuracy(tf.constant([1, 2]), tf.constant([1, 3]), [3.0, 1.0])) == 0.75
    with pytest.raises(ValueError, match="Dtypes of predictions and labels should match"):
        metrics.accuracy(tf.constant([1]), tf.constant([True]))
