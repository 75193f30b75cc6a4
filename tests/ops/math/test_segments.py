"""Sums of segments refuse wrong ids."""

from __future__ import annotations

import pytest

import tfmini as tf
from tests.ops.session_run import run


def test_the_first_wrong_segment_id_is_named() -> None:
    with pytest.raises(tf.errors.InvalidArgumentError, match="segment ids are not increasing"):
        run(tf.segment_sum(tf.ones([4]), [0, 1, 0, 1]))
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"Segment id 1 out of range \[0, 1\)"):
        run(tf.segment_sum(tf.ones([4]), [0, 1, 2, 0]))


def test_a_segment_id_that_is_out_of_range_is_named() -> None:
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"segment_ids\[1\] = 5 is out of range \[0, 3\)"):
        run(tf.unsorted_segment_sum([1.0, 2.0], [0, 5], 3))
