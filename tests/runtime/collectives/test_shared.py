"""What may happen between tasks that share memory, in an order that each test chooses: all in one process."""

from __future__ import annotations

import collections
import threading
import types
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import tfmini as tf
from tfmini import errors
from tfmini.rpc import messages as m
from tfmini.runtime.collectives import memory as collective_memory
from tfmini.runtime.collectives import shared as collective_shared
from tfmini.runtime.collectives import watch
from tfmini.runtime.collectives.executor import CollectiveExecutor, RankCluster
from tfmini.runtime.collectives.memory import other_memory
from tfmini.runtime.process import current_process

pytestmark = pytest.mark.skipif(collective_memory.make_arena() is None, reason="no memory can be shared here")
can_read = pytest.mark.skipif(other_memory() is None, reason="the system keeps processes apart")


class Answer:
    """A wait."""

    def __init__(self, step_id: int) -> None:
        self.step = types.SimpleNamespace(step_id=step_id)
        self.value: Any = None
        self.error: errors.OpError | None = None
        self._is_over = threading.Event()

    def done(self, result: Any = None) -> None:
        self.value = result
        self._is_over.set()

    def fail(self, error: errors.OpError) -> None:
        self.error = error
        self._is_over.set()

    def result(self) -> Any:
        """The value; the executor's watch, a thread of its own, may be about to set it."""
        assert self._is_over.wait(20) and self.error is None, self.error and self.error.message
        return self.value

    def on_cancel(self, cause: str, cancel: Callable[[], None]) -> bool:
        self.cancel = cancel
        return True


class Tasks:
    """Executors whose messages lie in a queue until they are delivered."""

    def __init__(self, count: int) -> None:
        self.names = [f"/job:worker/replica:0/task:{i}" for i in range(count)]
        addresses = {name: f"host:{i}" for i, name in enumerate(self.names)}
        self.posted: collections.deque[tuple[str, Any]] = collections.deque()
        self.delivered: collections.Counter[type[Any]] = collections.Counter()
        self.timers: list[tuple[Any, ...]] = []  # (seconds, function, arguments…)
        ranks = RankCluster(addresses, self._peer, lambda *timer: self.timers.append(timer))
        self.all = {name: CollectiveExecutor(name, current_process(), ranks) for name in self.names}

    def _peer(self, task: str, address: str) -> Any:
        def call(request: m.CollectiveJoin, answered: Any, wait_for_ready: bool) -> Any:
            who = (request.group_key, request.group_size, request.device, request.place)
            leader = self.all[task].leader
            leader.join(*who, answered)
            return types.SimpleNamespace(withdraw=lambda: leader.withdraw(request.group_key, request.device, answered))

        return types.SimpleNamespace(call=call, send=lambda message, dropped=None: self.posted.append((task, message)))

    def begin(self, rank: int, value: Any, instance: int = 1, step_id: int = 1, op: str = "CollectiveReduce") -> Answer:
        answer = Answer(step_id)
        attrs = {"merge_op": b"Add", "final_op": b"Id", "T": tf.float32, "group_key": 1, "group_size": len(self.all),
                 "instance_key": instance}  # fmt: skip
        node: Any = types.SimpleNamespace(op=op, device=f"{self.names[rank]}/device:CPU:0", attrs=attrs)
        self[rank].begin(answer, node, np.asarray(value, np.float32))
        return answer

    def __getitem__(self, rank: int) -> CollectiveExecutor:
        return self.all[self.names[rank]]

    def deliver(self, *kinds: type[Any], to: int | None = None) -> None:
        """Delivers what has been posted, and what comes of it."""
        kept = []
        while self.posted:
            task, message = self.posted.popleft()
            if (kinds and not isinstance(message, kinds)) or (to is not None and task != self.names[to]):
                kept.append((task, message))
                continue
            self.delivered[type(message)] += 1
            if isinstance(message, m.CollectiveBell):
                self.all[task].rung(message)
            elif isinstance(message, m.CollectiveProbe):
                self.all[task].probed(message)
            elif isinstance(message, m.CollectiveFailure):
                self.all[task].failed(message.epoch, m.error_of(message))
            else:
                self.all[task].receive(message)
        self.posted.extend(kept)


@pytest.fixture
def tasks(monkeypatch: pytest.MonkeyPatch) -> Iterator[Tasks]:
    monkeypatch.setattr(collective_shared, "can_share", lambda places: all(places))
    made = Tasks(2)
    yield made
    for executor in made.all.values():
        executor.close()


def in_step(tasks: Tasks, step_id: int = 1) -> None:
    """One small all-reduce, so that the group stands."""
    answers = [tasks.begin(rank, [1.0], step_id=step_id) for rank in range(2)]
    tasks.deliver()
    assert [answer.result().tolist() for answer in answers] == [[2.0], [2.0]]


def test_an_instance_may_be_an_all_reduce_in_one_graph_and_a_gather_in_another(tasks: Tasks) -> None:
    """Instances count from 1 in each graph. A gather goes by messages, and is no run in the stage."""
    in_step(tasks)
    for step in (2, 3):
        gathers = [tasks.begin(rank, [float(rank)], step_id=step, op="CollectiveGather") for rank in range(2)]
        tasks.deliver()
        assert [answer.result().tolist() for answer in gathers] == [[0.0, 1.0]] * 2
    in_step(tasks, step_id=4)


@pytest.mark.parametrize("pulls", [True, False])
def test_a_larger_tensor_follows_while_another_rank_still_reads(
    tasks: Tasks, pulls: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The stage of the next run must not be taken for that of this one."""
    if not pulls:
        monkeypatch.setattr(collective_shared, "other_memory", lambda: None)
    in_step(tasks)
    sizes = [100_000, 3_000_000, 5_000_000]
    slow: list[Answer] = []
    quick: list[Answer] = []
    for step, size in enumerate(sizes):
        slow.append(tasks.begin(0, np.full(size, step + 1.0), step_id=step + 2))
        quick.append(tasks.begin(1, np.full(size, step + 1.0), step_id=step + 2))
        tasks.deliver(m.CollectiveStage)  # news first, bells later
    for _ in range(5):
        tasks.deliver()
        for executor in tasks.all.values():
            for member in executor.waiting():
                for exchange in list(member.exchanges.values()):
                    executor.look(member, exchange.call.instance)
    for answers in (slow, quick):
        for step, answer in enumerate(answers):
            value = answer.result()
            assert value.shape == (sizes[step],) and (value == 2 * (step + 1)).all()


def test_an_announcement_for_the_next_run_leaves_this_one_alone(tasks: Tasks) -> None:
    in_step(tasks)
    first = tasks.begin(0, np.full(100_000, 1.0), step_id=2)
    tasks.deliver(to=1)
    member = tasks[0].waiting()[0]
    before = member.running[1].schedule.moves.stages[1]
    tasks[0].receive(m.CollectiveStage(member.epoch, 0, 1, 1, member.counts[1], 77, 4096, 4096))
    assert member.running[1].schedule.moves.stages[1] is before
    other = tasks.begin(1, np.full(100_000, 2.0), step_id=2)
    tasks.deliver()
    assert (first.result() == 3).all() and (other.result() == 3).all()


def test_a_call_of_a_group_that_ends_meanwhile_is_answered(tasks: Tasks) -> None:
    in_step(tasks)
    member = tasks[1].member_of(*next(iter(tasks[1].table.state.by_epoch)))
    assert member is not None
    call = tasks[1].calls.make(Answer(5), types.SimpleNamespace(
        op="CollectiveReduce", device=member.device, attrs={
            "merge_op": b"Add", "final_op": b"Id", "T": tf.float32, "group_key": 1, "group_size": 2,
            "instance_key": 1,
        },
    ), np.ones(1, np.float32))  # type: ignore[arg-type] # fmt: skip
    tasks[1].fail(member, errors.AbortedError.of("the end"))
    tasks[1].proceed(member, call)  # as a thread that has looked the member up before
    assert isinstance(call.wait.error, errors.AbortedError)  # type: ignore[attr-defined]
    assert not member.exchanges and not member.running


def test_a_rank_that_stops_leaves_its_memory_to_readers(tasks: Tasks) -> None:
    in_step(tasks)
    quick = tasks.begin(1, [2.0], step_id=2)
    slow = tasks.begin(0, [3.0], step_id=2)
    tasks.posted.clear()  # no bell comes: the other task is through and stops
    while quick.value is None:
        member = tasks[1].waiting()[0]
        tasks[1].look(member, next(iter(member.exchanges.values())).call.instance)
    tasks[1].close()
    tasks.posted.clear()
    for member in tasks[0].waiting():
        for exchange in list(member.exchanges.values()):
            tasks[0].look(member, exchange.call.instance)
    assert slow.error is None and slow.result().tolist() == [5.0]


def test_a_rank_that_waits_in_an_abandoned_group_gets_an_error(tasks: Tasks, monkeypatch: pytest.MonkeyPatch) -> None:
    in_step(tasks)
    waiting = tasks.begin(0, [1.0], step_id=2)
    member = tasks[1].member_of(*next(iter(tasks[1].table.state.by_epoch)))
    assert member is not None
    tasks[1].fail(member, errors.AbortedError.of("the end"))  # tells nobody
    tasks.deliver()
    assert waiting.error is None
    monkeypatch.setattr(watch, "TICK_S", 0.0)
    for _, function, *arguments in tuple(tasks.timers):  # the watches look
        function(*arguments)
    tasks.deliver()
    assert isinstance(waiting.error, errors.AbortedError) and "the end" in waiting.error.message


def test_a_rank_that_enters_a_failed_group_gets_its_error(tasks: Tasks, monkeypatch: pytest.MonkeyPatch) -> None:
    answered: list[Callable[[Any], None]] = []
    monkeypatch.setattr(tasks[0].leader, "join", lambda *join: answered.append(join[4]))
    late = tasks.begin(0, [1.0])
    tasks[0].failed(77, errors.InvalidArgumentError.of("they differ"))
    answered[0](m.CollectiveGroup(77, tuple(f"{n}/device:CPU:0" for n in tasks.names), ("", ""), 0, ("", "")))
    assert isinstance(late.error, errors.InvalidArgumentError) and "they differ" in late.error.message


def test_a_mismatch_ends_the_exchange(tasks: Tasks, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collective_shared, "can_share", lambda places: False)
    answers = [tasks.begin(rank, np.ones(100_000)) for rank in range(2)]
    tasks.deliver(m.CollectiveGroup)
    for _, message in tasks.posted:
        object.__setattr__(message, "values", (message.values[0][:-1],))
    tasks.deliver()
    assert all(isinstance(answer.error, errors.InvalidArgumentError) for answer in answers)


def test_many_large_collectives_keep_their_stages(tasks: Tasks, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collective_shared, "other_memory", lambda: None)
    for step in range(3):
        answers = [tasks.begin(r, np.ones(300_000), instance=i, step_id=step + 1) for i in range(10) for r in range(2)]
        tasks.deliver()
        assert all((answer.result() == 2).all() for answer in answers)
    assert tasks.delivered[m.CollectiveStage] == 20


# ---- who dies, or may not read ---------------------------------------------------------------


def members(tasks: Tasks) -> list[Any]:
    found = [executor.member_of(*next(iter(executor.table.state.by_epoch))) for executor in tasks.all.values()]
    assert None not in found
    return found


@can_read
def test_a_rank_that_dies_after_its_offer_is_reported(tasks: Tasks, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its memory is gone, but its stage still says that it is there."""
    in_step(tasks)
    tasks.begin(1, np.ones(1 << 20), step_id=2)
    monkeypatch.setattr(members(tasks)[0], "pids", [1 << 22, 1 << 22])  # no process has that number
    waiting = tasks.begin(0, np.ones(1 << 20), step_id=2)
    tasks.deliver(m.CollectiveStage)
    assert isinstance(waiting.error, errors.UnavailableError)
    assert "Collective lost rank 1 (/job:worker/replica:0/task:1/device:CPU:0) in" in waiting.error.message


@can_read
def test_a_group_whose_members_may_not_read_goes_by_windows(tasks: Tasks, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collective_shared.Neighbours, "can_read", lambda self, place: False)
    first = [tasks.begin(rank, np.ones(1 << 20)) for rank in range(2)]
    tasks.deliver()
    assert all(isinstance(answer.error, errors.UnavailableError) for answer in first)
    again = [tasks.begin(rank, np.ones(1 << 20), step_id=2) for rank in range(2)]
    tasks.deliver()
    assert all((answer.result() == 2).all() for answer in again)
    assert tasks.delivered[m.CollectiveData] == 0 and members(tasks)[0].pids == []


def test_a_call_that_cannot_begin_ends_the_group(tasks: Tasks, monkeypatch: pytest.MonkeyPatch) -> None:
    in_step(tasks)
    waiting = tasks.begin(1, np.ones(4), step_id=2)

    def no_memory(value: Any) -> Any:
        raise MemoryError("no more")

    with monkeypatch.context() as patch:
        patch.setattr(collective_shared, "result_memory", no_memory)
        failed = tasks.begin(0, np.ones(4), step_id=2)
    assert isinstance(failed.error, errors.ResourceExhaustedError) and "cannot begin" in failed.error.message
    tasks.deliver()
    assert isinstance(waiting.error, errors.ResourceExhaustedError)
    in_step(tasks, step_id=3)


def test_a_call_while_another_thread_drives_a_group_that_has_failed(tasks: Tasks) -> None:
    in_step(tasks)
    tasks.begin(0, np.ones(4), instance=2, step_id=2)
    member = members(tasks)[0]
    [exchange] = member.exchanges.values()
    with exchange.lock:  # as its driver has
        tasks[0].fail(member, errors.AbortedError.of("the end"))
        assert member.stages is not None and not member.stages.channel(2).stages[0].is_valid
        answer = Answer(3)
        tasks[0].proceed(member, tasks[0].calls.make(answer, exchange.call.node, np.ones(4, np.float32)))
    assert isinstance(answer.error, errors.AbortedError)


def test_a_stage_where_none_can_be_ends_the_group(tasks: Tasks) -> None:
    in_step(tasks)
    waiting = tasks.begin(0, np.ones(4), step_id=2)
    member = members(tasks)[0]
    tasks[0].receive(m.CollectiveStage(member.epoch, 0, 1, 1, 1, 77, 13, 4096))
    assert isinstance(waiting.error, errors.InvalidArgumentError) and "no stage at 13" in waiting.error.message


@pytest.mark.parametrize("leaves", [0, 1])
def test_a_step_that_ends_before_its_group_is_complete_withdraws(tasks: Tasks, leaves: int) -> None:
    """Else the next rank would complete the group with it, and a second attempt would wait for ever."""
    tasks.begin(leaves, [1.0]).cancel()
    assert tasks[0].leader.present(1) == []
    answers = [tasks.begin(1 - leaves, [1.0]), tasks.begin(leaves, [1.0], step_id=2)]
    tasks.deliver()
    assert [answer.result().tolist() for answer in answers] == [[2.0], [2.0]]


@pytest.mark.parametrize("leaves", [0, 1])
def test_a_group_that_is_completed_with_a_step_that_has_ended_fails(
    tasks: Tasks, leaves: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The withdrawal crosses the leader's answer."""
    with monkeypatch.context() as patch:
        patch.setattr(tasks[0].leader, "withdraw", lambda *args: None)
        tasks.begin(leaves, [1.0]).cancel()
    other = tasks.begin(1 - leaves, [1.0])
    tasks.deliver()
    assert isinstance(other.error, errors.AbortedError) and "has left collective group 1" in str(other.error)
    in_step(tasks)


@pytest.mark.parametrize("size", [2, 3_000_000])
def test_a_rank_alone_has_its_own_value(size: int) -> None:
    """As in an elastic group whose other ranks are gone."""
    alone = Tasks(1)
    assert alone.begin(0, np.ones(size)).result().tolist() == [1.0] * size
    alone[0].close()


def test_a_rank_that_has_its_result_leaves_its_data_to_the_others_when_a_rank_ends(tasks: Tasks) -> None:
    in_step(tasks)
    member = members(tasks)[0]
    tasks[0].peer_lost(tasks.names[1], "it has ended")
    _, lose, *arguments = tasks.timers.pop()
    lose(*arguments)
    assert not member.over and member.stages is not None
    late = tasks.begin(0, [1.0])
    assert isinstance(late.error, errors.OpError) and member.over


def test_a_result_that_lies_ready_needs_no_rank_that_has_ended(tasks: Tasks) -> None:
    """Not even if its bell has not been read, on a machine that is busy."""
    in_step(tasks)
    waiting, other = tasks.begin(0, [1.0], step_id=2), tasks.begin(1, [2.0], step_id=2)
    assert other.result().tolist() == [3.0]
    tasks.timers.clear()
    tasks[0].ended(m.CollectiveEnd(tasks.names[1], 7, "its process has ended", True))
    for _, function, *arguments in tasks.timers:
        function(*arguments)
    assert waiting.result().tolist() == [3.0]
