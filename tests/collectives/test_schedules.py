"""The schedules on a network of lists, in any order of delivery."""

from __future__ import annotations

import random
import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tfmini.collectives import schedules
from tfmini.collectives.costs import all_reduce_cost, flows

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


def test_the_result_takes_memory_when_the_others_have_begun() -> None:
    """Before, the memory of the run before may still be in use, and this run would need a second one."""
    taken: list[int] = []

    def memory() -> tuple[np.ndarray, np.ndarray]:
        taken.append(1)
        return (np.empty(8, np.float32),) * 2

    mine, other = (schedules.RingReduce(r, 2, np.full(8, r + 1, np.float32), "Add", "Id", 2, memory) for r in (0, 1))
    mine.begin()
    assert not taken
    for send in other.begin():
        mine.receive(1, send.tag, send.values)
    assert taken == [1]


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


def broadcast(size: int, sources: set[int], count: int = 700_001) -> list[schedules.Broadcast]:
    return [
        schedules.Broadcast(r, size, np.full(count, r, np.float32) if r in sources else None, (count,), np.float32)
        for r in range(size)
    ]  # fmt: skip


@pytest.mark.parametrize("size", [1, 2, 3, 8])
@pytest.mark.parametrize("seed", [1, 2])
def test_broadcast_sends_the_tensor_once_per_rank(size: int, seed: int) -> None:
    source = size // 2
    group = broadcast(size, {source})
    sent = exchange([group], seed)[0]
    for schedule in group:
        assert (schedule.result() == source).all()
    assert sum(nbytes for _, nbytes in sent) == 4 * 700_001 * (size - 1)


@pytest.mark.parametrize(("size", "source"), [(1, 0), (2, 0), (3, 0), (3, 2), (5, 1)])
@pytest.mark.parametrize("count", [700_001, 3_000_000])
def test_a_broadcast_sends_the_messages_of_the_cost_model(size: int, source: int, count: int) -> None:
    sent = exchange([broadcast(size, {source}, count)], 0)[0]
    found = {flow.source: (flow.messages, flow.nbytes) for flow in flows("broadcast", 4 * count, size, source)}
    assert [found.get(rank, (0, 0)) for rank in range(size)] == sent


@pytest.mark.parametrize(("size", "sources"), [(2, {0, 1}), (3, {0, 2}), (4, {1, 2}), (5, {0, 1, 3})])
@pytest.mark.parametrize("seed", range(5))
def test_a_second_source_of_a_broadcast_is_named(size: int, sources: set[int], seed: int) -> None:
    group = broadcast(size, sources)
    with pytest.raises(ValueError, match=r"Ranks \d and \d are both the source of one broadcast") as caught:
        exchange([group], seed)
    assert set(map(int, re.findall(r"ank (\d)", str(caught.value)))) <= sources
    assert not any(group[r].done for r in sources)


@pytest.mark.parametrize("size", [1, 2, 5])
def test_a_broadcast_without_a_source_is_detected(size: int) -> None:
    with pytest.raises(ValueError, match=f"All {size} ranks wait in a broadcast without a source"):
        exchange([broadcast(size, set(), 3)], size)


@pytest.mark.parametrize("size", [2, 3])
def test_a_broadcast_keeps_few_pieces_in_flight(size: int) -> None:
    group = broadcast(size, {0}, 5_000_000)
    sends = group[0].begin()
    assert len(sends) == schedules.PIECES_AHEAD
    flying = [(0, send) for send in sends]
    while flying:
        sender, send = flying.pop(0)
        flying += [(send.rank, more) for more in group[send.rank].receive(sender, send.tag, send.values)]
        assert len(flying) <= schedules.PIECES_AHEAD
    assert all(schedule.done for schedule in group)


@pytest.mark.parametrize("size", [1, 2, 5])
def test_gather_joins_in_the_order_of_ranks(size: int) -> None:
    group = [schedules.Gather(r, size, np.full((r, 3), r, np.int32)) for r in range(size)]
    exchange([group], 2)
    expected = np.concatenate([np.full((r, 3), r, np.int32) for r in range(size)])
    for schedule in group:
        np.testing.assert_array_equal(schedule.result(), expected)


def test_several_exchanges_may_be_in_flight() -> None:
    groups = []
    for k in range(6):
        values = [np.arange(11, dtype=np.int64) * (k + r) for r in range(4)]
        groups.append([schedules.RingReduce(r, 4, values[r], "Add", "Id", 2) for r in range(4)])
    exchange(groups, 3)
    for k, group in enumerate(groups):
        assert (group[2].result() == np.arange(11) * (4 * k + 6)).all()


@pytest.mark.parametrize("shape", [(3, 0), (0, 3), (2, 0, 4)])
def test_gather_of_empty_tensors_keeps_the_number_of_rows(shape: tuple[int, ...]) -> None:
    group = [schedules.Gather(r, 2, np.zeros(shape, np.float32)) for r in range(2)]
    exchange([group], 2)
    assert group[0].result().shape == group[1].result().shape == (2 * shape[0], *shape[1:])


def test_integer_mean_rounds_towards_zero() -> None:
    assert schedules.divide(np.array([7, -7, 6], np.int32), 4).tolist() == [1, -1, 1]
    for dtype in (np.int32, np.int64):
        ends = np.array([np.iinfo(dtype).min, np.iinfo(dtype).max], dtype)
        for size in (1, 2, 3, 7):
            expected = [int(abs(int(end)) // size) * (1 if end > 0 else -1) for end in ends]
            assert schedules.divide(ends, size).tolist() == expected


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.float64, np.int32])
@pytest.mark.parametrize("size", [2, 3, 4, 6])
def test_a_mean_in_place_is_the_quotient(dtype: type, size: int) -> None:
    total = (np.random.RandomState(0).randn(1000) * 1000).astype(dtype)
    expected = np.trunc(total / size).astype(dtype) if dtype is np.int32 else total / dtype(size)
    assert schedules.divide(total, size, out=total) is total
    assert total.tobytes() == expected.tobytes()
