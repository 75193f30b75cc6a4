"""Scopes of variables that are left in the wrong order."""

from __future__ import annotations

from typing import Any

import pytest

import tfmini as tf


def test_a_scope_that_is_left_too_early_stays_open() -> None:
    outer = tf.variable_scope("outer")
    outer.__enter__()
    with tf.variable_scope("inner"), pytest.raises(RuntimeError, match="Improper nesting of variable_scope"):
        outer.__exit__(None, None, None)
    assert tf.get_variable("v", []).op.name == "outer/v"
    outer.__exit__(None, None, None)
    assert tf.get_variable_scope().name == ""


def test_a_creator_scope_that_is_left_too_early_is_refused() -> None:
    calls: list[str] = []

    def creator(following: Any, **options: Any) -> Any:
        calls.append("made")
        return following(**options)

    with tf.Graph().as_default():
        scope = tf.variable_creator_scope(creator)
        scope.__enter__()
        with tf.variable_creator_scope(creator), pytest.raises(RuntimeError, match="without proper nesting"):
            scope.__exit__(None, None, None)
        tf.Variable(1.0)
    assert calls == ["made"]  # by one scope
