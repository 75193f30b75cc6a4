"""The attempts in a queue's lines: enqueues, closes and dequeues, each a small state machine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tfmini import errors
from tfmini.graph.waiting import Wait
from tfmini.ops.waiting_line import MOVED, OVER, STUCK, Attempt

if TYPE_CHECKING:
    from tfmini.ops.queues.queue_state import QueueState


class _QueueAttempt(Attempt):
    __slots__ = ("queue",)

    def __init__(self, wait: Wait, queue: QueueState) -> None:
        super().__init__(wait)
        self.queue = queue

    def _cause(self, what: str) -> str:
        queue = self.queue
        return f'{what} {queue.kind} "{queue.name}" ({queue.size()} of {queue.capacity} elements{queue.filled_by})'


class Enqueue(_QueueAttempt):
    """Adds one element."""

    __slots__ = ("element",)
    kind = "room"

    def __init__(self, wait: Wait, queue: QueueState, element: tuple[Any, ...]) -> None:
        super().__init__(wait, queue)
        self.element = element

    def cause(self) -> str:
        return self._cause("room in")

    def advance(self) -> int:
        queue = self.queue
        if queue.is_closed:
            return self.fail(queue.closed_error())
        if queue.size() >= queue.capacity:
            return STUCK
        try:
            queue.push(self.element)
        except errors.OpError as error:
            return self.fail(error)
        return OVER


class EnqueueMany(_QueueAttempt):
    """Adds the rows of a batch; added rows stay even if the attempt is cancelled."""

    __slots__ = ("batch", "added")
    kind = "room"

    def __init__(self, wait: Wait, queue: QueueState, batch: tuple[Any, ...]) -> None:
        super().__init__(wait, queue)
        self.batch = batch
        self.added = 0

    def cause(self) -> str:
        return self._cause(f"room for {len(self.batch[0]) - self.added} more elements in")

    def advance(self) -> int:
        queue, before, rows = self.queue, self.added, len(self.batch[0])
        if queue.is_closed:
            return self.fail(queue.closed_error())
        room = min(queue.capacity - queue.size(), rows - before)
        try:
            for i in range(before, before + room):
                queue.push(tuple([component[i] for component in self.batch]))
                self.added = i + 1
        except errors.OpError as error:
            return self.fail(error)
        if self.added == rows:
            return OVER
        return MOVED if room > 0 else STUCK


class Close(_QueueAttempt):
    """Closes the queue after the enqueues before it."""

    __slots__ = ()
    kind = "room"

    def cause(self) -> str:
        return self._cause("pending enqueues to finish before closing")

    def advance(self) -> int:
        queue = self.queue
        if queue.is_closed:
            return self.fail(errors.CancelledError.of(f"Queue '{queue.name}' is already closed."))
        queue.is_closed = True
        return OVER


class Dequeue(_QueueAttempt):
    """Takes one element."""

    __slots__ = ("has_taken",)
    kind = "element"

    def __init__(self, wait: Wait, queue: QueueState) -> None:
        super().__init__(wait, queue)
        self.has_taken = False

    def cause(self) -> str:
        return self._cause("an element of")

    def give_back(self) -> None:
        if self.has_taken:
            self.has_taken = False
            self.queue.put_back([self.result])

    def advance(self) -> int:
        queue = self.queue
        if queue.available() > 0:
            self.result, self.has_taken = queue.pop(), True
            return OVER
        if queue.is_closed:
            return self.fail(queue.insufficient_error(1, queue.size()))
        return STUCK


class DequeueMany(_QueueAttempt):
    """Takes elements one by one until it has a batch; gives them back if it cannot get all."""

    __slots__ = ("missing", "allow_fewer", "taken")
    kind = "element"

    def __init__(self, wait: Wait, queue: QueueState, count: int, allow_fewer: bool) -> None:
        super().__init__(wait, queue)
        self.missing = count
        self.allow_fewer = allow_fewer
        self.taken: list[tuple[Any, ...]] = []

    def cause(self) -> str:
        return self._cause(f"{self.missing} more elements of")

    def give_back(self) -> None:
        self.queue.put_back(self.taken)
        self.taken = []

    def advance(self) -> int:
        queue = self.queue
        if queue.is_closed and queue.size() < self.missing:
            size, requested = queue.size(), self.missing
            self.give_back()
            if not self.allow_fewer or not queue.size():
                if self.allow_fewer and queue.enqueuers:
                    return STUCK  # An enqueue that is starting may still add an element.
                return self.fail(queue.insufficient_error(requested, size))
            self.missing = queue.size()
        return self._take(min(queue.available(), self.missing))

    def _take(self, count: int) -> int:
        queue = self.queue
        for _ in range(count):
            self.taken.append(queue.pop())
            self.missing -= 1
        if not self.missing:
            return OVER
        return MOVED if count > 0 else STUCK

    def answer(self) -> bool:
        if self.error is None:
            self.result = self.queue.as_batch(self.taken)  # Outside of the lock, because it copies much.
        return super().answer()


class DequeueSorted(DequeueMany):
    """Takes a batch only when all its elements are in the queue, because a later element may sort first."""

    __slots__ = ()

    def advance(self) -> int:
        queue = self.queue
        size = queue.size()
        if queue.is_closed and size < self.missing:
            if not size or not self.allow_fewer:
                return self.fail(queue.insufficient_error(self.missing, size))
            self.missing = size
        return self._take(self.missing) if size >= self.missing else STUCK
