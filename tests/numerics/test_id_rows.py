"""Rows by id: places stay right through additions and removals."""

from __future__ import annotations

import numpy as np
import pytest

from tfmini.numerics.id_rows import IdRows

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
