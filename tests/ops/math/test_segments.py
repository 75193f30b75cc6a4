"""Sums of segments refuse wrong ids."""

from __future__ import annotations

import numpy as np
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


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int64])
@pytest.mark.parametrize("segments", [3, 40, 300, 3000])
def test_runs_of_one_row_and_of_several_are_summed_alike(segments: int, dtype: type) -> None:
    """With few repeated ids only their rows are reduced; negative ids are dropped."""
    rng = np.random.RandomState(segments)
    ids, rows = rng.randint(-2, segments, 400), rng.randint(-50, 50, (400, 5)).astype(dtype)
    wanted = {name: np.full((segments, 5), start, dtype) for name, start in (("sum", 0), ("max", -60000))}
    np.add.at(wanted["sum"], ids[ids >= 0], rows[ids >= 0])
    np.maximum.at(wanted["max"], ids[ids >= 0], rows[ids >= 0])
    total, most = run([tf.unsorted_segment_sum(rows, ids, segments), tf.unsorted_segment_max(rows, ids, segments)])
    assert total.dtype == dtype and (total == wanted["sum"]).all()
    there = np.isin(np.arange(segments), ids)
    assert (most[there] == wanted["max"][there]).all()


@pytest.mark.parametrize("name,ufunc,empty", [("sum", np.add, 0), ("max", np.maximum, np.finfo(np.float32).min)])
@pytest.mark.parametrize("repeated", [0, 1, 5, 60])
def test_unsorted_segments_of_one_row_and_of_several_are_reduced_alike(
    name: str, ufunc: np.ufunc, empty: float, repeated: int
) -> None:
    random = np.random.default_rng(repeated)
    ids = random.permutation(np.concatenate([np.arange(50), random.integers(0, 70, repeated), [-1]]))
    data = random.integers(-9, 9, (ids.size, 3)).astype(np.float32)  # sums are exact in any order
    data[0], data[1] = np.nan, np.inf
    wanted = np.full((70, 3), empty, np.float32)
    seen: set[int] = set()
    for i, row in zip(ids.tolist(), data):
        if i >= 0:
            wanted[i] = ufunc(wanted[i], row) if i in seen else row
            seen.add(i)
    op = getattr(tf, f"unsorted_segment_{name}")
    np.testing.assert_array_equal(run(op(data, ids, 70)), wanted)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
@pytest.mark.parametrize("tail", [(), (3,), (64,)])
@pytest.mark.parametrize("repeated", [1, 8])
def test_the_rows_of_a_segment_are_summed_in_their_order(repeated: int, tail: tuple[int, ...], dtype: type) -> None:
    """As in TensorFlow, where few rows are repeated; the sums of half precision are rounded once."""
    random = np.random.default_rng(repeated)
    ids = random.permutation(np.concatenate([np.arange(50), np.full(repeated, 7)]))
    data = random.standard_normal((ids.size, *tail)).astype(dtype)
    total = run(tf.unsorted_segment_sum(data, ids, 50))
    rows = data[ids == 7].astype(np.float32 if dtype is np.float16 else dtype)
    wanted = rows[0]
    for row in rows[1:]:
        wanted = wanted + row
    np.testing.assert_array_equal(total[7], wanted.astype(dtype))
    assert total.dtype == dtype


@pytest.mark.parametrize("width", [2, 40])
def test_a_maximum_is_at_least_what_a_segment_begins_with(width: int) -> None:
    rows = np.full((2, width), -np.inf, np.float32)
    lowest = np.finfo(np.float32).min
    assert (run(tf.unsorted_segment_max(rows, [1, 0], 2)) == lowest).all()  # as in 1.15.5, whatever the width
