"""The pause of Python's cycle collector."""

from __future__ import annotations

import gc
import os
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest

import tfmini as tf
from tfmini import memory
from tfmini.memory import call_imports_old, call_old, collector_at_rest, current_frames
from tfmini.runtime.worker.worker_service import describe_computing


@pytest.fixture(autouse=True)
def enabled() -> Iterator[None]:
    was_enabled = gc.isenabled()
    gc.enable()
    yield
    if not was_enabled:
        gc.disable()


def _holder() -> tuple[threading.Thread, threading.Event, threading.Event]:
    """A thread that pauses the collector, whether it does so, and when it is to end."""
    begun, end = threading.Event(), threading.Event()

    def hold() -> None:
        with collector_at_rest():
            begun.set()
            end.wait(60)

    return threading.Thread(target=hold), begun, end


def test_the_collector_rests_inside_the_outermost_block() -> None:
    with collector_at_rest():
        with collector_at_rest():
            assert not gc.isenabled()
        assert not gc.isenabled()
    assert gc.isenabled()


def test_an_error_ends_the_pause() -> None:
    with pytest.raises(KeyError), collector_at_rest():
        raise KeyError
    assert gc.isenabled()


def test_a_collector_that_is_off_stays_off() -> None:
    gc.disable()
    with collector_at_rest():
        pass
    assert not gc.isenabled()


def test_the_last_of_several_threads_ends_the_pause() -> None:
    thread, begun, end = _holder()
    with collector_at_rest():
        thread.start()
        assert begun.wait(60)
    assert not gc.isenabled()
    end.set()
    thread.join(60)
    assert gc.isenabled()


def test_objects_of_a_long_pause_are_old() -> None:
    with collector_at_rest():
        made = [[] for _ in range(200_000)]  # type: ignore[var-annotated]
    assert gc.get_count()[0] < 100_000
    old = {id(thing) for thing in gc.get_objects(generation=2)}
    assert all(id(thing) in old for thing in made[:10])
    assert not gc.get_freeze_count()


def test_frozen_objects_stay_frozen() -> None:
    gc.freeze()
    try:
        with collector_at_rest():
            made = [[] for _ in range(200_000)]  # type: ignore[var-annotated]
        assert gc.get_freeze_count() and made
    finally:
        gc.unfreeze()


@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
def test_a_forked_child_does_not_keep_the_pause_of_a_thread_that_it_lacks() -> None:
    thread, begun, end = _holder()
    thread.start()
    assert begun.wait(60)
    child = os.fork()
    if not child:
        is_enabled = gc.isenabled()
        with collector_at_rest():
            rests = not gc.isenabled()
        os._exit(0 if is_enabled and rests and gc.isenabled() else 1)
    assert os.waitpid(child, 0)[1] == 0
    end.set()
    thread.join(60)
    assert gc.isenabled()


def test_no_collection_runs_while_the_frames_of_all_threads_are_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """A destructor there may let a thread run that waits for the lock which is held (CPython's gh-106883)."""
    collects: list[bool] = []
    frames = sys._current_frames

    def asked() -> dict[int, Any]:
        collects.append(gc.isenabled())
        return frames()

    monkeypatch.setattr(sys, "_current_frames", asked)
    assert threading.get_ident() in current_frames()
    assert describe_computing([threading.get_ident()]) == ""
    assert collects == [False, False] and gc.isenabled()


def test_the_objects_of_a_started_program_are_called_old() -> None:
    gc.collect()
    before = gc.get_stats()[2]["collections"]
    kept = [[] for _ in range(5_000)]  # type: ignore[var-annotated]
    call_old()
    assert gc.get_count()[1:] == (0, 0)
    assert any(each is kept for each in gc.get_objects(generation=2))
    assert gc.get_stats()[2]["collections"] == before and not gc.get_freeze_count()


def test_what_is_imported_is_called_old_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the garbage of a process that makes many servers would never be collected."""
    calls: list[None] = []
    monkeypatch.setattr(memory, "call_old", lambda: calls.append(None))
    call_imports_old.cache_clear()
    for _ in range(2):
        tf.train.Server.create_local_server().stop()
    assert len(calls) == 1
