"""Threads of rpc take its locks in the order of docs/concepts/threads.md, and call nobody above while they hold one."""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.rpc.task_processes import PS, SETTINGS, Call, until
from tfmini import errors
from tfmini.rpc import messages as m
from tfmini.rpc import send_queue
from tfmini.rpc.endpoint import Endpoint
from tfmini.rpc.peer import Peer
from tfmini.rpc.reactor import get_reactor

PAGE = Path(__file__).parents[2] / "docs" / "concepts" / "threads.md"
_held = threading.local()


class NamedLock:
    """A lock that notes which others its thread holds when it takes it. Nobody waits for one that is only tried."""

    def __init__(self, lock: Any, name: str, pairs: set[tuple[str, str]]) -> None:
        self._lock, self._name, self._pairs = lock, name, pairs

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        mine = _held.__dict__.setdefault("names", [])
        if blocking and self._name not in mine:
            self._pairs.update((outer, self._name) for outer in mine)
        taken = self._lock.acquire(blocking, timeout)
        if taken and blocking:
            mine.append(self._name)
        return bool(taken)

    def release(self) -> None:
        self._lock.release()
        mine = _held.__dict__.get("names", [])
        if self._name in mine:
            mine.remove(self._name)

    def locked(self) -> bool:
        return bool(self._lock.locked())

    def __enter__(self) -> None:
        self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()


@pytest.fixture
def pairs(monkeypatch: pytest.MonkeyPatch) -> Iterator[set[tuple[str, str]]]:
    """The pairs of locks (held, taken) of all objects of rpc that the test makes."""
    found: set[tuple[str, str]] = set()

    def named(make: Any) -> Any:
        def lock() -> Any:
            frame = sys._getframe(1)
            owner = frame.f_locals.get("self")
            if not frame.f_globals["__name__"].startswith("tfmini.rpc.") or owner is None:
                return make()
            base = "SendQueue" if isinstance(owner, send_queue.SendQueue) else type(owner).__name__
            return NamedLock(make(), f"{base}.{'lock' if base in ('SendQueue', 'TimerHeap') else '_lock'}", found)

        return lock

    monkeypatch.setattr(threading, "Lock", named(threading.Lock))
    monkeypatch.setattr(threading, "RLock", named(threading.RLock))
    monkeypatch.setattr(send_queue, "allocate_lock", named(send_queue.allocate_lock))
    yield found


def order() -> list[list[str]]:
    """The lines of the page, each from the outermost lock to the innermost."""
    lines = [line.strip() for line in PAGE.read_text().splitlines() if "→" in line and line.startswith("    ")]
    return [[word.strip() for word in line.split("→")] for line in lines]


def allowed() -> set[tuple[str, str]]:
    found = set()
    for line in order():
        groups = [re.findall(r"\w+\.\w+", words) for words in line]
        for i, outer in enumerate(groups):
            found |= {(one, other) for group in groups[i + 1 :] for one in outer for other in group}
    return found


@pytest.mark.parametrize("route", list(SETTINGS))
def test_locks_are_taken_in_the_order_of_the_page(
    pairs: set[tuple[str, str]], monkeypatch: pytest.MonkeyPatch, route: str
) -> None:
    for name, value in SETTINGS[route].items():
        monkeypatch.setenv(name, value)
    under: list[str] = []

    def look(*_: Any) -> None:
        under.extend(_held.__dict__.get("names", []))

    server, client = Endpoint(get_reactor(), PS, 42), Endpoint(get_reactor(), "", 7)
    server.serve({m.RunGraph: lambda peer, request, respond: (look(), respond(m.RunGraphReply(request.feed_values)))})
    address = server.listen("127.0.0.1:0")
    value = np.arange(1 << 20, dtype=np.float32)
    for round_ in range(3):
        peer: Peer = client.peer(address, PS)
        peer.on_lost(look)
        for step in range(4):
            answer = Call(peer, m.RunGraph(1, 10 * round_ + step, (value,)), wait_for_ready=True, timeout_s=60).wait()
            look()
            assert isinstance(answer, m.RunGraphReply | errors.UnavailableError)  # the latter at the end of a link
            del answer
        for link in server.links():
            link.end("the test ends it")
        until(lambda: not server.links(), "the end")
    client.close()
    server.close()
    assert under == []
    assert pairs, "no lock was seen under another one"
    assert pairs - allowed() == set()
