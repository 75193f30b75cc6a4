"""Leader, followers and background thread; timers; queued calls."""

from __future__ import annotations

import gc
import os
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from tfmini.rpc.reactor import Reactor, get_reactor
from tfmini.rpc.waiter import Timer, Waiter

LIMIT_S = 60.0  # limit of waits for events that are certain


@pytest.fixture
def reactor() -> Iterator[Reactor]:
    made = Reactor()
    yield made
    made.close()


@pytest.fixture
def quiet_reactor() -> Iterator[Reactor]:
    """A reactor that runs only while somebody drives it."""
    made = Reactor(has_background=False)
    yield made
    made.close()


def soon(reactor: Reactor) -> float:
    return reactor.now() + LIMIT_S


def in_threads(*works: Any) -> list[threading.Thread]:
    threads = [threading.Thread(target=work) for work in works]
    for thread in threads:
        thread.start()
    return threads


def join(threads: list[threading.Thread]) -> None:
    for thread in threads:
        thread.join(LIMIT_S)
        assert not thread.is_alive()


class Pipe:
    """A watched socket pair; records the received data and the thread that received it."""

    def __init__(self, reactor: Reactor, on_data: Any = None, on_ready: Any = None) -> None:
        self.ours, self.theirs = socket.socketpair()
        self.ours.setblocking(False)
        self.got: list[bytes] = []
        self.threads: set[int] = set()
        self.on_data = on_data
        self.source = reactor.source(self.ours.fileno(), on_ready or self.read)
        reactor.watch(self.source)

    def read(self) -> None:
        while True:
            try:
                data = self.ours.recv(1 << 16)
            except BlockingIOError:
                return
            if not data:
                return
            self.threads.add(threading.get_ident())
            self.got.append(data)
            if self.on_data is not None:
                self.on_data(data)

    def close(self, reactor: Reactor) -> None:
        reactor.unwatch(self.source)
        self.ours.close()
        self.theirs.close()


def test_the_waiting_thread_runs_the_loop(reactor: Reactor) -> None:
    for _ in range(50):  # until this thread sleeps in the kernel, the background thread may get the event
        waiter = Waiter()
        pipe = Pipe(reactor, lambda data, waiter=waiter: waiter.set())
        writer = threading.Timer(0.02, lambda pipe=pipe: pipe.theirs.send(b"x"))
        writer.start()
        assert reactor.drive(waiter, soon(reactor))
        writer.join()
        pipe.close(reactor)
        if pipe.threads == {threading.get_ident()}:
            return
    raise AssertionError("it was always the background thread")


def test_the_background_thread_works_without_a_leader(reactor: Reactor) -> None:
    done = threading.Event()
    pipe = Pipe(reactor, lambda data: done.set())
    pipe.theirs.send(b"x")
    assert done.wait(LIMIT_S)
    assert threading.get_ident() not in pipe.threads
    pipe.close(reactor)


def test_the_background_thread_takes_over_after_a_leader_has_left(reactor: Reactor) -> None:
    for _ in range(20):
        waiter = Waiter()
        pipe = Pipe(reactor, lambda data, waiter=waiter: waiter.set())
        pipe.theirs.send(b"x")
        assert reactor.drive(waiter, soon(reactor))
        done = threading.Event()
        pipe.on_data = lambda data, done=done: done.set()
        pipe.theirs.send(b"y")
        assert done.wait(LIMIT_S)
        pipe.close(reactor)


def test_the_background_thread_takes_over_while_the_leader_is_busy(reactor: Reactor) -> None:
    """A handler that takes long does not stop the process from answering."""
    other_came, waiter = threading.Event(), Waiter()
    other = Pipe(reactor, lambda data: other_came.set())

    def busy(data: bytes) -> None:
        other.theirs.send(b"y")
        assert other_came.wait(LIMIT_S)
        waiter.set()

    pipe = Pipe(reactor, busy)
    for _ in range(3):  # the second and third time the background thread may be parked
        other_came.clear()
        waiter.done = False
        pipe.theirs.send(b"x")
        assert reactor.drive(waiter, soon(reactor))
    pipe.close(reactor)
    other.close(reactor)


def test_many_threads_wait_each_for_its_own_event(reactor: Reactor) -> None:
    """The leader wakes the followers; no follower is forgotten when the leader changes."""

    def work() -> None:
        waiters: dict[bytes, Waiter] = {}
        pipe = Pipe(reactor, lambda data: waiters[data[:4]].set())
        for i in range(200):
            key = b"%04d" % i
            waiters[key] = Waiter()
            pipe.theirs.send(key)
            assert reactor.drive(waiters[key], soon(reactor))
        pipe.close(reactor)
        finished.append(True)

    finished: list[bool] = []
    join(in_threads(*[work] * 5))
    assert len(finished) == 5


def test_a_result_from_a_foreign_thread_wakes_the_waiting_one(reactor: Reactor) -> None:
    waiters = [Waiter() for _ in range(300)]
    at: list[int] = [0]
    turn = threading.Semaphore(0)

    def finish() -> None:
        for waiter in waiters:
            assert turn.acquire(timeout=LIMIT_S)
            waiter.set()

    threads = in_threads(finish)
    for waiter in waiters:
        turn.release()
        assert reactor.drive(waiter, soon(reactor))
        at[0] += 1
    join(threads)


def test_a_follower_is_promoted_when_the_leader_leaves(reactor: Reactor) -> None:
    first, second, leading, following = Waiter(), Waiter(), threading.Event(), threading.Event()
    results: list[Any] = []

    def lead() -> None:
        reactor.call_soon(leading.set)
        results.append(reactor.drive(first, soon(reactor)))

    def follow() -> None:
        assert leading.wait(LIMIT_S)
        following.set()
        results.append(reactor.drive(second, soon(reactor)))

    threads = in_threads(lead, follow)
    assert following.wait(LIMIT_S)
    first.set()
    pipe = Pipe(reactor, lambda data: second.set())
    pipe.theirs.send(b"x")
    join(threads)
    assert results == [True, True]
    pipe.close(reactor)


def test_driving_ends_at_the_deadline(reactor: Reactor) -> None:
    start = reactor.now()
    assert reactor.drive(Waiter(), start + 0.05) is False
    assert reactor.now() - start >= 0.045


def test_a_follower_stops_waiting_at_its_deadline(reactor: Reactor) -> None:
    release, late = Waiter(), []
    threads = in_threads(lambda: reactor.drive(release, soon(reactor)))
    threads += in_threads(lambda: late.append(reactor.drive(Waiter(), reactor.now() + 0.05)))
    threads[1].join(LIMIT_S)
    assert late == [False]
    release.set()
    join(threads)


def test_timers_run_in_order_and_can_be_cancelled(quiet_reactor: Reactor) -> None:
    reactor = quiet_reactor  # so that none is due before all are set
    ran: list[str] = []
    waiter = Waiter()
    reactor.call_later(0.03, ran.append, "late")
    reactor.call_later(0.01, ran.append, "early")
    never = reactor.call_later(0.02, ran.append, "never")
    reactor.call_later(0.04, waiter.set)
    never.cancel()
    never.cancel()
    assert reactor.drive(waiter, soon(reactor))
    assert ran == ["early", "late"]


def test_timers_run_without_a_driver(reactor: Reactor) -> None:
    rang = threading.Event()
    reactor.call_later(1000, print)
    reactor.call_later(0.01, rang.set)
    assert rang.wait(LIMIT_S)


def test_an_earlier_timer_shortens_the_sleep_of_the_leader(reactor: Reactor) -> None:
    waiter, leading = Waiter(), threading.Event()
    reactor.call_soon(leading.set)
    threads = in_threads(lambda: reactor.drive(waiter, soon(reactor)))
    assert leading.wait(LIMIT_S)
    start = reactor.now()
    reactor.call_later(0.01, waiter.set)
    join(threads)
    assert reactor.now() - start < LIMIT_S / 2  # the sleep that was begun is as long as the limit


def test_cancelled_timers_are_removed(reactor: Reactor) -> None:
    for _ in range(10_000):
        reactor.call_later(1000, print).cancel()
    assert sum(isinstance(each, Timer) for each in gc.get_objects()) < 500


def test_queued_calls_keep_their_order(reactor: Reactor) -> None:
    ran: list[int] = []
    waiter = Waiter()
    for i in range(1000):
        reactor.call_soon(ran.append, i)
    reactor.call_soon(waiter.set)
    assert reactor.drive(waiter, soon(reactor))
    assert ran == list(range(1000))


def test_a_queued_call_may_wait_for_a_later_one(reactor: Reactor) -> None:
    outer, inner = Waiter(), Waiter()

    def wait_inside() -> None:
        assert reactor.drive(inner, soon(reactor))
        outer.set()

    reactor.call_soon(wait_inside)
    reactor.call_soon(inner.set)
    assert reactor.drive(outer, soon(reactor))


def test_a_handler_may_wait_for_another_source(reactor: Reactor) -> None:
    outer, inner = Waiter(), Waiter()
    second = Pipe(reactor, lambda data: inner.set())

    def wait_inside(data: bytes) -> None:
        second.theirs.send(b"y")
        assert reactor.drive(inner, soon(reactor))
        outer.set()

    first = Pipe(reactor, wait_inside)
    first.theirs.send(b"x")
    assert reactor.drive(outer, soon(reactor))
    first.close(reactor)
    second.close(reactor)


@pytest.mark.parametrize("waits_inside", [True, False])
def test_other_events_of_a_batch_are_handled_during_a_slow_one(reactor: Reactor, waits_inside: bool) -> None:
    """Its edge will not come again: it must not wait for the handler of another source."""
    arrived, over, in_time = Waiter(), Waiter(), list[bool]()
    order, seen = iter(["slow", "quick"]), threading.Event()

    def handle() -> None:
        if next(order) == "slow":
            in_time.append(reactor.drive(arrived, soon(reactor)) if waits_inside else seen.wait(LIMIT_S))
            over.set()
        else:
            arrived.set()
            seen.set()

    # Two descriptors of one counter: a write makes both readable at once, so both events come in one batch.
    counter = os.eventfd(0)
    descriptors = [counter, os.dup(counter)]
    sources = [reactor.source(fd, handle) for fd in descriptors]
    for source in sources:
        reactor.watch(source)
    threads = in_threads(lambda: reactor.drive(over, soon(reactor)))
    os.eventfd_write(counter, 1)
    join(threads)
    assert in_time == [True]
    for source in sources:
        reactor.unwatch(source)
    for fd in descriptors:
        os.close(fd)


def test_a_failing_handler_is_logged_and_the_loop_continues(reactor: Reactor, caplog: Any) -> None:
    waiter = Waiter()

    def fail(data: bytes) -> None:
        if data == b"bad":
            raise ValueError("a bug in a handler")
        waiter.set()

    pipe = Pipe(reactor, fail)
    pipe.theirs.send(b"bad")
    reactor.call_soon(fail, b"bad")
    pending = Waiter()
    reactor.call_later(0.02, pending.set)
    assert reactor.drive(pending, soon(reactor))
    pipe.theirs.send(b"good")
    assert reactor.drive(waiter, soon(reactor))
    while caplog.text.count("ValueError: a bug in a handler") < 2:  # the background thread may have had the first
        assert reactor.drive(Waiter(), reactor.now() + 0.01) is False
    pipe.close(reactor)


def test_interrupting_the_driver_loses_nothing(quiet_reactor: Reactor) -> None:
    """A KeyboardInterrupt in a handler leaves `drive`; the other events of the batch are still handled."""
    reactor = quiet_reactor
    waiter = Waiter()

    def interrupt(data: bytes) -> None:
        raise KeyboardInterrupt

    bad, good = Pipe(reactor, interrupt), Pipe(reactor, lambda data: waiter.set())
    bad.theirs.send(b"x")
    good.theirs.send(b"y")
    with pytest.raises(KeyboardInterrupt):
        reactor.drive(Waiter(), soon(reactor))
    assert reactor.drive(waiter, soon(reactor))
    bad.close(reactor)
    good.close(reactor)


def test_one_source_is_never_read_by_two_threads(reactor: Reactor) -> None:
    inside, worst = [0], [0]
    order: list[int] = []
    waiters = [Waiter() for _ in range(3)]

    def slow(data: bytes) -> None:
        inside[0] += 1
        worst[0] = max(worst[0], inside[0])
        order.extend(data)
        os.sched_yield()
        inside[0] -= 1
        if len(order) == 200:
            for waiter in waiters:
                waiter.set()

    pipe = Pipe(reactor, slow)
    threads = in_threads(*[lambda w=w: reactor.drive(w, soon(reactor)) for w in waiters])
    for i in range(200):
        pipe.theirs.send(bytes([i]))
    join(threads)
    assert order == list(range(200))
    assert worst[0] == 1
    pipe.close(reactor)


def test_a_forked_child_gets_its_own_reactor() -> None:
    mine = get_reactor()
    assert get_reactor() is mine
    pid = os.fork()
    if pid == 0:
        waiter = Waiter()
        child = get_reactor()
        child.call_later(0.01, waiter.set)
        os._exit(0 if child is not mine and child.drive(waiter, child.now() + LIMIT_S) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def test_interest_in_writability_of_a_removed_source_is_ignored(reactor: Reactor) -> None:
    """A sender may find a backlog while another thread handles the end of the connection."""
    ours, theirs = socket.socketpair()
    source = reactor.source(ours.fileno(), lambda: None)
    reactor.watch(source)
    reactor.unwatch(source)
    reactor.watch_writable(source, True)
    ours.close()
    theirs.close()


def test_calls_that_queue_calls_starve_nothing(reactor: Reactor) -> None:
    """A source that is read in turns queues itself again and again; sockets, timers and the deadline go on."""
    pipe, fired, rounds = Pipe(reactor), Waiter(), 0
    stop = False

    def again() -> None:
        nonlocal rounds
        rounds += 1
        if not stop:
            reactor.call_soon(again)

    try:
        reactor.call_soon(again)
        reactor.call_later(0.01, lambda: (pipe.theirs.send(b"x"), fired.set()))
        assert reactor.drive(fired, soon(reactor))
        assert not reactor.drive(Waiter(), reactor.now() + 0.05)  # the deadline
        until_read = Waiter()
        pipe.on_data = lambda data: until_read.set()
        pipe.theirs.send(b"y")
        assert reactor.drive(until_read, soon(reactor))
        assert b"".join(pipe.got) == b"xy"
        before = rounds
        assert not reactor.drive(Waiter(), reactor.now() + 0.05)
        assert rounds > before
    finally:
        stop = True
        pipe.close(reactor)


def test_timers_and_queued_calls_go_on_while_a_source_that_was_read_again_is_busy(reactor: Reactor) -> None:
    """A source that asks for another turn must not hold up the calls that are queued behind it."""
    fired, called, waiter = threading.Event(), threading.Event(), Waiter()
    turns: list[bool] = []

    def read() -> None:
        turns.append(fired.is_set())
        if len(turns) == 1:
            pipe.source.again()
        elif len(turns) == 2:
            reactor.call_later(0.0, fired.set)
            thread = threading.Thread(target=reactor.call_soon, args=(called.set,))
            thread.start()
            in_time.extend([fired.wait(LIMIT_S), called.wait(LIMIT_S)])
            thread.join()
            waiter.set()

    in_time: list[bool] = []
    pipe = Pipe(reactor, on_ready=read)
    pipe.theirs.send(b"x")
    assert reactor.drive(waiter, reactor.now() + 3 * LIMIT_S)
    assert in_time == [True, True]
    pipe.close(reactor)


def test_a_source_that_asks_for_another_turn_gets_it_while_a_leader_sleeps(reactor: Reactor) -> None:
    """The background thread, which may have taken a turn, must not park while more are wanted."""
    waiter, asleep = Waiter(), threading.Event()
    turns = [0]

    def read() -> None:
        turns[0] += 1
        if turns[0] < 100:
            pipe.source.again()
        else:
            over.set()

    over, pipe = threading.Event(), Pipe(reactor, on_ready=read)
    reactor.call_soon(asleep.set)
    threads = in_threads(lambda: reactor.drive(waiter, soon(reactor)))
    assert asleep.wait(LIMIT_S)
    for _ in range(50):
        over, turns[0] = threading.Event(), 0
        pipe.source.again()
        assert over.wait(LIMIT_S)
    waiter.set()
    join(threads)
    pipe.close(reactor)
