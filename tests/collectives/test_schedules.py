"""The schedules on a network of lists, in any order of delivery."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tfmini.collectives import schedules
from tfmini.collectives.costs import all_reduce_cost

DTYPES = [np.float32, np.float16, np.float64, np.int32, np.int64]


def exchange(groups: list[list[Any]], seed: int) -> list[list[tuple[int, int]]]:
    """Runs several groups at once, delivering in random order; (messages, bytes) sent per group and rank."""
    rng = random.Random(seed)
    flying: list[tuple[int, int, schedules.Send]] = []
    sent = [[(0, 0) for _ in group] for group in groups]

    def post(group: int, rank: int, sends: list[schedules.Send]) -> None:
        for send in sends:
            messages, nbytes = sent[group][rank]
            sent[group][rank] = messages + 1, nbytes + send.values.nbytes
            flying.append((group, rank, send))

    for g, group in enumerate(groups):
        for rank, schedule in enumerate(group):
            post(g, rank, schedule.begin())
    while flying:
        g, sender, send = flying.pop(rng.randrange(len(flying)))
        post(g, send.rank, groups[g][send.rank].receive(sender, send.tag, send.values))
    for group in groups:
        for schedule in group:
            assert schedule.done and schedule.missing() == []
    return sent


@settings(max_examples=25, deadline=None)
@given(
    size=st.integers(1, 8), count=st.sampled_from([0, 1, 2, 7, 31, 64, 101]), dtype=st.sampled_from(DTYPES),
    merge=st.sampled_from(["Add", "Mul", "Min", "Max"]), final=st.sampled_from(["Id", "Div"]),
    pieces=st.integers(1, 12), seed=st.integers(0, 99),
)  # fmt: skip
def test_ring_and_direct_agree_on_all_ranks(size, count, dtype, merge, final, pieces, seed) -> None:
    values = [np.random.RandomState(seed + r).randint(-3, 4, count).astype(dtype) for r in range(size)]
    ring = [schedules.RingReduce(r, size, values[r], merge, final, pieces) for r in range(size)]
    direct = [schedules.DirectReduce(r, size, values[r], merge, final) for r in range(size)]
    exchange([ring, direct], seed)
    expected = schedules.MERGES[merge].reduce(values)
    if final == "Div":
        expected = schedules.divide(expected, size)
    for group in (ring, direct):
        results = [schedule.result() for schedule in group]
        for result in results:
            assert result.dtype == dtype
            assert result.tobytes() == results[0].tobytes()
            np.testing.assert_allclose(result.astype(float), expected.astype(float), rtol=1e-2)


@pytest.mark.parametrize("size", [2, 3, 4, 5])
@pytest.mark.parametrize("count", [100, 100_003, 1_500_000])
def test_messages_and_bytes_are_those_of_the_cost_model(size: int, count: int) -> None:
    values = [np.full(count, r + 1, np.float32) for r in range(size)]
    group = [schedules.all_reduce(r, size, values[r], "Add", "Id") for r in range(size)]
    sent = exchange([group], 0)[0]
    cost = all_reduce_cost(4 * count, size)
    for messages, nbytes in sent:
        assert messages == cost.messages
        assert abs(nbytes - cost.nbytes) <= 4 * 2 * size
    assert sum(nbytes for _, nbytes in sent) == round(cost.nbytes * size)
    assert (group[-1].result() == size * (size + 1) / 2).all()


@pytest.mark.parametrize("size", [1, 2, 3, 8])
def test_broadcast_sends_the_tensor_once_per_rank(size: int) -> None:
    value = np.arange(700_001, dtype=np.float32)
    source = size // 2
    group = [
        schedules.Broadcast(r, size, value if r == source else None, value.shape, np.float32)
        for r in range(size)
    ]
    sent = exchange([group], 1)[0]
    for schedule in group:
        np.testing.assert_array_equal(schedule.result(), value)
    assert sum(nbytes for _, nbytes in sent) == value.nbytes * (size - 1)


@pytest.mark.parametrize("size", [1, 2, 5])
def test_gather_joins_in_the_order_of_ranks(size: int) -> None:
    group = [schedules.Gather(r, size, np.full((r, 3), r, np.int32)) for r in range(size)]
    exchange([group], 2)
    expected = np.concatenate([np.full((r, 3), r, np.int32) for r in range(size)])
    for schedule in group:
        np.testing.assert_array_equal(schedule.result(), expected)


def test_several_exchanges_in_flight() -> None:
    groups = []
    for k in range(6):
        values = [np.arange(11, dtype=np.int64) * (k + r) for r in range(4)]
        groups.append([schedules.RingReduce(r, 4, values[r], "Add", "Id", 2) for r in range(4)])
    exchange(groups, 3)
    for k, group in enumerate(groups):
        assert (group[2].result() == np.arange(11) * (4 * k + 6)).all()


def test_integer_mean_rounds_towards_zero() -> None:
    assert schedules.divide(np.array([7, -7, 6], np.int32), 4).tolist() == [1, -1, 1]
