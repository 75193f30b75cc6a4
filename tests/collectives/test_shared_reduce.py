"""The all-reduce of ranks that share memory: any order of the ranks' turns, in one process."""

from __future__ import annotations

import os
import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tfmini.collectives import schedules, shared_reduce
from tfmini.collectives.costs import shared_all_reduce_cost
from tfmini.collectives.shared_reduce import (
    Moves,
    PullMoves,
    RankStage,
    SharedReduce,
    WindowMoves,
    fingerprint_text,
    moves_for,
)
from tfmini.runtime.collectives.memory import other_memory

DTYPES = [np.float32, np.float16, np.float64, np.int32, np.int64]


def make_stages(size: int, nbytes: int) -> list[RankStage]:
    needed = moves_for(nbytes, size, False).stage_bytes(nbytes)
    stages = [RankStage(np.zeros(needed, np.uint8), serial=r + 1) for r in range(size)]
    for stage in stages:
        stage.open(0)
    return stages


def one_rank(
    rank: int, stages: list[Any], value: Any, merge: str = "Add", final: str = "Id", count: int = 0,
    text: bytes = b"same", step: int = 1, follows: bool = False, moves: type[Moves] | None = None, **waking: Any,
) -> SharedReduce:  # fmt: skip
    moves = moves or moves_for(value.nbytes, len(stages), False)
    out = np.empty(value.size, value.dtype)
    plan = moves(rank, list(stages), count, value, merge, final, out, follows, read_here)
    return SharedReduce(plan, value.shape, out, text, step, **waking)


def read_here(rank: int, address: int, into: Any) -> bool:
    """All ranks are this process."""
    memory = other_memory()
    assert memory is not None
    return memory.read(os.getpid(), address, into)


can_read = pytest.mark.skipif(other_memory() is None, reason="the system does not let processes read others' memory")


def run_all(ranks: list[SharedReduce], seed: int) -> None:
    """Random ranks take turns; a rank that must wait sleeps until it gets a bell."""
    rng = random.Random(seed)
    awake = set(range(len(ranks)))
    while awake:
        rank = rng.choice(sorted(awake))
        awake.discard(rank)
        awake.update(ranks[rank].advance())
        awake.discard(rank)
    assert all(rank.done for rank in ranks), [rank.missing() for rank in ranks]


@pytest.mark.parametrize("count", [7, 3000])
def test_ranks_that_sleep_are_woken(monkeypatch, count: int) -> None:
    monkeypatch.setattr(shared_reduce, "SMALL_LIMIT", 64)
    monkeypatch.setattr(shared_reduce, "WINDOW_BYTES", 256)
    for seed in range(20):
        stages: list[Any] = make_stages(3, count * 4)
        rng, awake, woken = random.Random(seed), {0, 1, 2}, set()
        value = np.ones(count, np.float32)
        ranks = [one_rank(r, stages, value, wake=woken.add, sleeps=True) for r in range(3)]
        conditions: dict[int, Any] = {}
        while awake:
            rank = rng.choice(sorted(awake))
            assert ranks[rank].advance() == []
            conditions[rank] = ranks[rank].sleep_condition()
            awake.discard(rank)
            awake.update(r for r, c in conditions.items() if c and c[0].address + 8 * c[1] in woken)
            woken.clear()
        assert all(rank.done for rank in ranks)


def exchange(
    stages: list[Any], values: list[Any], merge: str, final: str, count: int, seed: int, **how: Any
) -> list[Any]:
    ranks = [one_rank(r, stages, values[r], merge, final, count, **how) for r in range(len(stages))]
    run_all(ranks, seed)
    return [rank.result() for rank in ranks]


@settings(max_examples=25, deadline=None)
@given(
    size=st.integers(2, 8), count=st.sampled_from([0, 1, 2, 7, 31, 64, 101]), dtype=st.sampled_from(DTYPES),
    merge=st.sampled_from(["Add", "Mul", "Min", "Max"]), final=st.sampled_from(["Id", "Div"]), seed=st.integers(0, 99),
)  # fmt: skip
def test_small_tensors_are_reduced_as_by_the_direct_schedule(size, count, dtype, merge, final, seed) -> None:
    stages = make_stages(size, count * 8)
    for step in range(3):
        values = [np.random.RandomState(seed + step + r).randint(-3, 4, count).astype(dtype) for r in range(size)]
        direct = [schedules.DirectReduce(r, size, values[r], merge, final) for r in range(size)]
        for schedule in direct:
            for r in range(size):
                schedule.receive(r, 0, values[r])
        for result in exchange(stages, values, merge, final, step, seed):
            assert result.dtype == dtype
            assert result.tobytes() == direct[0].result().tobytes()


@settings(max_examples=15, deadline=None)
@given(size=st.integers(2, 8), count=st.sampled_from([701, 997, 1024, 4096, 5003]), seed=st.integers(0, 99))
def test_tensors_are_reduced_window_by_window(size, count, seed) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shared_reduce, "SMALL_LIMIT", 64)
        patch.setattr(shared_reduce, "WINDOW_BYTES", 256)
        stages = make_stages(size, count * 4)
        for step in range(3):
            values = [np.random.RandomState(seed + step + r).randn(count).astype(np.float32) for r in range(size)]
            results = exchange(stages, values, "Add", "Div", step, seed)
            for result in results:
                assert result.tobytes() == results[0].tobytes()
            np.testing.assert_allclose(results[0], np.mean(values, axis=0), rtol=1e-4, atol=1e-6)


def test_a_tensor_larger_than_a_window_is_reduced() -> None:
    values = [np.full(700_001, r + 1, np.float32) for r in range(3)]
    for result in exchange(make_stages(3, values[0].nbytes), values, "Add", "Id", 0, 0):
        assert (result == 6).all()


def test_a_rank_runs_ahead_by_one_small_exchange_and_no_more() -> None:
    stages: list[Any] = make_stages(2, 4)
    one = np.ones(1, np.float32)

    def begun(rank: int, count: int) -> SharedReduce:
        reduce = one_rank(rank, stages, one * (count + 1), count=count, follows=count > 0)
        reduce.advance()
        return reduce

    first, second = begun(0, 0), begun(0, 1)  # like a rank whose steps overlap
    assert not first.done and not second.done
    assert begun(1, 0).done
    first.advance()
    assert first.result() == 2
    assert begun(1, 1).result() == 4
    second.advance()
    assert second.result() == 4


def test_fingerprints_are_compared_before_anything_is_added() -> None:
    stages: list[Any] = make_stages(2, 4)
    a, b = (one_rank(r, stages, np.ones(1), text=b"ab"[r : r + 1]) for r in range(2))
    a.advance()
    assert b.advance() == [0]
    assert b.mismatched == 0 and not b.done
    a.advance()
    assert a.mismatched == 1 and stages[1].read_fingerprint(0) == (b"b", 1)
    a.accept_fingerprint()
    a.advance()
    assert a.done


def test_a_stage_with_a_new_user_breaks_the_exchange() -> None:
    stages: list[Any] = make_stages(2, 4)
    a, b = (one_rank(r, stages, np.ones(1)) for r in range(2))
    b.advance()
    RankStage(stages[1].memory, serial=9).open(0)
    a.advance()
    assert not a.done and a.missing() == [1]


def test_a_long_fingerprint_is_cut_and_still_differs() -> None:
    texts = [fingerprint_text("v" * 3000 + end) for end in "ab"]
    assert texts[0] != texts[1]
    assert len(texts[0]) < 1792


@pytest.mark.parametrize("moves", [WindowMoves, PullMoves])
@pytest.mark.parametrize("size", [2, 3, 4, 5])
@pytest.mark.parametrize("count", [100_003, 1_500_000])
def test_a_rank_publishes_what_the_cost_model_predicts(size: int, count: int, moves: type[Moves]) -> None:
    stages: list[Any] = make_stages(size, 4 * count)
    value = np.ones(count, np.float32)
    ranks = [one_rank(r, stages, value, moves=moves).moves for r in range(size)]
    cost = shared_all_reduce_cost(value.nbytes, size)
    for rank in ranks:
        windows = -(-value.nbytes // shared_reduce.WINDOW_BYTES)
        assert abs(rank.sent_bytes - cost.nbytes) <= 4 * size * windows
    assert sum(rank.sent_bytes for rank in ranks) == round(cost.nbytes * size)
    assert cost.nbytes == 2 * (size - 1) / size * value.nbytes


# ---- reading each other's memory ------------------------------------------------------------


@can_read
@settings(max_examples=25, deadline=None)
@given(
    size=st.integers(2, 8), count=st.sampled_from([1, 2, 7, 701, 5003]), dtype=st.sampled_from(DTYPES),
    merge=st.sampled_from(["Add", "Mul", "Min", "Max"]), final=st.sampled_from(["Id", "Div"]), seed=st.integers(0, 99),
)  # fmt: skip
def test_pulled_tensors_are_reduced_as_by_the_direct_schedule(size, count, dtype, merge, final, seed) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shared_reduce, "PIECE_BYTES", 64)
        stages = make_stages(size, 4)
        for step in range(3):
            values = [np.random.RandomState(seed + step + r).randint(-3, 4, count).astype(dtype) for r in range(size)]
            direct = schedules.DirectReduce(0, size, values[0], merge, final)
            for r in range(1, size):
                direct.receive(r, 0, values[r])
            results = exchange(stages, values, merge, final, step, seed, moves=PullMoves, follows=step > 0)
            for result in results:
                assert result.dtype == dtype
                assert result.tobytes() == direct.result().tobytes()


@can_read
def test_a_rank_keeps_its_memory_until_all_have_read_it() -> None:
    stages: list[Any] = make_stages(2, 4)
    a, b = (one_rank(r, stages, np.ones(9, np.float32), moves=PullMoves) for r in range(2))
    a.advance()
    b.advance()
    a.advance()
    assert not a.done and not b.done and a.missing() == [1]
    b.advance()
    assert b.done
    a.advance()
    assert a.done and (a.result() == 2).all()


@can_read
def test_memory_that_is_gone_breaks_the_exchange() -> None:
    stages: list[Any] = make_stages(2, 4)
    a, b = (one_rank(r, stages, np.ones(9, np.float32), moves=PullMoves) for r in range(2))
    a.advance()
    stages[0].words[shared_reduce.VALUE_AT] = 8  # an address without memory
    b.advance()
    assert b.is_broken and not b.done and b.sleep_condition() is None and b.needs_bell()


@pytest.mark.parametrize("moves", [moves_for(4, 2, False), WindowMoves, pytest.param(PullMoves, marks=can_read)])
def test_a_rank_that_leaves_while_others_read_breaks_the_exchange(moves: type[Moves]) -> None:
    stages: list[Any] = make_stages(2, 1 << 17)

    class Leaving(moves):  # type: ignore[misc, valid-type]
        def __init__(self, *args: Any) -> None:
            super().__init__(*args)
            read = self.plan[1].run
            self.plan[1] = self.plan[1]._replace(run=lambda window: (read(window), stages[0].release())[0])

    a, b = (one_rank(r, stages, np.ones(9, np.float32), moves=kind) for r, kind in enumerate([moves, Leaving]))
    a.advance()
    b.advance()
    assert b.is_broken and not b.done


def test_moves_are_chosen_by_size_and_number_of_ranks() -> None:
    assert moves_for(65536, 2, True) is moves_for(65536, 2, False) is shared_reduce.SmallMoves
    assert moves_for(65537, 2, True) is moves_for(2 << 20, 2, False) is moves_for(2 << 20, 4, True) is WindowMoves
    assert moves_for(2 << 20, 2, True) is moves_for(4 << 20, 4, True) is PullMoves
