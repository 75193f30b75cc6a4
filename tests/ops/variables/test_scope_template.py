"""Templates: functions that share their variables between calls."""

from __future__ import annotations

from typing import Any

import tfmini as tf


def test_calls_of_a_template_share_its_variables() -> None:
    def layer(x: Any) -> Any:
        return x * tf.get_variable("w", [], initializer=tf.constant_initializer(2.0))

    template = tf.make_template("layer", layer)
    first, second = template(tf.constant(1.0)), template(tf.constant(3.0))
    assert [v.op.name for v in tf.global_variables()] == ["layer/w"]
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        assert session.run([first, second]) == [2.0, 6.0]


def test_a_template_that_makes_its_scope_now_opens_a_name_scope_with_each_call_only() -> None:
    def layer(x: float) -> Any:
        return tf.identity(x * tf.get_variable("w", []), name="y")

    template = tf.make_template("t", layer, create_scope_now_=True)
    assert [template(1.0).name, template(2.0).name] == ["t/y:0", "t_1/y:0"]
    with tf.variable_scope("outer"):
        inner = tf.make_template("t", layer, create_scope_now_=True)
    scope = inner.variable_scope
    assert scope is not None
    assert (scope.name, scope.original_name_scope, inner(1.0).name) == ("outer/t", "t", "t_2/y:0")
    assert tf.make_template("t", layer, create_scope_now_=True, unique_name_="t").variable_scope.name == "t"  # type: ignore[union-attr]
