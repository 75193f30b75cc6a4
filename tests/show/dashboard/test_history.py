"""The history of numbers: what it keeps, and that its memory is bounded whatever comes."""

from __future__ import annotations

import math
import tracemalloc

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.show.dashboard.clusters import cluster, link, task
from tfmini.runtime.snapshot import LinkSnapshot
from tfmini.show.dashboard.history import BYTES, History, Limits, Measures

SMALL = Limits(fine_rows=4, coarse_s=10.0, span_s=60.0, columns=3)
# Steps of the clock, sometimes back; names of which there are more than columns.
READINGS = st.lists(
    st.tuples(st.one_of(st.floats(0.01, 30.0), st.floats(-200.0, 0.0)), st.sets(st.sampled_from("abcdef"))), max_size=60
)


def filled(readings: list[tuple[float, set[str]]]) -> tuple[History, float]:
    """A history where the value of a name is its code point, and the newest time."""
    history, now = History(SMALL), 1000.0
    for step, names in readings:
        now += step
        history.add(now, {name: float(ord(name)) for name in names})
    return history, now


@given(READINGS)
@settings(max_examples=300, deadline=None)
def test_its_memory_is_bounded_and_its_times_rise(readings) -> None:
    history, now = filled(readings)
    times, _ = history.table([])
    assert len(times) == len(history) <= SMALL.rows
    assert all(before < after for before, after in zip(times, times[1:]))
    assert all(now - SMALL.span_s <= time <= now for time in times)
    assert len(history.names) <= SMALL.columns


@given(READINGS)
@settings(max_examples=300, deadline=None)
def test_a_value_stays_with_its_name(readings) -> None:
    """Also where a column has been freed and given to another name."""
    history, _ = filled(readings)
    names = list("abcdef")
    for name, values in zip(names, history.table(names)[1]):
        assert {value for value in values if value is not None} <= {float(ord(name))}


@given(st.integers(1, 200), st.floats(0.1, 3.0))
@settings(max_examples=100, deadline=None)
def test_the_newest_readings_are_kept_as_they_came(count: int, step: float) -> None:
    history = History(SMALL)
    for i in range(count):
        history.add(i * step, {"a": float(i)})
    kept = min(count, SMALL.fine_rows)
    assert history.table(["a"])[1][0][-kept:] == [float(i) for i in range(count - kept, count)]


def test_older_readings_become_means_of_their_interval() -> None:
    history = History(SMALL)
    for second in range(26):
        history.add(float(second), {"a": float(second)})
    times, (values,) = history.table(["a"])
    assert times[:3] == [9.0, 19.0, 21.0] and values[:3] == [4.5, 14.5, 20.5]
    assert times[3:] == [22.0, 23.0, 24.0, 25.0] == values[3:]


def test_a_reading_without_a_value_is_a_gap() -> None:
    history = History(SMALL)
    history.add(1.0, {"a": 1.0})
    history.add(2.0, {"b": math.nan})
    history.add(3.0, {"a": 3.0, "b": math.inf})
    assert history.table(["a", "b", "c"]) == ([1.0, 2.0, 3.0], [[1.0, None, 3.0], [None] * 3, [None] * 3])
    assert history.table(["a"], since=1.0) == ([2.0, 3.0], [[None, 3.0]])


def test_names_beyond_the_limit_are_counted() -> None:
    history = History(SMALL)
    history.add(1.0, dict.fromkeys("abcde", 1.0))
    assert history.names == ["a", "b", "c"] and history.refused == 2


def test_an_hour_of_a_large_cluster_fits_a_few_megabytes() -> None:
    tracemalloc.start()
    history, tasks = History(), 100
    values = {f"{metric}/{task}": 1.0 for metric in "abcd" for task in range(tasks)}
    for second in range(700):
        history.add(float(second), values)
    stored, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert stored < 2 * 660 * 4 * tasks * 8 and len(history) <= history.limits.rows < 700


def test_what_a_task_sends_to_clients_is_not_in_the_chart() -> None:
    """The page is one of them: a job that stood still seemed to send some kB per second."""
    client = LinkSnapshot("client at 127.0.0.1", "ready", "zmq", sent_bytes_s=2_560.0)
    found = Measures().take(
        cluster(task("ps/0", links=(client, link("worker/0", 100.0))), task("ps/1", links=(client,)))
    )
    assert (found[f"{BYTES}|ps/0"], found[f"{BYTES}|ps/1"]) == (100.0, 0.0)
