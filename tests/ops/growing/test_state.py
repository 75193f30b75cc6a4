"""The state of growing tables: against a dictionary, and its memory."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.ops.growing.reference import PLAIN, VARIANTS, Comparison
from tests.polling import poll
from tfmini import dtypes, errors
from tfmini.numerics.id_rows import IdRows
from tfmini.ops.growing import state
from tfmini.ops.growing.state import UNMARKED, GrowingTableState, Settings, TurnLock


@given(st.sampled_from(VARIANTS), st.integers(0, 2**32))
@settings(max_examples=12, deadline=None)
def test_a_table_does_what_a_dictionary_does(variant: Settings, seed: int) -> None:
    comparison = Comparison(variant, seed)
    for _ in range(60):
        comparison.run()


@given(st.sampled_from(VARIANTS), st.integers(0, 2**32))
@settings(max_examples=30, deadline=None)
def test_what_changes_between_the_pieces_of_a_dump_is_in_the_next_one(variant: Settings, seed: int) -> None:
    """Rows change, come and go whenever a dump lets others have the lock; a whole dump and changes give all of it."""
    comparison = Comparison(variant, seed)
    found, may_interrupt = comparison.table, False

    class Interrupted(TurnLock):
        def __exit__(self, *_: object) -> None:
            nonlocal may_interrupt
            super().__exit__()
            if may_interrupt:
                may_interrupt = False
                work(2)
                may_interrupt = True

    def work(times: int) -> None:
        for name in comparison.random.choice(["look", "update", "evict"], times, p=[0.5, 0.4, 0.1]):
            getattr(comparison, str(name))()

    def dump(interrupt: bool) -> None:
        nonlocal may_interrupt
        comparison.reference.evict()
        may_interrupt = interrupt
        content = found.dump(comparison.mark)
        may_interrupt = False
        assert len(np.unique(content.keys)) == len(content.keys)
        comparison.saved = [*comparison.saved, content] if content.is_change else [content]
        comparison.mark = content.mark

    found.lock = Interrupted()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(state, "PIECE", 2)
        work(40)
        for _ in range(4):
            dump(interrupt=True)
            work(5)
        dump(interrupt=False)
        comparison.check_restored(comparison.restored())


def test_a_dump_begins_anew_when_the_table_is_replaced_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state, "PIECE", 2)
    found, other = table(), table()
    found.lookup(np.arange(9), insert=True), other.lookup(np.arange(20, 25), insert=True)
    content = other.content()
    go_on, nothing = state.RowCopies.go_on, np.empty(0, np.int64)
    replaces = [lambda: found.load([content], nothing, nothing, np.zeros((1, 2), np.float32), np.float32(0))]

    class Replaced(TurnLock):
        def __exit__(self, *_: object) -> None:
            super().__exit__()
            if copied and replaces:
                replaces.pop()()

    copied: list[bool] = []
    monkeypatch.setattr(state.RowCopies, "go_on", lambda self, moved: (copied.append(moved), go_on(self, moved)))
    found.lock = Replaced()
    assert found.content().keys.tolist() == content.keys.tolist() and not replaces


def test_who_waits_for_a_lock_has_the_next_turn() -> None:
    lock, had_it = TurnLock(), threading.Event()

    def wait() -> None:
        with lock:
            had_it.set()

    for _ in range(20):
        had_it.clear()
        other = threading.Thread(target=wait)
        with lock:
            other.start()
            poll(lambda: lock.is_wanted, "the wait of the other thread")
        with lock:
            assert had_it.is_set()
        other.join()


def table(width: int = 2, **changes: object) -> GrowingTableState:
    found = GrowingTableState("t", "", dtypes.float32, width, PLAIN._replace(**changes))  # type: ignore[arg-type]
    found.initialize(np.zeros((1, width), np.float32), np.float32(0))
    return found


def test_a_row_follows_from_its_seed_and_id_alone() -> None:
    ids = np.array([3, -3, 2**62, 0])
    one, other = table(), table()
    other.lookup(np.arange(100), insert=True)
    rows = one.lookup(ids, insert=True)
    np.testing.assert_array_equal(rows, other.lookup(ids[::-1], insert=True)[::-1])
    assert len(np.unique(rows)) == rows.size
    assert (rows != table(seed=6).lookup(ids, insert=True)).all()


@pytest.mark.parametrize(
    ("distribution", "mean", "deviation", "bounds"),
    [
        ("uniform", 1.5, 1 / np.sqrt(12), (1, 2)),
        ("normal", 1, 2, (-20, 20)),
        ("truncated_normal", 1, 2 * 0.8796, (-3, 5)),
    ],
)
def test_distributions(distribution: str, mean: float, deviation: float, bounds: tuple[float, float]) -> None:
    rows = table(5, distribution=distribution, low=1.0, high=2.0).lookup(np.arange(20_000) * 7 - 999, insert=False)
    assert rows.mean() == pytest.approx(mean, abs=0.03)
    assert rows.std() == pytest.approx(deviation, rel=0.02)
    assert bounds[0] <= rows.min() and rows.max() <= bounds[1]


def test_a_lookup_without_insertion_changes_nothing() -> None:
    found = table()
    rows = found.lookup(np.array([4, 5]), insert=False)
    assert len(found) == 0
    np.testing.assert_array_equal(rows, found.lookup(np.array([4, 5]), insert=True))
    assert len(found) == 2


def test_a_sketch_admits_what_has_come_often_and_little_else() -> None:
    found = table(filter_freq=3, filter_size=1000, false_positives=0.01)
    rare, frequent = np.arange(1000), np.arange(5000, 5100)
    found.lookup(rare, insert=True)
    for _ in range(3):
        found.lookup(frequent, insert=True)
    keys = found.content().keys
    assert set(frequent) <= set(keys)
    assert len(keys) < 130


def test_chance_admits_a_share_of_what_comes() -> None:
    one, other = table(admit_probability=0.2), table(admit_probability=0.2)
    for _ in range(2):
        one.lookup(np.arange(10_000), insert=True)
        other.lookup(np.arange(10_000), insert=True)
    np.testing.assert_array_equal(one.content().keys, other.content().keys)
    assert len(one) == pytest.approx(3600, rel=0.05)  # 1 - 0.8²


def test_what_does_not_fit_a_capacity_gets_no_row() -> None:
    found = table(capacity=4)
    rows = found.lookup(np.arange(6), insert=True)
    assert len(found) == 4
    assert np.count_nonzero(~rows.any(axis=1)) == 2
    found.lookup(np.array([9]), insert=True)
    assert len(found) == 4 and 9 in found.content().keys


def test_changes_are_forgotten_when_a_whole_table_is_smaller() -> None:
    found = table(steps_to_live=1)
    found.lookup(np.arange(2000), insert=True)
    mark = found.dump(np.zeros(2, np.int64)).mark
    one = np.array([1])
    found.update(lambda *_: None, {}, one, np.zeros((1, 2), np.float32), [], 5)
    found.evict()
    assert len(found) == 1
    assert not found.dump(mark).is_change  # 1,999 ids that have gone are more than the one that is left


def test_epochs_do_not_run_out() -> None:
    found = table()
    found.lookup(np.arange(3), insert=True)
    content = found.dump(np.zeros(2, np.int64))
    changes = 0
    for turn in range(10, 610):
        found.lookup(np.array([turn]), insert=True)
        content = found.dump(content.mark)
        changes += content.is_change
        assert turn in content.keys
    assert changes == 600


def test_a_mark_of_another_table_gives_all() -> None:
    found, other = table(), table()
    for each in (found, other):
        each.lookup(np.arange(5), insert=True)
    mark = other.dump(np.zeros(2, np.int64)).mark
    assert len(found.dump(mark).keys) == 5
    assert not found.dump(UNMARKED).is_change


def test_counts_of_lookups_stop_at_their_largest_number() -> None:
    found = table(capacity=4)
    found.lookup(np.arange(4), insert=True)
    most = 2**31 - 1
    content = found.content()
    saved = content._replace(freqs=np.array([most - 1, 2**40, 7, 8]))
    found.load([saved], content.filtered, content.filtered_freqs, np.zeros((1, 2), np.float32), np.float32(0))
    for _ in range(2):
        found.lookup(np.array([0, 0, 0, 1, 2]), insert=True)
    assert found.content().freqs.tolist() == [most, most, 9, 8]
    found.lookup(np.array([9]), insert=True)
    assert found.content().keys.tolist() == [0, 1, 2, 9]  # the one that was looked up least has gone


@pytest.mark.parametrize("tracks", [False, True])
def test_a_whole_table_is_copied_by_slices(monkeypatch: pytest.MonkeyPatch, tracks: bool) -> None:
    """A list of places would take twice as long, and all lookups wait meanwhile."""
    asked = []

    class Watched(np.ndarray):  # type: ignore[type-arg]
        def __getitem__(self, key: Any) -> Any:
            asked.append(type(key))
            return super().__getitem__(key)

    columns: list[Any] = []
    add_column = IdRows.add_column

    def add(rows: IdRows, name: str, *arguments: Any) -> None:
        add_column(rows, name, *arguments)
        rows.columns[name] = rows.columns[name].view(Watched)
        columns.append(rows.columns[name])

    monkeypatch.setattr(IdRows, "add_column", add)
    found = table(steps_to_live=4, filter_freq=1)
    ids = np.arange(5)
    found.lookup(ids, insert=True)
    found.update(lambda *_: None, {"a": 0.5}, ids, np.zeros((5, 2), np.float32), [], 1)
    asked.clear()
    content = found.dump(np.zeros(2, np.int64) if tracks else UNMARKED)
    assert set(asked) == {slice}
    assert content.keys.tolist() == [0, 1, 2, 3, 4] and content.slots.shape == (5, 1, 2)
    parts = [content.values, content.slots, content.freqs, content.versions]
    assert not any(np.shares_memory(part, column) for part in parts for column in columns)


def test_errors_name_the_table() -> None:
    found = GrowingTableState("emb", "", dtypes.float32, 2, PLAIN)
    with pytest.raises(errors.FailedPreconditionError, match="uninitialized table emb"):
        found.lookup(np.array([1]), insert=True)
    with pytest.raises(errors.InvalidArgumentError, match="rows of table emb are float32, not float64"):
        found.check_dtype(dtypes.float64)
    found.initialize(np.zeros((1, 2), np.float32), np.float32(0))
    with pytest.raises(errors.InvalidArgumentError, match=r"table emb.*\[1, 3\] for \[1\] ids"):
        found.update(lambda *_: None, {}, np.array([1]), np.zeros((1, 3), np.float32), [], 0)
    with pytest.raises(errors.InvalidArgumentError, match=r"shape \[1, 3\] do not fit rows of 2 in emb"):
        found.initialize(np.zeros((1, 3), np.float32), np.float32(0))


def test_memory_is_near_that_of_the_rows() -> None:
    found = IdRows()
    found.add_column("values", (16,), np.float32)
    random = np.random.default_rng(0)
    for _ in range(40):
        found.add(random.integers(-(2**63), 2**63 - 1, 5000))
        if len(found) >= 50_000:
            assert found.nbytes <= 1.3 * len(found) * 64
