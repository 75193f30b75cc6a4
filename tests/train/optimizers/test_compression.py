"""What is sent of a compressed gradient, in numpy and in graphs, and what the other side makes of it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tfmini as tf
from tfmini.train.optimizers.compression import GradientCompression, compression_of

WAYS = ["fp16", "int8", "topk:0.1"]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_what_is_sent_is_about_the_gradient(way: str, dtype: Any) -> None:
    compression = compression_of(way)
    assert compression is not None
    gradient = np.random.default_rng(0).normal(size=(50, 4)).astype(dtype)
    sent, restored = compression.compress(gradient)
    assert restored.dtype == dtype and restored.shape == gradient.shape
    error = np.abs(gradient - restored).max() / np.abs(gradient).max()
    assert error < {"fp16": 2**-11, "int8": 0.51 / 127, "topk:0.1": 0.7}[way]
    assert sum(each.nbytes for each in sent) < gradient.nbytes * {"fp16": 0.51, "int8": 0.28, "topk:0.1": 0.21}[way]


@pytest.mark.parametrize("way", WAYS)
def test_extreme_gradients(way: str) -> None:
    compression = compression_of(way)
    assert compression is not None
    for gradient in (
        np.zeros(5, np.float32),
        np.empty((0, 3), np.float32),
        np.full(3, 1e30, np.float32),
        np.float32(2),
    ):
        sent, restored = compression.compress(np.asarray(gradient))
        assert restored.shape == np.shape(gradient) and np.isfinite(restored).all() and sent


def _in_a_graph(compression: GradientCompression, gradient: Any) -> tuple[list[Any], Any]:
    with tf.Graph().as_default(), tf.Session() as session, np.errstate(all="ignore"):
        sent = compression.compressed(tf.constant(gradient))
        restored = compression.restored(sent, tf.as_dtype(gradient.dtype), gradient.shape)
        assert restored.shape == gradient.shape and restored.dtype == gradient.dtype
        return session.run([sent, restored])


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("dtype", [np.float16, tf.bfloat16.as_numpy_dtype, np.float32, np.float64])
@pytest.mark.parametrize("size", [1, 1e-30, 1e30, 1e-44, 3e-6, 0])
def test_graphs_send_what_numpy_sends(way: str, dtype: Any, size: float) -> None:
    compression = compression_of(way)
    assert compression is not None
    with np.errstate(over="ignore", invalid="ignore"):
        gradient = (np.random.default_rng(0).normal(size=(40, 3)) * size).astype(dtype)
        sent, restored = compression.compress(gradient)
    graph_sent, graph_restored = _in_a_graph(compression, gradient)
    for each, other in zip(sent, graph_sent) if way != "topk:0.1" else ():  # equal numbers may stand at other places
        np.testing.assert_array_equal(each, other)
    if np.isfinite(gradient).all() and not (way.startswith("topk") and size < 1):
        np.testing.assert_array_equal(restored, graph_restored)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_small_numbers_keep_their_sign_and_size_in_bytes(dtype: Any) -> None:
    """The scale of the least numbers of a dtype is no number of that dtype, or a far smaller one."""
    compression = compression_of("int8")
    assert compression is not None
    least = np.finfo(dtype).smallest_subnormal
    for times in (1, 63, 100, 168, 1000, 5000):
        gradient = np.array([1, -1, 0.5], dtype) * least * dtype(times)
        _, restored = compression.compress(gradient)
        residual = np.abs(gradient - restored)
        assert (residual <= np.abs(gradient)).all(), (times, gradient, restored)
        if dtype == np.float16:
            assert residual.max() <= np.abs(gradient).max() / 127 + least
        np.testing.assert_array_equal(_in_a_graph(compression, gradient)[1], restored)


@pytest.mark.parametrize("way", WAYS[1:])
def test_the_total_of_workers_is_the_sum_of_what_each_sends(way: str) -> None:
    compression = compression_of(way)
    assert compression is not None
    gradients = np.random.default_rng(0).normal(size=(3, 5, 4)).astype(np.float32)
    each = [compression.compress(gradient) for gradient in gradients]
    with tf.Graph().as_default(), tf.Session() as session:
        stacked = [tf.stack(parts) for parts in zip(*(sent for sent, _ in each))]
        total = session.run(compression.total(stacked, tf.float32, [5, 4]))
    np.testing.assert_allclose(total, sum(restored for _, restored in each), rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("way", WAYS)
def test_a_number_that_is_not_finite_is_not_hidden(way: str, bad: float) -> None:
    compression = compression_of(way)
    assert compression is not None
    gradient = np.array([1, bad, 1], np.float32)
    for restored in (_in_a_graph(compression, gradient)[1], compression.compress(gradient)[1]):
        assert not np.isfinite(restored).all()
