"""Bounds of requests without an answer, on a simulated network."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.rpc.test_endpoint_simulated import World
from tfmini import errors
from tfmini.rpc import calls
from tfmini.rpc import messages as m


def test_unanswered_requests_of_a_peer_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The latest ones are refused; the server's late answers to them go nowhere."""
    monkeypatch.setattr(calls, "CONNECTION_LIMIT", 5)
    world = World()
    responders: list[Any] = []
    cancelled: list[int] = []

    def hold(peer: Any, request: Any, respond: Any) -> None:
        responders.append(respond)
        respond.on_cancel(lambda: cancelled.append(request.step_id))

    world.server.handlers[m.DescribeStep] = hold
    answers = [world.call(m.DescribeStep(i)) for i in range(8)]
    world.network.run(until=5.0)
    assert [len(answer) for answer in answers] == [0] * 5 + [1] * 3
    error = answers[7][0][1]
    assert isinstance(error, errors.ResourceExhaustedError)
    assert "/job:ps has not answered 8 requests of /job:w" in error.message and "more than the 5" in error.message
    assert cancelled == [5, 6, 7]
    for respond in responders:
        respond(m.DescribeStepReply("late"))
    world.network.run(until=6.0)
    assert [len(answer) for answer in answers] == [1] * 8
    assert answers[0][0][1].text == "late" and not world.lost


def test_unanswered_requests_of_all_peers_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that connects again and again, each time as another one, gets no more."""
    monkeypatch.setattr(calls, "SERVER_LIMIT", 12)
    world = World()
    world.server.handlers[m.DescribeStep] = lambda peer, request, respond: None
    answers: list[Any] = []
    for number in range(4):
        peer = world.endpoint(f"w{number}", 100 + number).peer("sim://ps", "/job:ps")
        for step in range(5):
            peer.call(m.DescribeStep(step), answers.append)
    world.network.run(until=2.0)
    assert len(answers) == 8 and all(isinstance(answer, errors.ResourceExhaustedError) for answer in answers)
    assert sum(len(link.active) for link in world.server.links()) == 12
    world.network.run(until=10.0)
    assert len(answers) == 8


@pytest.mark.parametrize("common", [False, True])
def test_bytes_of_unanswered_requests_are_bounded(common: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fed values of steps that wait are refused beyond the bound, and their room is free again after the answer."""
    monkeypatch.setattr(calls, "SERVER_BYTES" if common else "CONNECTION_BYTES", 1_000_000)
    monkeypatch.setattr(calls, "FAIR_SHARE", 100_000)
    world = World()
    responders: list[Any] = []
    world.server.serve({m.RunGraph: lambda peer, request, respond: responders.append(respond)})
    other = world.endpoint("v", 9).peer("sim://ps", "/job:ps")
    value = np.zeros(100_000, np.float32)
    if common:
        other.call(m.RunGraph(1, 1, (value,)), lambda answer: None)
        world.network.run(until=1.0)
    answers = [world.call(m.RunGraph(1, step, (value,))) for step in range(4)]
    world.network.run(until=2.0)
    refused = [bool(answer) for answer in answers]
    assert refused == [False, common, True, True]  # the other peer holds as much as one of them
    ((_, error),) = answers[3]
    assert isinstance(error, errors.ResourceExhaustedError)
    assert f"Requests of {'all peers' if common else '/job:w'} that /job:ps has not" in error.message
    assert "another 4" in error.message and "Wait for steps to end" in error.message
    for respond in responders[:2]:
        respond(m.RunGraphReply(()))
    again = world.call(m.RunGraph(1, 9, (value,)))
    world.network.run(until=3.0)
    assert not again and responders[-1].is_open


def test_messages_that_wait_for_a_connection_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tfmini.rpc.peer.BACKLOG_LIMIT", 500_000)
    world = World()
    peer = world.client.peer("sim://nobody", "/job:x")
    value, errors_found, dropped = np.zeros(100_000, np.float32), list[Any](), list[Any]()
    for step in range(3):
        peer.call(m.RunGraph(1, step, (value,)), errors_found.append, wait_for_ready=True)
    peer.send(m.SendTensors(1, "", 1, b"", (value,)), dropped.append)
    peer.call(m.GetStatus(), errors_found.append, wait_for_ready=True)  # a small one has room
    world.network.run(until=0.01)
    (error,) = errors_found
    assert isinstance(error, errors.ResourceExhaustedError)
    assert "/job:x at sim://nobody: 2 messages of" in error.message and "can be reached" in error.message
    assert isinstance(dropped[0], errors.ResourceExhaustedError)
    world.network.run(until=5.0)
    assert len(errors_found) == 1


def test_what_a_full_queue_refuses_is_the_error_of_its_sender() -> None:
    """A call fails, a one-way message ends its step, and an answer becomes a small error."""

    def full(link: Any) -> None:
        send = link.send

        def refuse(parts: Any) -> None:
            if len(parts) > 1:
                raise errors.ResourceExhaustedError.of("the peer does not read: 9 bytes are queued for it")
            send(parts)

        link.send = refuse

    value = np.zeros(100_000, np.float32)
    world, dropped = World(), list[Any]()
    world.server.serve({m.RunGraph: lambda peer, request, respond: respond(m.RunGraphReply((value,)))})
    world.call(m.GetStatus())
    world.network.run(until=1.0)
    (link,) = world.server.links()
    full(link)
    answers = world.call(m.RunGraph(1, 1, ()))
    world.network.run(until=2.0)
    ((_, error),) = answers
    assert isinstance(error, errors.ResourceExhaustedError)
    assert "RunGraph has run, and its answer cannot be sent: the peer does not read" in error.message
    full(world.peer.link)
    called = world.call(m.RunGraph(1, 2, (value,)))
    world.peer.send(m.SendTensors(1, "", 1, b"", (value,)), dropped.append)
    world.network.run(until=3.0)
    for found in (called[0][1], dropped[0]):
        assert isinstance(found, errors.ResourceExhaustedError)
        assert found.message.startswith("/job:ps at sim://ps: the peer does not read") and found.task == "/job:ps"
    assert not world.peer.calls and not world.lost
