"""Precision and recall of the first k predictions."""

from __future__ import annotations

import numpy as np
import pytest

import tfmini as tf
from tests.ops.session_run import run


def test_precision_and_recall_count_the_first_k_predictions() -> None:
    predictions = [[0.1, 0.3, 0.2, 0.4], [0.1, 0.2, 0.3, 0.4]]
    labels = np.array([[3, 1], [0, 1]], np.int64)
    for metric, wanted in ((tf.metrics.precision_at_k, 0.5), (tf.metrics.recall_at_k, 0.5),
                           (tf.metrics.average_precision_at_k, 0.5)):  # fmt: skip
        assert run(metric(labels, predictions, 2)[1]) == pytest.approx(wanted)
    assert run(tf.metrics.recall_at_k(labels, predictions, 2, class_id=1)[1]) == 0.5
    assert np.isnan(run(tf.metrics.precision_at_k(labels, predictions, 2, class_id=0)[1]))


def test_average_precision_of_no_examples_is_zero() -> None:
    predictions, labels = np.zeros((0, 4), np.float32), np.zeros((0, 1), np.int64)
    assert run(tf.metrics.average_precision_at_k(labels, predictions, 2)[1]) == 0
    weights = [0.0, 0.0]
    assert run(tf.metrics.average_precision_at_k(np.int64([[1], [0]]), np.ones((2, 3)), 2, weights)[1]) == 0


def test_sensitivity_at_one_of_two_specificities_that_are_equally_near() -> None:
    """One negative example gives the specificities 0 and 1; 1.15.5 takes the threshold with the second."""
    labels, predictions = [False, True, True, True], [0.1, 0.5, 0.1, 0.2]
    assert run(tf.metrics.sensitivity_at_specificity(labels, predictions, 0.5)[1]) == pytest.approx(2 / 3)
