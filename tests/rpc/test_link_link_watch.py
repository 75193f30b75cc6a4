"""Tasks in processes of their own whose handlers never return: which of them count as lost, and when."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.rpc.task_processes import PS, SETTINGS, Call, connect, until
from tfmini import errors
from tfmini.rpc import handshake, link
from tfmini.rpc import messages as m
from tfmini.rpc.endpoint import Endpoint
from tfmini.rpc.handshake import BEAT_AFTER_S, TICK_S, Attention
from tfmini.rpc.peer import State
from tfmini.rpc.reactor import get_reactor

WEDGED_S = 6.0  # more than two seconds to notice and one to tell


@pytest.fixture
def others() -> Iterator[list[Endpoint]]:
    made = [Endpoint(get_reactor(), "", 8 + i) for i in range(2)]
    yield made
    for endpoint in made:
        endpoint.close()


@pytest.fixture
def wedged_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """For the peers of this process."""
    for module in (handshake, link):
        monkeypatch.setattr(module, "WEDGED_AFTER_S", WEDGED_S)


def held(peer: Any, how: str) -> Call:
    """A call whose handler never returns, after the calls before it have been handled."""
    Call(peer, m.GetStatus()).wait()
    return Call(peer, m.CleanupAll((how,)))


def pass_time(seconds: float) -> None:
    end = get_reactor().now() + seconds
    until(lambda: get_reactor().now() >= end, "the end of the time")


@pytest.mark.parametrize("route", list(SETTINGS))
def test_a_task_whose_handler_is_stuck_is_named_with_what_it_owes(
    tasks: Any, client: Endpoint, wedged_soon: None, route: str
) -> None:
    task = tasks(route=route)
    answer = held(connect(client, task), "nothing").wait()
    assert isinstance(answer, errors.UnavailableError)
    for part in (f"{PS} at {task.address} is unavailable: wedged", f"for {WEDGED_S:g} s", "CleanupAll unanswered"):
        assert part in answer.message
    # The others of its threads go on: it is another connection that hangs.
    assert isinstance(Call(client.peer(task.address, PS), m.GetStatus(), wait_for_ready=True).wait(), m.GetStatusReply)


@pytest.mark.parametrize("route", list(SETTINGS))
def test_a_task_that_computes_is_waited_for(tasks: Any, client: Endpoint, wedged_soon: None, route: str) -> None:
    peer = connect(client, tasks(route=route))
    call = held(peer, "computes")
    until(lambda: peer.link is None or peer.link.watch.doing == "computes Long (node a)", "the heartbeat that says so")
    answer = Call(peer, m.GetStatus(), timeout_s=0.01).wait()
    assert "GetStatus to" in answer.message and "; it computes Long (node a)." in answer.message
    pass_time(WEDGED_S + 2 * BEAT_AFTER_S)
    assert peer.state is State.READY
    assert not call.answers


def test_a_task_lives_while_all_threads_of_its_loop_are_busy(
    tasks: Any, client: Endpoint, others: list[Endpoint], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its main thread and its background thread are in handlers; its heartbeats go on for all peers."""
    monkeypatch.setattr(handshake, "LOST_AFTER_S", 2.0)
    task = tasks()
    peers = [connect(endpoint, task) for endpoint in (client, *others)]
    calls = [held(peer, "computes") for peer in peers[1:]]
    pass_time(3 * handshake.LOST_AFTER_S)
    assert [peer.state for peer in peers] == [State.READY] * 3
    assert not any(call.answers for call in calls)


def test_a_kernel_that_holds_the_interpreter_is_not_the_end_of_its_task(
    tasks: Any, client: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No thread of the task can send; the system says that it computes. When it is stopped it counts as lost."""
    monkeypatch.setattr(handshake, "LOST_AFTER_S", 2.0)
    task = tasks()
    peer = connect(client, task)
    call = held(peer, "interpreter")
    until(lambda: peer.link is None or peer.link.watch.liveness.silence_s > 6.0, "the silence")
    assert peer.state is State.READY
    task.stop()
    stopped = get_reactor().now()
    answer = call.wait()
    assert isinstance(answer, errors.UnavailableError)
    assert "silent" in answer.message
    assert get_reactor().now() - stopped < 60.0


def test_a_side_that_sends_all_the_time_says_how_far_it_is(
    tasks: Any, client: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handshake, "REPORT_AFTER_S", 2 * TICK_S)
    monkeypatch.setattr(handshake, "BEAT_AFTER_S", 1000.0)  # none because this side is quiet
    reported: list[Attention] = []
    report = Attention.reported
    monkeypatch.setattr(Attention, "reported", lambda attention: (reported.append(attention), report(attention)))
    peer = connect(client, tasks())
    until(lambda: reported, "the heartbeat")
    assert peer.state is State.READY
