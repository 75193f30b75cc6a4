"""The threads of datasets: one that reads ahead into a bounded buffer, and those that help with a parallel map.

A thread refers to the buffer and the upstream stage, or to the calls that it helps with, but not to the stage that
has it. So that stage is freed when its session is closed or its iterator starts anew. This closes the buffer, which
ends the thread. The exit of the process closes the remaining buffers.
"""

from __future__ import annotations

import collections
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from tfmini import dtypes, errors
from tfmini.data.pipeline import Element, Reading, Source, Stage, lane
from tfmini.data.structure import Leaf, Structure
from tfmini.dtypes import DType
from tfmini.graph import nest
from tfmini.graph.op_types import Wait
from tfmini.ops.array.constant import as_array
from tfmini.shapes import TensorShape, compatible_raw

_AUTOTUNED_SIZE = 8
_LOOK_S = 0.05


class _Buffer:
    """The buffer between the thread that reads ahead and the consumer."""

    def __init__(self, upstream: Stage, size: int, own_lane: int) -> None:
        self._upstream = upstream
        self._size = size
        self._lane = own_lane
        self._items: collections.deque[tuple[str, Any]] = collections.deque()
        self._changed = threading.Condition()
        self._closed = False

    def fill(self) -> None:
        """The thread's body: reads until the end or until the buffer is closed."""
        kind, lane.number = "element", self._lane
        while kind != "end" and self._has_room():
            value: Any = None
            try:
                value = next(self._upstream)
            except StopIteration:
                kind = "end"
            except BaseException as error:  # noqa: BLE001 - the consumer raises it, whatever it is: SystemExit, too
                kind, value = "error", error
            with self._changed:
                self._items.append((kind, value))
                self._changed.notify_all()
            kind = "element" if kind == "error" else kind
        self._upstream.close()

    def _has_room(self) -> bool:
        with self._changed:
            while not self._closed and len(self._items) >= self._size:
                self._changed.wait()
            return not self._closed

    @property
    def ready(self) -> bool:
        """Whether `get` returns without waiting."""
        return bool(self._items)

    def get(self, reading: Reading) -> Element:
        """Waits for the next element and removes it from the buffer.

        Raises:
          StopIteration: at the end, or when the buffer is closed.
          OpError: when the reading's step is cancelled or its deadline has passed.
        """
        with self._changed:
            while not self._items and not self._closed:
                # A step that runs as a function call cannot notify this thread at its deadline, so poll.
                self._changed.wait(None if reading.step is None else _LOOK_S)
                reading.check()
            if not self._items:
                raise StopIteration
            kind, value = self._items[0]
            if kind == "end":
                raise StopIteration
            self._items.popleft()
            self._changed.notify_all()
        if kind == "error":
            raise value
        return value  # type: ignore[no-any-return]

    def close(self) -> None:
        """Drops the elements and ends the thread."""
        with self._changed:
            self._closed = True
            self._items.clear()
            self._changed.notify_all()


class _Prefetch(Stage):
    def __init__(self, upstream: Stage, size: int, reading: Reading) -> None:
        self._buffer = buffer = _Buffer(upstream, size, reading.lane_below())
        self._reading = reading
        self._thread: threading.Thread | None = None
        self._finalizer = weakref.finalize(self, buffer.close)  # at the exit of the process as well

    def __next__(self) -> Element:
        if self._thread is None:
            self._thread = threading.Thread(target=self._buffer.fill, name="tfmini-prefetch", daemon=True)
            self._thread.start()
        return self._buffer.get(self._reading)

    @property
    def ready(self) -> bool:
        return self._buffer.ready

    def close(self) -> None:
        self._finalizer()


def prefetched(source: Source, size: int) -> Source:
    """A source that is read up to ``size`` elements ahead; a negative size means the default, 0 no prefetching."""
    if not size:
        return source
    ahead = _AUTOTUNED_SIZE if size < 0 else size
    return Source(lambda reading: _Prefetch(source.open(reading), ahead, reading), source.count)


# ---- Calls under way at the same time: the reader makes them, and threads help while it waits or does other things -
# To hand over each call and its result would take longer than most functions do, and threads that take Python's lock in
# turns slow each other down: where a call takes 300 us, four threads make a third of the calls that one makes. So the
# reader itself makes the call whose result it needs, unless a thread has begun it. Threads help with functions that may
# block, and with those that take long, mostly in kernels without the lock or in reads of files. One thread is woken at
# a time; it wakes the next when it has a call.

_LONG_S = 0.002


class MapCall:
    """A call of the function of a parallel map: for one element, or in its place the error of reading it."""

    __slots__ = ("element", "result", "error", "is_done")

    def __init__(self, element: Element, error: BaseException | None = None) -> None:
        self.element, self.error = element, error
        self.result: Element = ()
        self.is_done = error is not None


class MapCalls:
    """The calls under way of a parallel map, and the threads that help with them.

    Args:
      function, reading: a call is ``function(reading, *element)``.
      helpers: the most threads.
      may_block: threads help in any case: a call may wait for what another one does.
    """

    def __init__(
        self, function: Callable[..., Element], reading: Reading, helpers: int, may_block: bool = True
    ) -> None:  # fmt: skip
        self._function, self._reading, self._most = function, reading, helpers
        self._waiting: collections.deque[MapCall] = collections.deque()  # those that nobody has begun, the oldest first
        # Reentrant: the collector may `close` the calls of a dropped stage in one of its threads, at any bytecode.
        lock = threading.RLock()
        self._added, self._finished = threading.Condition(lock), threading.Condition(lock)
        self._threads = self._idle = 0
        self._is_woken = False  # a thread is on its way to the waiting calls
        self._may_block, self._seconds = may_block, 0.0  # a lower bound of the times of the latest calls
        self._closed = False

    @property
    def are_helped(self) -> bool:
        """Whether threads should help; else the reader need not add calls before it makes them."""
        return self._may_block or self._seconds > _LONG_S

    def make(self, element: Element) -> Element:
        """Calls the function in this thread."""
        begin = time.perf_counter()
        try:
            return self._function(self._reading, *element)
        finally:
            # Only several long calls in a row are long: one may have been interrupted.
            self._seconds = min(time.perf_counter() - begin, 1.5 * self._seconds + _LONG_S / 4)

    def add(self, call: MapCall) -> None:
        """Adds a call that anybody may begin."""
        self._waiting.append(call)
        if not self._is_woken and self.are_helped:
            with self._added:
                self._wake()

    def finish(self, call: MapCall) -> Element:
        """The result of the oldest call of which nobody has taken the result; made here if nobody has begun it.

        Raises:
          CancelledError: the calls have been closed.
          Exception: what the call raised.
        """
        if not call.is_done:
            if self._claim(call):
                self._make(call)
            elif not call.is_done:
                raise errors.CancelledError.of("The iterator was closed while it was read.")
        if call.error is not None:
            raise call.error
        return call.result

    def _claim(self, call: MapCall) -> bool:
        """Whether the reader must make a call itself; else waits until it is done, or the calls are closed."""
        with self._finished:
            if self._waiting and self._waiting[0] is call:
                self._waiting.popleft()
                return True
            while not (call.is_done or self._closed):
                self._finished.wait()
            return False

    def close(self) -> None:
        """Drops the calls that nobody has begun and ends the threads."""
        with self._added:
            self._closed = True
            self._waiting.clear()
            self._added.notify_all()
            self._finished.notify_all()

    def _make(self, call: MapCall) -> None:
        """Makes a call and keeps what it returns or raises."""
        try:
            call.result = self.make(call.element)
        except BaseException as error:  # noqa: BLE001 - the reader raises it, whatever it is
            call.error = error

    def _wake(self) -> None:
        """Wakes a thread or starts one, unless all are at work; the caller has the lock."""
        if self._idle:
            self._idle -= 1
            self._is_woken = True
            self._added.notify()
        elif self._threads < self._most and not self._closed:
            try:
                threading.Thread(target=self._help, name="tfmini-map", daemon=True).start()
            except RuntimeError:  # no more threads, or the process ends: the reader makes the calls
                self._most = self._threads
            else:
                self._threads += 1
                self._is_woken = True

    def _help(self) -> None:
        """A thread's body: makes calls until the end."""
        while (call := self._next()) is not None:
            self._make(call)
            with self._finished:
                call.is_done = True
                self._finished.notify()

    def _next(self) -> MapCall | None:
        """Waits for a call that nobody has begun; None at the end."""
        with self._added:
            self._is_woken = False
            while not self._waiting and not self._closed:
                self._idle += 1
                self._added.wait()
                self._is_woken = False
            try:
                call = None if self._closed else self._waiting.popleft()
            except IndexError:  # closed in between
                return None
            if self._waiting:
                self._wake()
            return call


# ---- Asynchronous reads: an iterator whose elements may take long reads them in a thread of its own ----------------
# The thread reads only while a step waits. If that step is cancelled meanwhile, the element is kept for the
# next step.

Outcome = tuple[Element | None, errors.OpError | None]


def outcome_of(stage: Stage) -> Outcome:
    """The next element of a stage, or the error that takes its place."""
    try:
        return next(stage), None
    except StopIteration:
        return None, errors.OutOfRangeError.of("End of sequence")
    except (Exception, SystemExit) as error:  # noqa: BLE001 - it ends the step that waits for it, not the thread
        return None, errors.of_exception(error)


def answer(wait: Wait, outcome: Outcome) -> bool:
    """Ends a wait with an element or an error; returns whether the step took it."""
    element, error = outcome
    return wait.done(element) if error is None else wait.fail(error)


class AsyncReader:
    """Reads elements of one stage for the steps that wait for them, in the order of their requests.

    Args:
      stage: the stage to read.
      name: the iterator's name, for messages.

    Attributes:
      turns: how many elements, or errors in their place, steps have taken.
    """

    def __init__(self, stage: Stage, name: str) -> None:
        self.turns = 0
        self._stage = stage
        self._name = name
        self._changed = threading.Condition()
        self._waiting: dict[Wait, None] = {}
        self._kept: collections.deque[Outcome] = collections.deque()
        self._thread: threading.Thread | None = None
        self._reading = False
        self._closed: str | None = None

    def ask(self, wait: Wait) -> None:
        """Answers ``wait`` with the next element: at once if it is available, else when it has been read."""
        outcome: Outcome | None = None
        with self._changed:
            if self._closed is not None:
                outcome = None, errors.CancelledError.of(self._closed)
            elif not self._reading and not self._waiting:
                if self._kept:
                    outcome = self._kept.popleft()
                elif self._stage.ready:
                    outcome = outcome_of(self._stage)
        if outcome is not None:
            self._give(wait, outcome)
        elif wait.on_cancel(f'an element of iterator "{self._name}"', lambda: self._forget(wait)):
            self._enqueue(wait)

    def _enqueue(self, wait: Wait) -> None:
        with self._changed:
            closed = self._closed
            if closed is None:
                self._waiting[wait] = None
                if self._thread is None:
                    self._thread = threading.Thread(target=self._serve, name="tfmini-iterator", daemon=True)
                    self._thread.start()
                self._changed.notify_all()
        if closed is not None:
            wait.fail(errors.CancelledError.of(closed))

    def _forget(self, wait: Wait) -> None:
        with self._changed:
            self._waiting.pop(wait, None)

    def _serve(self) -> None:
        """The thread's body: reads while a step waits."""
        while True:
            with self._changed:
                while not self._waiting and self._closed is None:
                    self._changed.wait()
                if self._closed is not None:
                    return
                self._reading = True
            outcome = self._kept.popleft() if self._kept else outcome_of(self._stage)
            with self._changed:
                self._reading = False
                wait = next(iter(self._waiting), None)
                if wait is None:
                    self._kept.append(outcome)
                    continue
                del self._waiting[wait]
            self._give(wait, outcome)

    def _give(self, wait: Wait, outcome: Outcome) -> None:
        """Answers a wait; the outcome is for the next one if the step has ended."""
        turn = not isinstance(outcome[1], (errors.OutOfRangeError, errors.CancelledError))
        with self._changed:
            self.turns += turn  # before the answer: the step may end at once, and its client save the position
        if not answer(wait, outcome):
            with self._changed:
                self.turns -= turn
                self._kept.appendleft(outcome)

    def close(self, why: str) -> None:
        """Ends the thread; the waiting steps get CancelledError."""
        with self._changed:
            self._closed = why
            waiting = list(self._waiting)
            self._waiting.clear()
            self._changed.notify_all()
        for wait in waiting:
            wait.fail(errors.CancelledError.of(why))


# ---- Conversion and checks of the elements that Python generators yield --------------------------------------------

Begin = Callable[..., Iterator[tuple[Any, ...]]]


def element_reader(generator: Callable[..., Any], structure: Structure) -> Begin:
    """A function that starts ``generator`` and yields its elements as components."""

    def begin(*args: object) -> Iterator[tuple[Any, ...]]:
        # A generator expression would end at the first malformed element; `map` continues with the next one.
        return map(partial(_components, structure), iter(generator(*args)))

    return begin


def _components(structure: Structure, element: object) -> tuple[Any, ...]:
    try:
        flat = _flatten_like(structure.skeleton, element)
    except (TypeError, ValueError, KeyError) as error:
        raise errors.InvalidArgumentError.of(
            "TypeError: `generator` yielded an element that did not match the expected structure. The expected"
            f" structure was {structure.map(lambda leaf: leaf.dtype)}, but the yielded element was {element}."
        ) from error
    return tuple(_component(value, leaf) for value, leaf in zip(flat, structure.leaves))


def _flatten_like(skeleton: Any, value: Any) -> list[Any]:
    if isinstance(skeleton, Leaf):
        return [value]
    if isinstance(skeleton, dict):
        if set(value) != set(skeleton):
            raise ValueError("keys differ")
        return [leaf for key in sorted(skeleton) for leaf in _flatten_like(skeleton[key], value[key])]
    items = list(nest._items(skeleton))
    if isinstance(value, (str, bytes)) or len(value) != len(items):
        raise ValueError("lengths differ")
    return [leaf for part, item in zip(items, value) for leaf in _flatten_like(part, item)]


def _component(value: object, leaf: Leaf) -> Any:
    try:
        array = _converted(value, leaf.dtype)
    except (TypeError, ValueError, OverflowError) as error:
        raise errors.InvalidArgumentError.of(
            "TypeError: `generator` yielded an element that could not be converted to the expected type. The"
            f" expected type was {leaf.dtype.name}, but the yielded element was {value}."
        ) from error
    if not compatible_raw(leaf.shape, array.shape):
        raise errors.InvalidArgumentError.of(
            f"ValueError: `generator` yielded an element of shape {TensorShape(array.shape)} where an element of"
            f" shape {TensorShape(leaf.shape)} was expected."
        )
    return array if array.ndim else array[()]


def _converted(value: object, dtype: DType) -> Any:
    if dtype is dtypes.string:
        array = as_array(value)
        if array.dtype != object:
            raise TypeError("no strings")
        return array
    try:
        with np.errstate(over="ignore"):
            return np.array(value, dtype.numpy)  # a copy: the generator may use its array again
    except OverflowError:  # of Python ints: they wrap around, as with the NumPy of TensorFlow's time
        return np.asarray(value).astype(dtype.numpy)
