"""All-reduce among tasks that share memory: the driver of `collectives.shared_reduce`.

Ranks read each other's memory: stages, or, where the kernel allows it, large tensors where they are. A rank sends the
location of its stage once per collective, and a bell to a rank that waits. The thread that calls, or that receives a
message, advances the exchange as far as possible; no thread waits for a lock.
"""

from __future__ import annotations

import collections
from typing import Any

import numpy as np

from tfmini import errors
from tfmini.collectives.schedules import Fingerprint, mismatch
from tfmini.collectives.shared_reduce import COPIED, REDUCED, WROTE, SharedReduce, moves_for
from tfmini.graph.op_types import patient
from tfmini.rpc import messages as m
from tfmini.runtime.collectives.calls import CollectiveCall, result_memory
from tfmini.runtime.collectives.exchange import Exchange, Executor, GroupMember
from tfmini.runtime.collectives.memory import (
    Arena,
    ArenaPlace,
    Channel,
    Futex,
    Neighbours,
    Stages,
    can_share,
    futex,
    make_arena,
    other_memory,
)


class SharedCollectives:
    """See the module."""

    def __init__(self, owner: Executor) -> None:
        self._owner = owner
        self._arena: Arena | None = None
        self._is_possible = True
        self._neighbours = Neighbours()
        self._in_use: dict[GroupMember, list[ArenaPlace]] = {}  # by the members that live: the places of their groups
        self._futex: Futex | None = None

    def place(self) -> str:
        """Where this task's memory is; "": nowhere."""
        with self._owner.table.lock:
            if self._arena is None and self._is_possible:
                self._arena = make_arena(can_be_read=other_memory() is not None)
                self._futex = futex() if self._arena is not None else None
                self._is_possible = self._arena is not None
            return self._arena.place if self._arena is not None else ""

    def enter(self, member: GroupMember, places: list[str]) -> None:
        """The group is complete; maps the memory of all if it can be shared.

        Raises:
          UnavailableError: another rank's cannot be mapped, or not be read. The next epoch of the group goes by
            messages, or by what is laid out.
        """
        if self._arena is None or not can_share(places):
            return
        known = [ArenaPlace.parse(text) for text in places]
        pulls = all(place.address for place in known)
        try:
            neighbours = [self._neighbours.map(place) for place in known]
        except (OSError, ValueError) as error:
            self._arena.close()
            self._arena, self._is_possible = None, False
            raise _another_way(member, f"cannot map the memory of a rank: {error}") from None
        if pulls and not all(map(self._neighbours.can_read, known)):
            self._arena.hide()
            raise _another_way(member, "is not allowed to read the memory of a rank")
        member.stages = Stages(member.rank, self._arena, neighbours)
        member.pids = [place.pid for place in known] if pulls else []
        self._in_use[member] = known

    def begin(self, member: GroupMember, call: CollectiveCall) -> bool:
        """Begins an all-reduce in shared memory; False: it has to go by messages."""
        if member.stages is None or call.about.reduction is None:
            return False
        owner, instance = self._owner, call.instance
        value = call.value if call.value.flags.c_contiguous else np.ascontiguousarray(call.value)
        memory = result_memory(value)
        with owner.table.lock:
            stages = member.stages
            if stages is None or member.over:
                return False
            if instance in member.running:
                member.later.setdefault(instance, collections.deque()).append(call)
                return True
            count, step = owner.table.state.next_run(member, call)
            moves = moves_for(value.nbytes, len(member.members), bool(member.pids))
            channel, news = stages.open(instance, moves.stage_bytes(value.nbytes))
            follows, channel.moves = channel.moves is moves, moves
            schedule = self._schedule(member, call, step, channel, follows, value, memory)
            exchange = Exchange(call, count, step, schedule, owner.table.state.now)
            member.running[instance] = exchange
            member.exchanges[exchange.key] = exchange
            owner.traffic.shared(member, exchange, schedule.moves.sent_bytes)
        if news is not None:
            for rank in range(len(member.members)):
                if rank != member.rank:
                    place = m.CollectiveStage(member.epoch, rank, member.rank, instance, channel.count, *news)
                    owner.traffic.signal(member, exchange, rank)
                    self._send(member, place)
        self._drive(member, exchange)
        self._let_sleep(member, exchange)
        return True

    def _let_sleep(self, member: GroupMember, exchange: Exchange) -> None:
        """Lets the thread that waits for an exchange, if any, sleep on the word that the exchange waits for."""
        wait = patient(exchange.call.wait)
        if wait is not None and not exchange.finished:
            wait.offer_sleep(lambda timeout_s: self._sleep(member, exchange, timeout_s))

    def _sleep(self, member: GroupMember, exchange: Exchange, timeout_s: float) -> bool:
        """Sleeps until an exchange may go on, and drives it; False: a message that the reactor reads will drive it."""
        lag = exchange.schedule.sleep_condition()
        if lag is not None and not exchange.finished:
            if self._futex is None:
                return False
            stage, word, value = lag
            self._futex.wait(stage.address + 8 * word, value, timeout_s)
        elif not exchange.finished and exchange.schedule.needs_bell():
            return False
        self._drive(member, exchange)
        return True

    def _schedule(
        self,
        member: GroupMember,
        call: CollectiveCall,
        step: int,
        channel: Channel,
        follows: bool,
        value: Any,
        memory: tuple[Any, Any],
    ) -> SharedReduce:
        about, pids, moves = call.about, member.pids, channel.moves
        assert about.reduction is not None and moves is not None
        out, face = memory

        def read(rank: int, address: int, into: Any) -> bool:
            others = other_memory()
            return others is not None and others.read(pids[rank], address, into)

        return SharedReduce(
            moves(member.rank, channel.stages, channel.count, value, *about.reduction, out, follows, read),
            value.shape, face, about.text, step, None if self._futex is None else self._futex.wake,
            self._futex is not None and patient(call.wait) is not None,
        )  # fmt: skip

    def _drive(self, member: GroupMember, exchange: Exchange) -> None:
        try:
            self._go_on(member, exchange)
        except Exception as error:  # noqa: BLE001 - on any thread: no other code would end the exchange
            text = f"{member.who(member.rank)} cannot go on with {exchange.call.describe()}: {error}"
            self._owner.fail(member, errors.UnavailableError.of(text), tell=True)

    def _go_on(self, member: GroupMember, exchange: Exchange) -> None:
        exchange.again = True
        while exchange.again:
            if not exchange.lock.acquire(False):
                return
            try:
                exchange.again = False
                ring = exchange.schedule.advance() if not exchange.finished else []
                for rank in ring:
                    self._owner.traffic.signal(member, exchange, rank)
                is_over = exchange.finish()
            finally:
                exchange.lock.release()
            for rank in ring:
                self._send(member, m.CollectiveBell(member.epoch, rank, exchange.call.instance))
            if exchange.schedule.lost >= 0:
                self._lost(member, exchange)
            elif exchange.schedule.mismatched >= 0:
                self._compare(member, exchange)
            elif is_over:
                self._over(member, exchange)
        if member.over:
            self.leave(member)

    def _lost(self, member: GroupMember, exchange: Exchange) -> None:
        """A rank died after it had published the address of its tensor; the other ranks stop waiting for it."""
        rank = exchange.schedule.lost
        text = f"Collective lost {member.who(rank)} in {exchange.call.describe()}: {exchange.fingerprint};"
        text = f"{text} lost by {member.device}: its memory cannot be read any more"
        self._owner.fail(member, errors.UnavailableError.of(text, task=member.tasks[rank]), tell=True)

    def _compare(self, member: GroupMember, exchange: Exchange) -> None:
        schedule, stages = exchange.schedule, member.stages
        rank = schedule.mismatched
        stage = stages.channel(exchange.call.instance).stages[rank] if stages is not None else None
        if stage is None:
            return
        text, step = stage.read_fingerprint(schedule.moves.count)
        theirs = Fingerprint.with_step(text.decode(), step)
        error = mismatch(exchange.fingerprint, member.who(member.rank), theirs, member.who(rank))
        if error is not None:
            self._owner.fail(member, error, tell=True)
        else:
            schedule.accept_fingerprint()
            exchange.again = True

    def _over(self, member: GroupMember, exchange: Exchange) -> None:
        instance = exchange.call.instance
        with self._owner.table.lock:
            member.running.pop(instance, None)
            if member.stages is not None:
                member.stages.channel(instance).is_busy = False
            waiting = member.later.get(instance)
            following = waiting.popleft() if waiting else None
        self._owner.answer(member, exchange)
        if following is not None:
            self._owner.proceed(member, following)

    def _send(self, member: GroupMember, message: Any) -> None:
        self._owner.send(member, member.tasks[message.rank], message)

    # ---- messages of other ranks ------------------------------------------------------------

    def placed(self, member: GroupMember, message: m.CollectiveStage) -> None:
        """Another rank has moved its stage; the move applies from a given run on."""
        try:
            waits = self._take_place(member, message)
        except ValueError as error:
            refusal = errors.InvalidArgumentError.of(f"{member.who(message.sender)} is wrong: {error}")
            self._owner.fail(member, refusal, tell=True)
            return
        if waits:
            self._owner.traffic.signal(member, None, message.sender)
            self._send(member, m.CollectiveBell(member.epoch, message.sender, message.instance))
        self.look(member, message.instance)

    def _take_place(self, member: GroupMember, message: m.CollectiveStage) -> bool:
        """Whether the other rank already waits for data that this rank wrote before it knew the other's stage."""
        place = message.serial, message.offset, message.nbytes
        with self._owner.table.lock:
            if member.stages is None or member.over:
                return False
            if not member.stages.place(message.instance, message.count, message.sender, *place):
                return False
            stages = member.stages.channel(message.instance).stages
            theirs, own = stages[message.sender], stages[member.rank]
            assert theirs is not None
            return own is not None and any(
                0 < theirs.wanted(word) <= own.words[word] for word in (WROTE, REDUCED, COPIED)
            )

    def look(self, member: GroupMember, instance: int) -> None:
        """Drives a collective: somebody has rung, or some time has passed."""
        exchange = member.running.get(instance)
        if exchange is not None:
            self._drive(member, exchange)
            self._let_sleep(member, exchange)
            exchange.present.update(exchange.schedule.present() if not exchange.finished else ())

    # ---- the end ----------------------------------------------------------------------------

    def leave(self, member: GroupMember) -> None:
        """This epoch of the group is over: gives its memory back as soon as no thread writes to it."""
        with self._owner.table.lock:
            if member.stages is not None:
                member.stages.invalidate(for_good=self._owner.table.state.closed)
            held = []
            for exchange in list(member.running.values()):
                if not exchange.lock.acquire(False):
                    break  # the thread that drives it comes here afterwards
                held.append(exchange)
            else:
                member.running = {}
                if member.stages is not None:
                    member.stages.close(for_good=self._owner.table.state.closed)
                    member.stages = None
                self._in_use.pop(member, None)
                self._neighbours.keep({place for places in self._in_use.values() for place in places})
            for exchange in held:
                exchange.lock.release()

    def close(self) -> None:
        """Lets the arena go."""
        if self._arena is not None:
            self._arena.close()
            self._arena, self._is_possible = None, False


def _another_way(member: GroupMember, why: str) -> errors.OpError:
    text = f"{member.device} {why}. The next run of group {member.group_key} goes another way."
    return errors.UnavailableError.of(text)
