"""Datasets chosen by other datasets or by chance."""

from __future__ import annotations

import numpy as np

import tfmini as tf
from tests.data.elements import elements

Dataset = tf.data.Dataset
experimental = tf.data.experimental


def test_samples_follow_their_weights() -> None:
    parts = [Dataset.from_tensors(np.int64(i)).repeat() for i in range(3)]
    for weights in ([0.5, 0.0, 0.5], Dataset.from_tensors([0.5, 0.0, 0.5]).repeat()):
        found = elements(experimental.sample_from_datasets(parts, weights, seed=3).take(60))
        assert set(found) == {0, 2}
    assert set(elements(experimental.sample_from_datasets(parts, seed=3).take(60))) == {0, 1, 2}
