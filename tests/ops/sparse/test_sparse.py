"""Sparse tensors against their dense twins: layout, arithmetic, reductions, gradients."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tfmini as tf
from tfmini.ops.sparse.layout import distinct, row_major

matrices = st.integers(0, 2**32 - 1).map(
    lambda seed: np.where(
        (rng := np.random.RandomState(seed)).rand(rng.randint(1, 5), rng.randint(1, 5)) < 0.5,
        0, rng.randint(-4, 5, ()),
    )
)  # fmt: skip


def run(value: Any) -> Any:
    with tf.Session() as session:
        return session.run(value)


def dense(sparse: Any) -> Any:
    return run(tf.sparse_tensor_to_dense(sparse))


def example(seed: int, shape: tuple[int, ...] = (3, 4)) -> Any:
    rng = np.random.RandomState(seed)
    return np.where(rng.rand(*shape) < 0.5, 0.0, rng.randn(*shape))


@settings(max_examples=15)
@given(matrices)
def test_a_dense_tensor_made_sparse_and_dense_is_the_same(matrix: Any) -> None:
    with tf.Graph().as_default():
        np.testing.assert_array_equal(dense(tf.sparse.from_dense(tf.constant(matrix))), matrix)


@pytest.mark.parametrize("seed", range(3))
def test_arithmetic_equals_that_of_dense_tensors(seed: int) -> None:
    a, b = example(seed), example(seed + 10)
    x, y = tf.sparse.from_dense(a), tf.sparse.from_dense(b)
    factor = np.random.RandomState(seed).randn(4, 2)
    np.testing.assert_allclose(dense(tf.sparse_add(x, y)), a + b)
    np.testing.assert_allclose(run(tf.sparse_add(x, tf.constant(b))), a + b)
    np.testing.assert_allclose(dense(tf.sparse_maximum(x, y)), np.maximum(a, b))
    np.testing.assert_allclose(dense(tf.sparse_minimum(x, y)), np.minimum(a, b))
    np.testing.assert_allclose(dense(x * tf.constant(b[0])), a * b[0])
    np.testing.assert_allclose(run(tf.sparse_tensor_dense_matmul(x, factor)), a @ factor)
    np.testing.assert_allclose(run(tf.sparse_reduce_sum(x, 1)), a.sum(1))
    np.testing.assert_allclose(run(tf.sparse_reduce_sum(x, [0, 1], keepdims=True)), a.sum(keepdims=True))


def test_changes_of_layout_equal_those_of_dense_tensors() -> None:
    a, b = example(1), example(2)
    x, y = tf.sparse.from_dense(a), tf.sparse.from_dense(b)
    np.testing.assert_allclose(dense(tf.sparse_concat(1, [x, y])), np.concatenate([a, b], 1))
    np.testing.assert_allclose(dense(tf.sparse_transpose(x)), a.T)
    np.testing.assert_allclose(dense(tf.sparse_reshape(x, [2, -1])), a.reshape(2, 6))
    np.testing.assert_allclose(dense(tf.sparse_slice(x, [1, 1], [2, 9])), a[1:, 1:])
    np.testing.assert_allclose(dense(tf.sparse_split(sp_input=x, num_split=3, axis=1)[0]), a[:, :2])
    np.testing.assert_allclose(dense(tf.sparse.expand_dims(x, 0)), a[None])
    filled, empty = tf.sparse_fill_empty_rows(tf.sparse.from_dense([[0.0, 1.0], [0.0, 0.0]]), 7.0)
    assert dense(filled).tolist() == [[0, 1], [7, 0]]
    assert run(empty).tolist() == [False, True]


@pytest.mark.parametrize("dtype", [tf.int32, tf.int64, tf.float32])
def test_a_new_shape_may_have_any_number_type(dtype: tf.DType) -> None:
    sparse = tf.sparse.reset_shape(tf.SparseTensor([[0, 1]], [1.0], [1, 2]), tf.constant([2, 3], dtype))
    assert sparse.dense_shape.dtype == tf.int64
    with tf.Session() as session:
        assert session.run(sparse).dense_shape.tolist() == [2, 3]


def test_gradients_reach_values_and_dense_operands() -> None:
    a, factor = example(3), np.random.RandomState(3).randn(4, 2)
    places = np.argwhere(a)
    values, b = tf.constant(a[a != 0]), tf.constant(factor)
    x = tf.SparseTensor(places, values, [3, 4])
    product = tf.sparse_tensor_dense_matmul(x, b)
    found = run(tf.gradients(product, [values, b]))
    np.testing.assert_allclose(found[0], factor.sum(1)[places[:, 1]])
    np.testing.assert_allclose(found[1], np.repeat(a.sum(0)[:, None], 2, 1))
    total = tf.sparse_reduce_sum(x * tf.constant([1.0, 2.0, 3.0, 4.0], tf.float64), 1)
    np.testing.assert_allclose(run(tf.gradients(total, values)[0]), (places[:, 1] + 1.0))
    softmax = tf.sparse_softmax(x).values
    assert run(tf.gradients(softmax, values)[0]) == pytest.approx(0, abs=1e-12)


def test_errors_name_the_index() -> None:
    def to_dense(indices: Any) -> Any:
        return run(tf.sparse_to_dense(indices, [4], [1] * len(indices)))

    with pytest.raises(tf.errors.InvalidArgumentError, match=r"indices\[1\] = \[1\] is out of order"):
        to_dense([[2], [1]])
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"indices\[1\] = \[2\] is repeated"):
        to_dense([[2], [2]])
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"indices\[0\] = \[4\] is out of bounds"):
        to_dense([[4]])


def test_sets_and_edit_distances_have_their_known_values() -> None:
    a, b = tf.constant([[1, 2, 2], [5, 3, 1]]), tf.constant([[2, 4, 4], [1, 1, 1]])
    assert run(tf.sets.intersection(a, b)).values.tolist() == [2, 1]
    assert run(tf.sets.difference(a, b)).values.tolist() == [1, 3, 5]
    union = run(tf.sets.union(a, b))
    assert union.values.tolist() == [1, 2, 4, 1, 3, 5]
    assert union.dense_shape.tolist() == [2, 3]
    guess = tf.SparseTensor([[0, 0], [1, 0], [1, 1]], [b"a", b"b", b"c"], [2, 2])
    truth = tf.SparseTensor([[0, 0], [0, 1], [1, 0]], [b"a", b"b", b"b"], [2, 2])
    assert run(tf.edit_distance(guess, truth)).tolist() == [0.5, 1.0]
    assert run(tf.edit_distance(guess, truth, normalize=False)).tolist() == [1.0, 1.0]


def test_sequences_of_an_edit_distance_may_be_longer_than_their_shape_says() -> None:
    """As in TensorFlow 1.15; the tensors of public programs have the shape [1, 1, 1]."""
    indices = tf.placeholder(tf.int64)
    guess = tf.SparseTensor([[0, 0, n] for n in range(4)], list("bear"), [1, 1, 1])
    truth = tf.SparseTensor(indices, list("beers"), [1, 1, 1])
    distance = tf.edit_distance(guess, truth, normalize=False)
    with tf.Session() as session:
        assert session.run(distance, {indices: [[0, 0, n] for n in range(5)]}).tolist() == [[2.0]]
        for row in (1, -1):
            with pytest.raises(tf.errors.InvalidArgumentError, match="truth indices are out of bounds of"):
                session.run(distance, {indices: [[0, row, n] for n in range(5)]})


def test_a_dense_tensor_times_a_sparse_one_is_sparse() -> None:
    sparse = tf.SparseTensor([[0, 0], [1, 2]], [1.0, 2.0], [2, 3])
    product = tf.constant([[2.0, 3, 4], [5, 6, 8]]) * sparse
    with tf.Session() as session:
        assert session.run(product).values.tolist() == [2.0, 16.0]
    with pytest.raises(TypeError, match="unsupported operand"):
        2.0 * sparse  # TensorFlow refuses numbers on the left, too


@pytest.mark.parametrize("row", [-1, 2])
def test_indices_outside_of_the_dense_shape_are_refused(row: int) -> None:
    """Negative ones had been counted from the end."""
    indices = tf.placeholder(tf.int64)
    sparse = tf.SparseTensor(indices, [1.0], [2, 2])
    for found in (
        tf.sparse_add(sparse, tf.ones([2, 2])), sparse * tf.ones([2, 2]), tf.sparse_reduce_sum(sparse, 0),
        tf.sparse_tensor_dense_matmul(sparse, tf.ones([2, 2])),
    ):  # fmt: skip
        found = found.values if isinstance(found, tf.SparseTensor) else found
        with tf.Session() as session, pytest.raises(tf.errors.InvalidArgumentError, match="out of bounds"):
            session.run(found, {indices: [[row, 0]]})


def test_the_gradient_of_a_slice_has_only_elements_of_the_tensor() -> None:
    """The place of another one was looked up in memory that nobody had set."""
    grad = tf.raw_ops.SparseSliceGrad(
        backprop_val_grad=[1.0], input_indices=[[0, 0]], input_start=[0, 0], output_indices=[[1, 1]]
    )
    with tf.Session() as session, pytest.raises(tf.errors.InvalidArgumentError, match="aren't all propagated"):
        session.run(grad)


@pytest.mark.parametrize("dtype", [tf.float16, tf.float32, tf.float64, tf.complex64, tf.int32])
def test_a_product_adds_all_elements_of_a_row_also_zeros(dtype: tf.DType) -> None:
    """Elements come in any order and may be there twice; zero times infinity is NaN."""
    x = tf.SparseTensor([[2, 0], [0, 1], [2, 0]], tf.cast([3, 2, 4], dtype), [3, 2])
    b = tf.cast([[1, 2], [5, 6]], dtype)
    assert run(tf.sparse_tensor_dense_matmul(x, b)).tolist() == [[10, 12], [0, 0], [7, 14]]
    if dtype.is_floating:
        zeros = tf.SparseTensor([[0, 0], [0, 1]], tf.zeros([2], dtype), [1, 2])
        product = tf.sparse_tensor_dense_matmul(zeros, tf.constant([[1, np.inf], [2, 3]], dtype))
        assert np.isnan(run(product)).tolist() == [[False, True]]


@pytest.mark.parametrize("spread", [7, 1 << 40], ids=["one number says the place", "too far apart for that"])
def test_indices_are_sorted_and_told_apart_as_tuples_are(spread: int) -> None:
    rng = np.random.RandomState(0)
    indices = rng.randint(-3, 4, [200, 3]).astype(np.int64) * spread
    order = row_major(indices)
    assert order.tolist() == sorted(range(200), key=lambda i: tuple(indices[i]))
    found, numbers = distinct(indices)
    np.testing.assert_array_equal(found, np.unique(indices, axis=0))
    np.testing.assert_array_equal(found[numbers], indices)


def test_a_sum_at_equal_indices_keeps_their_order() -> None:
    """TensorFlow merges the two in one pass, and sorts neither."""
    indices = [[2, 0], [0, 1], [1, 1]]
    x, y = tf.constant([1.0, 2.0, 3.0]), tf.constant([10.0, -2.0, 30.0])
    total = tf.sparse_add(tf.SparseTensor(indices, x, [3, 3]), tf.SparseTensor(indices, y, [3, 3]))
    assert run(total.indices).tolist() == indices
    assert run(total.values).tolist() == [11.0, 0.0, 33.0]
    weights = tf.constant([1.0, 2.0, 3.0])
    for gradient in run(tf.gradients(total.values * weights, [x, y])):
        assert gradient.tolist() == [1.0, 2.0, 3.0]


def test_a_cross_has_all_combinations_of_each_row() -> None:
    """Rows with none, one and several values; the hash of a combination is that of one row alone."""
    sparse = tf.SparseTensor([[0, 0], [0, 1], [2, 0], [2, 1]], [b"a", b"b", b"c", b"d"], [3, 2])
    numbers = tf.constant([[1, 2], [3, 4], [5, 6]])
    words, hashes = run((tf.sparse.cross([sparse, numbers]), tf.sparse.cross_hashed([sparse, numbers], 1000)))
    wanted = [f"{word}_X_{number}".encode() for word, number in ("a1", "a2", "b1", "b2", "c5", "c6", "d5", "d6")]
    assert words.values.tolist() == wanted
    assert words.indices.tolist() == [[0, 0], [0, 1], [0, 2], [0, 3], [2, 0], [2, 1], [2, 2], [2, 3]]
    assert words.dense_shape.tolist() == hashes.dense_shape.tolist() == [3, 4]
    alone = run(tf.sparse.cross_hashed([tf.SparseTensor([[0, 0]], [b"d"], [1, 1]), tf.constant([[5]])], 1000))
    assert alone.values.tolist() == [hashes.values[6]]


def test_what_a_new_layout_need_not_change_is_still_checked() -> None:
    outside = tf.SparseTensor([[0, 5]], [1], [2, 3])
    with pytest.raises(tf.errors.InvalidArgumentError, match="out of bounds"):
        run(tf.sparse_reshape(outside, [2, 3]))
    unsorted = tf.SparseTensor([[1, 0], [0, 0]], [1, 2], [2, 1])  # no row is empty
    filled, empty = run(tf.sparse_fill_empty_rows(unsorted, 9))
    assert filled.values.tolist() == [2, 1] and not empty.any()


def test_an_axis_may_be_a_constant_and_gradients_of_filled_rows_are_vectors() -> None:
    sparse = tf.SparseTensor([[0, 1]], [5], [2, 3])
    found = tf.sparse.expand_dims(sparse, tf.constant(1))
    assert found.shape.as_list() == [2, 1, 3]
    with pytest.raises(ValueError, match="Shape must be rank 1 but is rank 2"):
        tf.raw_ops.SparseFillEmptyRowsGrad(reverse_index_map=[0, 1], grad_values=[[0, 1], [2, 3]])
