"""Named locks in one order, and the shapes in which the runtime uses them.

`ORDER` is the order in which a thread may take locks: while it holds one, it takes only locks that stand later.
`docs/concepts/threads.md` says of each what it guards and what may be called under it. In production `lock` makes a
plain `threading.Lock`. A test puts a lock in its place that raises an error when it is taken out of order (`made_by`).
"""

from __future__ import annotations

import contextlib
import threading
from _thread import allocate_lock
from collections.abc import Callable, Iterator
from typing import Any, Generic, TypeVar, TypeVarTuple

S = TypeVar("S")
T = TypeVar("T")
Ts = TypeVarTuple("Ts")

WAITING = ("server start", "session extend", "client open")
"""Held while their thread waits for a master or runs handlers, which may take any lock, those of other sessions too."""

ORDER = (
    *WAITING,
    "session calls", "client pending", "client endpoint", "server early",
    "session graph", "session plans", "session tasks", "master", "step", "owners", "fan-out", "moving",
    "status", "status events", "bind", "resources", "task", "collectives", "exchange", "groups", "traffic",
    "waiting op", "run", "thread", "spare",
)  # fmt: skip
"""The names of the locks, the outermost first. The locks of `rpc` come after all of them."""


Factory = Callable[[str, bool], Any]
_factory: Factory | None = None


def lock(name: str, reentrant: bool = False) -> Any:
    """A lock of that name, which stands in `ORDER`.

    Args:
      reentrant: a thread that holds it may take it again.
    """
    if _factory is not None:
        return _factory(name, reentrant)
    return threading.RLock() if reentrant else allocate_lock()


@contextlib.contextmanager
def made_by(factory: Factory) -> Iterator[None]:
    """Lets a function make the locks of the block, for tests that look at their order."""
    global _factory
    before, _factory = _factory, factory
    try:
        yield
    finally:
        _factory = before


class Guarded(Generic[S]):
    """A state that several threads use. Its class is pure: it knows no threads, and each of its methods is an event.

    Calling the `Guarded` with a method of the class and its arguments runs the event alone, under the lock. An event
    waits for nothing and calls nobody back. It returns what there is to do, and the caller does that without the lock.
    (What every step does takes ``lock`` itself, which saves a call.)

    Attributes:
      state: for reads that need no more than one attribute or one copy of a container.
    """

    __slots__ = ("lock", "state")

    def __init__(self, name: str, state: S) -> None:
        self.lock = allocate_lock() if _factory is None else lock(name)  # each step makes one: a call less
        self.state = state

    def __call__(self, event: Callable[[S, *Ts], T], *args: *Ts) -> T:
        with self.lock:
            return event(self.state, *args)


class Once:
    """Something that happens once, although several threads may come to it: the first one that calls gets True."""

    __slots__ = ("_first",)

    def __init__(self) -> None:
        self._first = allocate_lock()

    def __call__(self) -> bool:
        return self._first.acquire(False)

    @property
    def is_over(self) -> bool:
        """Whether somebody has called."""
        return self._first.locked()
