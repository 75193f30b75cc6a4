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
