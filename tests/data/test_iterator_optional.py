"""Optional values."""

from __future__ import annotations

import pytest

import tfmini as tf
from tfmini.data import structure

Dataset = tf.data.Dataset
experimental = tf.data.experimental


def test_an_optional_may_have_no_value() -> None:
    iterator = Dataset.range(1).make_one_shot_iterator()
    optional = experimental.get_next_as_optional(iterator)
    none = experimental.Optional.none_from_structure(optional.value_structure)
    with tf.Session() as session:
        assert session.run([optional.has_value(), optional.get_value()]) == [True, 0]
        assert not session.run(optional.has_value())
        with pytest.raises(tf.errors.InvalidArgumentError, match="does not have a value"):
            session.run(none.get_value())


def test_an_optional_has_the_components_that_the_node_says() -> None:
    wrong = {
        "component 0: expected float32 but got int32": [1],
        "expected 1 types but got 2": [1.0, 2.0],
        r"Incompatible shapes at component 0: expected \[\] but got \[1\]": [[1.0]],
    }
    for text, value in wrong.items():
        optional = tf.raw_ops.OptionalFromValue(components=value)
        got = tf.raw_ops.OptionalGetValue(optional=optional, output_types=[tf.float32], output_shapes=[[]])
        with tf.Session() as session, pytest.raises(tf.errors.InvalidArgumentError, match=text):
            session.run(got)


def test_the_spec_of_an_optional() -> None:
    scalar = tf.TensorSpec([], tf.float32)
    inner = experimental.Optional.from_value(3.0)
    assert inner.value_structure == scalar
    outer = experimental.Optional.from_value({"a": inner, "b": [1, 2]})
    assert outer.value_structure == {"a": tf.OptionalSpec(scalar), "b": tf.TensorSpec([2], tf.int32)}
    spec = structure.type_spec_from_value(inner)
    assert spec == tf.OptionalSpec(scalar) and repr(spec) == f"OptionalSpec({scalar!r},)"
    assert structure.get_flat_tensor_types(spec) == [tf.variant]
    assert [shape.as_list() for shape in structure.get_flat_tensor_shapes(spec)] == [[]]
    assert spec.is_compatible_with(tf.OptionalSpec(tf.TensorSpec(None, tf.float32)))
    assert not spec.is_compatible_with(scalar) and not spec.is_compatible_with(
        tf.OptionalSpec(tf.TensorSpec([], tf.int32))
    )
    none = experimental.Optional.none_from_structure(outer.value_structure)
    with tf.Session() as session:
        assert session.run([outer.get_value()["a"].get_value(), none.has_value()]) == [3.0, False]


def test_optionals_are_elements_of_datasets() -> None:
    dataset = Dataset.range(3).map(lambda x: (x, experimental.Optional.from_value(x * 2)))
    _, optional = dataset.make_one_shot_iterator().get_next()
    with tf.Session() as session:
        assert [session.run(optional.get_value()) for _ in range(3)] == [0, 2, 4]
    assert dataset.element_spec == (tf.TensorSpec([], tf.int64), tf.OptionalSpec(tf.TensorSpec([], tf.int64)))
