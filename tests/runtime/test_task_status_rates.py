"""Rates between two questions."""

from __future__ import annotations

from tfmini.runtime.task_status import CounterRates


def test_the_first_question_has_no_rates_and_the_second_has() -> None:
    rates = CounterRates()
    assert rates.read(10.0, {"steps": 5}) == (0.0, {})
    assert rates.read(12.0, {"steps": 9, "new": 4}) == (2.0, {"steps": 2.0, "new": 2.0})


def test_the_window_ends_after_ten_seconds_and_is_never_too_short() -> None:
    rates = CounterRates()
    rates.read(0.0, {"steps": 0})
    assert rates.read(0.1, {"steps": 1}) == (0.0, {})
    for second in range(1, 30):
        window_s, found = rates.read(float(second), {"steps": 10 * second})
    assert window_s <= 11.0 and found == {"steps": 10.0}


def test_a_counter_that_began_anew_has_no_negative_rate() -> None:
    rates = CounterRates()
    rates.read(0.0, {"steps": 100})
    assert rates.read(1.0, {"steps": 3}) == (1.0, {"steps": 0.0})
