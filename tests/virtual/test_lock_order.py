"""Threads take locks in the order of `tfmini.locks.ORDER` and its page, and call others without them."""

from __future__ import annotations

import re
import threading
from pathlib import Path

import numpy as np
import pytest

import tfmini as tf
from tests.locking import ENTRANCES, LockOrderError, checked
from tests.virtual.schedules import run_schedule
from tfmini.locks import ORDER, WAITING, lock

PACKAGE = Path(__file__).parents[2] / "tfmini"
PAGE = PACKAGE.parent / "docs" / "concepts" / "threads.md"
# What the schedules do not come to: they have one thread at a time, no shared memory and no `Server.start` of its own.
ELSEWHERE = {
    *(
        "thread",
        "spare",
        "master",
        "status",
        "traffic",
        "exchange",
        "server early",
        "server start",
        "client endpoint",
        "moving",
    ),
}


def table(heading: str) -> list[list[str]]:
    """The rows of the table below a heading of the page."""
    section = PAGE.read_text().partition(f"## {heading}\n")[2].partition("\n## ")[0]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in section.splitlines() if line[:1] == "|"]
    return rows[2:]


def test_the_page_has_the_locks_in_their_order() -> None:
    assert [row[0].strip("`") for row in table("Locks")] == list(ORDER)
    assert tuple(row[0].strip("`") for row in table("Locks") if row[3].startswith("waits")) == WAITING


def test_the_page_has_the_threads() -> None:
    named = re.compile(r'(?:name|thread_name_prefix)=f?"tfmini(-[\w-]*\w)')
    names = {name for path in PACKAGE.rglob("*.py") for name in named.findall(path.read_text())}
    told = PAGE.read_text().partition("## Threads\n")[2].partition("\n## ")[0]
    assert (
        len(names) > 10 and {name for name in names if f"`tfmini{name}" not in told and f"`{name}" not in told} == set()
    )


def test_the_page_has_the_entrances() -> None:
    named = [re.findall(r"`([\w.]+)`", row[0]) for row in table("What is entered without a lock")]
    assert {name for names in named for name in names} == {each.partition(":")[2] for each in ENTRANCES}


def test_schedules_keep_the_order() -> None:
    with checked() as record:
        for seed in range(60):
            run_schedule(seed)
    assert record.errors == []
    assert set(ORDER) - record.names <= ELSEWHERE
    assert all(ORDER.index(outer) < ORDER.index(inner) for outer, inner in record.pairs)


def test_threads_of_one_process_keep_the_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sessions in several threads, queues, a Python function, and a loop with waits, which handlers run."""
    monkeypatch.setattr("tfmini.runtime.process.server_at", lambda address: None)
    with checked() as record, tf.Graph().as_default(), tf.train.Server.create_local_server() as server:
        queue = tf.FIFOQueue(4, [tf.float32], shapes=[[]])
        doubled = tf.py_func(lambda value: np.float32(2) * value, [queue.dequeue()], tf.float32)
        fill = queue.enqueue([3.0])

        def turn(i, total):
            with tf.control_dependencies([queue.enqueue(1.0)]):
                return i + 1, total + queue.dequeue()

        total = tf.while_loop(lambda i, _: i < 200, turn, [0, 0.0])[1]
        with tf.Session(server.target) as session, tf.Session() as local:
            threads = [threading.Thread(target=session.run, args=(fill,)) for _ in range(3)]
            for thread in threads:
                thread.start()
            assert [session.run(doubled) for _ in threads] == [6.0] * 3
            for thread in threads:
                thread.join()
            assert session.run(total) == local.run(total) == 200.0
    assert record.errors == []
    assert {"spare", "run", "task", "waiting op"} <= record.names


def test_a_lock_out_of_order_is_noticed() -> None:
    with checked() as record:
        first, last = lock(ORDER[-2]), lock(ORDER[-1])
        with first, last:
            pass
        with last, pytest.raises(LockOrderError, match=f"{ORDER[-2]} is taken by a thread that holds {ORDER[-1]}"):
            first.acquire()
    assert len(record.errors) == 1 and record.pairs == {(ORDER[-2], ORDER[-1]), (ORDER[-1], ORDER[-2])}
