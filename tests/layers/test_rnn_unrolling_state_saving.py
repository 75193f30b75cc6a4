"""Recurrent networks whose state is kept between steps."""

from __future__ import annotations

from typing import Any

import pytest

import tfmini as tf


def test_the_state_is_saved_after_each_step() -> None:
    class Saver:
        saved: list[str] = []

        def state(self, name: str) -> Any:
            return tf.ones([1, 2])

        def save_state(self, name: str, value: Any) -> Any:
            self.saved.append(name)
            return tf.identity(value)

    cell = tf.nn.rnn_cell.BasicRNNCell(2, activation=tf.identity)
    outputs, state = tf.nn.static_state_saving_rnn(cell, [tf.ones([1, 2])], Saver(), "state")
    assert Saver.saved == ["state"] and outputs[0].shape.as_list() == [1, 2] == state.shape.as_list()
    with pytest.raises(ValueError, match="same type"):
        tf.nn.static_state_saving_rnn(cell, [tf.ones([1, 2])], Saver(), ("a", "b"))
