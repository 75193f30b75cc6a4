"""Requests that are answered while every thread of the loop is in a handler."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

from tests.rpc.test_reactor import LIMIT_S, Pipe, in_threads, join, soon
from tfmini.rpc.codec import encode, kind_of
from tfmini.rpc.endpoint import Endpoint
from tfmini.rpc.messages import GetStatus, GetStatusReply, GetTaskStatus, GetTaskStatusReply, Heartbeat, Hello
from tfmini.rpc.reactor import Reactor, is_urgent
from tfmini.rpc.records import PROTOCOL_VERSION
from tfmini.rpc.waiter import Waiter

PS = "/job:ps/replica:0/task:0"


@pytest.fixture
def reactors() -> Iterator[tuple[Reactor, Reactor]]:
    """Of a server and of a client."""
    made = Reactor(), Reactor()
    yield made
    for reactor in made:
        reactor.close()


def hello(task: str) -> Hello:
    return Hello(PROTOCOL_VERSION, task, 1, "", b"", False, "", 0, 0)


def test_a_clients_hello_and_the_question_for_the_status_are_urgent() -> None:
    assert is_urgent(encode(hello(""), 1)) and is_urgent(encode(GetTaskStatus(True), 1))
    assert not is_urgent(encode(hello(PS), 1)) and not is_urgent(encode(GetStatus(), 1))
    assert not is_urgent(encode(Heartbeat(1, ""))) and not is_urgent([b""]) and not is_urgent([])
    assert not is_urgent([encode(hello(""), 1)[0][:-1]])
    assert kind_of(encode(GetStatus(), 1)) == GetStatus.row.kind


def test_the_status_is_answered_while_all_threads_of_the_loop_are_stuck_and_others_wait_in_order(
    reactors: tuple[Reactor, Reactor],
) -> None:
    own, theirs = reactors
    inside, go_on, driven = threading.Barrier(3, timeout=LIMIT_S), threading.Event(), Waiter()
    order: list[str] = []
    server = Endpoint(own, PS, 7, insecure=True)  # the handler of keys stays with the first reactor
    client = Endpoint(theirs, "", 8, insecure=True, lanes=False)

    def status(peer: object, request: GetTaskStatus, respond: object) -> None:
        order.append(f"status {threading.current_thread().name}")
        respond(GetTaskStatusReply({}, {"stuck": server.stuck_s > 0}))  # type: ignore[operator]

    def usual(peer: object, request: GetStatus, respond: object) -> None:
        order.append("usual")
        respond(GetStatusReply(PS, 7, []))  # type: ignore[operator]

    def block(data: bytes) -> None:
        inside.wait()
        go_on.wait(LIMIT_S)

    server.serve({GetTaskStatus: status, GetStatus: usual})
    address = server.listen("localhost:0")
    pipes = [Pipe(own, block), Pipe(own, block)]
    leader = in_threads(lambda: own.drive(driven, soon(own)))
    for pipe in pipes:
        pipe.theirs.send(b"x")
    inside.wait()  # the leader and the background thread are stuck

    peer, answers, answered, all_done = client.peer(address, PS), [], Waiter(), Waiter()
    peer.call(GetTaskStatus(False), lambda answer: (answers.append(answer), answered.set()))
    assert theirs.drive(answered, soon(theirs))
    assert answers == [GetTaskStatusReply({}, {"stuck": True})]
    peer.call(GetStatus(), lambda answer: all_done.set())
    assert not theirs.drive(all_done, theirs.now() + 0.1)  # it waits for the loop
    assert order == ["status tfmini-relief"]
    go_on.set()
    assert theirs.drive(all_done, soon(theirs))
    driven.set()
    join(leader)
    assert order == ["status tfmini-relief", "usual"]
    client.close()
    server.close()
    for pipe in pipes:
        pipe.close(own)


def test_the_loop_is_no_longer_stuck_when_a_thread_is_free(reactors: tuple[Reactor, Reactor]) -> None:
    own, _ = reactors
    own.relief.add(lambda: None)
    inside, go_on, waiter, driven = threading.Event(), threading.Event(), Waiter(), Waiter()
    stuck = threading.Event()
    own.relief.add(stuck.set)

    def block(data: bytes) -> None:
        inside.set()
        go_on.wait(LIMIT_S)

    pipe = Pipe(own, block)
    pipe.theirs.send(b"x")
    assert inside.wait(LIMIT_S)
    own.call_later(0.0, int)
    assert stuck.wait(LIMIT_S) and own.relief.stuck_s > 0
    go_on.set()
    own.call_later(0.01, waiter.set)
    assert own.drive(waiter, soon(own))
    assert not own.drive(driven, own.now() + 0.01) and own.relief.stuck_s == 0
    pipe.close(own)


def test_timers_fire_while_a_queued_call_takes_long_and_another_thread_polls() -> None:
    """The thread that polls cannot make the calls of timers, since queued calls run one at a time."""
    reactor = Reactor()
    begun, fired, waiter = threading.Event(), threading.Event(), Waiter()

    def long_call() -> None:
        begun.set()
        assert fired.wait(LIMIT_S)
        waiter.set()

    reactor.call_soon(long_call)
    assert begun.wait(LIMIT_S)  # in the background thread
    reactor.call_later(0.01, fired.set)
    assert reactor.drive(waiter, time.monotonic() + LIMIT_S)
    assert fired.is_set()
    reactor.close()
