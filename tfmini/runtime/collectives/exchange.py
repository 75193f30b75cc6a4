"""One member of a group, one exchange of it, and the table of all: the state behind `executor`."""

from __future__ import annotations

import collections
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple, Protocol

from tfmini import errors
from tfmini.collectives.schedules import Fingerprint, Send
from tfmini.collectives.shared_reduce import SharedReduce
from tfmini.locks import Guarded, lock
from tfmini.rpc import messages as m
from tfmini.runtime.collectives.calls import PARTIAL, About, CollectiveCall, hexadecimal, refused
from tfmini.runtime.collectives.memory import Stages
from tfmini.runtime.collectives.past_lives import (
    BYTE_LIMIT,
    EarlyMessages,
    EndedTasks,
    PastLife,
    PastLives,
    size_of,
    too_many_bytes,
)
from tfmini.runtime.trace import ExchangeEvent, clock

_REMEMBERED_STEPS = 64
_REMEMBERED_EPOCHS = 1000


class Exchange:
    """The n-th run of one collective by one member. ``lock`` guards the schedule.

    Attributes:
      sent: rank -> the bytes and the messages that it has been sent.
      again: a thread that could not have the lock asks its holder to look once more.
    """

    def __init__(self, call: CollectiveCall, count: int, step: int, schedule: Any, now: Callable[[], float]) -> None:
        self.call = call
        self.schedule = schedule
        self.count = count
        self.step = step
        self.lock = lock("exchange")
        self.finished = False
        self.again = False
        self._now = now
        self.began_at = now()
        self.sent: dict[int, tuple[int, int]] = {}
        self.present: set[int] = set()  # ranks that are known to take part
        self.suspects: dict[int, Any] = {}  # rank -> its probe of another exchange, until it answers about this one
        self.warn_after_s = 0.0

    @cached_property
    def fingerprint(self) -> Fingerprint:
        """The collective that this rank takes part in, for other ranks to compare with theirs."""
        return self.call.about.fingerprint._replace(step=self.step)

    @cached_property
    def packed(self) -> str:
        """The fingerprint as a field of messages."""
        return self.fingerprint.pack()

    @property
    def key(self) -> tuple[int, int]:
        return self.call.instance, self.count

    @property
    def waited_s(self) -> float:
        return self._now() - self.began_at

    def finish(self) -> bool:
        """Whether the schedule has just been completed: true once. To be called with the lock held."""
        if self.finished or not self.schedule.done:
            return False
        self.finished = True
        return True


class GroupMember:
    """One device of this task in one epoch of a group.

    Attributes:
      least: with how many members an elastic group may begin; 0: it is not elastic.
      epoch: its number, 0 until the leader has answered.
      has_joined: whether a call has asked the leader, or is about to.
      withdraw: tells the leader that this task no longer waits for that answer.
      queued: calls that wait for that answer.
      early: data for exchanges that have not been called here yet.
      lost: a member was lost from which no call under way needs anything; the group ends with the next call.
      stages: where all ranks share memory; ``pids``: of all ranks, where they may read each other's.
      is_ordered: whether its steps have come one after the other so far.
      answered: how many collectives of its latest step have given their results.
      running: instance -> the exchange of it that is under way in shared memory; ``later``: calls behind it.
    """

    def __init__(self, group_key: int, group_size: int, device: str, joined_at: float, least: int = 0) -> None:
        self.group_key, self.group_size, self.device, self.least = group_key, group_size, device, least
        self.epoch = 0
        self.has_joined = False
        self.rank = -1
        self.members: list[str] = []
        self.tasks: list[str] = []
        self.incarnations: dict[str, str] = {}
        self.withdraw: Callable[[], None] = lambda: None
        self.queued: list[CollectiveCall] = []
        self.exchanges: dict[tuple[int, int], Exchange] = {}
        self.early: dict[tuple[int, int], list[Any]] = {}
        self.early_bytes = 0
        self.counts: dict[int, int] = {}
        self.lost: errors.OpError | None = None
        self.over = False
        self.joined_at = joined_at
        self.warn_after_s = 0.0
        self.stages: Stages | None = None
        self.pids: list[int] = []
        self.running: dict[int, Exchange] = {}
        self.later: dict[int, collections.deque[CollectiveCall]] = {}
        self._steps: collections.deque[int] = collections.deque(maxlen=_REMEMBERED_STEPS)
        self._ordinal = self.answered = 0
        self.is_ordered = True

    def enter(self, epoch: int, members: list[str], steps: int, incarnations: Sequence[str] = ()) -> None:
        """The leader has answered."""
        self.epoch, self.members, self._ordinal = epoch, members, steps
        self.tasks = [device[: device.index("/device:")] for device in members]
        self.incarnations = dict(zip(self.tasks, incarnations))
        self.rank = members.index(self.device)

    def has(self, task: str, incarnation: int) -> bool:
        """Whether a task is one of the group, and not by another server than that of the incarnation; 0: unknown."""
        known = self.incarnations.get(task)
        return task in self.tasks and (not (incarnation and known) or hexadecimal(incarnation) == known)

    def step_of(self, step_id: int) -> int:
        """The number of a step among those that use this group, 0 when they overlap: then their order means nothing."""
        if not self._steps or self._steps[-1] != step_id:
            self._ordinal += 1
            self.answered = 0
            if step_id in self._steps or self.exchanges:
                self.is_ordered = False
            self._steps.append(step_id)
        return self._ordinal if self.is_ordered else 0

    def is_running(self, call: CollectiveCall) -> bool:
        """Whether an earlier call of a collective has no result yet."""
        return (call.instance, self.counts.get(call.instance, 0) - 1) in self.exchanges

    def has_called(self, probe: m.CollectiveProbe) -> bool:
        """Whether it has called the exchange of a probe."""
        return probe.count < self.counts.get(probe.instance, 0)

    def keep(self, key: tuple[int, int], message: Any) -> errors.OpError | None:
        """Keeps data for an exchange that has not been called here yet; returns the error if they are too many."""
        self.early_bytes += size_of(message)
        if self.early_bytes > BYTE_LIMIT:
            return too_many_bytes(self.who(self.rank), "of collectives that it has not called yet")
        self.early.setdefault(key, []).append(message)
        return None

    def take_early(self, key: tuple[int, int]) -> list[Any]:
        """Takes out the data that are here for an exchange."""
        found = self.early.pop(key, [])
        self.early_bytes -= sum(map(size_of, found))
        return found

    def past(self, calls: list[CollectiveCall], extra: CollectiveCall | None, why: errors.OpError) -> PastLife:
        """This life, when it has ended.

        Args:
          calls: those that were under way; ``extra``: one that has not begun, and gets the error as well.
        """
        latest = self._steps[-1] if self._steps and self.answered else 0
        is_interrupted = bool(calls) or extra is not None and latest == extra.wait.step.step_id
        finished = PARTIAL if is_interrupted and self.answered else self._ordinal - is_interrupted
        is_told = bool(calls) or extra is not None
        return PastLife(finished, latest, why, is_told) if self.is_ordered else PastLife(-1, 0, why, is_told)

    @property
    def is_idle(self) -> bool:
        """Whether no call is under way."""
        return not (self.queued or self.exchanges or self.later)

    def take_calls(self) -> list[CollectiveCall]:
        """The calls that have no answer yet; none of them is kept."""
        later = [call for calls in self.later.values() for call in calls]
        calls = [*self.queued, *(exchange.call for exchange in self.exchanges.values()), *later]
        for exchange in self.exchanges.values():
            exchange.finished = True
        self.queued, self.exchanges, self.early, self.later = [], {}, {}, {}
        self.early_bytes = 0
        return calls

    def who(self, rank: int) -> str:
        """A rank for people."""
        return f"rank {rank} ({self.members[rank]})"

    def oldest(self) -> Exchange | None:
        """The exchange that has waited longest."""
        return min(self.exchanges.values(), key=lambda e: e.began_at, default=None)

    def waits_for(self, task: str) -> bool:
        """Whether an exchange needs something from a task."""
        missing = (rank for exchange in self.exchanges.values() for rank in exchange.schedule.missing())
        return any(self.tasks[rank] == task for rank in missing)

    def ranks_of(self, task: str) -> str:
        """The ranks of a task, for people."""
        return ", ".join(self.who(rank) for rank, other in enumerate(self.tasks) if other == task)

    def part_of(self, task: str) -> str:
        """The ranks of a task and what this member waits for, for people."""
        ranks = self.ranks_of(task)
        oldest = self.oldest()
        doing = f" in {oldest.call.describe()}: {oldest.fingerprint}" if oldest else f" of group {self.group_key}"
        return f"{ranks}{doing}"


class Entered(NamedTuple):
    """What there is to do when a group of this task is complete.

    Attributes:
      is_first: whether it is the first group with other tasks.
      left: the error for the others if the member has left, since its step ended before the answer came.
      failure: the error that ends the group at once.
      queued: calls to begin; ``early``: messages for them.
    """

    is_first: bool
    left: errors.OpError | None = None
    failure: errors.OpError | None = None
    queued: list[CollectiveCall] = []
    early: list[Any] = []


class Receiver(NamedTuple):
    """The receiver of a message, as far as it is known.

    Attributes:
      failure: the error of the member if it can keep no more.
      sweeps: whether somebody must look after the early messages from now on.
    """

    member: GroupMember | None
    exchange: Exchange | None = None
    failure: errors.OpError | None = None
    sweeps: bool = False


class GroupTable:
    """The members of a task, by group and epoch, and what it remembers of epochs and tasks that have ended.

    Args:
      tasks: of the cluster; ``leader``: the one that completes groups.

    Attributes:
      met: the tasks of all groups so far.
      over: the latest epochs that have ended, also those that this task was never told of.
      is_watched: whether somebody looks after the members that wait.
    """

    def __init__(self, task: str, tasks: Mapping[str, str], leader: str, now: Callable[[], float]) -> None:
        self._task, self._tasks, self._leader, self.now = task, tasks, leader, now
        self.members: dict[tuple[int, str], GroupMember] = {}
        self.by_epoch: dict[tuple[int, int], GroupMember] = {}
        self.past, self.ended_tasks = PastLives(), EndedTasks()
        self.met: set[str] = set()
        self.over: collections.OrderedDict[int, tuple[GroupMember | None, errors.OpError]] = collections.OrderedDict()
        self.early = EarlyMessages(task, lambda epoch, error: self._remember(epoch, None, error))
        self.closed = self.is_watched = False

    def close(self) -> list[GroupMember]:
        """The task ends; returns the members."""
        self.closed = True
        return list(self.members.values())

    # ---- calls ------------------------------------------------------------------------------

    def admit(self, call: CollectiveCall) -> tuple[GroupMember, errors.OpError | None]:
        """The member that a call belongs to, perhaps a new one, and why the call cannot begin, if it cannot."""
        about = call.about
        member = self.members.get((about.group_key, about.device))
        refusal = refused(call, member) or (None if member else self.past.refusal(call) or self.hopeless(about))
        if member is None or not member.has_joined and member.group_size != about.group_size:
            member = GroupMember(about.group_key, about.group_size, about.device, self.now(), about.least)
            if refusal is None:
                self.members[about.group_key, about.device] = member
        return member, refusal

    def queue(self, member: GroupMember, call: CollectiveCall) -> tuple[bool, bool, errors.OpError | None]:
        """Lets a call wait for its group; returns whether it is to join, whether it waits, and why not to wait."""
        joins, member.has_joined = not member.has_joined, True
        is_queued = not (member.epoch or member.over)
        if not is_queued:
            return joins, False, None
        member.queued.append(call)
        return joins, True, self.hopeless(call.about)  # a task may have ended since, and its end looked at others only

    def hopeless(self, about: About) -> errors.OpError | None:
        """Why a group can never form; None if it can."""
        return self.ended_tasks.refusal(about, self._tasks, self._leader, self.now())

    def enter(
        self, member: GroupMember, group: m.CollectiveGroup, share: Callable[[GroupMember, list[str]], None]
    ) -> Entered:
        """The group of a member is complete. ``share`` maps the memory of the others, or raises an OpError."""
        member.enter(group.epoch, list(group.members), group.steps, group.incarnations)
        was_alone = self.met <= {self._task}
        self.met.update(member.tasks)
        is_first = was_alone and not self.met <= {self._task}
        if member.over:
            text = f"{member.device} has left collective group {member.group_key}: its step has ended."
            self._remember(group.epoch, member, error := errors.AbortedError.of(text, derived=True))
            return Entered(is_first, left=error)
        failure = self.over[group.epoch][1] if group.epoch in self.over else None
        if failure is None:
            try:
                share(member, list(group.places))
            except errors.OpError as error:
                failure = error
        self.by_epoch[group.epoch, member.rank] = member
        early = self.early.take(group.epoch, member.rank)
        if failure is not None:
            return Entered(is_first, None, failure)
        queued, member.queued = member.queued, []
        return Entered(is_first, None, None, queued, early)

    def next_run(self, member: GroupMember, call: CollectiveCall) -> tuple[int, int]:
        """The number of the next run of a collective, and that of its step."""
        count = member.counts.get(call.instance, 0)
        member.counts[call.instance] = count + 1
        step = member.step_of(call.wait.step.step_id)
        return count, 0 if call.about.is_named else step

    def begin(
        self,
        member: GroupMember,
        call: CollectiveCall,
        schedule: Any,
        count: Callable[[GroupMember, Exchange, list[Any]], None],
    ) -> tuple[Exchange, list[Any], list[Any], bool] | None:
        """Begins an exchange, which nobody else can find before: so its own lock is not needed here.

        Args:
          count: counts what it sends, before anybody has its result.

        Returns:
          The exchange, what it sends, the messages that are here for it, and whether it is over already; None if the
          group has ended.
        """
        if member.over:
            return None
        exchange = Exchange(call, *self.next_run(member, call), schedule, self.now)
        member.exchanges[exchange.key] = exchange
        count(member, exchange, sends := schedule.begin())
        return exchange, sends, member.take_early(exchange.key), exchange.finish()

    def find(self, message: m.CollectiveData | m.CollectiveStage, sender: str) -> Receiver:
        """The receiver of a message; one that comes before its group or its call is kept."""
        member = self.by_epoch.get((message.epoch, message.rank))
        if member is None:
            return Receiver(None, sweeps=message.epoch not in self.over and self.early.add(message, sender))
        if isinstance(message, m.CollectiveStage):
            return Receiver(member)
        key = message.instance, message.count
        exchange = member.exchanges.get(key)
        is_early = exchange is None and message.count >= member.counts.get(message.instance, 0)
        return Receiver(member, exchange, member.keep(key, message) if is_early else None)

    def answered(self, member: GroupMember, exchange: Exchange) -> None:
        """An exchange has its result."""
        member.exchanges.pop(exchange.key, None)
        member.answered += 1

    # ---- ends -------------------------------------------------------------------------------

    def end(
        self, member: GroupMember, error: errors.OpError, extra: CollectiveCall | None
    ) -> list[CollectiveCall] | None:
        """Ends an epoch here; returns the calls that have no answer yet, beside ``extra``; None: it was over."""
        if member.over:
            return None
        member.over = True
        if self.members.get((member.group_key, member.device)) is member:
            del self.members[member.group_key, member.device]
        self.by_epoch.pop((member.epoch, member.rank), None)
        calls = member.take_calls()
        if member.epoch:
            self._remember(member.epoch, member, error)
            self.past.of[member.group_key, member.device] = member.past(calls, extra, error)
        return calls

    def end_epoch(self, epoch: int, error: errors.OpError) -> list[GroupMember]:
        """An epoch has ended elsewhere; returns its members here."""
        if epoch not in self.over:
            self._remember(epoch, None, error)
        self.early.drop(epoch)
        return [member for (e, _), member in self.by_epoch.items() if e == epoch]

    def _remember(self, epoch: int, member: GroupMember | None, error: errors.OpError) -> None:
        """Marks an epoch as ended, also for members that have not been told of its beginning."""
        self.over[epoch] = member, error
        if len(self.over) > _REMEMBERED_EPOCHS:
            self.over.popitem(last=False)

    def of_task(self, task: str, incarnation: int = 0) -> tuple[list[GroupMember], list[int]]:
        """The members of groups with a task, and the epochs of which it has sent messages and that are not known."""
        found = [member for member in self.by_epoch.values() if member.has(task, incarnation)]
        return found, self.early.epochs_of(task)

    def lose(self, task: str, why: str, members: list[GroupMember], early: list[int]) -> list[tuple[GroupMember, bool]]:
        """A task is lost: refuses those epochs; returns the members that are left, and whether each waits for it."""
        self.early.refuse_lost(early, task, why)
        return [(member, member.waits_for(task)) for member in members if not member.over]

    def end_task(self, news: m.CollectiveEnd) -> tuple[float, list[GroupMember]]:
        """A task takes part no more: see `EndedTasks.add`; with the members of groups with it."""
        return self.ended_tasks.add(news, self.now()), self.of_task(news.task, news.incarnation)[0]

    def unformed(self) -> list[tuple[GroupMember, errors.OpError]]:
        """The members whose group can never form."""
        joining = [(member, self.hopeless(member.queued[0].about)) for member in self.waiting() if member.queued]
        return [(member, error) for member, error in joining if error is not None]

    # ---- for the watch ----------------------------------------------------------------------

    def waiting(self) -> list[GroupMember]:
        """The members that wait for something."""
        return [member for member in list(self.members.values()) if member.exchanges or member.queued]

    def watch(self) -> bool:
        """Members are to be looked after from now on; False: they are already."""
        was, self.is_watched = self.is_watched, True
        return not was

    def look(self) -> list[tuple[GroupMember, list[Exchange]]]:
        """The members that wait, and for what; notes if nobody need look again: who waits later begins the watch."""
        found = [(member, list(member.exchanges.values())) for member in self.waiting()]
        self.is_watched = bool(found) and not self.closed
        return found

    def asked(self, probe: m.CollectiveProbe) -> tuple[GroupMember, Exchange | None, bool, Exchange | None] | None:
        """The member that a probe is for, its exchange, whether it has called that, and the one that waits longest."""
        member = self.by_epoch.get((probe.epoch, probe.rank))
        if member is None:
            return None
        exchange = member.exchanges.get((probe.instance, probe.count))
        return member, exchange, member.has_called(probe), member.oldest()


class Executor(Protocol):
    """What the watch, and exchanges in shared memory, use of the executor."""

    task: str
    leader_task: str
    leader: Any
    now: Callable[[], float]
    table: Guarded[GroupTable]
    traffic: Any
    look: Callable[[GroupMember, int], None]

    def send(self, member: GroupMember, task: str, message: object) -> None: ...
    def fail(
        self, member: GroupMember, error: errors.OpError, tell: bool = False, extra: CollectiveCall | None = None
    ) -> None: ...
    def answer(self, member: GroupMember, exchange: Exchange) -> None: ...
    def proceed(self, member: GroupMember, call: CollectiveCall) -> None: ...
    def is_stuck(self) -> bool: ...
    def tell_left(self, probe: m.CollectiveProbe, sender: str) -> None: ...


# ---- What a task sends in collectives: counters so far, by task, and the record of one exchange for a trace --------


@dataclass(frozen=True)
class CollectiveTraffic:
    """What a task has sent in collectives since it began (`tf.train.Server.collective_traffic`).

    Attributes:
      bytes: of tensor data. Data that other ranks read from shared memory count once for each reader.
      messages: all messages, also those that announce a place in shared memory or wake a rank.
      bytes_to, messages_to: the same by the full name of the receiver's task. The task itself is among them if
        several of its devices are ranks.
    """

    bytes: int = 0
    messages: int = 0
    bytes_to: Mapping[str, int] = field(default_factory=dict)
    messages_to: Mapping[str, int] = field(default_factory=dict)


class Counters:
    """The counters of one task; safe to use from several threads."""

    def __init__(self) -> None:
        self._sent: dict[str, tuple[int, int]] = {}  # bytes and messages, by task
        self._lock = lock("traffic")

    def data(self, member: GroupMember, exchange: Exchange, sends: Iterable[Send]) -> None:
        """Counts messages with tensor data. The caller holds the exchange's lock, so that its result comes later."""
        for send in sends:
            self._count(member, exchange, send.rank, send.values.nbytes, 1)

    def shared(self, member: GroupMember, exchange: Exchange, nbytes: int) -> None:
        """Counts data in shared memory, of which each other rank reads its part."""
        others = [rank for rank in range(len(member.members)) if rank != member.rank]
        for i, rank in enumerate(others):
            part = nbytes * (i + 1) // len(others) - nbytes * i // len(others)
            self._count(member, exchange, rank, part, 0)

    def signal(self, member: GroupMember, exchange: Exchange | None, rank: int) -> None:
        """Counts a message without tensor data."""
        self._count(member, exchange, rank, 0, 1)

    def _count(self, member: GroupMember, exchange: Exchange | None, rank: int, nbytes: int, messages: int) -> None:
        task = member.tasks[rank]
        with self._lock:
            bytes_before, messages_before = self._sent.get(task, (0, 0))
            self._sent[task] = bytes_before + nbytes, messages_before + messages
            if exchange is not None:
                before = exchange.sent.get(rank, (0, 0))
                exchange.sent[rank] = before[0] + nbytes, before[1] + messages

    def snapshot(self) -> CollectiveTraffic:
        """The counts so far."""
        sent = self._sent.copy()
        nbytes, messages = ({task: counts[i] for task, counts in sent.items()} for i in (0, 1))
        return CollectiveTraffic(sum(nbytes.values()), sum(messages.values()), nbytes, messages)


def note(member: GroupMember, exchange: Exchange) -> None:
    """Adds an exchange that has its result to the trace of its step, if the step is traced."""
    run: Any = getattr(exchange.call.wait.step, "run", None)
    trace = getattr(run, "trace", None)
    if trace is not None:
        end = clock()
        sent = tuple((member.members[rank], *counts) for rank, counts in sorted(exchange.sent.items()))
        start = end - int(exchange.waited_s * 1e9)
        trace.exchanges.append(
            ExchangeEvent(exchange.call.node, start, end, isinstance(exchange.schedule, SharedReduce), sent)
        )
