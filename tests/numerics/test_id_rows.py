"""Rows by id: places stay right through additions and removals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tfmini.numerics import id_rows
from tfmini.numerics.id_rows import IdIndex, IdRows

PATTERNS = {
    "neighbours": lambda n: np.arange(n) - n // 2,
    "powers of two apart": lambda n: np.arange(n) << 40,
    "random": lambda n: np.random.default_rng(1).permutation(np.arange(n) * 0x9E3779B97F4A7C1),
    "low bits": lambda n: np.arange(n) * (2**32 + 1),
}


@pytest.mark.parametrize("pattern", PATTERNS)
def test_all_ids_are_found(pattern: str) -> None:
    ids = PATTERNS[pattern](20_000).astype(np.int64)
    rows = IdRows()
    rows.add_column("n", (), np.int64)
    for start in range(0, len(ids), 700):
        part = ids[start : start + 700]
        rows.columns["n"][rows.add(part)] = part
    rows.add_column("late", (2,), np.float32, 0.5)
    np.testing.assert_array_equal(rows.index.find(ids), np.arange(1, len(ids) + 1))
    assert not rows.index.find(ids[:100] + 1 if pattern != "neighbours" else ids[:100] + 10**6).any()
    kept = np.flatnonzero(np.arange(len(ids)) % 3 == 1) + 1
    rows.keep(kept)
    np.testing.assert_array_equal(rows.index.ids(), ids[kept - 1])
    np.testing.assert_array_equal(rows.all("n"), ids[kept - 1])
    assert (rows.all("late") == 0.5).all()
    assert not rows.index.find(ids[::3]).any()
    assert rows.index.capacity < len(ids) // 2


def test_nothing_is_found_in_nothing() -> None:
    rows = IdRows()
    assert rows.index.find(np.array([0, 1, -1])).tolist() == [0, 0, 0]
    assert rows.index.find(np.empty(0, np.int64)).tolist() == []
    assert rows.add(np.empty(0, np.int64)).tolist() == []
    rows.keep(np.empty(0, np.int64))
    assert rows.add(np.array([0])).tolist() == [1]
    assert rows.index.find(np.array([0, 1])).tolist() == [1, 0]


class ShortMemory:
    """Lets one of the next calls that take memory fail."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.left = -1
        for owner, name in ((id_rows, "_resize"), (IdIndex, "_chain")):
            monkeypatch.setattr(owner, name, self.counted(getattr(owner, name)))

    def counted(self, function: Any) -> Any:
        def call(*arguments: Any) -> Any:
            self.left -= 1
            if self.left == 0:
                raise MemoryError
            return function(*arguments)

        return call


def check(rows: IdRows, ids: np.ndarray[Any, Any]) -> None:
    np.testing.assert_array_equal(rows.index.ids(), ids)
    np.testing.assert_array_equal(rows.index.find(ids), np.arange(1, len(ids) + 1))
    np.testing.assert_array_equal(rows.all("n"), ids)
    assert (rows.all("filled") == 0.5).all()
    assert np.count_nonzero(rows.index.find(np.arange(1000, 3000))) == len(ids)


@pytest.mark.parametrize("failure", range(1, 8))
def test_rows_stay_right_when_memory_ends(monkeypatch: pytest.MonkeyPatch, failure: int) -> None:
    monkeypatch.setattr(id_rows, "_PASS", 100)
    rows, ids = IdRows(), np.arange(1000, 1060)
    rows.add_column("n", (), np.int64)
    rows.add_column("filled", (2,), np.float32, 0.5)
    rows.columns["n"][rows.add(ids)] = ids
    memory = ShortMemory(monkeypatch)
    memory.left = failure
    new = np.arange(1060, 1300)
    with pytest.raises(MemoryError):
        rows.add(new)
    check(rows, ids)
    rows.columns["n"][rows.add(new)] = new
    ids = np.append(ids, new)
    check(rows, ids)
    kept = np.arange(50, 290) + 1
    memory.left = (failure - 1) % 3 + 1
    with pytest.raises(MemoryError):
        rows.keep(kept)
    check(rows, ids)
    rows.keep(kept)
    check(rows, ids[50:290])


def test_the_memory_can_be_asked_while_columns_come() -> None:
    rows = IdRows()

    class Column:
        @property
        def nbytes(self) -> int:
            rows.columns["late"] = np.zeros(3)
            return 1

    rows.columns["first"] = Column()  # type: ignore[assignment]
    assert rows.nbytes == rows.index.nbytes + 1
