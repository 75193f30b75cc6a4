"""Counters that move under load are exact; `tests.soak.moving` makes a hundred thousand additions."""

from __future__ import annotations

import pytest

from tests.soak.moving import MovingFigures, move_under_load


def test_a_lost_addition_is_told() -> None:
    assert MovingFigures(30, {"scalar": [30], "row": [30, 30]}).is_exact
    assert not MovingFigures(30, {"scalar": [30], "row": [30, 29]}).is_exact


@pytest.mark.cluster
def test_no_addition_is_lost_while_counters_move_all_the_time() -> None:
    found = move_under_load(additions=3_000)
    assert found.is_exact and found.additions == 3_000 and found.moves > 2, str(found)
