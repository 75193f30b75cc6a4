"""Layers, losses, metrics and recurrent cells: names, values, gradients and averages against TensorFlow's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tfmini as tf
from tests.layers import layer_cases as cases
from tests.oracle import Oracle

pytestmark = pytest.mark.oracle


@pytest.fixture(scope="module")
def expected(oracle: Oracle) -> dict[str, Any]:
    return oracle.call(cases.outcomes)


@pytest.mark.parametrize(("group", "name"), [(g, n) for g, table in cases.GROUPS.items() for n in table])
def test_names_values_and_gradients_are_tensorflows(group: str, name: str, expected: dict[str, Any]) -> None:
    wanted = expected[group][name]
    found = cases.outcome(tf, cases.GROUPS[group][name])
    assert found["names"] == wanted["names"]
    assert len(found["values"]) == len(wanted["values"])
    for mine, theirs in zip(found["values"], wanted["values"]):
        np.testing.assert_allclose(mine, theirs, rtol=2e-5, atol=2e-6)
