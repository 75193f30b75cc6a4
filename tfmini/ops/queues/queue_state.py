"""The state of queues: elements, the lines of waiting ops, and closing.

An element is a tuple of component values. Enqueues and closes wait in one line, dequeues in
another, and each line is served in order. A dequeue of many elements at the head keeps the elements
that it has and blocks the dequeues behind it, so that a batch has consecutive elements.
"""

from __future__ import annotations

import heapq
import itertools
import os
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from tfmini import errors
from tfmini.dtypes import DType, string
from tfmini.graph.op_types import Wait
from tfmini.numerics.philox import PhiloxGenerator
from tfmini.ops.array.kernel_arguments import as_element, refuse
from tfmini.ops.waiting_line import MOVED, OVER, STUCK, Attempt, Users, WaitingState, outdated_error, own_all
from tfmini.shapes import RawShape, compatible_raw, format_raw

Element = tuple[Any, ...]
UNBOUNDED = 2**31 - 1


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


class QueueState(WaitingState):
    """A first-in, first-out queue, and the base of the other kinds.

    Attributes:
      kind: the name in messages.
      name: of this queue.
      capacity: the most elements it holds.
      dtypes: per component.
      shapes: per component; empty when they are not specified.
      is_fresh: no batch of elements was enqueued since it was made or renewed.
      users: the sessions that may take elements.
      filled_by: a text for the causes of waits.
    """

    kind = "FIFOQueue"
    needs_shapes_text = "{}'s DequeueMany and DequeueUpTo require the components to have specified shapes."

    def __init__(self, name: str, capacity: int, dtypes: Sequence[DType], shapes: Sequence[RawShape]) -> None:
        super().__init__(2)
        self.enqueuers, self.dequeuers = self.lines
        self.name = name
        self.capacity = UNBOUNDED if capacity < 0 else capacity
        self.dtypes = list(dtypes)
        self.shapes = list(shapes)
        self.is_closed = False
        self.is_fresh = True
        self.users = Users()
        self._elements: Any = deque()
        # Of a run whose tokens these are: why it has ended, why it has failed, and worker -> why it has failed.
        self._end, self._failure, self.filled_by = "", "", ""
        self._failed: dict[str, str] = {}

    # ---- what the ops do --------------------------------------------------------------------

    def enqueue(self, wait: Wait, element: Sequence[Any]) -> None:
        """Adds one element when there is room."""
        self.check_element(element)
        self.submit(self.enqueuers, Enqueue(wait, self, own_all(element)))

    def enqueue_many(self, wait: Wait, batch: Sequence[Any]) -> None:
        """Adds the rows of ``batch`` as elements, one by one when there is room."""
        self.check_batch(batch)
        if not len(batch[0]):
            wait.done(())
            return
        self.is_fresh = False
        self.submit(self.enqueuers, EnqueueMany(wait, self, own_all(batch)))

    def dequeue(self, wait: Wait) -> None:
        """Takes one element."""
        self.submit(self.dequeuers, Dequeue(wait, self))

    def dequeue_many(self, wait: Wait, count: int, allow_fewer: bool) -> None:
        """Takes ``count`` elements as one batch; with ``allow_fewer``, the remaining ones after closing."""
        if not self.shapes:
            refuse(self.needs_shapes_text.format(self.kind))
        if not count:
            wait.done(self.as_batch([]))
            return
        self.submit(self.dequeuers, self._many(wait, count, allow_fewer))

    def _many(self, wait: Wait, count: int, allow_fewer: bool) -> DequeueMany:
        return DequeueMany(wait, self, count, allow_fewer)

    def close(self, wait: Wait, cancel_pending_enqueues: bool) -> None:
        """Refuses further elements after the waiting enqueues, or cancels those and refuses at once."""
        if not cancel_pending_enqueues:
            self.submit(self.enqueuers, Close(wait, self))
            return
        with self.lock:
            self.is_closed = True
        self.fail_all(errors.CancelledError.of("Enqueue operation was cancelled"), self.enqueuers)
        wait.done(())

    def reopen(self) -> None:
        """Accepts elements again, after `close` or the end of a run."""
        with self.lock:
            self._begin_anew()

    def _begin_anew(self) -> None:
        if self._failure:  # its elements are gone
            self.is_fresh = True
        self.is_closed, self._end, self._failure = False, "", ""
        self._failed.clear()

    def begin_run(self, chief: str) -> None:
        """The chief of a run, whose tokens these are, has begun to make updates."""
        self.filled_by = f"; filled by the chief, {chief}"

    def end_run(self, reason: str) -> None:
        """Closes the queue of a run's tokens: whoever waits for one, or comes later, gets OutOfRangeError.

        Args:
          reason: a sentence for the error.
        """
        with self.lock:
            if not self.is_closed:
                self.is_closed, self._end = True, reason
        self.changed()

    def fail_run(self, worker: str, reason: str, spare: int) -> None:
        """A worker of a run has failed: whoever waits for a token, or comes later, gets UnknownError.

        Nothing happens after the run's end, or while the run can do without the workers that have failed.

        Args:
          worker: its name.
          reason: a text for the error; "": the worker has come back.
          spare: how many workers the run can do without.
        """
        with self.lock:
            self._failed.pop(worker, None)
            if reason:
                self._failed[worker] = reason
            if not reason or self.is_closed or len(self._failed) <= spare:
                return
            self._failure = "; ".join(self._failed.values())
            self.is_closed = True
        self.fail_all(self._failed_error())  # before the elements go, since attempts give back theirs
        with self.lock:
            self._elements.clear()

    def renew(self) -> None:
        """Drops all elements, opens the queue, and refuses the sessions that have used it so far."""
        with self.lock:
            self.users.renew()
        self.fail_all(outdated_error(self.name))  # before the elements go, since attempts give back theirs
        with self.lock:
            self._elements.clear()
            self._begin_anew()
            self.is_fresh = True

    def clear(self) -> None:
        """Called when the task removes the queue: drops the elements and fails all waiting ops."""
        text = f"{self.kind} '{self.name}' was deleted by a reset of its container."
        with self.lock:
            self.is_closed = True
            self._elements.clear()
        self.fail_all(errors.CancelledError.of(text))

    # ---- elements, under the lock -----------------------------------------------------------

    def size(self) -> int:
        """The number of elements."""
        return len(self._elements)

    def available(self) -> int:
        """The number of elements that may be taken now."""
        return len(self._elements)

    def push(self, element: Element) -> None:
        """Adds an element.

        Raises:
          InvalidArgumentError: when the element is not valid.
        """
        self._elements.append(element)

    def pop(self) -> Element:
        """Takes the next element."""
        return self._elements.popleft()  # type: ignore[no-any-return]

    def put_back(self, elements: list[Element]) -> None:
        """Undoes `pop` of these elements, given in the order in which they were taken."""
        self._elements.extendleft(reversed(elements))

    # ---- checks and batches -----------------------------------------------------------------

    def check_element(self, element: Sequence[Any]) -> None:
        """Refuses an element with components of other shapes.

        Raises:
          InvalidArgumentError: naming the component.
        """
        for i, (value, expected) in enumerate(zip(element, self.shapes)):
            if not compatible_raw(expected, np.shape(value)):
                raise _shape_mismatch(i, expected, np.shape(value))

    def check_batch(self, batch: Sequence[Any]) -> None:
        """Refuses a batch whose rows do not fit, or whose components have different numbers of rows.

        Raises:
          InvalidArgumentError: naming the component.
        """
        if not np.ndim(batch[0]):
            refuse("EnqueueMany requires components of rank at least 1.")
        rows = len(batch[0])
        for i, value in enumerate(batch):
            shape = np.shape(value)
            if self.shapes:
                inner = self.shapes[i]
                expected = None if inner is None else (rows, *inner)
                if not compatible_raw(expected, shape):
                    raise _shape_mismatch(i, expected, shape)
            elif not shape or shape[0] != rows:
                refuse(
                    "All input tensors must have the same size in the 0th dimension."
                    f" Component {i} has {shape[0] if shape else 0}, and should have {rows}"
                )

    def as_batch(self, elements: list[Element]) -> tuple[Any, ...]:
        """The elements as one array per component; the first dimension counts elements."""
        columns: Iterable[Any] = zip(*elements) if elements else [()] * len(self.dtypes)
        return tuple(
            self._column(values, dtype, np.shape(values[0]) if values else tuple(d or 0 for d in shape or ()))
            for values, dtype, shape in zip(columns, self.dtypes, self.shapes)
        )

    def _column(self, values: Sequence[Any], dtype: DType, shape: tuple[int, ...]) -> Any:
        out = np.empty((len(values), *shape), dtype.numpy)
        if shape:
            for i, value in enumerate(values):
                out[i] = value
        elif dtype is string:
            out[:] = [value.item() if isinstance(value, np.ndarray) else value for value in values]
        else:
            out[:] = values
        return out

    # ---- messages ---------------------------------------------------------------------------

    def closed_error(self) -> errors.OpError:
        """The error of an enqueue on a closed queue."""
        if self._failure:
            return self._failed_error()
        return errors.CancelledError.of(f"{self.kind} '{self.name}' is closed.")

    def insufficient_error(self, requested: int, size: int) -> errors.OpError:
        """The error of a dequeue on a closed queue with too few elements."""
        if self._failure:
            return self._failed_error()
        end = f". {self._end}" if self._end else ""
        return errors.OutOfRangeError.of(
            f"{self.kind} '{self.name}' is closed and has insufficient elements"
            f" (requested {requested}, current size {size}){end}"
        )

    def _failed_error(self) -> errors.OpError:
        return errors.UnknownError.of(f"The run has failed, so '{self.name}' gives no more tokens: {self._failure}")


def _shape_mismatch(component: int, expected: RawShape, got: tuple[int, ...]) -> errors.OpError:
    text = f"Shape mismatch in tuple component {component}. Expected {format_raw(expected)}, got {format_raw(got)}"
    return errors.InvalidArgumentError.of(text)


class PaddingQueueState(QueueState):
    """A FIFO queue with partial shapes; batches are padded with zeros to their largest element."""

    kind = "PaddingFIFOQueue"

    def _column(self, values: Sequence[Any], dtype: DType, shape: tuple[int, ...]) -> Any:
        shapes = [np.shape(value) for value in values]
        if all(s == shapes[0] for s in shapes):
            return super()._column(values, dtype, shapes[0] if shapes else shape)
        largest = tuple(map(max, *shapes))
        out = np.full((len(values), *largest), b"" if dtype is string else 0, dtype.numpy)
        for i, value in enumerate(values):
            places: Any = (i, *(slice(n) for n in np.shape(value)))
            out[places] = as_element(value)
        return out


class ShuffleQueueState(QueueState):
    """A queue that returns its elements in random order and retains some for mixing.

    Attributes:
      min_after_dequeue: the number of elements that must remain while it is open.
      seeds: the given seeds; zeros: chosen at random.
    """

    kind = "RandomShuffleQueue"

    def __init__(
        self,
        name: str,
        capacity: int,
        dtypes: Sequence[DType],
        shapes: Sequence[RawShape],
        min_after_dequeue: int = 0,
        seeds: tuple[int, int] = (0, 0),
    ) -> None:
        super().__init__(name, capacity, dtypes, shapes)
        self.min_after_dequeue = min_after_dequeue
        self.seeds = seeds
        self._elements = []
        chosen = seeds if any(seeds) else (int.from_bytes(os.urandom(8)), int.from_bytes(os.urandom(8)))
        self._generator = PhiloxGenerator(*chosen)
        self._words: list[int] = []

    def available(self) -> int:
        return len(self._elements) - (0 if self.is_closed else self.min_after_dequeue)

    def pop(self) -> Element:
        elements = self._elements
        index = self._word() % len(elements)
        taken = elements[index]
        elements[index] = elements[-1]
        elements.pop()
        return taken  # type: ignore[no-any-return]

    def _word(self) -> int:
        if not self._words:
            blocks = 16
            words = self._generator.words(self._generator.reserve(blocks), blocks)
            self._words = words.ravel()[::-1].tolist()
        return self._words.pop()

    def put_back(self, elements: list[Element]) -> None:
        self._elements.extend(reversed(elements))


class PriorityQueueState(QueueState):
    """A queue that returns the element with the smallest priority first, and equal ones in their order."""

    kind = "PriorityQueue"
    needs_shapes_text = "{}'s DequeueMany requires the components to have specified shapes."

    def __init__(self, name: str, capacity: int, dtypes: Sequence[DType], shapes: Sequence[RawShape]) -> None:
        super().__init__(name, capacity, dtypes, shapes)
        self._elements = []
        self._order = itertools.count()

    def push(self, element: Element) -> None:
        if np.shape(element[0]):
            text = "Expected the priority element to be a scalar, but received shape: "
            refuse(text + format_raw(np.shape(element[0])))
        heapq.heappush(self._elements, (int(element[0]), next(self._order), element))

    def pop(self) -> Element:
        return heapq.heappop(self._elements)[2]  # type: ignore[no-any-return]

    def put_back(self, elements: list[Element]) -> None:
        for element in elements:
            self.push(element)

    def _many(self, wait: Wait, count: int, allow_fewer: bool) -> DequeueMany:
        return DequeueSorted(wait, self, count, allow_fewer)
