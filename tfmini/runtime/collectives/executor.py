"""The collectives of one task: joins groups, drives schedules, and reports why a schedule stalls.

A call of a collective op becomes an `Exchange`: the pure schedule says what to send, messages from the other ranks
drive it. Nothing holds a thread. An error in one exchange ends the group's epoch on all members; the next call joins.
"""

from __future__ import annotations

import collections
from _thread import allocate_lock
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tfmini import errors
from tfmini.collectives.schedules import Fingerprint, Send, mismatch
from tfmini.core_types import TensorLike
from tfmini.devices import task_of_device
from tfmini.graph.node import Node
from tfmini.graph.op_types import ops_with
from tfmini.locks import Guarded
from tfmini.rpc import messages as m
from tfmini.rpc.peer import State
from tfmini.runtime.collectives.calls import (
    UNTOLD_MS,
    Calls,
    CollectiveCall,
    GroupLeader,
    begin_failure,
    default_leader,
    duplicate,
    failure_message,
    hexadecimal,
    untold,
)
from tfmini.runtime.collectives.exchange import Counters, Exchange, GroupMember, GroupTable, note
from tfmini.runtime.collectives.past_lives import KEEP_S
from tfmini.runtime.collectives.shared import SharedCollectives
from tfmini.runtime.collectives.watch import Watch
from tfmini.runtime.process import Process

if TYPE_CHECKING:
    from tfmini.rpc.calls import Responder
    from tfmini.rpc.peer import Peer


COLLECTIVES = ops_with("collective")
_REJOIN_S = 0.1  # until a member asks again that has lost the leader before the group was complete
_CLOSING_S = 3.0  # in which a server that is being stopped sends its last messages and ends its connections
LAST_MESSAGE_S = 0.05  # a task that ended may have told why before, by another link; that has arrived by then


@dataclass(frozen=True)
class RankCluster:
    """The cluster in which a task runs collectives.

    Attributes:
      tasks: full task name -> address.
      peer_for: (task, address) -> peer.
      call_later: (seconds, function, arguments…): the clock.
      leader: completes groups, as ``ConfigProto.experimental.collective_group_leader``; "": chief or first worker.
      peers: all that are connected.
      on_met: called once the task has met others in a group, which is elastic or not.
    """

    tasks: Mapping[str, str]
    peer_for: Callable[[str, str], Any]
    call_later: Callable[..., Any]
    leader: str = ""
    peers: Callable[[], Iterable[Any]] = tuple
    on_met: Callable[[bool], None] = lambda elastic: None

    @property
    def leader_task(self) -> str:
        """The task that completes groups."""
        given = self.leader[: self.leader.index("/device:")] if "/device:" in self.leader else self.leader
        return given or default_leader(self.tasks)


class CollectiveExecutor:
    """See the module.

    Args:
      ranks: None: it serves its own devices only.
      running: the runs of the task's worker; ``incarnation``: of that worker.
      most_ranks: see `Calls`.

    Attributes:
      table: its state.
      calls: makes calls. ``traffic`` counts what is sent. ``leader`` completes the groups that this task leads.
      look: drives a collective of a member, should a bell have been lost on its way.
    """

    def __init__(
        self, task: str, process: Process, ranks: RankCluster | None = None,
        running: Callable[[], Iterable[Any]] = tuple, incarnation: int = 0, most_ranks: int | None = None,
    ) -> None:  # fmt: skip
        self.task, self._process, self.now = task, process, process.now
        self._ranks, self._running, self.incarnation = ranks, running, incarnation
        self._tasks: Mapping[str, str] = ranks.tasks if ranks is not None else {task: ""}
        self.leader_task = ranks.leader_task if ranks is not None else task
        self._call_later = ranks.call_later if ranks is not None else None
        self.leader = GroupLeader(self._tasks, process.randbits, task if ranks is not None else "", self._call_later)
        self.traffic = Counters()
        self.calls = Calls(most_ranks)
        table = GroupTable(task, self._tasks, self.leader_task, lambda: self.now())
        self.table = Guarded("collectives", table)
        self.members, self.ended_tasks = table.members, table.ended_tasks
        self._local: collections.deque[m.CollectiveData] = collections.deque()
        self._delivering = allocate_lock()  # tried, and never waited for
        self._shared = SharedCollectives(self)
        self.look: Callable[[GroupMember, int], None] = self._shared.look
        self._watch = Watch(self, self._call_later)

    # ---- calls ------------------------------------------------------------------------------

    def begin(self, wait: Any, node: Node, value: TensorLike, splits: TensorLike | None = None) -> None:
        """The functions that the kernels of collective ops call."""
        self.call(self.calls.make(wait, node, value, splits))

    def call(self, call: CollectiveCall) -> None:
        """Begins a collective; the call's wait is answered when it is over."""
        known = self.members.get((call.about.group_key, call.about.device))
        if known is not None and known.lost is not None and known.is_idle:
            self.fail(known, known.lost, tell=True)
        member, refusal = self.table(GroupTable.admit, call)
        if refusal is not None:
            call.wait.fail(refusal)
            return
        if not call.wait.on_cancel(call.about.cause, lambda: self._given_up(member, call)):
            return  # the next call joins
        joins = is_queued = False
        if not member.epoch:
            joins, is_queued, refusal = self.table(GroupTable.queue, member, call)
        if refusal is not None:
            self.fail(member, refusal)
        elif member.lost is not None:
            self.fail(member, member.lost, extra=call)
        elif joins:
            self._join(member, call)
        elif not is_queued:
            self.proceed(member, call)
        self._watch.start()

    def _join(self, member: GroupMember, call: CollectiveCall) -> None:
        def answered(answer: Any) -> None:
            if isinstance(answer, errors.UnavailableError) and self._call_later is not None:
                # Nothing is lost with a leader that restarts meanwhile (by `hvd.shutdown` and `hvd.init`, say).
                self._call_later(_REJOIN_S, self._join_again, member, call)
            elif isinstance(answer, errors.OpError):
                self.fail(member, answer)
            else:
                self._enter(member, answer)

        steps = self.table.state.past.finished_before(call)
        place = self._shared.place() if self._ranks is not None and self._process.shares_memory else ""
        wanted = member.group_key, member.group_size, member.device, place
        if self.leader_task == self.task or self._ranks is None:
            self.leader.join(*wanted, answered, steps, call.about.least, self.incarnation)
            member.withdraw = lambda: self.leader.withdraw(member.group_key, member.device, answered)
        else:
            request = m.CollectiveJoin(*wanted, steps, call.about.least)
            member.withdraw = self._peer(self.leader_task).call(request, answered, wait_for_ready=True).withdraw
        if member.over and not member.epoch:  # given up meanwhile
            member.withdraw()

    def _join_again(self, member: GroupMember, call: CollectiveCall) -> None:
        if not (member.over or self.table.state.closed):
            self._join(member, call)

    def _enter(self, member: GroupMember, group: m.CollectiveGroup) -> None:
        self._end_stale(group)
        entered = self.table(GroupTable.enter, member, group, self._shared.enter)
        if entered.is_first and self._ranks is not None:
            self._ranks.on_met(bool(member.least))
        if entered.left is not None:  # the other members wait, and only this task can tell them
            self._tell(member, entered.left)
        elif entered.failure is not None:
            self.fail(member, entered.failure, tell=True)
        for call in entered.queued:
            self.proceed(member, call)
        for message in entered.early if entered.failure is None else ():
            self.receive(message)

    def proceed(self, member: GroupMember, call: CollectiveCall) -> None:
        """Begins a call whose group is complete."""
        if call.about.is_named and member.is_running(call):
            call.wait.fail(duplicate(call, member.who(member.rank)))
            return
        try:
            if self._shared.begin(member, call):
                return
            schedule = call.schedule(member.rank, member.members)
        except Exception as error:  # noqa: BLE001 - no other code answers the call
            self.fail(member, begin_failure(error, call), tell=True, extra=call)
            return
        begun = self.table(GroupTable.begin, member, call, schedule, self.traffic.data)
        if begun is None:
            call.wait.fail(errors.AbortedError.of(f"{call.describe()}: its group has ended."))
            return
        exchange, sends, early, finished = begun
        self._post(member, exchange, sends)
        for message in early:
            self._deliver(member, exchange, message)
        if finished:
            self.answer(member, exchange)

    def _end_stale(self, group: m.CollectiveGroup) -> None:
        """Ends connections to earlier servers of the members, whose ends have not been noticed here yet.

        What is sent there would be lost, and the end would be taken for that of a member.
        """
        incarnations = {task_of_device(device): each for device, each in zip(group.members, group.incarnations)}
        for peer in self._ranks.peers() if self._ranks is not None else ():
            own, known = hexadecimal(peer.incarnation), incarnations.get(peer.task)
            if own and known and own != known and peer.state is State.READY and peer.link is not None:
                peer.link.end(f"{peer.task} was restarted: another incarnation of it has joined a collective group")

    # ---- data -------------------------------------------------------------------------------

    def _post(self, member: GroupMember, exchange: Exchange, sends: list[Send]) -> None:
        for send in sends:
            message = m.CollectiveData(
                member.epoch, send.rank, member.rank, *exchange.key, send.tag, exchange.packed, (send.values,)
            )
            task = member.tasks[send.rank]
            if task == self.task:
                self._local.append(message)
            else:
                self.send(member, task, message)
        self._deliver_local()

    def _deliver_local(self) -> None:
        """Between devices of this task. Not by recursion: a ring would nest as deep as it has messages."""
        while self._local and self._delivering.acquire(False):  # else another thread delivers, and looks again
            try:
                while self._local:
                    self.receive(self._local.popleft())
            finally:
                self._delivering.release()

    def send(self, member: GroupMember, task: str, message: object) -> None:
        def dropped(error: errors.OpError) -> None:
            text = f"{member.part_of(task)} cannot be reached by {member.device}: {error.message}"
            self._later(self.fail, member, errors.UnavailableError.of(text, task=task), True)

        self._peer(task).send(message, dropped)

    def _peer(self, task: str) -> Any:
        if self._ranks is None or task not in self._tasks:
            raise errors.InternalError.of(f"{self.task} does not know the address of {task}")
        return self._ranks.peer_for(task, self._tasks[task])

    def receive(self, message: m.CollectiveData | m.CollectiveStage, sender: str = "") -> None:
        """Takes in a part of an exchange, or its place in shared memory; keeps one that comes before its call."""
        member, exchange, failure, sweeps = self.table(GroupTable.find, message, sender)
        if sweeps:
            self._sweep_later()
        if member is None:
            return
        if isinstance(message, m.CollectiveStage):
            self._shared.placed(member, message)
        elif failure is not None:
            self.fail(member, failure, tell=True)
        elif exchange is not None:
            self._deliver(member, exchange, message)

    def _sweep_later(self) -> None:
        if self._call_later is not None:
            self._call_later(KEEP_S, self._sweep)

    def _sweep(self) -> None:
        if self.table(lambda table: table.early.sweep()):
            self._sweep_later()

    def rung(self, bell: m.CollectiveBell) -> None:
        """Another rank has completed the data that a collective here waits for."""
        member = self.member_of(bell.epoch, bell.rank)
        if member is not None:
            self._shared.look(member, bell.instance)

    def _deliver(self, member: GroupMember, exchange: Exchange, message: m.CollectiveData) -> None:
        if message.fingerprint != exchange.packed and not self._agree(member, exchange, message):
            return
        try:
            with exchange.lock:
                if exchange.finished:
                    return
                exchange.present.add(message.sender)
                sends = exchange.schedule.receive(message.sender, message.tag, message.values[0])
                self.traffic.data(member, exchange, sends)
                finished = exchange.finish()
        except (ValueError, IndexError, MemoryError) as error:  # it does not fit: no other code would end the exchange
            text = f"{member.who(member.rank)} cannot use the data that {member.who(message.sender)} sent for"
            text = f"{text} {exchange.call.describe()}: {error}"
            kind = errors.ResourceExhaustedError if isinstance(error, MemoryError) else errors.InvalidArgumentError
            self.fail(member, kind.of(text), tell=True)
            return
        self._post(member, exchange, sends)
        if finished:
            self.answer(member, exchange)

    def _agree(self, member: GroupMember, exchange: Exchange, message: m.CollectiveData) -> bool:
        theirs = Fingerprint.unpack(message.fingerprint)
        error = mismatch(exchange.fingerprint, member.who(member.rank), theirs, member.who(message.sender))
        if error is not None:
            self.fail(member, error, tell=True)
        return error is None

    def answer(self, member: GroupMember, exchange: Exchange) -> None:
        """Gives a call the result of its exchange."""
        self.table(GroupTable.answered, member, exchange)
        note(member, exchange)
        exchange.call.wait.done(exchange.schedule.result())

    # ---- failures ---------------------------------------------------------------------------

    def fail(
        self, member: GroupMember, error: errors.OpError, tell: bool = False, extra: CollectiveCall | None = None
    ) -> None:
        """Ends this epoch of the group here, and with ``tell`` everywhere."""
        calls = self.table(GroupTable.end, member, error, extra)
        if calls is not None:
            self._shared.leave(member)
            if not member.epoch:
                member.withdraw()
            elif tell:
                self._tell(member, error)
        for call in [*(calls or ()), *([extra] if extra else [])]:
            call.wait.fail(error)

    def _tell(self, member: GroupMember, error: errors.OpError) -> None:
        failure = failure_message(member.epoch, error, self.task)
        for task in dict.fromkeys(member.tasks):
            if task == self.task:
                self.failed(member.epoch, error)
            else:
                self._peer(task).send(failure)

    def failed(self, epoch: int, error: errors.OpError) -> None:
        """A group has failed elsewhere."""
        for member in self.table(GroupTable.end_epoch, epoch, error):
            self.fail(member, error)

    def _given_up(self, member: GroupMember, call: CollectiveCall) -> None:
        text = f"{call.about.device} has given up {call.describe()}: its step has ended."
        self.fail(member, errors.AbortedError.of(text, derived=True), tell=True)

    def peer_lost(self, task: str, why: str, incarnation: int = 0) -> None:
        """A task is gone: exchanges that need something from it fail, other groups with it at their next call."""
        # Not what it asked the leader, which ends with its connection, nor groups that form when it has come back.
        members, early = self.table(GroupTable.of_task, task, incarnation)
        self._later(self._lose, task, incarnation, why, members, early, self.now() + _CLOSING_S)

    def _later(self, action: Callable[..., None], *args: object) -> None:
        if self._call_later is not None:  # else this task has no peers
            self._call_later(LAST_MESSAGE_S, action, *args)

    def _lose(
        self, task: str, incarnation: int, why: str, members: list[GroupMember], early: list[int], until: float
    ) -> None:
        """Fails those that wait for a task, when its last connection has ended: each brings what was sent before."""
        found = self._ranks.peers() if self._ranks is not None and self.now() < until else ()
        if any((peer.task, peer.incarnation, peer.state) == (task, incarnation, State.READY) for peer in found):
            self._later(self._lose, task, incarnation, why, members, early, until)
        else:
            self._fail_lost(task, why, members, early)

    def _fail_lost(self, task: str, why: str, members: list[GroupMember], early: list[int]) -> None:
        for member in members:  # what the lost task has laid into shared memory may be all that is wanted from it
            for instance in list(member.running):
                self._shared.look(member, instance)
        left = self.table(GroupTable.lose, task, why, members, early)
        for member, is_waiting in left:
            error = self._loss(member, task, why)
            if is_waiting:
                self.fail(member, error, tell=True)
            else:  # other ranks may still read what it has laid out for its last collective
                member.lost = member.lost or error

    def _loss(self, member: GroupMember, task: str, why: str) -> errors.OpError:
        """The error of a member that has lost a task. An elastic group goes on without it, unless it led the group."""
        oldest = member.oldest()
        needed = f", needed by {member.who(member.rank)} in the {oldest.call.describe()}" if oldest else ""
        ended = self.ended_tasks.error(task, member.ranks_of(task), needed)
        if ended is not None and (not member.least or task == self.leader_task):
            return ended
        text = f"Collective lost {member.part_of(task)}; lost by {member.device}: {why}"
        return errors.UnavailableError.of(text, task=task)

    # ---- tasks that come to their end -------------------------------------------------------

    def part(self, why: str, is_final: bool) -> None:
        """Tells the other ranks that this task takes part no more, so that they need not wait for its return.

        Args:
          why: for people.
          is_final: its process ends; else it may start another server.
        """
        if not (self.table.state.met or self.members or self.ended_tasks.groups):
            return
        news = m.CollectiveEnd(self.task, self.incarnation, why, is_final)
        told = self._spread(news)
        if self.leader_task not in told and self.leader_task != self.task:
            leader = self._peer(self.leader_task)
            if leader.state is State.IDLE:  # this task has not come to its first collective
                leader.send(news)

    def _spread(self, news: m.CollectiveEnd) -> set[str]:
        """Tells the ranks that are connected, except the one that the news are about; returns their tasks."""
        joining = {task_of_device(device) for device in self.leader.all_present()}
        wanted = (self.table.state.met | joining | {self.leader_task}) - {self.task, news.task}
        found = self._ranks.peers() if self._ranks is not None else ()
        peers = [peer for peer in found if peer.task in wanted and peer.state is State.READY]
        for peer in peers:
            peer.send_if_ready(news)
        return {peer.task for peer in peers}

    def ended(self, news: m.CollectiveEnd) -> None:
        """Another task takes part no more."""
        rest_s, members = self.table(GroupTable.end_task, news)
        if rest_s < 0 or self._call_later is None:
            return
        # Not at once: what it sent before may still be on its way, by another link or by way of another rank.
        why, until = f"it has ended: {news.why}", self.now() + _CLOSING_S
        self._later(self._lose, news.task, news.incarnation, why, members, [], until)
        self._call_later(rest_s + LAST_MESSAGE_S, self._fail_joining)
        if self.leader_task == self.task:
            self._spread(news)

    def tell_ended(self, peer: Peer) -> None:
        """Tells a rank that joins which tasks have ended."""
        for news in self.table(lambda table: table.ended_tasks.news()):
            peer.send_if_ready(news)

    def returned(self, task: str, incarnation: int) -> None:
        """A task is connected, perhaps as a new process."""
        self.table(lambda table: table.ended_tasks.returned(task, incarnation))

    def _fail_joining(self) -> None:
        """Ends the calls that wait for groups which can never form."""
        for member, error in self.table(GroupTable.unformed):
            self.fail(member, error)

    def probed(self, probe: m.CollectiveProbe, sender: str = "") -> None:
        """Another rank, of the task ``sender``, asks or answers whether an exchange has been called."""
        self._watch.probed(probe, sender)

    def tell_left(self, probe: m.CollectiveProbe, sender: str) -> None:
        """Tells a rank that waits for this task why the epoch has ended, or that this task was never told of it."""
        left, error = self.table.state.over.get(probe.epoch, (None, None))
        if error is None and probe.waited_ms >= UNTOLD_MS:
            self.failed(probe.epoch, error := untold(self.task, self.leader_task))
        sender = sender or ("" if left is None else left.tasks[probe.sender])
        if sender and error is not None:
            self._peer(sender).send(failure_message(probe.epoch, error, self.task))

    def is_stuck(self) -> bool:
        """Whether no step that runs here can call another collective before one that it waits for has its result."""
        runs = [run for run in list(self._running()) if not COLLECTIVES.isdisjoint(run.graph.waits_for)]
        return all(run.is_stuck_in(COLLECTIVES) for run in runs)

    def waiting(self) -> list[GroupMember]:
        """The members that wait for something."""
        return self.table.state.waiting()

    def member_of(self, epoch: int, rank: int) -> GroupMember | None:
        """The member of that rank in an epoch that has begun and not ended."""
        return self.table.state.by_epoch.get((epoch, rank))

    def close(self) -> None:
        """Ends everything: the task is shutting down."""
        for member in self.table(GroupTable.close):
            self.fail(member, errors.shutting_down(self.task))
        self._shared.close()


def collective_handlers(collectives: CollectiveExecutor) -> dict[type[Any], Callable[..., Any]]:
    """Message kind -> handler, for `Endpoint.serve`."""

    def join(peer: Peer, request: m.CollectiveJoin, respond: Responder) -> None:
        leader, key, device = collectives.leader, request.group_key, request.device
        collectives.tell_ended(peer)
        size, place, steps, least = request.group_size, request.place, request.steps, request.least
        leader.join(key, size, device, place, respond, steps, least, peer.incarnation)
        if respond.is_open:
            respond.on_cancel(lambda: leader.withdraw(key, device, respond))

    return {
        m.CollectiveJoin: join,
        m.CollectiveData: lambda peer, message, _: collectives.receive(message, peer.task),
        m.CollectiveStage: lambda peer, message, _: collectives.receive(message, peer.task),
        m.CollectiveProbe: lambda peer, probe, _: collectives.probed(probe, peer.task),
        m.CollectiveBell: lambda peer, bell, _: collectives.rung(bell),
        m.CollectiveFailure: lambda peer, failure, _: collectives.failed(failure.epoch, m.error_of(failure)),
        m.CollectiveEnd: lambda peer, news, _: collectives.ended(news),
    }


def newcomers(executor: CollectiveExecutor, group_key: int) -> list[str]:
    """The devices that wait to join a group which is at work; none if this task is not the group's leader."""
    return executor.leader.present(group_key)


def end_group(executor: CollectiveExecutor, group_key: int, why: str) -> None:
    """Ends a group on all its members: their calls fail with AbortedError, and they begin anew with their hooks."""
    members = [member for (key, _), member in list(executor.members.items()) if key == group_key]
    for member in members:
        executor.fail(member, errors.AbortedError.of(f"Collective group {group_key} forms anew: {why}."), tell=True)
