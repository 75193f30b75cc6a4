"""Ragged tensors refuse arguments that do not cut their values into rows."""

from __future__ import annotations

from typing import Any

import pytest

import tfmini as tf
from tests.ops.session_run import run

R = tf.RaggedTensor
WRONG = [
    (R.from_row_splits, [1, 3]),
    (R.from_row_splits, [0, 2, 1, 3]),
    (R.from_row_splits, [0, 2]),
    (R.from_row_lengths, [1, 1]),
    (R.from_row_lengths, [4, -1]),
    (R.from_value_rowids, [0, 2, 1]),
    (R.from_value_rowids, [-1, 0, 1]),
    (R.from_value_rowids, [0, 1]),
    (R.from_row_starts, [1, 2]),
    (R.from_row_limits, [1, 2]),
]


@pytest.mark.parametrize(("method", "cut"), WRONG)
def test_a_wrong_partition_is_refused_when_built_or_in_the_step(method: Any, cut: list[int]) -> None:
    text = f"Arguments to {method.__name__} do not form a valid RaggedTensor"
    fed = tf.placeholder(tf.int64, [None])
    later = method([5, 6, 7], fed)
    with tf.Session() as session, pytest.raises(tf.errors.InvalidArgumentError, match=text):
        session.run(later, {fed: cut})
    with pytest.raises(tf.errors.InvalidArgumentError, match=text), tf.Session() as session:
        session.run(method([5, 6, 7], cut))


@pytest.mark.parametrize(
    ("method", "cut"),
    [
        (R.from_row_splits, [0, 2, 2, 3]),
        (R.from_row_lengths, [2, 0, 1]),
        (R.from_value_rowids, [0, 0, 2]),
        (R.from_row_starts, [0, 2, 2]),
        (R.from_row_limits, [2, 2, 3]),
    ],
)
def test_a_partition_gives_the_rows(method: Any, cut: list[int]) -> None:
    with tf.Session() as session:
        assert session.run(method([5, 6, 7], cut)).to_list() == [[5, 6], [], [7]]


def test_checks_can_be_left_out() -> None:
    assert [op.type for op in R.from_row_splits([5], [0, 1], validate=False).row_splits.op.control_inputs] == []
    with pytest.raises(TypeError, match="validate must have type bool"):
        R.from_row_splits([5], [0, 1], validate=1)  # type: ignore[arg-type]


def test_a_ragged_constant_has_its_rows_lengths_and_padding() -> None:
    ragged = tf.ragged.constant([[1, 2], [], [3]])
    assert run(ragged).to_list() == [[1, 2], [], [3]]
    assert run(ragged.to_tensor()).tolist() == [[1, 2], [0, 0], [3, 0]]
    assert run(ragged.row_lengths()).tolist() == [2, 0, 1]
