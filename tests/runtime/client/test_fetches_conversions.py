"""Types of fetches and feeds that a library registers."""

from __future__ import annotations

from typing import Any

import pytest

import tfmini as tf
from tfmini.compat import internals
from tfmini.runtime.client.fetches import register_session_run_conversion_functions


class Pair:
    def __init__(self, left: Any, right: Any) -> None:
        self.left, self.right = left, right


class Shown:
    def __init__(self, tensor: Any) -> None:
        self.tensor = tensor


register_session_run_conversion_functions(
    Pair,
    lambda pair: ([pair.left, pair.right], lambda values: sum(values)),
    lambda pair, value: [(pair.left, value), (pair.right, value)],
    lambda pair: [pair.left, pair.right],
)
register_session_run_conversion_functions(Shown, lambda shown: ([shown.tensor], lambda values: values[0]))


def test_registered_objects_are_fetched_and_fed() -> None:
    left, right = tf.placeholder(tf.float32, []), tf.placeholder(tf.float32, [])
    pair = Pair(left, right)
    with tf.Session() as session:
        assert session.run({"a": [pair, left]}, {pair: 2.0}) == {"a": [4.0, 2.0]}
        assert session.run(Shown(left + right), {pair: 3.0}) == 6.0
        handle = session.partial_run_setup([pair, left], [pair])
        assert session.partial_run(handle, [pair, left], {pair: 2.0}) == [4.0, 2.0]
        with pytest.raises(TypeError, match="without feeds"):
            session.run(left, {Shown(left): 1.0})


def test_a_type_is_registered_once() -> None:
    module = internals.module("python.client.session")
    assert module is not None
    with pytest.raises(ValueError, match="already been registered"):
        module.register_session_run_conversion_functions(Pair, lambda pair: ([], lambda values: None))
