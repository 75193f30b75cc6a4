"""Timers while all threads of the loop are in handlers."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from tests.rpc.test_reactor import LIMIT_S, Pipe, in_threads, join, soon
from tfmini.rpc.reactor import Reactor
from tfmini.rpc.waiter import Waiter


@pytest.fixture
def reactor() -> Iterator[Reactor]:
    made = Reactor()
    yield made
    made.close()


def test_timers_fire_while_all_threads_of_the_loop_are_busy(reactor: Reactor) -> None:
    """The leader and the background thread are each in a handler that ends only after the timer."""
    inside, fired, waiter = threading.Barrier(3, timeout=LIMIT_S), threading.Event(), Waiter()
    in_time: list[bool] = []

    def busy(data: bytes) -> None:
        inside.wait()
        in_time.append(fired.wait(LIMIT_S))
        if len(in_time) == 2:
            waiter.set()

    pipes = [Pipe(reactor, busy), Pipe(reactor, busy)]
    leader = in_threads(lambda: reactor.drive(waiter, soon(reactor)))
    for pipe in pipes:
        pipe.theirs.send(b"x")
    inside.wait()  # both handlers run
    reactor.call_later(0.01, fired.set)
    join(leader)
    assert in_time == [True, True]
    for pipe in pipes:
        pipe.close(reactor)


def test_a_timer_that_is_late_counts_as_a_handler(reactor: Reactor) -> None:
    """So what it calls is handed to another thread if it may take long: the timekeeper sends the heartbeats."""
    inside, fired = threading.Barrier(3, timeout=LIMIT_S), threading.Event()
    found: list[bool] = []

    def busy(data: bytes) -> None:
        inside.wait()
        fired.wait(LIMIT_S)

    pipes = [Pipe(reactor, busy), Pipe(reactor, busy)]
    waiter = Waiter()
    leader = in_threads(lambda: reactor.drive(waiter, soon(reactor)))
    for pipe in pipes:
        pipe.theirs.send(b"x")
    inside.wait()
    assert not reactor.runs_here()
    reactor.call_later(0.01, lambda: (found.append(reactor.runs_here()), fired.set(), waiter.set()))
    join(leader)
    assert found == [True]


def test_a_timer_whose_call_takes_long_holds_up_no_other_that_is_due_with_it(reactor: Reactor) -> None:
    """As the heartbeats of one endpoint, while a timer of another one computes or waits."""
    fired, ended = threading.Event(), threading.Event()
    in_time: list[bool] = []

    def long_call() -> None:
        in_time.append(fired.wait(LIMIT_S))
        ended.set()

    def set_timers(data: bytes) -> None:  # both are due when the loop looks at its timers next
        reactor.call_later(0.0, long_call)
        reactor.call_later(0.0, fired.set)

    pipe = Pipe(reactor, set_timers)
    pipe.theirs.send(b"x")
    assert ended.wait(2 * LIMIT_S) and in_time == [True]
    pipe.close(reactor)


def test_a_failing_timer_stops_no_other(reactor: Reactor, caplog: pytest.LogCaptureFixture) -> None:
    busy, fired = threading.Event(), threading.Event()

    def fail() -> None:
        raise ValueError("a bug in a timer")

    def hold(data: bytes) -> None:
        busy.set()
        assert fired.wait(LIMIT_S)

    pipe = Pipe(reactor, hold)
    pipe.theirs.send(b"x")
    assert busy.wait(LIMIT_S)
    reactor.call_later(0.0, fail)
    reactor.call_later(0.0, fired.set)
    assert fired.wait(LIMIT_S)
    assert "a bug in a timer" in caplog.text
    pipe.close(reactor)


def test_the_thread_ends_with_the_reactor() -> None:
    before = set(threading.enumerate())
    reactor = Reactor()
    reactor.call_later(1000, print)
    (thread,) = [new for new in set(threading.enumerate()) - before if new.name == "tfmini-timekeeper"]
    assert thread.is_alive()
    reactor.close()
    assert not thread.is_alive()
