"""Named locks, guarded states, and what happens once."""

from __future__ import annotations

import threading

from tfmini.locks import ORDER, WAITING, Guarded, Once, lock, made_by


class Counter:
    """A state whose event is not atomic."""

    def __init__(self) -> None:
        self.value = 0

    def add(self, amount: int) -> int:
        before = self.value
        for _ in range(10):
            pass
        self.value = before + amount
        return self.value


def test_the_events_of_a_state_run_alone() -> None:
    counter = Guarded(ORDER[-1], Counter())

    def work() -> None:
        for _ in range(2000):
            counter(Counter.add, 2)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert counter.state.value == 16_000


def test_the_first_caller_is_told() -> None:
    once = Once()
    assert not once.is_over
    assert [once(), once()] == [True, False] and once.is_over


def test_locks_are_plain_but_in_tests() -> None:
    assert type(lock(ORDER[0])) is type(threading.Lock())
    assert type(lock(ORDER[0], reentrant=True)) is type(threading.RLock())
    made: list[str] = []
    with made_by(lambda name, reentrant: made.append(name)):
        lock(ORDER[0])
    assert made == [ORDER[0]] and len(set(ORDER)) == len(ORDER) and set(WAITING) < set(ORDER)
