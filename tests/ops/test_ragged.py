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
    errors = (tf.errors.InvalidArgumentError, ValueError)  # a static length is compared when the graph is built
    with pytest.raises(errors, match=f"{text}|are incompatible"), tf.Session() as session:
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
    halves = tf.cast(ragged, tf.float16)
    assert halves.dtype == tf.float16 and run(halves).to_list() == [[1, 2], [], [3]]


def test_a_dense_tensor_is_cut_to_lengths_or_without_padding() -> None:
    x = tf.constant([[5, 7, 0], [0, 3, 0], [6, 0, 0]])
    y = tf.constant([[[5, 0], [7, 0], [0, 0]], [[0, 0], [3, 0], [0, 0]], [[6, 0], [0, 0], [0, 0]]])
    cut = tf.RaggedTensor.from_tensor
    assert rows(cut(x, lengths=[-1, 9, 1])) == [[], [0, 3, 0], [6]]
    assert rows(cut(x, padding=0)) == [[5, 7], [0, 3], [6]]
    assert rows(cut(y, padding=[0, 0])) == [[[5, 0], [7, 0]], [[0, 0], [3, 0]], [[6, 0]]]
    assert rows(cut(y, padding=0, ragged_rank=2)) == [[[5], [7], []], [[], [3], []], [[6], [], []]]
    assert rows(cut(y, lengths=([2, 0, 3], [1, 1, 2, 0, 1]))) == [[[5], [7]], [], [[6, 0], [], [0]]]
    words = tf.placeholder_with_default(tf.constant([["a", "", "c", ""], ["", "", "", ""]]), None)
    assert run(cut(words, padding="").row_splits).tolist() == [0, 3, 3]


def test_a_dense_tensor_is_not_cut_in_two_ways() -> None:
    with pytest.raises(ValueError, match="lengths or padding, but not both"):
        tf.RaggedTensor.from_tensor([[1]], lengths=[1], padding=0)
    with pytest.raises(ValueError, match="must be greater than 0"):
        tf.RaggedTensor.from_tensor([[1]], ragged_rank=0)
    with pytest.raises(ValueError, match="incompatible"):
        tf.RaggedTensor.from_tensor(tf.zeros([3, 3, 2]), padding=0.0)


def test_reductions_take_the_rows_of_a_ragged_tensor() -> None:
    x = tf.RaggedTensor.from_row_lengths(tf.constant([1.0, 2, 3, 4, 5]), [2, 0, 3])
    assert run(tf.reduce_sum(x, axis=1)).tolist() == [3, 0, 12]
    assert run(tf.reduce_max(x, axis=0)).tolist() == [3, 4, 5]
    assert run(tf.reduce_min(x)) == 1 and run(tf.reduce_prod(x, -1)).tolist() == [2, 1, 60]
    assert run(tf.reduce_mean(x, [0, 1])) == 3 and str(run(tf.reduce_mean(x, 1)).tolist()) == "[1.5, nan, 4.0]"
    b = tf.RaggedTensor.from_row_lengths(tf.constant([True, False, True]), [2, 0, 1])
    assert run(tf.reduce_all(b, axis=1)).tolist() == [False, True, True]
    assert run(tf.reduce_any(b, axis=1)).tolist() == [True, False, True]
    assert run(tf.gradients(tf.reduce_mean(x, 1)[2], x.flat_values)[0]).tolist()[2:] == pytest.approx([1 / 3] * 3)


def test_reductions_take_the_inner_axes_of_nested_rows() -> None:
    x = tf.RaggedTensor.from_nested_row_lengths(tf.constant([1.0, 2, 3, 4, 5]), [[2, 0, 1], [2, 0, 3]])
    assert rows(tf.reduce_sum(x, axis=2)) == [[3, 0], [], [12]]
    assert run(tf.reduce_sum(x, axis=[1, 2])).tolist() == [3, 0, 12]
    assert [run(lengths).tolist() for lengths in x.nested_row_lengths()] == [[2, 0, 1], [2, 0, 3]]
    with pytest.raises(TypeError, match="nested_row_lengths must be a list of Tensors"):
        tf.RaggedTensor.from_nested_row_lengths([1.0], tf.constant([[1]]))
    with pytest.raises(ValueError, match="keepdims=True"):
        tf.reduce_sum(x, axis=2, keepdims=True)
    with pytest.raises(NotImplementedError, match="innermost ragged axis first"):
        tf.reduce_sum(x, axis=1)


def rows(ragged: Any) -> Any:
    with tf.Session() as session:
        return session.run(ragged).to_list()


def test_a_spec_of_ragged_tensors() -> None:
    spec, value = tf.RaggedTensorSpec([None, None], tf.int32), tf.ragged.constant([[1], [2, 3]])
    assert spec == tf.RaggedTensorSpec([None, None], tf.int32, 1) and spec.is_compatible_with(value)
    assert not tf.RaggedTensorSpec([None, None]).is_compatible_with(value)
    assert tf.RaggedTensorSpec.from_value(value) == tf.RaggedTensorSpec([2, None], tf.int32, 1, tf.int64)
    assert not tf.RaggedTensorSpec(ragged_rank=0, shape=[3, 5]).is_compatible_with(tf.zeros([3, 5]))
    for arguments, error in [
        (([2, 3], tf.int32, 2), ValueError),
        ((None,), ValueError),
        (([2, 3], tf.int32, "1"), TypeError),
    ]:
        with pytest.raises(error, match="ragged_rank"):
            tf.RaggedTensorSpec(*arguments)


def test_rows_of_values_and_row_splits_are_made_of_each_other() -> None:
    rows, splits = tf.ragged.row_splits_to_segment_ids, tf.ragged.segment_ids_to_row_splits
    small = tf.constant([0, 0, 2], tf.int32)
    found = [rows([0, 3, 3, 5, 6]), rows(tf.constant([0, 2]), out_type=tf.int64), splits([0, 0, 0, 2, 2, 3])]
    found += [splits(small, 5), splits([])]
    assert [tensor.dtype for tensor in found] == [tf.int64, tf.int64, tf.int64, tf.int32, tf.int64]
    assert [run(tensor).tolist() for tensor in found] == [
        [0, 0, 0, 2, 2, 3], [0, 0], [0, 3, 3, 5, 6], [0, 2, 2, 3, 3, 3], [0],
    ]  # fmt: skip
    for function, wrong, error in (rows, [0.5], ValueError), (rows, [], ValueError), (splits, [0.5], TypeError):
        with pytest.raises(error):
            function(wrong)
    with pytest.raises(ValueError, match="rank 1"):
        splits([[1]])
