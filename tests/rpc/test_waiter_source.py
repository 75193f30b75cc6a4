"""A source that stops early, or is interrupted, comes again, once."""

from __future__ import annotations

from typing import Any

import pytest

from tfmini.rpc.waiter import EventSource


class Loop:
    """Stands in for the reactor: keeps the calls that are queued, and has one source."""

    def __init__(self) -> None:
        self.calls: list[Any] = []
        self.source: Any = None

    def call_soon(self, call: Any, *args: Any) -> None:
        self.calls.append(lambda: call(*args))

    def make(self, callback: Any, after: Any = None) -> EventSource:
        self.source = EventSource(0, callback, self, after)
        return self.source

    def handle_again(self, fd: int) -> None:
        self.source.ready()

    def run(self) -> None:
        calls, self.calls = self.calls, []
        for call in calls:
            call()


def test_a_callback_that_asks_twice_comes_again_once() -> None:
    loop, runs = Loop(), [0]

    def callback() -> None:
        runs[0] += 1
        source.again()  # there is more to read
        source.again()  # and more to write

    source = loop.make(callback)
    source.ready()
    for i in range(1, 10):
        assert len(loop.calls) == 1
        assert runs == [i]
        loop.run()


def test_an_event_between_adds_no_second_call() -> None:
    loop = Loop()
    source = loop.make(lambda: source.again())
    for _ in range(5):
        source.ready()
    assert len(loop.calls) == 1


def test_an_interrupted_callback_comes_again() -> None:
    """The kernel reports an edge once; what is left unread would otherwise wait for the next one."""
    loop, runs = Loop(), [0]

    def callback() -> None:
        runs[0] += 1
        if runs[0] == 1:
            raise KeyboardInterrupt

    source = loop.make(callback)
    with pytest.raises(KeyboardInterrupt):
        source.ready()
    loop.run()
    assert runs == [2]


def test_a_queued_call_that_was_lost_is_queued_again() -> None:
    """An interrupt can hit between the queue and the call."""
    loop = Loop()
    wanted = [True]
    source = loop.make(lambda: source.again() if wanted[0] else None)
    source.ready()
    loop.calls.clear()
    wanted[0] = False
    source.ready()  # an event
    source.again()
    assert len(loop.calls) == 1


def test_an_event_during_the_callback_does_not_wait_for_what_follows() -> None:
    """What follows the callback may take long."""
    loop, order = Loop(), []

    def callback() -> None:
        order.append("callback")
        if len(order) == 1:
            source.ready()  # another thread gets an event, and cannot handle it now

    def after() -> None:
        order.append("after")
        loop.run()  # other threads run the loop meanwhile

    source = loop.make(callback, after)
    source.ready()
    assert order[:3] == ["callback", "after", "callback"]
    loop.run()
