"""Rows of an array updated by index."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tfmini.numerics.update_rules import scatter_rows

OPERATIONS = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "min": np.minimum, "max": np.maximum,
              "div": lambda a, b: np.trunc(a / b) if a.dtype.kind == "i" else a / b}  # fmt: skip


@settings(max_examples=40, deadline=None)
@given(
    operation=st.sampled_from(sorted(OPERATIONS)),
    width=st.sampled_from([None, 1, 3, 40, 600]),
    indices=st.lists(st.integers(0, 6), min_size=1, max_size=60),
    dtype=st.sampled_from([np.float64, np.int32]),
    seed=st.integers(0, 100),
)
def test_repeated_rows_are_updated_one_after_the_other(
    operation: str, width: int | None, indices: list[int], dtype: Any, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    shape = () if width is None else (width,)
    rows = rng.integers(-50, 50, (7, *shape)).astype(dtype)
    updates = rng.integers(1, 4, (len(indices), *shape)).astype(dtype)
    expected = rows.copy()
    for index, update in zip(indices, updates):
        expected[index] = OPERATIONS[operation](expected[index], update)
    scatter_rows(operation, rows, np.array(indices), updates)
    assert np.allclose(rows, expected)
