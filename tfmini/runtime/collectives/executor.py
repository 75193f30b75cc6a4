"""The collectives of one task: joins groups, drives schedules, and reports why a schedule stalls.

A call of a collective op becomes an `Exchange`: the pure schedule says what to send, messages from the other ranks
drive it. Nothing holds a thread. An error in one exchange ends the group's epoch on all members; the next call joins.
"""

from __future__ import annotations

import collections
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from tfmini import errors
from tfmini.collectives.fingerprints import Fingerprint, mismatch
from tfmini.collectives.schedules import Send
from tfmini.devices import task_of_device
from tfmini.graph.traits import ops_with
from tfmini.rpc import messages as m
from tfmini.rpc.peer import State
from tfmini.runtime.collectives.calls import About, Call, Calls, begin_failure, duplicate, failure_message, refused
from tfmini.runtime.collectives.early_messages import EarlyMessages
from tfmini.runtime.collectives.exchange import Exchange, Member
from tfmini.runtime.collectives.groups import UNTOLD_MS, GroupLeader, default_leader, untold
from tfmini.runtime.collectives.past_lives import EndedTasks, PastLives
from tfmini.runtime.collectives.shared import SharedCollectives
from tfmini.runtime.collectives.traffic import Counters, note
from tfmini.runtime.collectives.watch import Watch
from tfmini.runtime.process import Process

COLLECTIVES = ops_with("collective")
_REMEMBERED_EPOCHS = 1000
_REJOIN_S = 0.1  # until a member asks again that has lost the leader before the group was complete
_LAST_MESSAGE_S = 0.05  # a task that ended may have told why before, by another link; that has arrived by then


class CollectiveExecutor:
    """See the module. Without `connect` it serves its own devices. ``calls`` makes calls, ``traffic`` counts them."""

    def __init__(self, task: str, process: Process) -> None:
        self.task, self._process, self.now = task, process, process.now
        self._tasks: Mapping[str, str] = {task: ""}
        self.leader_task = task
        self._peer_for: Callable[[str, str], Any] | None = None
        self.leader = GroupLeader(self._tasks, process.randbits)
        self.traffic = Counters()
        self._members: dict[tuple[int, str], Member] = {}
        self._by_epoch: dict[tuple[int, int], Member] = {}
        self._past = PastLives()
        self.incarnation = 0  # of the task's worker
        self.ended_tasks = EndedTasks()
        self._met: set[str] = set()  # the tasks of all groups so far
        self._peers: Callable[[], Iterable[Any]] = tuple
        self.on_met: Callable[[bool], None] = lambda elastic: None  # called once it has met others in a group
        self._over: collections.OrderedDict[int, tuple[Member | None, errors.OpError]] = collections.OrderedDict()
        self.lock = threading.RLock()  # guards the tables; never held while a wait is answered
        self._early = EarlyMessages(task, self.lock, lambda epoch, error: self._remember(epoch, None, error))
        self.closed = False
        self._local: collections.deque[m.CollectiveData] = collections.deque()
        self._delivering = False
        self.calls = Calls()
        self._shared = SharedCollectives(self)
        self.look: Callable[[Member, int], None] = self._shared.look  # should a bell have been lost on its way
        self._watch = Watch(self)
        self.running: Callable[[], Iterable[Any]] = tuple  # the runs of the task's worker

    def connect(
        self, tasks: Mapping[str, str], leader: str, peer_for: Callable[[str, str], Any],
        call_later: Callable[..., Any], peers: Callable[[], Iterable[Any]] = tuple,
    ) -> None:  # fmt: skip
        """Makes it part of a cluster.

        Args:
          tasks: full task name -> address.
          leader: completes groups, as ``ConfigProto.experimental.collective_group_leader``; "": chief or first worker.
          peer_for: (task, address) -> peer.
          call_later: (seconds, function, arguments…): the clock.
          peers: all that are connected.
        """
        self._tasks, self._peers = tasks, peers
        self.leader_task = leader[: leader.index("/device:")] if "/device:" in leader else leader
        self.leader_task = self.leader_task or default_leader(tasks)
        self._peer_for = peer_for
        self._watch.call_later = self._early.call_later = call_later
        self.leader = GroupLeader(tasks, self._process.randbits, self.task, call_later)

    # ---- calls ------------------------------------------------------------------------------

    def begin(self, wait: Any, node: Any, value: Any, splits: Any = None) -> None:
        """The functions that the kernels of collective ops call."""
        self.call(self.calls.make(wait, node, value, splits))

    def call(self, call: Call) -> None:
        """Begins a collective; the call's wait is answered when it is over."""
        about = call.about
        with self.lock:
            member = self._members.get((about.group_key, about.device))
            refusal = refused(call, member) or (None if member else self._past.refusal(call) or self._hopeless(about))
            if member is None or not member.has_joined and member.group_size != about.group_size:
                member = Member(about.group_key, about.group_size, about.device, self.now(), about.least)
                if refusal is None:
                    self._members[about.group_key, about.device] = member
        if refusal is not None:
            call.wait.fail(refusal)
            return
        if not call.wait.on_cancel(about.cause, lambda: self._given_up(member, call)):
            return  # the next call joins
        joins = is_queued = False
        if not member.epoch:
            with self.lock:
                joins, member.has_joined = not member.has_joined, True
                is_queued = not (member.epoch or member.over)
                if is_queued:
                    member.queued.append(call)
                    refusal = self._hopeless(about)  # a task may have ended since, and its end looked at others only
        if refusal is not None:
            self.fail(member, refusal)
        elif member.lost is not None:
            self.fail(member, member.lost, extra=call)
        elif joins:
            self._join(member, call)
        elif not is_queued:
            self.proceed(member, call)
        self._watch.start()

    def _join(self, member: Member, call: Call) -> None:
        def answered(answer: Any) -> None:
            if isinstance(answer, errors.UnavailableError) and self._watch.call_later is not None:
                # Nothing is lost with a leader that restarts meanwhile (by `hvd.shutdown` and `hvd.init`, say).
                self._watch.call_later(_REJOIN_S, self._join_again, member, call)
            elif isinstance(answer, errors.OpError):
                self.fail(member, answer)
            else:
                self._enter(member, answer)

        steps = self._past.finished_before(call)
        place = self._shared.place() if self._peer_for is not None and self._process.shares_memory else ""
        wanted = member.group_key, member.group_size, member.device, place
        if self.leader_task == self.task or self._peer_for is None:
            self.leader.join(*wanted, answered, steps, call.about.least)
            member.withdraw = lambda: self.leader.withdraw(member.group_key, member.device, answered)
        else:
            request = m.CollectiveJoin(*wanted, steps, call.about.least)
            member.withdraw = self._peer(self.leader_task).call(request, answered, wait_for_ready=True).withdraw
        if member.over and not member.epoch:  # given up meanwhile
            member.withdraw()

    def _join_again(self, member: Member, call: Call) -> None:
        if not (member.over or self.closed):
            self._join(member, call)

    def _enter(self, member: Member, group: m.CollectiveGroup) -> None:
        with self.lock:
            member.enter(group.epoch, list(group.members), group.steps)
            was_alone = self._met <= {self.task}
            self._met.update(member.tasks)
            left = member.over
        if was_alone and not self._met <= {self.task}:
            self.on_met(bool(member.least))
        if left:  # its step ended before the answer came; the other members wait, and only this task can tell them
            text = f"{member.device} has left collective group {member.group_key}: its step has ended."
            self._remember(group.epoch, member, error := errors.AbortedError.of(text, derived=True))
            self._tell(member, error)
            return
        with self.lock:
            failure = self._over[group.epoch][1] if group.epoch in self._over else None
            if failure is None:
                try:
                    self._shared.enter(member, list(group.places))
                except errors.OpError as error:
                    failure = error
            self._by_epoch[group.epoch, member.rank] = member
            queued, member.queued = member.queued, []
            early = self._early.take(group.epoch, member.rank)
            if failure is not None:
                member.queued, queued = queued, []
        if failure is not None:
            self.fail(member, failure, tell=True)
            return
        for call in queued:
            self.proceed(member, call)
        for message in early:
            self.receive(message)

    def proceed(self, member: Member, call: Call) -> None:
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
        with self.lock:
            is_over = member.over
            if not is_over:
                exchange = self.new_exchange(member, call)
                exchange.schedule = schedule
                early = member.take_early(exchange.key)
                with exchange.lock:  # before anybody can deliver to it
                    member.exchanges[exchange.key] = exchange
                    self.traffic.data(member, exchange, sends := schedule.begin())
                    finished = exchange.finish()
        if is_over:
            call.wait.fail(errors.AbortedError.of(f"{call.describe()}: its group has ended."))
            return
        self._post(member, exchange, sends)
        for message in early:
            self._deliver(member, exchange, message)
        if finished:
            self.answer(member, exchange)

    def new_exchange(self, member: Member, call: Call) -> Exchange:
        """The next run of a collective, without a schedule yet. To be called with the lock held."""
        count = member.counts.get(call.instance, 0)
        member.counts[call.instance] = count + 1
        step = member.step_of(call.wait.step.step_id)
        return Exchange(call, count, 0 if call.about.is_named else step, self.now)

    # ---- data -------------------------------------------------------------------------------

    def _post(self, member: Member, exchange: Exchange, sends: list[Send]) -> None:
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
        with self.lock:
            if self._delivering or not self._local:
                return
            self._delivering = True
        while True:
            with self.lock:
                if not self._local:
                    self._delivering = False
                    return
                message = self._local.popleft()
            self.receive(message)

    def send(self, member: Member, task: str, message: Any) -> None:
        def dropped(error: errors.OpError) -> None:
            text = f"{member.part_of(task)} cannot be reached by {member.device}: {error.message}"
            self._later(self.fail, member, errors.UnavailableError.of(text, task=task), True)

        self._peer(task).send(message, dropped)

    def _peer(self, task: str) -> Any:
        if self._peer_for is None or task not in self._tasks:
            raise errors.InternalError.of(f"{self.task} does not know the address of {task}")
        return self._peer_for(task, self._tasks[task])

    def receive(self, message: m.CollectiveData | m.CollectiveStage, sender: str = "") -> None:
        """Takes in a part of an exchange, or its place in shared memory; keeps one that comes before its call."""
        with self.lock:
            member = self._by_epoch.get((message.epoch, message.rank))
            if member is None:
                if message.epoch not in self._over:
                    self._early.add(message, sender)
                return
        if isinstance(message, m.CollectiveStage):
            self._shared.placed(member, message)
            return
        with self.lock:
            key = message.instance, message.count
            exchange = member.exchanges.get(key)
            is_early = exchange is None and message.count >= member.counts.get(message.instance, 0)
            failure = member.keep(key, message) if is_early else None
        if failure is not None:
            self.fail(member, failure, tell=True)
        elif exchange is not None:
            self._deliver(member, exchange, message)

    def rung(self, bell: m.CollectiveBell) -> None:
        """Another rank has completed the data that a collective here waits for."""
        member = self._by_epoch.get((bell.epoch, bell.rank))
        if member is not None:
            self._shared.look(member, bell.instance)

    def _deliver(self, member: Member, exchange: Exchange, message: m.CollectiveData) -> None:
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

    def _agree(self, member: Member, exchange: Exchange, message: m.CollectiveData) -> bool:
        theirs = Fingerprint.unpack(message.fingerprint)
        error = mismatch(exchange.fingerprint, member.who(member.rank), theirs, member.who(message.sender))
        if error is not None:
            self.fail(member, error, tell=True)
        return error is None

    def answer(self, member: Member, exchange: Exchange) -> None:
        with self.lock:
            member.exchanges.pop(exchange.key, None)
        member.answered += 1
        note(member, exchange)
        exchange.call.wait.done(exchange.schedule.result())

    # ---- failures ---------------------------------------------------------------------------

    def fail(self, member: Member, error: errors.OpError, tell: bool = False, extra: Call | None = None) -> None:
        """Ends this epoch of the group here, and with ``tell`` everywhere."""
        with self.lock:
            was_over = member.over
            calls = [] if was_over else self._forget(member, error, extra)
        if not member.epoch and not was_over:
            member.withdraw()
        if tell and member.epoch and not was_over:
            self._tell(member, error)
        for call in [*calls, *([extra] if extra else [])]:
            call.wait.fail(error)

    def _forget(self, member: Member, error: errors.OpError, extra: Call | None) -> list[Call]:
        """Takes a member out of the tables; returns the calls that are left without an answer, beside ``extra``."""
        member.over = True
        if self._members.get((member.group_key, member.device)) is member:
            del self._members[member.group_key, member.device]
        self._by_epoch.pop((member.epoch, member.rank), None)
        calls = member.take_calls()
        if member.epoch:
            self._remember(member.epoch, member, error)
            self._past.of[member.group_key, member.device] = member.past(calls, extra, error)
        self._shared.leave(member)
        return calls

    def _remember(self, epoch: int, member: Member | None, error: errors.OpError) -> None:
        """Marks an epoch as ended, also for members that have not been told of its beginning."""
        self._over[epoch] = member, error
        if len(self._over) > _REMEMBERED_EPOCHS:
            self._over.popitem(last=False)

    def _tell(self, member: Member, error: errors.OpError) -> None:
        failure = failure_message(member.epoch, error, self.task)
        for task in dict.fromkeys(member.tasks):
            if task == self.task:
                self.failed(member.epoch, error)
            else:
                self._peer(task).send(failure)

    def failed(self, epoch: int, error: errors.OpError) -> None:
        """A group has failed elsewhere."""
        with self.lock:
            if epoch not in self._over:
                self._remember(epoch, None, error)
            self._early.drop(epoch)
        for member in [member for (e, _), member in list(self._by_epoch.items()) if e == epoch]:
            self.fail(member, error)

    def _given_up(self, member: Member, call: Call) -> None:
        text = f"{call.about.device} has given up {call.describe()}: its step has ended."
        self.fail(member, errors.AbortedError.of(text, derived=True), tell=True)

    def peer_lost(self, task: str, why: str) -> None:
        """A task is gone: exchanges that need something from it fail, other groups with it at their next call."""
        # Not what it asked the leader, which ends with its connection, nor groups that form when it has come back.
        with self.lock:
            members = [member for member in self._by_epoch.values() if task in member.tasks]
            self._later(self._fail_lost, task, why, members, self._early.epochs_of(task))

    def _later(self, action: Callable[..., None], *args: Any) -> None:
        if self._watch.call_later is not None:  # else this task has no peers
            self._watch.call_later(_LAST_MESSAGE_S, action, *args)

    def _fail_lost(self, task: str, why: str, members: list[Member], early: list[int]) -> None:
        with self.lock:
            self._early.refuse_lost(early, task, why)
            left = [(member, member.waits_for(task)) for member in members if not member.over]
        for member, is_waiting in left:
            error = self._loss(member, task, why)
            if is_waiting or member.is_idle:
                self.fail(member, error, tell=is_waiting)
            else:
                member.lost = member.lost or error

    def _loss(self, member: Member, task: str, why: str) -> errors.OpError:
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
        if not (self._met or self._members or self.ended_tasks.groups):
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
        wanted = (self._met | joining | {self.leader_task}) - {self.task, news.task}
        peers = [peer for peer in self._peers() if peer.task in wanted and peer.state is State.READY]
        for peer in peers:
            peer.send_if_ready(news)
        return {peer.task for peer in peers}

    def ended(self, news: m.CollectiveEnd) -> None:
        """Another task takes part no more."""
        with self.lock:
            rest_s = self.ended_tasks.add(news, self.now())
            members = [member for member in self._by_epoch.values() if news.task in member.tasks]
        if rest_s < 0 or self._watch.call_later is None:
            return
        # Not at once: what it sent before may still be on its way, by another link or by way of another rank.
        self._later(self._fail_lost, news.task, f"it has ended: {news.why}", members, [])
        self._watch.call_later(rest_s + _LAST_MESSAGE_S, self._fail_joining)
        if self.leader_task == self.task:
            self._spread(news)

    def tell_ended(self, peer: Any) -> None:
        """Tells a rank that joins which tasks have ended."""
        with self.lock:
            found = self.ended_tasks.news()
        for news in found:
            peer.send_if_ready(news)

    def returned(self, task: str, incarnation: int) -> None:
        """A task is connected, perhaps as a new process."""
        with self.lock:
            self.ended_tasks.returned(task, incarnation)

    def _fail_joining(self) -> None:
        """Ends the calls that wait for groups which can never form."""
        with self.lock:
            waiting = [(member, self._hopeless(member.queued[0].about)) for member in self.waiting() if member.queued]
        for member, error in waiting:
            if error is not None:
                self.fail(member, error)

    def _hopeless(self, about: About) -> errors.OpError | None:
        return self.ended_tasks.refusal(about, self._tasks, self.leader_task, self.now())

    def probed(self, probe: m.CollectiveProbe, sender: str = "") -> None:
        """Another rank, of the task ``sender``, asks or answers whether an exchange has been called."""
        self._watch.probed(probe, sender)

    def tell_left(self, probe: m.CollectiveProbe, sender: str) -> None:
        """Tells a rank that waits for this task why the epoch has ended, or that this task was never told of it."""
        with self.lock:
            left, error = self._over.get(probe.epoch, (None, None))
        if error is None and probe.waited_ms >= UNTOLD_MS:
            self.failed(probe.epoch, error := untold(self.task, self.leader_task))
        sender = sender or ("" if left is None else left.tasks[probe.sender])
        if sender and error is not None:
            self._peer(sender).send(failure_message(probe.epoch, error, self.task))

    def is_stuck(self) -> bool:
        """Whether no step that runs here can call another collective before one that it waits for has its result."""
        runs = [run for run in list(self.running()) if not COLLECTIVES.isdisjoint(run.graph.waits_for)]
        return all(run.is_stuck_in(COLLECTIVES) for run in runs)

    def waiting(self) -> list[Member]:
        """The members that wait for something."""
        with self.lock:
            return [member for member in self._members.values() if member.exchanges or member.queued]

    def member_of(self, epoch: int, rank: int) -> Member | None:
        return self._by_epoch.get((epoch, rank))

    def close(self) -> None:
        """Ends everything: the task is shutting down."""
        with self.lock:
            self.closed = True
        for member in list(self._members.values()):
            self.fail(member, errors.shutting_down(self.task))
        self._shared.close()
