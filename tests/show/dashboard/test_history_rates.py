"""Rates of counters."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tfmini.show.dashboard.history import LEAST_S, Rates


def rates_of(*readings: tuple[float, float]) -> list[float | None]:
    rates = Rates()
    return [rates.add({"a": reading}).get("a") for reading in readings]


def test_a_rate_needs_two_readings() -> None:
    assert rates_of((1.0, 5.0), (3.0, 15.0)) == [None, 5.0]


def test_readings_that_follow_fast_keep_the_rate() -> None:
    assert rates_of((1.0, 0.0), (2.0, 1.0), (2.1, 9.0), (3.0, 11.0)) == [None, 1.0, 1.0, 10.0]


def test_a_counter_that_fell_begins_anew() -> None:
    assert rates_of((1.0, 5.0), (2.0, 2.0), (3.0, 3.0)) == [None, None, 1.0]
    assert rates_of((5.0, 5.0), (2.0, 6.0), (3.0, 8.0)) == [None, None, 2.0]


def test_absent_counters_are_forgotten() -> None:
    rates = Rates()
    rates.add({"a": (1.0, 1.0)})
    assert rates.add({}) == {} and rates.add({"a": (3.0, 9.0)}) == {}


@given(st.lists(st.tuples(st.floats(0, 10), st.floats(0, 10)), max_size=30))
def test_no_rate_is_larger_than_the_largest_step_allows(steps: list[tuple[float, float]]) -> None:
    rates, time, total = Rates(), 0.0, 0.0
    for after, more in steps:
        time, total = time + after, total + more
        for rate in rates.add({"a": (time, total)}).values():
            assert 0 <= rate <= sum(each for _, each in steps) / LEAST_S
