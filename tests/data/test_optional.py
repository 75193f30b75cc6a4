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
