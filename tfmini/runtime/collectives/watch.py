"""Detects stalled collectives: slow ranks, skipped collectives and missing members.

Every second each rank asks those it waits for whether they take part. This finds the dead, as a message to them
cannot be delivered, and two ranks that wait for each other in different collectives: each has asked the other
and neither has called the other's. A rank that has called both is only ahead, and one that still computes, or
that runs steps in several threads, may call the other's later: that is reported, and not ended.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from tfmini.collectives.schedules import Fingerprint, skipped
from tfmini.rpc import messages as m
from tfmini.runtime.collectives.exchange import Exchange, Executor, GroupMember, GroupTable

_log = logging.getLogger("tfmini.runtime")
TICK_S = 1.0
_SKIPPED_S = 3.0  # two ranks that wait for each other so long in different exchanges will never meet
_SLOW_S = 4.5
_CALLED, _STUCK, _NOT_YET = 0, -1, -2  # what an answer says


class Watch:
    """See the module.

    Args:
      call_later: (seconds, function, arguments…): the clock; None: the watch is off.
    """

    def __init__(self, executor: Executor, call_later: Callable[..., Any] | None) -> None:
        self._executor = executor
        self._call_later = call_later

    def start(self) -> None:
        """Looks after the members from now on, as long as any waits."""
        if self._call_later is not None and self._executor.table(GroupTable.watch):
            self._call_later(TICK_S, self._tick)

    def _tick(self) -> None:
        assert self._call_later is not None
        waiting = self._executor.table(GroupTable.look)
        if waiting and not self._executor.table.state.closed:
            self._call_later(TICK_S, self._tick)
        for member, exchanges in waiting:
            if member.queued:
                self._warn_incomplete(member)
            for exchange in exchanges:
                if exchange.waited_s >= TICK_S / 2:
                    self._executor.look(member, exchange.call.instance)
                    self._ask(member, exchange)

    def _ask(self, member: GroupMember, exchange: Exchange) -> None:
        """Asks the awaited ranks whether they take part: finds dead ranks, and ranks that wait elsewhere."""
        missing = exchange.schedule.missing()
        for rank in missing:
            self._tell(member, rank, _question(member, exchange, rank))
        self._warn_slow(member, exchange, [rank for rank in missing if rank not in exchange.present])

    def _warn_slow(self, member: GroupMember, exchange: Exchange, absent: list[int]) -> None:
        # If all ranks participate, another rank can name the late one; warn here only after three times the delay.
        due_s = max(_SLOW_S if absent else 3 * _SLOW_S, exchange.warn_after_s)
        if exchange.waited_s < due_s or member.over or exchange.finished:
            return
        exchange.warn_after_s = 2 * exchange.waited_s
        late = " and ".join(map(member.who, absent))
        ready = ", ".join(str(rank) for rank in sorted({member.rank, *exchange.present}))
        _log.warning(
            "%s: %s has waited %.1f s in %s: %s%s.",
            "Slow rank" if absent else "Slow collective", member.who(member.rank), exchange.waited_s,
            exchange.call.describe(), exchange.fingerprint,
            f", for {late}, which has not called it yet; ready ranks: {ready}" if absent
            else "; the ranks before it have called it",
        )  # fmt: skip

    def probed(self, probe: m.CollectiveProbe, sender: str = "") -> None:
        """Another rank asks, or answers, whether an exchange has been called; ``sender``: its task, if another."""
        found = self._executor.table(GroupTable.asked, probe)
        if found is None:
            if not probe.is_answer:
                self._executor.tell_left(probe, sender)
            return
        member, exchange, called, oldest = found
        if probe.is_answer:
            if exchange is not None:
                self._answered(member, exchange, probe)
            return
        known = _CALLED if called else _STUCK if member.is_ordered and self._executor.is_stuck() else _NOT_YET
        waited_s = 0.0 if oldest is None else min(oldest.waited_s, probe.waited_ms / 1000)
        if known == _STUCK and oldest is not None and waited_s >= _SKIPPED_S:
            self._suspect(member, oldest, probe)
        answer = m.CollectiveProbe(probe.epoch, probe.sender, probe.rank, probe.instance, probe.count, "", known, True)
        self._tell(member, probe.sender, answer)

    def _suspect(self, member: GroupMember, oldest: Exchange, probe: m.CollectiveProbe) -> None:
        """The sender waits in an exchange that this rank has not called. Asks whether it has called this rank's.

        If so, it is only ahead, and both wait for a third rank.
        """
        if probe.sender not in oldest.present and probe.sender not in oldest.suspects:
            oldest.suspects[probe.sender] = probe
            self._tell(member, probe.sender, _question(member, oldest, probe.sender))

    def _answered(self, member: GroupMember, exchange: Exchange, answer: m.CollectiveProbe) -> None:
        suspect = exchange.suspects.pop(answer.sender, None)
        if answer.waited_ms == _CALLED:
            exchange.present.add(answer.sender)
        elif answer.waited_ms == _STUCK and suspect is not None and self._will_not_call(member, suspect):
            theirs = _described(suspect.instance, Fingerprint.unpack(suspect.fingerprint))
            mine = _described(exchange.call.instance, exchange.fingerprint)
            error = skipped(theirs, member.who(suspect.sender), mine, member.who(member.rank))
            self._executor.fail(member, error, tell=True)

    def _will_not_call(self, member: GroupMember, probe: m.CollectiveProbe) -> bool:
        return not member.has_called(probe) and self._executor.is_stuck()

    def _tell(self, member: GroupMember, rank: int, probe: m.CollectiveProbe) -> None:
        if member.tasks[rank] == self._executor.task:
            self.probed(probe)
        else:
            self._executor.send(member, member.tasks[rank], probe)

    def _warn_incomplete(self, member: GroupMember) -> None:
        waited_s = self._executor.now() - member.joined_at
        if waited_s < max(_SLOW_S, member.warn_after_s):
            return
        member.warn_after_s = 2 * waited_s
        joined = ""
        if self._executor.leader_task == self._executor.task:
            joined = f" Joined so far: {', '.join(self._executor.leader.present(member.group_key))}."
        _log.warning(
            "%s has waited %.1f s for the %d members of collective group %d; its leader is %s.%s",
            member.device, waited_s, member.group_size, member.group_key, self._executor.leader_task, joined,
        )  # fmt: skip


def _question(member: GroupMember, exchange: Exchange, rank: int) -> m.CollectiveProbe:
    """Asks a rank whether it has called an exchange."""
    waited_ms = int(exchange.waited_s * 1000)
    return m.CollectiveProbe(member.epoch, rank, member.rank, *exchange.key, exchange.packed, waited_ms, False)


def _described(instance: int, fingerprint: Fingerprint) -> str:
    return str(fingerprint) if fingerprint.name else f"instance {instance}: {fingerprint}"
