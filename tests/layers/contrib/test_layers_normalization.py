"""Normalisation of each example."""

from __future__ import annotations

import numpy as np
import pytest

import tfmini as tf
from tests.ops.session_run import run

layers, slim = tf.contrib.layers, tf.contrib.slim


X = np.random.default_rng(0).normal(size=(2, 4, 3, 6)).astype(np.float32)


def test_instance_norm_normalises_each_channel_of_each_example() -> None:
    mean, variance = X.mean(axis=(1, 2), keepdims=True), X.var(axis=(1, 2), keepdims=True)
    last, first = run(
        [layers.instance_norm(X), layers.instance_norm(X.transpose(0, 3, 1, 2), data_format="NCHW", scope="first")]
    )
    np.testing.assert_allclose(last, (X - mean) / np.sqrt(variance + 1e-6), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(first.transpose(0, 2, 3, 1), last, rtol=1e-4, atol=1e-4)
    assert [v.op.name for v in slim.get_model_variables("first")] == ["first/beta", "first/gamma"]


def test_group_norm_normalises_groups_of_channels() -> None:
    grouped = X.reshape(2, 4, 3, 2, 3)
    mean, variance = grouped.mean(axis=(1, 2, 4), keepdims=True), grouped.var(axis=(1, 2, 4), keepdims=True)
    found = run(layers.group_norm(X, groups=2))
    np.testing.assert_allclose(
        found, ((grouped - mean) / np.sqrt(variance + 1e-6)).reshape(X.shape), rtol=1e-4, atol=1e-4
    )
    with pytest.raises(ValueError, match="6 channels is not commensurate with 4 groups."):
        layers.group_norm(X, groups=4)
    with pytest.raises(ValueError, match="Invalid groups 32 for 6 channels."):
        layers.group_norm(X)
