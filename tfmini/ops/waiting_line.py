"""State objects that ops wait for: lines of attempts, which are tried again whenever the state changes.

A state object (queue, accumulator, barrier, …) owns one lock and one or more lines. An op that
cannot be answered at once becomes an `Attempt` at the end of a line; it holds no thread. Only the
first attempt of a line is tried, so ops are answered in their order. In an unordered line, where
each attempt waits for something else, all are tried.

These rules hold for all attempts:

* `Wait.done` and `Wait.fail` are called without the lock.
* An attempt is *armed* (allowed to take elements) only after its wait has confirmed that the step
  is still running. So a step that ended while its op was starting gets nothing.
* An attempt whose step ends gives back the elements that it has taken, for the next attempts, also if the step ends
  between the last element and the answer.
* An exception while an attempt is advanced or answered ends the step of this attempt and no other, although another
  step's thread may be at work.
"""

from __future__ import annotations

import itertools
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar, Unpack

import numpy as np

from tfmini import errors
from tfmini.graph.node import Node
from tfmini.graph.op_types import ShapeRule, Traits, Wait
from tfmini.graph.registry import OpHandle, op
from tfmini.locks import lock

# ---- Values that outlive the step that brought them: in a queue, a staging area, an accumulator, a barrier ---------
# The memory of an array may belong to somebody else: to the client, which may write into an array that it has fed, or
# to the connection to another task, which lends a limited number of shared-memory blocks. Such an array is a view: a
# run takes fed arrays as views if its program has an op with the trait ``keeps``, and the arrays from other tasks are
# views of their message. An array without a base belongs to the runtime, which changes no array that has another
# reference.


def own(value: object) -> Any:
    """The value itself, or a copy if it is a view of memory that may belong to somebody else."""
    return value.copy() if isinstance(value, np.ndarray) and value.base is not None else value


def own_all(values: Iterable[Any]) -> tuple[Any, ...]:
    """`own` of each value."""
    return tuple([own(value) for value in values])


# ---- Finding the state objects of a task: shared by name, or private to one session --------------------------------
# State with a ``shared_name`` belongs to the task and is found by every session that names it.
# State without one belongs to the session whose graph has the node; its name in messages is
# ``_<n>_<node name>``, as TensorFlow gives it.

S = TypeVar("S")

_numbers = itertools.count()


def state_op(text: str, shape: ShapeRule, **traits: Unpack[Traits]) -> OpHandle[Any]:
    """Declares an op that makes, reads or changes such an object; it has no gradient. See `op`."""
    return op(text, stateful=True, shape=shape, differentiable=False, **traits)


def handle_value(name: str) -> Any:
    """The value of a reference to a state object: container and name, two strings."""
    out = np.empty(2, object)
    out[:] = (b"", name.encode())
    return out


def find_or_create(
    resources: Any, container: bytes, shared_name: bytes, node: Node, kind: str, create: Callable[[str], S]
) -> S:
    """The state object behind a handle node.

    Args:
      resources: the device's resource manager; its ``session``, if it has one, tells sessions apart.
      node: the handle's node; its name identifies private state.
      kind: ``queue``, ``table``, …; objects of several kinds may have one name.
      create: makes the object, given its name for messages.
    """
    if shared_name:
        name = shared_name.decode()
        return resources.lookup_or_create(container, kind, name, lambda: create(name))  # type: ignore[no-any-return]
    key = f"{getattr(resources, 'session', '')}/{node.name}"
    return resources.lookup_or_create(  # type: ignore[no-any-return]
        container, f"private {kind}", key, lambda: create(f"_{next(_numbers)}_{node.name}")
    )


# ---- Attempts, and the line in which they wait for a change of the state -------------------------------------------

# The outcome of trying an attempt: no progress, some progress, or finished (with an answer or an error).
STUCK, MOVED, OVER = 0, 1, 2


class Attempt:
    """One op that waits. A subclass defines how it makes progress and how that is undone.

    Attributes:
      kind: what it waits for: one of the kinds of waits of `tfmini.runtime.snapshot`.
      result: what the op returns once the attempt is over without an error.
      error: the error that it fails with instead.
    """

    __slots__ = ("wait", "armed", "result", "error")
    kind = "other"

    def __init__(self, wait: Wait) -> None:
        self.wait = wait
        self.armed = False
        self.result: Any = ()
        self.error: errors.OpError | None = None

    def advance(self) -> int:
        """Takes or gives as many elements as possible, under the lock; returns STUCK, MOVED or OVER."""
        raise NotImplementedError

    def give_back(self) -> None:
        """Returns the elements that it has taken, under the lock, because its step has ended or it failed."""

    def cause(self) -> str:
        """A text that says what it waits for."""
        raise NotImplementedError

    def fail(self, error: errors.OpError) -> int:
        """Ends with an error; returns OVER."""
        self.error = error
        return OVER

    def answer(self) -> bool:
        """Answers the waiting op, without the lock; False: its step has ended, and it must give back its result."""
        if self.error is None:
            return self.wait.done(self.result)
        self.wait.fail(self.error)
        return True


Line = OrderedDict[Attempt, None]


def _outcome(attempt: Attempt) -> int:
    """Advances an attempt; whatever it raises is the error of its own step, not of the step that changes the state."""
    try:
        return attempt.advance()
    except Exception as error:  # noqa: BLE001
        attempt.give_back()
        return attempt.fail(_failure(error))


def _failure(error: BaseException) -> errors.OpError:
    """The error of a step whose attempt raised."""
    if not isinstance(error, Exception):
        return errors.CancelledError.of(f"{type(error).__name__} interrupted the thread that was to answer this op.")
    return errors.of_exception(error)


class WaitingState:
    """Base of the objects that ops wait for; see the module.

    Args:
      lines: the number of lines.
      unordered: the positions of the unordered lines.

    Attributes:
      name: of the object.
      lines: in the order in which they are tried.
    """

    name = ""

    def __init__(self, lines: int, unordered: tuple[int, ...] = ()) -> None:
        self.lock = lock("waiting op")
        self.lines: tuple[Line, ...] = tuple(OrderedDict() for _ in range(lines))
        self._unordered = tuple(self.lines[i] for i in unordered)

    def submit(self, line: Line, attempt: Attempt) -> None:
        """Answers at once if possible, or puts the attempt at the end of ``line``."""
        try:
            self._start(line, attempt)
            if attempt.armed:  # it has been answered
                return
            if attempt.wait.on_cancel(attempt.cause(), lambda: self._forget(line, attempt)):
                attempt.armed = True
                self.changed()
            else:
                self._forget(line, attempt)
        except BaseException:  # Ctrl-C, say: an attempt that nothing arms or answers would block the line
            self._forget(line, attempt)
            raise

    def _start(self, line: Line, attempt: Attempt) -> None:
        finished: list[Attempt] = []
        try:
            with self.lock:
                is_next = not line or self._is_unordered(line)
                line[attempt] = None
                if is_next:
                    attempt.armed = True
                    self._advance_all(finished)
                    attempt.armed = attempt not in line
        finally:
            self._answer(finished)

    def _is_unordered(self, line: Line) -> bool:
        return any(line is one for one in self._unordered)

    def _forget(self, line: Line, attempt: Attempt) -> None:
        """The step of an attempt has ended before its answer."""
        with self.lock:
            if attempt not in line:
                return
            del line[attempt]
            attempt.give_back()
        self.changed()

    def changed(self) -> None:
        """Tries the attempts again, after the state has changed."""
        finished: list[Attempt] = []
        try:
            with self.lock:
                self._advance_all(finished)
        finally:
            self._answer(finished)

    def _answer(self, finished: list[Attempt]) -> None:
        """Answers attempts, without the lock. What a step does not take any more goes to the next attempts."""
        rest = iter(finished)
        try:
            for attempt in rest:
                interrupt = None
                try:
                    taken = attempt.answer()
                except BaseException as error:  # noqa: BLE001 - it belongs to the step of this attempt
                    taken = not attempt.wait.fail(_failure(error))
                    interrupt = None if isinstance(error, Exception) else error
                if not taken:
                    with self.lock:
                        attempt.give_back()
                        self._advance_all(finished)  # `rest` continues with those that finish now
                if interrupt is not None:
                    raise interrupt
        except BaseException:  # the other steps get their answers all the same
            self._answer(list(rest))
            raise

    def _advance_all(self, finished: list[Attempt]) -> None:
        """Tries the first attempt of each line until none makes progress; adds the finished ones to ``finished``."""
        moved = True
        while moved:
            moved = False
            for line in self.lines:
                advance = self._advance_each if self._is_unordered(line) else self._advance_line
                moved |= advance(line, finished)

    def _advance_each(self, line: Line, finished: list[Attempt]) -> bool:
        moved = False
        for attempt in list(line):
            outcome = _outcome(attempt) if attempt.armed else STUCK
            moved |= outcome != STUCK
            if outcome == OVER:
                del line[attempt]
                finished.append(attempt)
        return moved

    def _advance_line(self, line: Line, finished: list[Attempt]) -> bool:
        moved = False
        while line:
            attempt = next(iter(line))
            outcome = _outcome(attempt) if attempt.armed else STUCK
            if outcome != OVER:
                return moved or outcome == MOVED
            del line[attempt]
            finished.append(attempt)
            moved = True
        return moved

    def fail_all(self, error: errors.OpError, *lines: Line) -> None:
        """Ends all attempts of the given lines (default: of all) with an error."""
        with self.lock:
            ended = [attempt for line in lines or self.lines for attempt in line]
            for attempt in ended:
                attempt.give_back()
                attempt.error = error
            for line in lines or self.lines:
                line.clear()
        try:
            self._answer(ended)
        finally:
            self.changed()

    def read(self) -> Any:
        """The value of a reference to this object."""
        return handle_value(self.name)

    def waiting(self) -> Iterator[str]:
        """A text per waiting attempt that says what it waits for, in order."""
        with self.lock:
            attempts = [attempt for line in self.lines for attempt in line]
        return (attempt.cause() for attempt in attempts)


# ---- The sessions that use a shared object, and those that began before its latest renewal -------------------------
# The chief of a synchronous run renews the token queue and the accumulators when it gives the model other values. The
# gradients that older sessions have sent, and those that they still send, belong to a model that is gone.


class Users:
    """The sessions of one object, each represented by its view of the task's resources; the object's lock guards them.

    Attributes:
      are_outdated: whether a renewal has happened, so that `check` may refuse a session.
    """

    __slots__ = ("_current", "_outdated", "are_outdated")

    def __init__(self) -> None:
        # Weak: a session that ends is forgotten.
        self._current: weakref.WeakSet[Any] = weakref.WeakSet()
        self._outdated: weakref.WeakSet[Any] = weakref.WeakSet()
        self.are_outdated = False

    def add(self, session: object) -> None:
        """Notes a session whose program is bound to the object."""
        if session not in self._outdated:
            self._current.add(session)

    def renew(self) -> None:
        """From now on `check` refuses the sessions that have used the object so far."""
        self._outdated |= self._current
        self._current = weakref.WeakSet()
        self.are_outdated = True

    def check(self, session: object, name: str) -> None:
        """Refuses a session that used the object before its latest renewal.

        Raises:
          AbortedError: which lets a monitored session make a new session.
        """
        if self.are_outdated and session in self._outdated:
            raise outdated_error(name)


def outdated_error(name: str) -> errors.OpError:
    """The error of a session that used an object before its latest renewal."""
    return errors.AbortedError.of(
        f"'{name}' was emptied: the chief has initialised or restored the model since this session began, so its"
        " gradients belong to a model that is gone. Make a new session; a MonitoredSession does so by itself."
    )
