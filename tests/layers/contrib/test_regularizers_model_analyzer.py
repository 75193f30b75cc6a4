"""Sizes of a model."""

from __future__ import annotations

import pytest

import tfmini as tf

layers, slim = tf.contrib.layers, tf.contrib.slim


def test_sizes_of_variables_are_summed_and_printed(capsys: pytest.CaptureFixture[str]) -> None:
    tf.get_variable("v", [2, 3], tf.float64)
    assert slim.model_analyzer.analyze_vars(tf.global_variables(), print_info=True) == (6, 48)
    assert "v:0 (float64 2x3) [6, bytes: 48]" in capsys.readouterr().out.replace("float64_ref", "float64")
    assert slim.model_analyzer.analyze_ops(tf.get_default_graph()) > 0
