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
