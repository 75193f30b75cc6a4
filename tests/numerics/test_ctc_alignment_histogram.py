"""Histograms of summaries."""

from __future__ import annotations

import numpy as np

import tfmini as tf
from tfmini.numerics.ctc_alignment import Histogram


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
    assert proto.sum == sum(whole.tolist())
    assert (proto.min, proto.max) == (whole.min(), whole.max())


def test_the_largest_number_is_counted_in_the_last_bucket() -> None:
    histogram = Histogram()
    with np.errstate(over="ignore"):  # the square
        histogram.add(np.array([np.finfo(np.float64).max]))
    proto = tf.HistogramProto()
    histogram.write(proto)
    assert list(proto.bucket) == [0, 1]
