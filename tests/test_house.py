"""The library stays within its budgets (see `tests.house`)."""

from __future__ import annotations

import pytest

from tests.house import LIMITS, numbers


@pytest.mark.parametrize("name", LIMITS)
def test_the_house_is_within_its_limits(name: str) -> None:
    found = numbers()[name]
    assert found <= LIMITS[name], f"{name}: {found:,.1f}, at most {LIMITS[name]:,} (make house; tests/house.py)"


def test_each_number_has_a_limit() -> None:
    assert numbers().keys() == LIMITS.keys()
