"""The library stays within its budgets (see `tests.house`)."""

from __future__ import annotations

from typing import Any

import pytest

from tests import house
from tests.house import LIMITS, numbers


@pytest.mark.parametrize("name", LIMITS)
def test_the_house_is_within_its_limits(name: str) -> None:
    found = numbers()[name]
    assert found <= LIMITS[name], f"{name}: {found:,.1f}, at most {LIMITS[name]:,} (make house; tests/house.py)"


def test_each_number_has_a_limit() -> None:
    assert numbers().keys() == LIMITS.keys()


def test_what_is_over_its_limit_is_marked_and_fails(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setattr(house, "numbers", lambda: {"files": LIMITS["files"] + 1, "imports, % of the code": 7.46})
    assert house.main() == 1
    lines = capsys.readouterr().out.splitlines()
    assert "<-- OVER" in lines[0] and lines[1].split()[0] == "7.5" and "OVER" not in lines[1]
