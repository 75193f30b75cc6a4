"""Optional values."""

from __future__ import annotations

import pytest

import tfmini as tf

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
