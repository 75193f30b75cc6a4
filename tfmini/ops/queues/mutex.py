"""Mutexes of a task: ``MutexV2``, ``MutexLock``, ``ConsumeMutexLock``.

The output of ``MutexLock`` is a token that holds the mutex. The mutex is released when the token is
consumed, and at the latest when the step has ended and nothing refers to the token. So a step that fails
in between does not keep the mutex.
"""

from __future__ import annotations

from _thread import start_new_thread
from typing import Any

from tfmini.graph.waiting import Wait
from tfmini.ops.shared_state import state_op
from tfmini.ops.waiting_line import OVER, STUCK, Attempt, WaitingState

mutex_op = state_op("MutexV2() -> resource: resource; container: string = ''; shared_name: string = ''", [()])
mutex_lock_op = state_op("MutexLock(mutex: resource) -> mutex_lock: variant", [()])
consume_lock_op = state_op("ConsumeMutexLock(mutex_lock: variant)", [])


class LockToken:
    """Holds a mutex until the token is released or garbage-collected."""

    __slots__ = ("_mutex",)

    def __init__(self, mutex: MutexState) -> None:
        self._mutex: MutexState | None = mutex

    def release(self) -> None:
        """Gives the mutex to the next waiting op; a second call does nothing."""
        mutex, self._mutex = self._mutex, None
        if mutex is not None:
            mutex.release()

    def abandon(self) -> None:
        """Makes the token meaningless, because nobody has received it."""
        self._mutex = None

    def __del__(self) -> None:
        # The garbage collector calls this inside any call of any thread, which may hold locks of other steps. To answer
        # the next waiting op here would run that step inside this call.
        mutex, self._mutex = self._mutex, None
        if mutex is None:
            return
        try:
            start_new_thread(mutex.release, ())
        except RuntimeError:  # the interpreter ends, or there are too many threads
            mutex.release()


class _Lock(Attempt):
    """Waits for the mutex."""

    __slots__ = ("mutex",)
    kind = "lock"

    def __init__(self, wait: Wait, mutex: MutexState) -> None:
        super().__init__(wait)
        self.mutex = mutex

    def cause(self) -> str:
        return f'mutex "{self.mutex.name}"'

    def advance(self) -> int:
        if self.mutex.is_locked:
            return STUCK
        self.mutex.is_locked = True
        self.mutex.holder = getattr(self.wait.step, "step_id", 0)
        self.result = LockToken(self.mutex)
        return OVER

    def give_back(self) -> None:
        if self.result != ():
            self.result.abandon()
            self.mutex.is_locked = False


class MutexState(WaitingState):
    """A mutex and the ops that wait for it.

    Attributes:
      holder: the id of the step that holds it, or held it last.
    """

    def __init__(self, name: str) -> None:
        super().__init__(1)
        self.name = name
        self.is_locked = False
        self.holder = 0

    def acquire(self, wait: Wait) -> None:
        """Answers with a token once the mutex is free."""
        self.submit(self.lines[0], _Lock(wait, self))

    def release(self) -> None:
        """Frees the mutex; called for tokens."""
        with self.lock:
            self.is_locked = False
        self.changed()


@mutex_op.state_kernel("CPU")
def _mutex(resources: Any, *, container: bytes, shared_name: bytes, node: Any) -> MutexState:
    name = shared_name.decode() or node.name
    return resources.lookup_or_create(container, "mutex", name, lambda: MutexState(name))  # type: ignore[no-any-return]


@mutex_lock_op.async_kernel("CPU")
def _lock(wait: Wait, mutex: MutexState) -> None:
    mutex.acquire(wait)


@consume_lock_op.kernel("CPU")
def _consume(token: LockToken) -> tuple[()]:
    token.release()
    return ()
