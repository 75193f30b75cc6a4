"""Specs of tensors, sparse tensors and indexed slices, alone and as shape invariants."""

from __future__ import annotations

import pytest

import tfmini as tf
from tfmini.ops.composites import BoundedTensorSpec


def test_a_tensor_spec_shows_its_parts_and_compares() -> None:
    spec = tf.TensorSpec([2, None], tf.float32, "a")
    assert repr(spec) == "TensorSpec(shape=(2, ?), dtype=tf.float32, name='a')"
    assert spec == tf.TensorSpec([2, None], tf.float32, "a") != tf.TensorSpec([2, None], tf.float32)
    assert spec.is_compatible_with(tf.zeros([2, 5]))
    assert not spec.is_compatible_with(tf.zeros([3, 5]))
    assert not spec.is_compatible_with(tf.SparseTensorSpec([2, None]))


def test_a_spec_of_indexed_slices_has_three_components() -> None:
    spec = tf.IndexedSlicesSpec([5, 10], dense_shape_dtype=tf.int32, indices_shape=[20])
    assert spec._component_specs == (
        tf.TensorSpec([20, 10]), tf.TensorSpec([20], tf.int64), tf.TensorSpec([2], tf.int32),
    )  # fmt: skip
    slices = tf.IndexedSlices(tf.zeros([20, 10]), tf.zeros([20], tf.int64), tf.constant([5, 10]))
    assert spec.is_compatible_with(slices)


def _loop(value: object, spec: object) -> object:
    specs = [tf.TensorSpec([], tf.int32), spec]
    return tf.while_loop(lambda i, _: i < 3, lambda i, x: (i + 1, x), [tf.constant(0), value], specs)[1]


def test_specs_can_be_shape_invariants() -> None:
    assert _loop(tf.constant([1]), tf.TensorSpec(None, tf.int32)).shape.ndims is None  # type: ignore[attr-defined]
    sparse = tf.SparseTensor([[0]], [1.0], [10])
    assert _loop(sparse, tf.SparseTensorSpec([None])).indices.shape.as_list() == [None, 1]  # type: ignore[attr-defined]


@pytest.mark.parametrize("spec", [tf.TensorSpec([1], tf.float32), tf.SparseTensorSpec([None])])
def test_a_spec_of_another_type_is_refused(spec: object) -> None:
    with pytest.raises(TypeError, match="is not compatible with"):
        _loop(tf.constant([1]), spec)


def test_values_of_a_sparse_loop_variable_may_change_in_number() -> None:
    start = tf.SparseTensor([[0], [3]], [2.0, 4.0], [10])

    def body(i: tf.Tensor, x: tf.SparseTensor) -> list[object]:
        twice = tf.SparseTensor(tf.concat([x.indices] * 2, 0), tf.concat([x.values] * 2, 0), x.dense_shape)
        return [i + 1, twice]

    _, result = tf.while_loop(lambda i, _: i < 2, body, [tf.constant(0), start])
    assert result.indices.shape.as_list() == [None, 1]
    with tf.Session() as session:
        assert session.run(result).values.size == 8


def test_a_bounded_spec_is_a_spec_with_least_and_greatest_values() -> None:
    spec = BoundedTensorSpec([2, 3], tf.float32, 0, [1, 2, 3], "n")
    same = BoundedTensorSpec([2, 3], tf.float32, [0.0, 0.0, 0.0], [1, 2, 3 + 1e-9], "n")
    assert repr(spec) == (
        "BoundedTensorSpec(shape=(2, 3), dtype=tf.float32, name='n', minimum=array(0., dtype=float32), "
        "maximum=array([1., 2., 3.], dtype=float32))"
    )
    assert spec == same and spec != BoundedTensorSpec([2, 3], tf.float32, 0, [1, 2, 4], "n")
    assert spec != tf.TensorSpec([2, 3], tf.float32, "n") and not spec.maximum.flags.writeable
    assert spec.is_compatible_with(tf.TensorSpec([2, 3])) and tf.TensorSpec([2, 3]).is_compatible_with(spec)
    assert type(spec.from_tensor(tf.zeros([2]))) is tf.TensorSpec
    with pytest.raises(TypeError, match="unhashable"):
        hash(spec)


def test_bounds_broadcast_to_the_shape_and_come_from_the_dtype() -> None:
    whole = BoundedTensorSpec.from_spec(tf.TensorSpec([2], tf.int32, "x"))
    assert (whole.minimum, whole.maximum, whole.name) == (-(2**31), 2**31 - 1, "x")
    with pytest.raises(ValueError, match="maximum is not compatible with shape"):
        BoundedTensorSpec([2, 3], tf.float32, 0, [1, 2])
    with pytest.raises(ValueError, match="must be provided; but saw 'None' and '1'"):
        BoundedTensorSpec([2], tf.float32, None, 1)
