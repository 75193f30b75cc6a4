"""The collectives of one task: it joins groups, drives schedules, and says what is wrong when they stand still.

A call of a collective op becomes an `Exchange`: the pure schedule says what to send, messages from the
other ranks drive it. Nothing holds a thread. What goes wrong in one exchange ends this life of the group
for all its members, each of which is told; the next call joins the group afresh.
"""

from __future__ import annotations

import collections
import logging
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from tfmini import errors
from tfmini.collectives.fingerprints import Fingerprint, mismatch, skipped
from tfmini.collectives.schedules import Send
from tfmini.rpc import messages as m
from tfmini.runtime.collective_calls import collective_call
from tfmini.runtime.collective_exchange import Call, Exchange, Member
from tfmini.runtime.collective_groups import GroupLeader, default_leader

_log = logging.getLogger("tfmini")
_TICK_S = 1.0
_SKIPPED_S = 3.0  # two ranks that wait for each other so long in different exchanges will never meet
_SLOW_S = 4.5
_REMEMBERED_EPOCHS = 1000
_EARLY_LIMIT = 100_000  # messages of groups that this task does not know yet


class CollectiveExecutor:
    """See the module. Without `connect` it serves the devices of its own task.

    Attributes:
      sent_messages, sent_bytes: of tensor data, to other devices, so far.
    """

    def __init__(self, task: str) -> None:
        self._task = task
        self._tasks: Mapping[str, str] = {task: ""}
        self._leader_task = task
        self._peer_for: Callable[[str, str], Any] | None = None
        self._call_later: Callable[..., Any] | None = None
        self.leader = GroupLeader(self._tasks)
        self.sent_messages = self.sent_bytes = 0
        self._members: dict[tuple[int, str], Member] = {}
        self._by_epoch: dict[tuple[int, int], Member] = {}
        self._early: dict[int, list[m.CollectiveData]] = {}
        self._early_count = 0
        self._over: collections.OrderedDict[int, None] = collections.OrderedDict()
        self._lock = threading.RLock()  # guards the tables; never held while a wait is answered
        self._ticking = False
        self._closed = False
        self._local: collections.deque[m.CollectiveData] = collections.deque()
        self._delivering = False

    def connect(
        self, tasks: Mapping[str, str], leader: str, peer_for: Callable[[str, str], Any], call_later: Callable[..., Any]
    ) -> None:
        """Makes it part of a cluster.

        Args:
          tasks: full task name -> address.
          leader: who completes groups, as in ``ConfigProto.experimental.collective_group_leader``; "": the chief or
            the first worker.
          peer_for: (task, address) -> peer.
          call_later: (seconds, function, arguments…): the clock.
        """
        self._tasks = tasks
        self._leader_task = leader[: leader.index("/device:")] if "/device:" in leader else leader
        self._leader_task = self._leader_task or default_leader(tasks)
        self._peer_for, self._call_later = peer_for, call_later
        self.leader = GroupLeader(tasks)

    # ---- calls ------------------------------------------------------------------------------

    def begin(self, wait: Any, node: Any, value: Any) -> None:
        """What the kernels of collective ops call."""
        self.call(collective_call(wait, node, value))

    def call(self, call: Call) -> None:
        """Begins a collective; the call's wait is answered when it is over."""
        key = call.group_key, call.device
        with self._lock:
            member = self._members.get(key)
            joins = member is None
            if member is None:
                member = self._members[key] = Member(call.group_key, call.group_size, call.device)
        if call.group_size != member.group_size:
            text = f"{call.describe()} has group_size {call.group_size}; the group has {member.group_size}."
            call.wait.fail(errors.InvalidArgumentError(None, None, text))
            return
        if not call.wait.on_cancel(self._cause(call), lambda: self._given_up(member, call)):
            return
        with self._lock:
            is_queued = not member.epoch
            if is_queued:
                member.queued.append(call)
        if member.lost:
            self._fail(member, errors.UnavailableError(None, None, member.lost), extra=call)
        elif joins:
            self._join(member)
        elif not is_queued:
            self._begin(member, call)
        self._start_ticking()

    def _cause(self, call: Call) -> str:
        return f"{call.describe()} of {call.group_size} ranks"

    def _join(self, member: Member) -> None:
        def answered(answer: Any) -> None:
            if isinstance(answer, errors.OpError):
                self._fail(member, answer)
            else:
                self._enter(member, answer)

        if self._leader_task == self._task or self._peer_for is None:
            self.leader.join(member.group_key, member.group_size, member.device, answered)
        else:
            request = m.CollectiveJoin(member.group_key, member.group_size, member.device)
            self._peer(self._leader_task).call(request, answered, wait_for_ready=True)

    def _enter(self, member: Member, group: m.CollectiveGroup) -> None:
        with self._lock:
            member.enter(group.epoch, list(group.members))
            self._by_epoch[group.epoch, member.rank] = member
            queued, member.queued = member.queued, []
            early = self._early.pop(group.epoch, [])
            self._early_count -= len(early)
            others = [message for message in early if message.rank != member.rank]
            if others:
                self._early[group.epoch] = others
                self._early_count += len(others)
        for call in queued:
            self._begin(member, call)
        for message in early:
            if message.rank == member.rank:
                self.receive(message)

    def _begin(self, member: Member, call: Call) -> None:
        try:
            schedule = call.make(member.rank, member.members)
        except errors.OpError as error:
            self._fail(member, error, tell=True, extra=call)
            return
        if member.over:
            call.wait.fail(errors.AbortedError(None, None, f"{call.describe()}: its group has ended."))
            return
        with self._lock:
            count = member.counts.get(call.instance, 0)
            member.counts[call.instance] = count + 1
            step = member.step_of(call.wait.step.step_id)
            fingerprint = Fingerprint(call.name, call.shape, call.dtype, call.op, step)
            exchange = Exchange(call, schedule, count, fingerprint)
            early = member.early.pop(exchange.key, [])
            with exchange.lock:  # before anybody can deliver to it
                member.exchanges[exchange.key] = exchange
                sends = schedule.begin()
                finished = exchange.finish()
        self._post(member, exchange, sends)
        for message in early:
            self._deliver(member, exchange, message)
        if finished:
            self._answer(member, exchange)

    # ---- data -------------------------------------------------------------------------------

    def _post(self, member: Member, exchange: Exchange, sends: list[Send]) -> None:
        for send in sends:
            message = m.CollectiveData(
                member.epoch, send.rank, member.rank, *exchange.key, send.tag, exchange.packed, (send.values,)
            )
            self.sent_messages += 1
            self.sent_bytes += send.values.nbytes
            task = member.tasks[send.rank]
            if task == self._task:
                self._local.append(message)
            else:
                self._send(member, task, message)
        self._deliver_local()

    def _deliver_local(self) -> None:
        """Between devices of this task. Not by recursion: a ring would nest as deep as it has messages."""
        with self._lock:
            if self._delivering or not self._local:
                return
            self._delivering = True
        while True:
            with self._lock:
                if not self._local:
                    self._delivering = False
                    return
                message = self._local.popleft()
            self.receive(message)

    def _send(self, member: Member, task: str, message: Any) -> None:
        def dropped(error: errors.OpError) -> None:
            text = f"{self._involved(member, task)} cannot be reached by {member.device}: {error.message}"
            self._fail(member, errors.UnavailableError(None, None, text, task=task), tell=True)

        self._peer(task).send(message, dropped)

    def _peer(self, task: str) -> Any:
        if self._peer_for is None or task not in self._tasks:
            raise errors.InternalError(None, None, f"{self._task} does not know the address of {task}")
        return self._peer_for(task, self._tasks[task])

    def receive(self, message: m.CollectiveData) -> None:
        """Takes in a part of an exchange; what comes before the call or the group is kept."""
        with self._lock:
            member = self._by_epoch.get((message.epoch, message.rank))
            if member is None:
                if message.epoch not in self._over and self._early_count < _EARLY_LIMIT:
                    self._early.setdefault(message.epoch, []).append(message)
                    self._early_count += 1
                return
            key = message.instance, message.count
            exchange = member.exchanges.get(key)
            if exchange is None:
                if message.count >= member.counts.get(message.instance, 0):
                    member.early.setdefault(key, []).append(message)
                return
        self._deliver(member, exchange, message)

    def _deliver(self, member: Member, exchange: Exchange, message: m.CollectiveData) -> None:
        if message.fingerprint != exchange.packed and not self._agree(member, exchange, message):
            return
        with exchange.lock:
            if exchange.finished:
                return
            exchange.present.add(message.sender)
            sends = exchange.schedule.receive(message.sender, message.tag, message.values[0])
            finished = exchange.finish()
        self._post(member, exchange, sends)
        if finished:
            self._answer(member, exchange)

    def _agree(self, member: Member, exchange: Exchange, message: m.CollectiveData) -> bool:
        theirs = Fingerprint.unpack(message.fingerprint)
        error = mismatch(exchange.fingerprint, member.who(member.rank), theirs, member.who(message.sender))
        if error is not None:
            self._fail(member, error, tell=True)
        return error is None

    def _answer(self, member: Member, exchange: Exchange) -> None:
        with self._lock:
            member.exchanges.pop(exchange.key, None)
        exchange.call.wait.done(exchange.schedule.result())

    # ---- failures ---------------------------------------------------------------------------

    def _fail(
        self, member: Member, error: errors.OpError, tell: bool = False, extra: Call | None = None
    ) -> None:
        """Ends this life of the group here, and with ``tell`` everywhere."""
        with self._lock:
            was_over = member.over
            calls = [] if was_over else self._forget(member)
        if tell and member.epoch and not was_over:
            self._tell(member, error)
        for call in [*calls, *([extra] if extra else [])]:
            call.wait.fail(error)

    def _forget(self, member: Member) -> list[Call]:
        """Takes a member out of the tables; returns the calls that are left without an answer."""
        member.over = True
        if self._members.get((member.group_key, member.device)) is member:
            del self._members[member.group_key, member.device]
        self._by_epoch.pop((member.epoch, member.rank), None)
        if member.epoch:
            self._over[member.epoch] = None
            if len(self._over) > _REMEMBERED_EPOCHS:
                self._over.popitem(last=False)
        calls = [*member.queued, *(exchange.call for exchange in member.exchanges.values())]
        for exchange in member.exchanges.values():
            exchange.finished = True
        member.queued, member.exchanges, member.early = [], {}, {}
        return calls

    def _tell(self, member: Member, error: errors.OpError) -> None:
        s = m.status_of(error, self._task)
        failure = m.CollectiveFailure(member.epoch, s.code, s.message, s.node, s.device, s.task, s.derived)
        for task in dict.fromkeys(member.tasks):
            if task == self._task:
                self.failed(member.epoch, error)
            else:
                self._peer(task).send(failure)

    def failed(self, epoch: int, error: errors.OpError) -> None:
        """A group has failed elsewhere."""
        with self._lock:
            self._over[epoch] = None
            self._early_count -= len(self._early.pop(epoch, []))
            members = [member for (e, _), member in self._by_epoch.items() if e == epoch]
        for member in members:
            self._fail(member, error)

    def _given_up(self, member: Member, call: Call) -> None:
        text = f"{call.device} has given up {call.describe()}: its step has ended."
        self._fail(member, errors.AbortedError(None, None, text, derived=True), tell=True)

    def _involved(self, member: Member, task: str) -> str:
        ranks = ", ".join(member.who(rank) for rank, other in enumerate(member.tasks) if other == task)
        oldest = member.oldest()
        doing = f" in {oldest.call.describe()}: {oldest.fingerprint}" if oldest else f" of group {member.group_key}"
        return f"{ranks}{doing}"

    def peer_lost(self, task: str, why: str) -> None:
        """A task is gone: exchanges that need something from it fail now, other groups with it at their next call."""
        self.leader.lost(task)
        with self._lock:
            members = [member for member in self._by_epoch.values() if task in member.tasks]
        for member in members:
            text = f"Collective lost {self._involved(member, task)}; lost by {member.device}: {why}"
            with self._lock:
                waited = {member.tasks[r] for e in member.exchanges.values() for r in e.schedule.missing()}
            if task in waited:
                self._fail(member, errors.UnavailableError(None, None, text, task=task), tell=True)
            else:
                member.lost = text

    def close(self) -> None:
        """Ends everything: the task is shutting down."""
        with self._lock:
            self._closed = True
            members = list(self._members.values())
        for member in members:
            self._fail(member, errors.CancelledError(None, None, f"{self._task} is shutting down."))

    # ---- waiting ----------------------------------------------------------------------------

    def _start_ticking(self) -> None:
        with self._lock:
            if self._ticking or self._call_later is None:
                return
            self._ticking = True
            self._call_later(_TICK_S, self._tick)

    def _tick(self) -> None:
        with self._lock:
            members = [m_ for m_ in self._members.values() if m_.exchanges or m_.queued]
            exchanges = [(m_, exchange) for m_ in members for exchange in m_.exchanges.values()]
            self._ticking = bool(members) and not self._closed and self._call_later is not None
            if self._ticking:
                assert self._call_later is not None
                self._call_later(_TICK_S, self._tick)
        for member in members:
            if member.queued:
                self._warn_incomplete(member)
        for member, exchange in exchanges:
            if exchange.waited_s >= _TICK_S / 2:
                self._ask(member, exchange)

    def _ask(self, member: Member, exchange: Exchange) -> None:
        """Asks those who are waited for whether they take part: this finds the dead, and who waits elsewhere."""
        missing = exchange.schedule.missing()
        for rank in missing:
            waited_ms = int(exchange.waited_s * 1000)
            probe = m.CollectiveProbe(
                member.epoch, rank, member.rank, *exchange.key, exchange.packed, waited_ms, False
            )
            if member.tasks[rank] == self._task:
                self.probed(probe)
            else:
                self._send(member, member.tasks[rank], probe)
        self._warn_slow(member, exchange, [rank for rank in missing if rank not in exchange.present])

    def _warn_slow(self, member: Member, exchange: Exchange, absent: list[int]) -> None:
        # If all take part, somebody else knows better who is late; later it is said here as well.
        due_s = max(_SLOW_S if absent else 3 * _SLOW_S, exchange.warn_after_s)
        if exchange.waited_s < due_s or member.over or exchange.finished:
            return
        exchange.warn_after_s = 2 * exchange.waited_s
        late = " and ".join(map(member.who, absent))
        _log.warning(
            "%s: %s has waited %.1f s in %s: %s%s.",
            "Slow rank" if absent else "Slow collective", member.who(member.rank), exchange.waited_s,
            exchange.call.describe(), exchange.fingerprint,
            f", for {late}, which has not called it yet" if absent else "; the ranks before it have called it",
        )  # fmt: skip

    def probed(self, probe: m.CollectiveProbe) -> None:
        """Another rank asks, or answers, whether an exchange has been called."""
        with self._lock:
            member = self._by_epoch.get((probe.epoch, probe.rank))
            if member is None:
                return
            exchange = member.exchanges.get((probe.instance, probe.count))
            called = probe.count < member.counts.get(probe.instance, 0)
            oldest = member.oldest()
        if probe.is_answer:
            if exchange is not None and probe.waited_ms >= 0:
                exchange.present.add(probe.sender)
            return
        if not called and oldest is not None and min(oldest.waited_s, probe.waited_ms / 1000) >= _SKIPPED_S:
            theirs = f"instance {probe.instance}: {Fingerprint.unpack(probe.fingerprint)}"
            mine = f"instance {oldest.call.instance}: {oldest.fingerprint}"
            error = skipped(theirs, member.who(probe.sender), mine, member.who(member.rank))
            self._fail(member, error, tell=True)
            return
        answer = m.CollectiveProbe(
            probe.epoch, probe.sender, probe.rank, probe.instance, probe.count, "", 0 if called else -1, True
        )
        if member.tasks[probe.sender] == self._task:
            self.probed(answer)
        else:
            self._peer(member.tasks[probe.sender]).send(answer)

    def _warn_incomplete(self, member: Member) -> None:
        waited_s = time.monotonic() - member.joined_at
        if waited_s < max(_SLOW_S, member.warn_after_s):
            return
        member.warn_after_s = 2 * waited_s
        joined = ""
        if self._leader_task == self._task:
            joined = f" Joined so far: {', '.join(self.leader.present(member.group_key))}."
        _log.warning(
            "%s has waited %.1f s for the %d members of collective group %d; its leader is %s.%s",
            member.device, waited_s, member.group_size, member.group_key, self._leader_task, joined,
        )  # fmt: skip
