"""The digits of batch normalisation."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tfmini as tf
from tests.ops.session_run import run


def _normalized(x: np.ndarray, is_training: bool, **moments: Any) -> np.ndarray:
    ones = tf.ones([x.shape[-1]])
    made = tf.nn.fused_batch_norm(x, ones, ones - 1, is_training=is_training, epsilon=1e-4, **moments)
    return np.asarray(run(made[0]))


def test_the_mean_of_equal_numbers_is_rounded_once() -> None:
    rows = np.tile(np.arange(6, dtype=np.float32), (7, 1))
    assert _normalized(rows.reshape(7, 1, 1, 6), True).ravel() == pytest.approx(0, abs=3e-5)


def test_a_large_mean_costs_no_digits() -> None:
    x = np.array([1000.0, 1000.25], np.float32).reshape(2, 1, 1, 1)
    found = _normalized(x, False, mean=[1000.0], variance=[0.0])
    assert found.ravel().tolist() == pytest.approx([0, 25], abs=1e-5)
