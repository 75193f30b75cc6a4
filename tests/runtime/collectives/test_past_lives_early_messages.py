"""Messages of collectives that come before their rank knows of them: bounded, and their groups fail with the reason."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.runtime.collectives.test_executor import TASK, call
from tfmini import errors
from tfmini.rpc.messages import CollectiveData, CollectiveEnd, CollectiveFailure, CollectiveGroup, CollectiveProbe
from tfmini.rpc.peer import State
from tfmini.runtime.collectives import exchange, executor, past_lives
from tfmini.runtime.collectives.calls import hexadecimal
from tfmini.runtime.collectives.executor import LAST_MESSAGE_S, CollectiveExecutor, RankCluster
from tfmini.runtime.collectives.past_lives import KEEP_S
from tfmini.runtime.process import current_process

OTHER = "/job:worker/replica:0/task:1"
EPOCH = 77


class World:
    """An executor that waits to enter a group of two, and a message of the other rank."""

    def __init__(self) -> None:
        self.timers: list[tuple[float, Callable[..., None], tuple[Any, ...]]] = []
        self.sent: list[Any] = []
        self.answered: Callable[[Any], None] = lambda answer: None
        self.incarnation = 0  # of the other rank in the group
        self.peers: list[Any] = []
        place = {TASK: "a:1", OTHER: "b:1"}
        ranks = RankCluster(place, lambda task, address: self, self.call_later, OTHER, lambda: self.peers)
        self.executor = CollectiveExecutor(TASK, current_process(), ranks)

    def call_later(self, delay: float, function: Callable[..., None], *args: Any) -> None:
        self.timers.append((delay, function, args))

    def fire(self, delay: float) -> None:
        """Makes the calls of that delay."""
        due = [timer for timer in self.timers if timer[0] == delay]
        self.timers = [timer for timer in self.timers if timer[0] != delay]
        for _, function, args in due:
            function(*args)

    def send(self, message: Any, on_dropped: Any = None) -> None:
        self.sent.append(message)

    def call(self, request: Any, on_reply: Callable[[Any], None], **_: Any) -> Any:
        self.answered = on_reply
        return types.SimpleNamespace(withdraw=lambda: None)

    def receive(self, kilobytes: int = 1, epoch: int = EPOCH, instance: int = 1) -> None:
        values = (np.ones(kilobytes << 8, np.float32),)
        self.executor.receive(CollectiveData(epoch, 0, 1, instance, 0, 0, "", values), OTHER)

    def enter(self) -> Any:
        """Calls the collective and enters the group; returns the answer to the call."""
        answer = call(self.executor, 0, 2)
        devices = (f"{TASK}/device:CPU:0", f"{OTHER}/device:CPU:0")
        self.answered(CollectiveGroup(EPOCH, devices, ("", ""), 0, ("", hexadecimal(self.incarnation))))
        return answer


@pytest.fixture
def world() -> Any:
    world = World()
    yield world
    world.executor.close()


def test_bytes_of_unknown_groups_are_bounded_and_the_group_fails(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(past_lives, "BYTE_LIMIT", 10_000)
    for _ in range(100):
        world.receive()
    assert world.executor.table.state.early.bytes == 0
    error = world.enter().error
    assert isinstance(error, errors.ResourceExhaustedError) and "Let all ranks begin together" in error.message
    assert any(type(message).__name__ == "CollectiveFailure" for message in world.sent)  # the other rank is told


def test_messages_of_unknown_groups_are_bounded(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(past_lives, "MESSAGE_LIMIT", 10)
    for epoch in range(1, 100):
        world.receive(0, epoch)
    assert world.executor.table.state.early.count == 10


def test_bytes_of_collectives_that_were_not_called_are_bounded(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchange, "BYTE_LIMIT", 10_000)
    answer = world.enter()
    for instance in range(2, 9):
        world.receive(instance=instance)
        assert answer.error is None
    for instance in range(9, 20):
        world.receive(instance=instance)
    assert isinstance(answer.error, errors.ResourceExhaustedError) and "rank 0" in answer.error.message
    assert any(type(message).__name__ == "CollectiveFailure" for message in world.sent)


def test_a_group_that_is_never_joined_is_dropped(world: World) -> None:
    world.receive()
    world.receive()
    world.fire(KEEP_S)
    assert world.executor.table.state.early.count == 2
    world.fire(KEEP_S)
    assert world.executor.table.state.early.count == world.executor.table.state.early.bytes == 0 and world.timers == []
    assert isinstance(world.enter().error, errors.ResourceExhaustedError)


def test_the_groups_of_a_task_that_is_gone_are_dropped(world: World) -> None:
    world.receive()
    world.executor.peer_lost(OTHER, "it was killed")
    world.fire(executor.LAST_MESSAGE_S)
    assert world.executor.table.state.early.count == 0
    error = world.enter().error
    assert isinstance(error, errors.UnavailableError) and error.task == OTHER and "it was killed" in error.message


def test_a_member_takes_what_came_early(world: World) -> None:
    world.receive(instance=4)
    world.receive(instance=5)
    world.enter()
    (member,) = world.executor.members.values()
    assert world.executor.table.state.early.bytes == 0 and member.early_bytes > 1024
    assert len(member.take_early((4, 0))) == len(member.take_early((5, 0))) == 1 and member.early_bytes == 0


def test_a_leader_forgets_groups_that_nobody_joins_any_more() -> None:
    own = CollectiveExecutor(TASK, current_process())
    leader = own.leader
    respond: Callable[[Any], None] = lambda answer: None  # noqa: E731
    leader.join(1, 2, f"{TASK}/device:CPU:0", "", respond)
    leader.withdraw(1, f"{TASK}/device:CPU:0", respond)
    assert not leader.all_present()
    own.close()


def test_a_restarted_task_stays_in_its_group_when_its_old_connection_ends(world: World) -> None:
    """Its end may be noticed after the new process has joined over a new connection."""
    leader = world.executor.leader
    leader.join(1, 2, f"{OTHER}/device:CPU:0", "", lambda answer: None)
    world.executor.peer_lost(OTHER, "it was killed")
    assert leader.present(1) == [f"{OTHER}/device:CPU:0"]


def test_the_end_of_an_earlier_server_of_a_member_leaves_the_group_alone(world: World) -> None:
    """It may be noticed, or told, after the group has formed anew: `hvd.shutdown` and `hvd.init` on all ranks."""
    ended: list[str] = []
    world.incarnation = 8
    for incarnation in (0, 7, 8):
        link = types.SimpleNamespace(end=lambda why, each=incarnation: ended.append(each))
        world.peers.append(types.SimpleNamespace(task=OTHER, incarnation=incarnation, state=State.READY, link=link))
    answer = world.enter()
    assert ended == [7]  # what would be sent to it were lost
    world.executor.peer_lost(OTHER, "it was stopped", 7)
    world.executor.ended(CollectiveEnd(OTHER, 7, "its server has been stopped", False))
    world.fire(LAST_MESSAGE_S)
    assert answer.error is None
    world.peers.clear()
    world.executor.peer_lost(OTHER, "it was killed", 8)
    world.fire(LAST_MESSAGE_S)
    assert isinstance(answer.error, errors.OpError) and OTHER in answer.error.message


@pytest.mark.parametrize("is_told", [True, False])
def test_what_a_member_has_sent_before_its_end_may_come_by_its_last_connection(world: World, is_told: bool) -> None:
    """Two tasks may have two connections; the one by which the data come may be slow, or not be there yet."""
    world.incarnation = 7
    other = types.SimpleNamespace(task=OTHER, incarnation=7, state=State.READY, link=None)
    world.peers.append(other)
    answer = world.enter()
    if is_told:
        world.executor.ended(CollectiveEnd(OTHER, 7, "its server has been stopped", False))
    else:
        world.executor.peer_lost(OTHER, "it closed the connection", 7)
    for _ in range(5):
        world.fire(LAST_MESSAGE_S)
    assert answer.error is None
    other.state = State.LOST
    world.fire(LAST_MESSAGE_S)
    assert isinstance(answer.error, errors.OpError) and OTHER in answer.error.message


@pytest.mark.parametrize("waited_ms", [1000, 7000])
def test_a_rank_that_waits_for_one_that_was_never_told_of_the_group_learns_it(world: World, waited_ms: int) -> None:
    """The answer of the leader may be on its way; after some seconds it is lost."""
    world.executor.probed(CollectiveProbe(EPOCH, 0, 1, 1, 0, "", waited_ms, False), OTHER)
    assert [type(message) for message in world.sent] == [CollectiveFailure] * (waited_ms > 5000)
    if world.sent:
        assert world.sent[0].epoch == EPOCH and f"{TASK} was not told" in world.sent[0].message
        assert isinstance(world.enter().error, errors.UnavailableError)  # it comes after all
