"""Locks that raise an error when a thread takes them out of order, and entrances without locks.

`checked` puts them in the place of the locks of `tfmini.locks` that are made in its block. An error may be swallowed
where it is raised, so each is noted as well.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tfmini.locks import ORDER, WAITING, made_by

# Where another layer is called, or the thread may run or wait for anything: entered without a lock.
# `docs/concepts/threads.md` has the same table.
ENTRANCES = (
    "tfmini.runtime.executor.waiting_run:NodeWait.done",
    "tfmini.runtime.executor.waiting_run:NodeWait.fail",
    "tfmini.runtime.executor.waiting_run:NodeWait.on_cancel",
    "tfmini.runtime.executor.waiting_run:NodeWait.cancel",
    "tfmini.runtime.executor.dataflow_run:Activation.run_segment",
    "tfmini.runtime.executor.registered_graph:PartitionRun.execute",
    "tfmini.runtime.worker.worker:Worker.run_over",
    "tfmini.runtime.worker.worker:Worker.send_group",
    "tfmini.runtime.master.step:Step._finish",
    "tfmini.runtime.client.answer:Answer.done",
    "tfmini.runtime.client.answer:Answer._sleep",
    "tfmini.rpc.peer:Peer.call",
    "tfmini.rpc.peer:Peer.send",
    "tfmini.rpc.calls:Responder.__call__",
)


class LockOrderError(AssertionError):
    """A thread has taken a lock out of order, or holds one where it must not."""


class _Held(threading.local):
    def __init__(self) -> None:
        self.locks: list[CheckedLock] = []


_held = _Held()


class Record:
    """What checked locks have seen.

    Attributes:
      errors: texts.
      pairs: (name of a held lock, name of the lock that was taken).
      names: of all locks that were taken.
      file: where errors are written as well; for processes that may be killed.
    """

    def __init__(self, file: Path | None = None) -> None:
        self.errors: list[str] = []
        self.pairs: set[tuple[str, str]] = set()
        self.names: set[str] = set()
        self._file = file

    def fail(self, text: str) -> None:
        self.errors.append(text)
        if self._file is not None:
            with self._file.open("a") as file:
                file.write(f"{text}\n")
        raise LockOrderError(text)


class CheckedLock:
    """A lock of a name, with the interface of `threading.Lock`."""

    def __init__(self, record: Record, name: str, reentrant: bool) -> None:
        self._record, self.name, self._reentrant = record, name, reentrant
        self._lock: Any = threading.RLock() if reentrant else threading.Lock()
        self._level = ORDER.index(name)

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        if blocking:  # a lock that is only tried cannot be waited for in a circle
            self._check()
        taken: bool = self._lock.acquire(blocking, timeout)
        if taken:
            _held.locks.append(self)
        return taken

    def _check(self) -> None:
        self._record.names.add(self.name)
        for other in _held.locks:
            if other is self and self._reentrant:
                return
            if other.name not in WAITING:
                self._record.pairs.add((other.name, self.name))
            if other is self or other.name not in WAITING and other._level >= self._level:
                self._record.fail(f"{self.name} is taken by a thread that holds {other.name}")

    def release(self) -> None:
        self._lock.release()
        _held.locks.remove(self)

    def locked(self) -> bool:
        return bool(self._lock.locked())

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_: Any) -> None:
        self.release()


@contextlib.contextmanager
def checked(file: Path | None = None) -> Iterator[Record]:
    """Lets the locks that are made in the block be checked, and the entrances."""
    record = Record(file)
    with made_by(lambda name, reentrant: CheckedLock(record, name, reentrant)), contextlib.ExitStack() as stack:
        for entrance in ENTRANCES:
            stack.enter_context(_guarded(record, entrance))
        yield record


def check_from_now_on(file: str) -> None:
    """Checks the locks of the whole process that are made from now on; errors are written to the file."""
    checked(Path(file)).__enter__()


@contextlib.contextmanager
def _guarded(record: Record, entrance: str) -> Iterator[None]:
    module, _, path = entrance.partition(":")
    name, _, method = path.partition(".")
    owner = getattr(importlib.import_module(module), name)
    before = owner.__dict__[method]
    setattr(owner, method, _without_locks(record, entrance, before))
    try:
        yield
    finally:
        setattr(owner, method, before)


def _without_locks(record: Record, entrance: str, function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        held = [lock.name for lock in _held.locks if lock.name not in WAITING]
        if held:
            record.fail(f"{entrance} is entered by a thread that holds {held}")
        return function(*args, **kwargs)

    return call
