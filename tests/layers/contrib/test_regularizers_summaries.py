"""Summaries of layers."""

from __future__ import annotations

import pytest

import tfmini as tf
from tests.ops.session_run import run

layers, slim = tf.contrib.layers, tf.contrib.slim


def test_summaries_are_collected_under_the_names_of_their_tensors() -> None:
    x = tf.nn.relu6([-1.0, 2.0, 7.0], name="six")
    layers.summarize_activation(x)
    layers.summarize_tensor(tf.constant(1.0, name="one"))
    slim.summaries.add_scalar_summary(tf.constant(2.0), "two", prefix="eval")
    slim.summaries.add_zero_fraction_summary(tf.zeros([4]), "zeros")
    assert layers.summarize_tensor(tf.constant("text")) is None
    merged = tf.Summary.FromString(run(tf.summary.merge_all()))
    found = {v.tag: v.simple_value for v in merged.value}
    assert found["six/zeros"] == pytest.approx(1 / 3) and found["six/sixes"] == pytest.approx(1 / 3)
    assert "six/activation" in found and found["one_summary"] == 1 and found["eval/two"] == 2
    assert found["zeros/Fraction_of_Zero_Values"] == 1
