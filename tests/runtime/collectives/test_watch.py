"""The watch of ranks that wait: it tells ranks that will never meet from ranks that wait for a third one."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

import pytest

from tfmini import errors
from tfmini.collectives.schedules import Fingerprint
from tfmini.locks import Guarded
from tfmini.runtime.collectives.exchange import Exchange, GroupMember, GroupTable
from tfmini.runtime.collectives.watch import Watch

_EPOCH = 7


class Rank:
    """The executor of one rank: it has called some exchanges, and waits in one of them for other ranks.

    Args:
      called: instance -> how often it has called that collective.
      waits_in: the instance, and the number of earlier calls of it.
      missing: the ranks that the exchange waits for, as a schedule tells.
    """

    leader_task, leader = "", None

    def __init__(
        self, ranks: list[Rank], called: dict[int, int], waits_in: tuple[int, int], missing: list[int]
    ) -> None:
        ranks.append(self)
        self._ranks, self.rank = ranks, len(ranks) - 1
        self.task = f"/job:worker/replica:0/task:{self.rank}"
        self.time = 0.0
        self.stuck = True
        self.failure: errors.OpError | None = None
        self._timers: list[Callable[[], None]] = []
        self.watch = Watch(self, lambda _, call: self._timers.append(call))
        self.table = Guarded("collectives", GroupTable(self.task, {}, "", self.now))
        self.member = GroupMember(1, 4, f"{self.task}/device:CPU:0", 0.0)
        self.member.enter(_EPOCH, [f"/job:worker/replica:0/task:{i}/device:CPU:0" for i in range(4)], 0)
        self.member.counts = called
        instance, count = waits_in
        call: Any = types.SimpleNamespace(instance=instance, describe=lambda: "")
        exchange = Exchange(call, count, 0, types.SimpleNamespace(missing=lambda: missing), self.now)
        exchange.__dict__["fingerprint"] = Fingerprint(f"op{instance}", "[]", "float32", "all-reduce(Add)", 0)
        self.member.exchanges[exchange.key] = exchange
        self.table.state.members[1, self.task] = self.member
        self.table.state.by_epoch[_EPOCH, self.rank] = self.member

    def now(self) -> float:
        return self.time

    def tick(self) -> None:
        """Makes the calls of the watch that are due."""
        due, self._timers = self._timers, []
        for call in due:
            call()

    def look(self, member: GroupMember, instance: int) -> None:
        """Shared memory is not in use."""

    def send(self, member: GroupMember, task: str, message: Any) -> None:
        self._ranks[int(task[-1])].watch.probed(message)

    def fail(self, member: GroupMember, error: errors.OpError, tell: bool = False) -> None:
        self.failure = self.failure or error

    def is_stuck(self) -> bool:
        return self.stuck

    def tell_left(self, probe: Any, sender: str) -> None:
        """No member has left."""


def failures(ranks: list[Rank]) -> list[str]:
    """The errors of the ranks after some time; a rank that is stopped has no watch that ticks."""
    for each in ranks:
        each.watch.start()
    for second in range(1, 7):
        for each in ranks:
            each.time = float(second)
        for each in ranks:
            each.tick()
    return [each.failure.message for each in ranks if each.failure is not None]


@pytest.mark.parametrize("ring", [False, True])
def test_ranks_that_wait_in_different_collectives_are_told(ring: bool) -> None:
    """Rank 0 has called collective 1, the others collective 2. In a ring a rank waits for the one before it only."""
    ranks: list[Rank] = []
    for rank in range(4):
        missing = [(rank - 1) % 4] if ring else [other for other in range(4) if (other == 0) != (rank == 0)]
        instance = 1 if rank == 0 else 2
        Rank(ranks, {instance: 1}, (instance, 0), missing)
    found = failures(ranks)
    assert found
    assert "call skipped" in found[0] and "rank 0" in found[0] and "op1" in found[0] and "op2" in found[0]


@pytest.mark.parametrize("reason", ["it still computes", "its steps overlap"])
def test_ranks_that_may_call_the_other_collective_later_are_not_ended(reason: str) -> None:
    ranks: list[Rank] = []
    for rank in range(2):
        Rank(ranks, {rank: 1}, (rank, 0), [1 - rank])
        ranks[rank].stuck = reason != "it still computes" or rank == 0
        ranks[rank].member.is_ordered = reason != "its steps overlap"
    assert failures(ranks) == []


@pytest.mark.parametrize(("called", "waits_in"), [({1: 2}, (1, 1)), ({1: 1, 2: 1}, (2, 0))])
def test_a_rank_that_is_ahead_has_skipped_nothing(called: dict[int, int], waits_in: tuple[int, int]) -> None:
    """Ranks 0 and 2 wait for rank 1, which is stopped. Rank 0 has its data and is in the next collective."""
    ranks: list[Rank] = []
    Rank(ranks, called, waits_in, missing=[1, 2])
    Rank(ranks, {1: 1}, (1, 0), missing=[])
    Rank(ranks, {1: 1}, (1, 0), missing=[1])
    ranks[1].member.exchanges.clear()
    assert failures(ranks) == []


def test_a_member_that_begins_to_wait_when_the_watch_has_stopped_starts_it_again() -> None:
    """The look that finds nobody and the stop are one event: who begins to wait comes before it or after it."""
    rank, timers = Rank([], {}, (0, 0), []), list[Any]()
    rank.watch = Watch(rank, lambda *timer: timers.append(timer))
    rank.watch.start()
    rank.watch.start()
    assert len(timers) == 1
    rank.member.exchanges.clear()
    timers[0][1]()
    assert len(timers) == 1 and not rank.table.state.is_watched
    rank.watch.start()
    assert len(timers) == 2
