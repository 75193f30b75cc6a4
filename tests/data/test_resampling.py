"""Datasets of which elements are dropped until their classes have the wanted distribution."""

from __future__ import annotations

import numpy as np
import pytest

import tfmini as tf
from tests.data.elements import elements

Dataset = tf.data.Dataset


@pytest.mark.parametrize("initial", [[0.2] * 5, None])
def test_the_classes_have_the_wanted_distribution(initial: list[float] | None) -> None:
    target = [0.8, 0.1, 0.1, 0.0, 0.0]
    data = Dataset.range(5).repeat(600).map(lambda i: (i, tf.as_string(i)))
    resample = tf.data.experimental.rejection_resample(lambda i, _: i, target, initial, seed=27)
    found = elements(data.apply(resample))
    assert all(str(label).encode() == text and label == number for label, (number, text) in found)
    shares = np.bincount([label for label, _ in found], minlength=5) / len(found)
    np.testing.assert_allclose(shares[:3], target[:3], atol=0.08)
    assert shares[3:].sum() < 0.03 and 500 < len(found) < 900


def test_nothing_is_dropped_where_the_distribution_is_the_wanted_one() -> None:
    resample = tf.data.experimental.rejection_resample(lambda i: i % 2, [0.5, 0.5], [0.5, 0.5])
    assert elements(Dataset.range(4).apply(resample)) == [(0, 0), (1, 1), (0, 2), (1, 3)]
