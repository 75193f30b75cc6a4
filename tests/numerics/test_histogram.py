"""Histograms of summaries."""

from __future__ import annotations

import numpy as np

import tfmini as tf
from tfmini.numerics.histogram import Histogram, default_limits


def test_values_of_all_chunks_are_counted_between_the_limits() -> None:
    whole = np.random.default_rng(0).standard_normal(100_000)
    histogram = Histogram()
    histogram.add(whole)
    proto = tf.HistogramProto()
    histogram.write(proto)
    edges = np.array([-np.inf, *proto.bucket_limit])
    counted = [np.count_nonzero((whole >= low) & (whole < high)) for low, high in zip(edges, edges[1:])]
    assert list(proto.bucket) == counted
    assert proto.num == len(whole)
    assert proto.sum == np.cumsum(whole)[-1]  # one after the other; Python's own sum corrects its errors since 3.12
    assert (proto.min, proto.max) == (whole.min(), whole.max())


def test_the_largest_number_is_counted_in_the_last_bucket() -> None:
    histogram = Histogram()
    with np.errstate(over="ignore"):  # the square
        histogram.add(np.array([np.finfo(np.float64).max]))
    proto = tf.HistogramProto()
    histogram.write(proto)
    assert list(proto.bucket) == [0, 1]


def test_each_number_is_counted_in_the_bucket_whose_limits_hold_it() -> None:
    limits = default_limits()
    bits = np.random.default_rng(1).integers(0, 2**64, 50_000, dtype=np.uint64).view(np.float64)
    beside = [np.nextafter(limits[:-1], np.inf), np.nextafter(limits[1:], -np.inf)]
    numbers = np.concatenate([limits, *beside, bits[np.isfinite(bits)], [0.0, -0.0, 5e-324, -5e-324]])
    histogram, proto = Histogram(), tf.HistogramProto()
    with np.errstate(over="ignore"):  # the squares
        histogram.add(numbers)
    histogram.write(proto)
    found = np.minimum(np.searchsorted(limits, numbers, side="right"), len(limits) - 1)
    counts = np.bincount(found, minlength=len(limits))
    assert list(zip(proto.bucket_limit, proto.bucket)) == list(zip(limits, counts))


def test_sums_run_in_the_order_of_the_elements() -> None:
    numbers = np.random.default_rng(2).standard_normal(70_000).astype(np.float32)
    total = squares = 0.0
    for number in numbers.tolist():
        total += number
        squares += number * number
    histogram, proto = Histogram(), tf.HistogramProto()
    histogram.add(numbers)
    histogram.write(proto)
    assert (proto.sum, proto.sum_squares) == (total, squares)


def test_the_sum_of_negative_zeros_is_zero() -> None:
    histogram, proto = Histogram(), tf.HistogramProto()
    histogram.add(np.array([-0.0, -0.0]))
    histogram.write(proto)
    assert not np.signbit(proto.sum)
