"""All-to-all and reduce-scatter on a network of lists, in any order of delivery."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.collectives.test_schedules import exchange
from tfmini.collectives import schedules


@settings(max_examples=25, deadline=None)
@given(
    size=st.integers(1, 6), rows=st.integers(0, 11), merge=st.sampled_from(["Add", "Mul", "Min", "Max"]),
    final=st.sampled_from(["Id", "Div"]), seed=st.integers(0, 99),
)  # fmt: skip
def test_reduce_scatter_leaves_each_rank_its_rows(size, rows, merge, final, seed) -> None:
    rng = np.random.RandomState(seed)
    values = [rng.randint(-3, 4, (rows, 2)).astype(np.int32) for _ in range(size)]
    order = rng.permutation(size).tolist()
    group = [schedules.ReduceScatter(r, size, values[r], merge, final, order) for r in range(size)]
    exchange([group], seed)
    expected = schedules.MERGES[merge].reduce(values)
    expected = schedules.divide(expected, size) if final == "Div" else expected
    parts = [group[r].result() for r in order]
    np.testing.assert_array_equal(np.concatenate(parts), expected)
    lengths = [len(part) for part in parts]
    assert lengths == sorted(lengths, reverse=True) and lengths[0] - lengths[-1] <= 1


@settings(max_examples=25, deadline=None)
@given(size=st.integers(1, 6), seed=st.integers(0, 99))
def test_all_to_all_transposes(size, seed) -> None:
    rng = np.random.RandomState(seed)
    splits = rng.randint(0, 3, (size, size))
    spare = rng.randint(0, 2)  # rows that no rank gets
    values = [np.repeat(10 * i + np.arange(size + 1), [*splits[i], spare])[:, None] for i in range(size)]
    group = [schedules.AllToAll(r, size, values[r], splits[r].tolist()) for r in range(size)]
    exchange([group], seed)
    for rank, schedule in enumerate(group):
        rows, received = schedule.result()
        assert received.tolist() == splits[:, rank].tolist()
        assert rows.ravel().tolist() == np.repeat(10 * np.arange(size) + rank, splits[:, rank]).tolist()


def test_parts_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match=r"shape \[3\] came, and this rank has \[2\]"):
        schedules.AllToAll(0, 2, np.zeros((2, 2)), [1, 1]).receive(1, 0, np.zeros((1, 3)))
    with pytest.raises(ValueError, match=r"shape \[1, 3\] came"):
        schedules.ReduceScatter(0, 2, np.zeros((2, 2)), "Add", "Id").receive(1, 0, np.zeros((1, 3)))
