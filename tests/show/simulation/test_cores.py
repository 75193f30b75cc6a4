"""Cores and threads in virtual time."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from tests.show.simulation.profiles import Events
from tfmini.show.simulation.cores import Cores, Lock, Piece, Thread


def _ends(cores: int, jobs: list[float], threads: int) -> list[float]:
    """When each job ends that starts at 0, on this many threads."""
    events = Events()
    machine = Cores(events, cores)
    ends = [0.0] * len(jobs)

    def job(index: int, seconds: float) -> Iterator[Piece]:
        yield seconds, None
        ends[index] = events.now()

    pool = [Thread(events, machine) for _ in range(threads)]
    for index, seconds in enumerate(jobs):
        pool[index % threads].submit(job(index, seconds))
    events.run()
    return ends


def test_threads_share_the_cores_equally() -> None:
    assert _ends(1, [1.0, 1.0], threads=2) == pytest.approx([2.0, 2.0])
    assert _ends(2, [1.0, 1.0], threads=2) == pytest.approx([1.0, 1.0])
    assert _ends(2, [1.0, 1.0, 1.0], threads=3) == pytest.approx([1.5, 1.5, 1.5])
    assert _ends(1, [1.0, 3.0], threads=2) == pytest.approx([2.0, 4.0])


def test_more_threads_than_cores_take_longer_for_all() -> None:
    events = Events()
    machine = Cores(events, 2, overload=1.5)
    ends: list[float] = []
    for seconds in (1.0, 1.0, 4.0):
        machine.run(seconds, lambda: ends.append(events.now()))
    events.run()
    assert ends == pytest.approx([2.25, 2.25, 5.25])  # three share 2 / 1.5 cores, then the last has one of its own


def test_a_thread_runs_one_job_at_a_time() -> None:
    assert _ends(2, [1.0, 2.0], threads=1) == pytest.approx([1.0, 3.0])


def test_cores_never_give_more_than_they_have() -> None:
    chance = random.Random(3)
    for _ in range(20):
        cores, threads = chance.randint(1, 4), chance.randint(1, 8)
        jobs = [chance.uniform(0.01, 1.0) for _ in range(30)]
        end = max(_ends(cores, jobs, threads))
        assert end >= sum(jobs) / min(cores, threads) - 1e-9
        assert end >= max(sum(jobs[i::threads]) for i in range(threads)) - 1e-9


def test_an_action_comes_between_two_pieces() -> None:
    events = Events()
    seen: list[tuple[str, float]] = []

    def job() -> Iterator[Piece]:
        yield 1.0, lambda: seen.append(("sent", events.now()))
        yield 2.0, None
        seen.append(("over", events.now()))

    thread = Thread(events, Cores(events, 1))
    thread.submit(job())
    events.run()
    assert seen == [("sent", 1.0), ("over", 3.0)]
    assert (thread.busy_s, thread.ended) == (3.0, 3.0)


def test_a_delayed_job_gets_its_core_later_and_the_next_one_waits_for_it() -> None:
    events = Events()
    cores = Cores(events, 2)
    ends: list[tuple[str, float]] = []

    def job(name: str, seconds: float) -> Iterator[Piece]:
        yield seconds, None
        ends.append((name, events.now()))

    other, thread = Thread(events, cores), Thread(events, cores)
    assert not cores.is_half_idle
    other.submit(job("other", 5.0))
    assert cores.is_half_idle
    thread.submit(job("first", 1.0), delay_s=0.5)
    assert not thread.is_idle
    thread.submit(job("second", 1.0))
    events.run()
    assert ends == [("first", 1.5), ("second", 2.5), ("other", 5.0)]
    assert thread.busy_s == 2.0


def test_a_lock_lets_one_thread_run_after_the_other() -> None:
    events, ends = Events(), []
    cores, lock = Cores(events, 4), Lock()
    threads = Thread(events, cores, 3)

    def job(name: str) -> Iterator[Piece]:
        yield lock, None
        yield 2.0, lock.release
        yield 1.0, lambda: ends.append((name, events.now()))

    for name in "abc":
        threads.submit(job(name))
    events.run()
    assert ends == [("a", 3.0), ("b", 5.0), ("c", 7.0)]
    assert threads.is_idle


def test_many_jobs_without_work_need_no_stack() -> None:
    events, done = Events(), []
    thread = Thread(events, Cores(events, 1))

    def job(number: int) -> Iterator[Piece]:
        yield 1.0 if number == 0 else 0.0, lambda: done.append(number)

    for number in range(5000):
        thread.submit(job(number))
    events.run()
    assert done == list(range(5000))
