"""The process of the operating system, and the thread's belonging to another one."""

from __future__ import annotations

import threading
import weakref

import pytest

from tfmini.runtime import process as process_module
from tfmini.runtime.process import Process, current_process, random_name, set_current_process, submitted


def test_random_numbers_have_the_length_asked_for() -> None:
    process = current_process()
    for bits in (1, 7, 8, 56, 62):
        drawn = [process.randbits(bits) for _ in range(200)]
        assert all(0 <= number < 1 << bits for number in drawn)
        assert max(drawn) >= 1 << bits - 1
    assert len(random_name(process)) == 16 and random_name(process) != random_name(process)


def test_a_pool_that_the_exit_of_python_has_closed_takes_no_call() -> None:
    pool = current_process().pool(1, "test")
    assert submitted(pool, int)
    pool.shutdown()
    assert not submitted(pool, int)


class _Step:
    """What a call holds, for a weak reference."""


def test_a_spare_thread_that_waits_keeps_nothing_of_its_first_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_module, "SPARE_S", 100.0)  # it waits longer than this test
    gone, step = threading.Event(), _Step()
    weakref.finalize(step, gone.set)
    current_process().spare_threads("test").submit(id, step)
    del step
    assert gone.wait(60)


def test_a_thread_can_belong_to_another_process() -> None:
    own, other, seen = current_process(), Process(), []
    before = set_current_process(other)
    try:
        assert current_process() is other
        thread = threading.Thread(target=lambda: seen.append(current_process()))
        thread.start()
        thread.join()
    finally:
        set_current_process(before)
    assert seen == [own] and current_process() is own
