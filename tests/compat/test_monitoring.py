"""Counters that libraries keep of their own use."""

from __future__ import annotations

import pytest

from tfmini import errors
from tfmini.compat import internals


def test_metrics_have_cells_by_labels() -> None:
    monitoring = internals.module("python.eager.monitoring")
    gauge = monitoring.BoolGauge("/tests/flag", "a flag", "agent")
    gauge.get_cell("dqn").set(True)
    assert (gauge.get_cell("dqn").value(), gauge.get_cell("ddpg").value()) == (True, False)
    counter = monitoring.Counter("/tests/count", "a count")
    counter.get_cell().increase_by(2)
    counter.get_cell().increase_by(3)
    assert counter.get_cell().value() == 5
    assert monitoring.StringGauge("/tests/text", "").get_cell().value() == ""
    assert monitoring.IntGauge("/tests/int", "").get_cell().value() == 0
    sampler = monitoring.Sampler("/tests/times", monitoring.ExponentialBuckets(1.0, 2.0, 3), "")
    for sample in (0.5, 2.0, 9.0):
        sampler.get_cell().add(sample)
    assert sampler.get_cell().value() == [1, 0, 1, 1]


def test_names_are_unique_and_labels_are_counted() -> None:
    monitoring = internals.module("python.eager.monitoring")
    counter = monitoring.Counter("/tests/once", "", "a", "b")
    with pytest.raises(errors.AlreadyExistsError, match="/tests/once"):
        monitoring.BoolGauge("/tests/once", "")
    with pytest.raises(ValueError, match="expects taking 2 labels"):
        counter.get_cell("x")
