"""Critical sections."""

from __future__ import annotations

from typing import Any

import tfmini as tf


def test_a_critical_section_runs_one_at_a_time() -> None:
    section = tf.CriticalSection(name="section")
    variable = tf.get_variable("v", initializer=0.0, use_resource=True)

    def add_slowly() -> Any:
        value = variable.read_value()
        with tf.control_dependencies([value]):
            return variable.assign(value + 1.0)

    runs = [section.execute(add_slowly) for _ in range(10)]
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        session.run(runs)
        assert session.run(variable) == 10.0
